import { join } from 'node:path';
import fc from 'fast-check';
import Database from 'libsql';
import { expect, test } from 'vitest';
import { Registry } from '../../src/registry/registry.ts';
import { DataDirectory } from '../../src/registry/store/directory.ts';
import { SqliteStore } from '../../src/registry/store/sqlite.ts';
import { removeDirectory, temporaryDirectory } from '../support/server.ts';

/** A change with its entry; one that is taken back; a commit that succeeds, or fails. */
type ChangeStep = 'change' | 'refused' | 'commit' | 'failure';
const steps = fc.array(
  fc.constantFrom<ChangeStep[]>('change', 'change', 'refused', 'commit', 'failure'),
  { maxLength: 30 },
);

test('the audit log has an entry for each change that is durable, without a gap, and no other', () => {
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
        if (step === 'change' || step === 'refused') {
          const { id: namespaceId } = registry.addNamespace(name, at);
          const target = { namespaceId, namespace: name };
          registry.audit({ at, action: 'namespace.create', keyId: 'key_1', target });
          if (step === 'refused') registry.rollBack(journalLength);
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
      const told = entries.map(({ target }) => (target as { namespace: string }).namespace);
      expect([told, namespaces]).toEqual([durable, durable]);
      expect(entries.map(({ row }) => row)).toEqual(durable.map((_, i) => i + 1));
    }),
    { numRuns: 60 },
  );
});
