import { join } from 'node:path';
import fc from 'fast-check';
import Database from 'libsql';
import { describe, expect, test } from 'vitest';
import { DELETED_NAMESPACES_MAX } from '../../src/core/constants.ts';
import { namespaceKey } from '../../src/core/namespace.ts';
import { Registry } from '../../src/registry/registry.ts';
import { DataDirectory } from '../../src/registry/store/directory.ts';
import { SqliteStore } from '../../src/registry/store/sqlite.ts';
import type { Store } from '../../src/registry/store/store.ts';
import { removeDirectory, temporaryDirectory } from '../support/server.ts';
import { withStore } from '../support/store.ts';

/** A change with its entry, a change that is rolled back, a commit, or a commit that fails. */
type ChangeStep = 'change' | 'rollback' | 'commit' | 'failure';
const steps = fc.array(
  fc.constantFrom<ChangeStep[]>('change', 'change', 'rollback', 'commit', 'failure'),
  { maxLength: 30 },
);

test('the audit log has one entry for each durable change, without a gap, and no other', () => {
  fc.assert(
    fc.property(steps, (run) => {
      const path = temporaryDirectory();
      const directory = DataDirectory.open(path);
      const store = SqliteStore.open(directory);
      const other = new Database(join(path, 'store.db'), { timeout: 0 });
      const registry = new Registry(store);
      let pending: string[] = [];
      const durable: string[] = [];
      run.forEach((step, at) => {
        const name = `n${at}`;
        const { journalLength } = registry;
        if (step === 'change' || step === 'rollback') {
          const { id: namespaceId } = registry.addNamespace(name, at);
          const target = { namespaceId, namespace: name };
          registry.audit({ at, action: 'namespace.create', keyId: 'key_1', target });
          if (step === 'rollback') registry.rollBack(journalLength);
          else pending.push(name);
        } else if (step === 'commit') {
          registry.commit(store);
          durable.push(...pending.splice(0));
        } else if (pending.length > 0) {
          other.exec('BEGIN IMMEDIATE');
          expect(() => registry.commit(store)).toThrow('locked');
          other.exec('ROLLBACK');
          registry.rollBack(0);
          pending = [];
        }
      });
      other.close();
      const entries = store.read('audit');
      const namespaces = store.read('namespaces').map(({ name }) => name);
      store.close();
      directory.close();
      removeDirectory(path);
      const names = entries.map(({ target }) => (target as { namespace: string }).namespace);
      expect([names, namespaces]).toEqual([durable, durable]);
      expect(entries.map(({ row }) => row)).toEqual(durable.map((_, i) => i + 1));
    }),
    { numRuns: 60 },
  );
});

/** Gives `work` a store of its own, which is removed afterwards. */
function withEmptyStore(work: (store: Store) => void): void {
  const path = temporaryDirectory();
  try {
    withStore(path, work);
  } finally {
    removeDirectory(path);
  }
}

test('a configured key is valid without the store, and revoked like any other once it is stored', () => {
  withEmptyStore((store) => {
    const registry = new Registry(store);
    const record = {
      ...{ id: 'key_1', digest: 'a'.repeat(64), name: 'configured', permissions: ['*'] },
      ...{ createdMs: 1, expiresMs: null },
    };
    registry.addConfiguredKey(record);
    registry.addKey(record);
    registry.rollBack(0);
    expect(registry.isStored(registry.key('key_1')!)).toBe(false);
    registry.addKey(record);
    registry.commit(store);
    registry.removeKey(registry.key('key_1')!);
    expect(registry.key('key_1')).toBeUndefined();
  });
});

describe('the deletion of a namespace', () => {
  const override = (scope: string, identifier: string) => {
    const values = { limit: 1, durationMs: 60_000, isAsync: false, createdMs: 1 };
    return { id: `rlor_${identifier.padStart(24, '0')}`, scope, identifier, ...values };
  };
  const keysOf = (registry: Registry) => {
    return registry.namespaces().map(({ name, predecessor }) => namespaceKey(name, predecessor));
  };

  test('removes its overrides, and is undone as a whole', () => {
    withEmptyStore((store) => {
      const registry = new Registry(store);
      const { id } = registry.addNamespace('a', 1);
      registry.putOverride(override(id, '1'));
      registry.putOverride(override(id, '2'));
      registry.putOverride(override('a*', '3'));
      registry.commit(store);
      expect(registry.deleteNamespace(registry.namespaceById(id)!, 2)).toBe(2);
      expect([registry.namespaceById(id), registry.namespaceByName('a')]).toEqual([
        undefined,
        undefined,
      ]);
      expect([registry.namespaceCount, registry.overrideCounts]).toEqual([
        0,
        { exact: 0, wildcard: 1, block: 0 },
      ]);
      registry.rollBack(0);
      expect([registry.namespaceByName('a')?.id, registry.namespaceCount]).toEqual([id, 1]);
      expect(registry.overrideCounts).toEqual({ exact: 2, wildcard: 1, block: 0 });
      expect(registry.deletedNamespaces()).toEqual([]);
    });
  });

  test('gives each later namespace of the name another key, also after a restart', () => {
    withEmptyStore((store) => {
      const keys = new Set<string>();
      for (let i = 0; i < 5; i++) {
        const registry = new Registry(store);
        registry.deleteNamespace(registry.addNamespace('a', 1), 2);
        registry.commit(store);
        for (const next of [registry, new Registry(store)]) {
          next.addNamespace('a', 3);
          keys.add(keysOf(next).join());
          next.rollBack(0);
        }
        // One record is left, whose row is in the next key.
        expect(new Registry(store).deletedNamespaces()).toHaveLength(1);
      }
      expect(keys.size).toBe(5);
    });
  });

  test('keeps the newest of the deleted names up to a maximum', () => {
    withEmptyStore((store) => {
      const registry = new Registry(store);
      const last = registry.addNamespace('last', 1);
      for (let i = 0; i < DELETED_NAMESPACES_MAX; i++) {
        registry.deleteNamespace(registry.addNamespace(`n${i}`, 1), 2);
      }
      registry.deleteNamespace(last, 3);
      registry.commit(store);
      for (const [i, at] of [registry, new Registry(store)].entries()) {
        expect(at.deletedNamespaces()).toHaveLength(DELETED_NAMESPACES_MAX);
        expect(at.predecessorOf('n0')).toBeUndefined();
        expect(at.predecessorOf('n1')).toBe(3);
        // The next one to be forgotten is the one that was deleted first, not created first.
        at.deleteNamespace(at.addNamespace(`next${i}`, 4), 4);
        expect([at.predecessorOf('n1'), at.predecessorOf('last')]).toEqual([undefined, last.row]);
        at.rollBack(0);
      }
    });
  });
});

test('a block and an identifier with one text are two overrides, also after a restart', () => {
  withEmptyStore((store) => {
    const registry = new Registry(store);
    const { id: scope } = registry.addNamespace('n', 1);
    const values = { scope, limit: 5, durationMs: 1_000, isAsync: false, createdMs: 1 };
    const identifier = '10.0.0.0/8';
    registry.putOverride({ ...values, id: 'rlor_1', identifier });
    registry.putOverride({ ...values, id: 'rlor_2', identifier, isCidr: true });
    registry.commit(store);
    for (const known of [registry, new Registry(store)]) {
      // The record of an identifier is that of earlier versions.
      expect(known.override(scope, { identifier })).toEqual({
        ...{ ...values, id: 'rlor_1', identifier, row: 1 },
      });
      expect(known.override(scope, { identifier, isCidr: true })?.id).toBe('rlor_2');
      expect(known.overrideCounts).toEqual({ exact: 1, wildcard: 1, block: 0 });
    }
    registry.removeOverride(registry.override(scope, { identifier })!);
    expect(registry.override(scope, { identifier, isCidr: true })?.id).toBe('rlor_2');
  });
});
