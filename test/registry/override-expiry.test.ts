/** Overrides end at their time, in a real store: in the tables first, and then their records. */

import { join } from 'node:path';
import fc from 'fast-check';
import Database from 'libsql';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { UsageRows } from '../../src/analytics/usage-rows.ts';
import { AUDITED_ENDS_MAX, REMOVED_OVERRIDES_MAX } from '../../src/core/constants.ts';
import { openLog } from '../../src/core/log.ts';
import { makeOverrideId } from '../../src/overrides/id.ts';
import { isPattern } from '../../src/overrides/pattern.ts';
import { OverrideTables } from '../../src/overrides/tables.ts';
import { type Ledger, LocalLedger } from '../../src/registry/ledger.ts';
import { OverrideExpiry } from '../../src/registry/override-expiry.ts';
import {
  createPublisher,
  initialPublication,
  type Publication,
} from '../../src/registry/publication.ts';
import { Registry } from '../../src/registry/registry.ts';
import { StatsRows } from '../../src/registry/stats-rows.ts';
import { DataDirectory, STORE_FILE } from '../../src/registry/store/directory.ts';
import { SqliteStore } from '../../src/registry/store/sqlite.ts';
import { Writer } from '../../src/registry/writer.ts';
import { Clock } from '../../src/shared-memory/clock.ts';
import { allocateControl, Control } from '../../src/shared-memory/control.ts';
import { trialCount } from '../support/guarantees.ts';
import { findOverride, HASH_KEY, OverrideResolver } from '../support/override-model.ts';
import { removeDirectory, temporaryDirectory, waitUntil } from '../support/server.ts';
import { readRecords } from '../support/store.ts';

const TASK = new URL('../../dist/compile.js', import.meta.url);

/** What a main thread has, and an acceptor. @param path of the data directory */
function open(path: string, startMs = 1_000) {
  const directory = DataDirectory.open(path);
  const store = SqliteStore.open(directory);
  const registry = new Registry(store);
  const control = new Control(allocateControl(1, 1));
  const rows = new StatsRows(control.allAcceptorStats());
  const usage = new UsageRows([control.acceptorStats(0).usage], new Clock(control));
  const tables = new OverrideTables(HASH_KEY, TASK, (error) => {
    throw error;
  });
  const clock = { nowMs: startMs };
  const nowMs = () => clock.nowMs;
  const log = openLog('silent');
  const resolver = new OverrideResolver(initialPublication(registry, rows, usage, tables, startMs));
  const sent: Publication[] = [];
  const send = async (publication: Publication) => {
    sent.push(publication);
    const { exact, trie } = publication;
    resolver.overrides.activate({
      ...(exact !== undefined && { exact }),
      ...(trie !== undefined && { trie }),
    });
  };
  const { publish, publishEnds } = createPublisher(registry, rows, usage, tables, send, () => {});
  const writer = new Writer(registry, new LocalLedger(store), publish, log, nowMs);
  const removeRecords = () => writer.removeEndedOverrides();
  const expiry = new OverrideExpiry({ registry, publishEnds, removeRecords, nowMs });
  const change = (work: () => void) => {
    return writer.submit(10, () => {
      work();
      return {};
    });
  };
  const set = (scope: string, identifier: string, limit: number, expiresMs?: number) => {
    if (!isPattern(scope)) registry.ensureNamespace(scope, nowMs());
    const selector = { scope: registry.namespaceByName(scope)?.id ?? scope, identifier };
    const { id } = registry.override(selector.scope, selector) ?? { id: makeOverrideId() };
    const values = { limit, durationMs: 1_000, isAsync: false, createdMs: nowMs() };
    const end = expiresMs === undefined ? {} : { expiresMs };
    registry.putOverride({ id, ...selector, ...values, ...end });
  };
  return {
    ...{ registry, store, tables, sent, writer, expiry, change, set },
    limitOf: (namespace: string, identifier: string) => {
      return resolver.resolveLimit(namespace, identifier);
    },
    records: () => readRecords(store, 'overrides').map(({ limit }) => limit),
    audited: () => readRecords(store, 'audit').map(({ action, by }) => [action, by]),
    /** Moves the time, and lets all overrides end whose end has come. */
    advance: async (ms: number) => {
      clock.nowMs += ms;
      expiry.tick();
      await publishEnds([]);
    },
    /** Resolves when the records of ended overrides are removed. */
    removal: () => {
      return waitUntil('no ended override is stored', () => {
        expiry.tick();
        return registry.endedOverrides(clock.nowMs).length === 0;
      });
    },
    clock,
    nowMs,
    close: async () => {
      expiry.close();
      await tables.close();
      store.close();
      directory.close();
    },
  };
}

describe('an override with an end', () => {
  let path: string;
  let main: ReturnType<typeof open>;
  beforeEach(() => {
    path = temporaryDirectory();
    main = open(path);
  });
  afterEach(async () => {
    await main.close();
    removeDirectory(path);
  });
  /** Makes all writes fail until it is called again. */
  const blockStore = () => {
    const other = new Database(join(path, STORE_FILE), { timeout: 0 });
    other.exec('BEGIN IMMEDIATE');
    return () => other.close();
  };

  test('applies up to its end; then the next override applies, and its record is removed', async () => {
    await main.change(() => {
      main.set('a', 'user', 1, 2_000);
      main.set('a', 'us*', 2, 3_000);
      main.set('a', '*', 3);
    });
    const { id } = [...main.registry.overrides()][0];
    await main.advance(999);
    expect(main.limitOf('a', 'user')).toBe(1);
    await main.advance(1);
    expect(main.limitOf('a', 'user')).toBe(2);
    await main.removal();
    expect(main.records()).toEqual([2, 3]);
    await main.advance(1_000);
    expect(main.limitOf('a', 'user')).toBe(3);
    await main.removal();
    expect(main.records()).toEqual([3]);
    const [entry] = readRecords(main.store, 'audit');
    expect(entry).toEqual({
      ...{ at: 2_000, action: 'override.delete', keyId: null, by: 'expiry' },
      target: expect.objectContaining({ overrideId: id, namespace: 'a', identifier: 'user' }),
      before: { limit: 1, duration: 1_000, async: false, expires: 2_000 },
    });
    expect(main.registry.overrideCounts).toEqual({ exact: 0, wildcard: 1, block: 0 });
  });

  test('ends in time while the store cannot be written; its record is removed later', async () => {
    await main.change(() => main.set('a', 'user', 1, 2_000));
    const unblock = blockStore();
    await main.advance(1_000);
    expect(main.limitOf('a', 'user')).toBeUndefined();
    await waitUntil('the removal has failed', () => main.store.writeError !== undefined);
    expect(main.records()).toEqual([1]);
    // Later ticks do not publish this end again.
    const { length } = main.sent;
    await main.advance(100);
    expect(main.sent.length).toBe(length);
    unblock();
    await main.removal();
    expect([main.records(), main.audited()]).toEqual([[], [['override.delete', 'expiry']]]);
    expect(main.sent.length).toBe(length);
  });

  test('that is set again between its end and its removal keeps its new values', async () => {
    await main.change(() => main.set('a', 'user', 1, 2_000));
    const unblock = blockStore();
    await main.advance(1_000);
    await waitUntil('the removal has failed', () => main.store.writeError !== undefined);
    unblock();
    await main.change(() => main.set('a', 'user', 5));
    await main.removal();
    expect([main.limitOf('a', 'user'), main.records()]).toEqual([5, [5]]);
  });

  test('that is made permanent before its end does not end', async () => {
    await main.change(() => main.set('a', 'user', 1, 2_000));
    await main.change(() => main.set('a', 'user', 1));
    await main.advance(10_000);
    expect([main.limitOf('a', 'user'), main.records()]).toEqual([1, [1]]);
  });

  test('does not end when its namespace was deleted before', async () => {
    await main.change(() => main.set('a', 'user', 1, 2_000));
    await main.change(() => {
      main.registry.deleteNamespace(main.registry.namespaceByName('a')!, 1_500);
    });
    const { length } = main.sent;
    await main.advance(1_000);
    expect([main.sent.length, main.audited()]).toEqual([length, []]);
  });

  test('never applies after a restart, also if the start cannot remove its record', async () => {
    await main.change(() => {
      main.set('a', 'user', 1, 2_000);
      main.set('a', 'u*', 2, 2_000);
    });
    await main.close();
    main = open(path, 2_000);
    expect(main.limitOf('a', 'user')).toBeUndefined();
    await main.removal();
    expect([main.records(), main.sent]).toEqual([[], []]);
  });

  test('is removed by one machine, while another one makes the changes of its clients', async () => {
    await main.change(() => main.set('a', 'user', 1, 2_000));
    main.clock.nowMs = 2_000;
    const journals: number[] = [];
    const local = new LocalLedger(main.store);
    const ledger: Ledger = {
      isFailing: false,
      commit: async (registry) => {
        if (journals.push(registry.journalLength) > 1) return local.commit(registry);
        registry.rollBack(0);
        return { status: 'conflict' };
      },
    };
    const writer = new Writer(main.registry, ledger, async () => {}, openLog('silent'), main.nowMs);
    await writer.submit(10, () => {
      main.set('a', 'other', 1);
      return {};
    });
    // First the record, its entry in the audit log and the change of the client.
    expect(journals).toEqual([3, 1]);
  });

  test('many that end at a time are one publication, several commits, and few audit entries', async () => {
    const count = 2 * REMOVED_OVERRIDES_MAX + AUDITED_ENDS_MAX;
    await main.change(() => {
      for (let i = 0; i < count; i++) main.set(i % 2 === 0 ? 'a' : 'b', `user_${i}`, i + 1, 2_000);
      main.set('a', 'other', 1);
    });
    const { length } = main.sent;
    await main.advance(1_000);
    expect(main.sent.length).toBe(length + 1);
    expect(main.limitOf('b', 'user_1')).toBeUndefined();
    expect(main.limitOf('a', 'other')).toBe(1);
    await main.removal();
    expect(main.sent.length).toBe(length + 1);
    expect(main.records()).toEqual([1]);
    const entries = readRecords(main.store, 'audit');
    expect(entries.slice(0, 2)).toMatchObject(
      Array.from({ length: 2 }, () => ({
        ...{ action: 'overrides.delete', keyId: null, by: 'expiry' },
        target: { namespaces: ['a', 'b'], namespaceCount: 2 },
        before: { overrideCount: REMOVED_OVERRIDES_MAX },
      })),
    );
    expect(entries.length).toBe(2 + AUDITED_ENDS_MAX);
  });
});

type Step =
  | { kind: 'set'; scope: string; identifier: string; end: number | undefined }
  | { kind: 'delete'; scope: string; identifier: string }
  | { kind: 'advance'; ms: number };

const place = {
  scope: fc.constantFrom('a', 'b', '*', 'a*'),
  identifier: fc.constantFrom('x', 'xy', 'x*', '*'),
};
const end = fc.option(fc.integer({ min: 1, max: 50 }), { nil: undefined });
const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.oneof(
    fc.record({ kind: fc.constant('set' as const), ...place, end }),
    fc.record({ kind: fc.constant('delete' as const), ...place }),
    fc.record({ kind: fc.constant('advance' as const), ms: fc.integer({ min: 0, max: 40 }) }),
  ),
  { maxLength: 25 },
);

test('at each time, the overrides that have not ended apply, in their precedence', async () => {
  const path = temporaryDirectory();
  const main = open(path);
  const model = new Map<
    string,
    { namespace: string; identifier: string; limit: number; end: number }
  >();
  let limit = 0;
  const run = async (step: Step) => {
    const { registry } = main;
    if (step.kind === 'advance') return main.advance(step.ms);
    const { scope: namespace, identifier } = step;
    const key = `${namespace} ${identifier}`;
    if (step.kind === 'set') {
      const expiresMs = step.end === undefined ? undefined : main.nowMs() + step.end;
      limit++;
      model.set(key, { namespace, identifier, limit, end: expiresMs ?? Number.POSITIVE_INFINITY });
      return main.change(() => main.set(namespace, identifier, limit, expiresMs));
    }
    model.delete(key);
    return main.change(() => {
      const scope = registry.namespaceByName(namespace)?.id ?? namespace;
      const override = registry.override(scope, { identifier });
      if (override !== undefined) registry.removeOverride(override);
    });
  };
  await fc.assert(
    fc.asyncProperty(steps, async (all) => {
      for (const step of all) {
        await run(step);
        const live = [...model.values()]
          .filter(({ end }) => end > main.nowMs())
          .map((it) => ({ ...it, isNamespacePattern: it.namespace.includes('*') }));
        for (const namespace of ['a', 'b', 'ab']) {
          for (const identifier of ['x', 'xy', 'z']) {
            const expected = findOverride(live, namespace, identifier)?.limit;
            expect(main.limitOf(namespace, identifier)).toBe(expected);
            const { winner } = main.tables.match(namespace, identifier, 20);
            expect(winner?.limit).toBe(expected);
          }
        }
      }
    }),
    { numRuns: trialCount(40, 400) },
  );
  await main.removal();
  const live = [...model.values()].filter(({ end }) => end > main.nowMs());
  expect(main.records().toSorted()).toEqual(live.map((it) => it.limit).toSorted());
  await main.close();
  removeDirectory(path);
});
