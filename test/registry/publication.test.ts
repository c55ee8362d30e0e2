import { expect, test } from 'vitest';
import { UsageRows } from '../../src/analytics/usage-rows.ts';
import { makeOverrideId } from '../../src/overrides/id.ts';
import { OverrideTables } from '../../src/overrides/tables.ts';
import { createPublisher, type Publication } from '../../src/registry/publication.ts';
import { Registry } from '../../src/registry/registry.ts';
import { StatsRows } from '../../src/registry/stats-rows.ts';
import type { Change, Store } from '../../src/registry/store/store.ts';
import { Clock } from '../../src/shared-memory/clock.ts';
import { allocateControl, Control } from '../../src/shared-memory/control.ts';
import { HASH_KEY, OverrideResolver, overrideId } from '../support/override-model.ts';
import { removeDirectory, temporaryDirectory, waitUntil } from '../support/server.ts';
import { withStore } from '../support/store.ts';

/** A registry without records, and what is published of changes by another machine. */
function open(store: Store) {
  const registry = new Registry(store);
  const control = new Control(allocateControl(1, 1));
  const rows = new StatsRows(control.allAcceptorStats());
  const counts = control.acceptorStats(0).usage;
  const usage = new UsageRows([counts], new Clock(control));
  const noTask = new URL('file:///nowhere');
  const tables = new OverrideTables(HASH_KEY, noTask, () => {});
  const sent: Publication[] = [];
  const deleted: string[] = [];
  const acceptors = { activate: () => {}, areSlow: false };
  const send = async (publication: Publication) => {
    sent.push(publication);
    if (acceptors.areSlow) {
      await new Promise<void>((resolve) => {
        acceptors.activate = resolve;
      });
    }
  };
  const onDeleted = (keys: readonly string[], overrideIds: readonly string[]) => {
    deleted.push(...keys);
    usage.release(overrideIds);
  };
  const { publish } = createPublisher(registry, rows, usage, tables, send, onDeleted);
  return {
    usage,
    counts,
    acceptors,
    sent,
    deleted,
    registry,
    apply: async (changes: Change[]) => {
      registry.apply(changes);
      await publish(changes, []);
      return sent.at(-1)!;
    },
  };
}

async function withRegistry(work: (opened: ReturnType<typeof open>) => Promise<void>) {
  const path = temporaryDirectory();
  // The store is read at the start only.
  await work(withStore(path, open));
  removeDirectory(path);
}

const record = (row: number, fields: object = {}) => {
  return { row, id: `rlns_${row}`, name: 'a', createdMs: 1, ...fields };
};

test('the deletion of a namespace is published, and then its key is released', async () => {
  await withRegistry(async ({ apply, deleted }) => {
    const live = record(1);
    await apply([{ table: 'namespaces', before: undefined, after: live }]);
    const after = { ...live, deletedMs: 2 };
    const next = record(2, { predecessor: 1 });
    const publication = await apply([
      { table: 'namespaces', before: live, after },
      { table: 'namespaces', before: undefined, after: next },
    ]);
    expect(publication.deletedNamespaces).toEqual([
      { name: 'a', key: 'a', successorKey: 'rlns_1.a' },
    ]);
    expect(publication.registeredNamespaces).toMatchObject([{ id: 'rlns_2', key: 'rlns_1.a' }]);
    expect(deleted).toEqual(['a']);
  });
});

test('acceptors learn of a namespace that was created and deleted while the machine was away', async () => {
  await withRegistry(async ({ apply }) => {
    const after = record(7, { deletedMs: 2 });
    const publication = await apply([{ table: 'namespaces', before: undefined, after }]);
    expect(publication.deletedNamespaces).toEqual([
      { name: 'a', key: 'a', successorKey: 'rlns_7.a' },
    ]);
    // The record is forgotten: the next one has the name as its key again.
    const forgotten = await apply([{ table: 'namespaces', before: after, after: undefined }]);
    expect(forgotten.deletedNamespaces).toEqual([{ name: 'a', key: 'a', successorKey: 'a' }]);
  });
});

test('a namespace whose id another registry has replaced keeps its counters', async () => {
  await withRegistry(async ({ apply, deleted }) => {
    const [old, other] = [record(1), record(2)];
    const first = await apply([{ table: 'namespaces', before: undefined, after: old }]);
    const publication = await apply([
      { table: 'namespaces', before: undefined, after: other },
      { table: 'namespaces', before: old, after: undefined },
    ]);
    expect(publication.deletedNamespaces).toEqual([]);
    expect(publication.registeredNamespaces).toEqual([
      { ...first.registeredNamespaces![0], id: 'rlns_2' },
    ]);
    expect(deleted).toEqual([]);
  });
});

test('one name can be deleted twice in one publication, with overrides', async () => {
  await withRegistry(async ({ apply, registry, deleted }) => {
    const ids = Array.from({ length: 3 }, makeOverrideId);
    for (let round = 0; round < 3; round++) {
      const namespace = registry.namespaceByName('a') ?? registry.addNamespace('a', round);
      const scope = namespace.id;
      const fields = { limit: 1, durationMs: 1_000, isAsync: false, createdMs: 1 };
      registry.putOverride({ id: ids[round], scope, identifier: 'user_*', ...fields });
      if (round < 2) registry.deleteNamespace(namespace, round);
    }
    const { trie, registeredNamespaces } = await apply([...registry.takeJournal()]);
    expect(registeredNamespaces).toHaveLength(1);
    expect(trie).toBeDefined();
    expect(deleted).toEqual(['a', 'rlns_1.a']);
    expect([...registry.overrides()].map(({ id }) => id)).toEqual(ids.slice(2));
  });
});

test('a key that another namespace has got meanwhile is not released', async () => {
  await withRegistry(async ({ apply, deleted }) => {
    const live = record(1);
    await apply([{ table: 'namespaces', before: undefined, after: live }]);
    // Another registry replaces the first one, and its next version has the name again.
    const removal = apply([{ table: 'namespaces', before: live, after: undefined }]);
    const next = apply([{ table: 'namespaces', before: undefined, after: record(2) }]);
    await Promise.all([removal, next]);
    expect(deleted).toEqual([]);
  });
});

const override = (row: number, identifier: string) => {
  const values = { limit: row, durationMs: 1_000, isAsync: false, createdMs: 1 };
  return { row, id: overrideId(row), scope: 'name*', identifier, ...values };
};
const added = (row: number, identifier: string): Change => {
  return { table: 'overrides', before: undefined, after: override(row, identifier) };
};
const removed = (row: number, identifier: string): Change => {
  return { table: 'overrides', before: override(row, identifier), after: undefined };
};
/** The row in which checks of an identifier are counted, in published tables. */
const usageRowOf = ({ trie = null }: Publication, identifier: string) => {
  return new OverrideResolver({ trie }).usageRow('name_1', identifier);
};

test('an override keeps its usage row, and the next one gets it when all have activated', async () => {
  await withRegistry(async ({ apply, acceptors, sent, usage, counts }) => {
    const first = await apply([added(1, 'a'), added(2, 'b')]);
    expect(['a', 'b'].map((it) => usageRowOf(first, it))).toEqual([0, 1]);
    const changed = { ...override(2, 'b'), limit: 9 };
    const second = await apply([
      { table: 'overrides', before: override(2, 'b'), after: changed },
      removed(1, 'a'),
      added(3, 'a'),
    ]);
    // An acceptor may still count in row 0 for the deleted override.
    expect(['a', 'b'].map((it) => usageRowOf(second, it))).toEqual([2, 1]);
    acceptors.areSlow = true;
    const deletion = apply([removed(3, 'a')]);
    const addition = apply([added(4, 'c')]);
    await waitUntil('the deletion is sent', () => sent.length === 3);
    acceptors.areSlow = false;
    // A check that uses the earlier tables.
    counts.record(2, 1);
    acceptors.activate();
    await deletion;
    // Row 2 is free by now, row 0 since the second publication.
    expect(usageRowOf(await addition, 'c')).toBe(2);
    expect(usage.usageOf(overrideId(4)).applied).toBe(0);
    expect(usageRowOf(await apply([added(5, 'd')]), 'd')).toBe(0);
  });
});

test('an override whose row another one gets in one publication does not apply any more', async () => {
  await withRegistry(async ({ apply }) => {
    const scope = 'rlns_1';
    const [old, next] = [
      { ...override(1, 'a'), scope },
      { ...override(1, 'b'), scope, id: overrideId(2) },
    ];
    await apply([
      { table: 'namespaces', before: undefined, after: record(1, { name: 'name_1' }) },
      { table: 'overrides', before: undefined, after: old },
    ]);
    // As when another registry replaces this one.
    const { exact = null } = await apply([
      { table: 'overrides', before: old, after: undefined },
      { table: 'overrides', before: undefined, after: next },
    ]);
    const published = new OverrideResolver({ exact });
    const limits = ['a', 'b'].map((identifier) => published.resolveLimit('name_1', identifier));
    expect(limits).toEqual([undefined, next.limit]);
  });
});

test('an override that is added and deleted in one publication uses no row', async () => {
  await withRegistry(async ({ apply, usage }) => {
    const changes: Change[] = [];
    for (let row = 1; row <= 9; row += 2) changes.push(added(row, 'a'), removed(row, 'a'));
    const published = await apply([...changes, added(11, 'a')]);
    expect(usageRowOf(published, 'a')).toBe(0);
    expect(usage.count).toBe(1);
    await apply([removed(11, 'a'), ...changes]);
    expect(usageRowOf(await apply([added(12, 'b')]), 'b')).toBe(0);
  });
});
