/**
 * From what has changed in the registry to what acceptors are told: the tables of overrides, keys
 * and namespaces. On the main thread.
 */

import type { KeyChanges } from '../auth/keyring.ts';
import type { Publication } from '../http/messages.ts';
import type { RegisteredNamespace } from '../namespaces/known.ts';
import type { OverrideTables } from '../overrides/tables.ts';
import type { KeyRecord } from '../store/store.ts';
import type { Registry } from './registry.ts';
import type { Publish } from './writer.ts';

/** Everything, for acceptors that start; fills the tables, which then follow the changes. */
export function inForce(registry: Registry, tables: OverrideTables): Publication {
  for (const override of registry.overrides()) tables.apply(undefined, registry.place(override));
  return {
    ...tables.compileNow(),
    keys: { added: registry.keys(), removed: [] },
    registered: registry.namespaces().map((namespace) => registry.registered(namespace)),
  };
}

/** @param tell hands a publication to all acceptors; resolves when they have switched */
export function publisher(
  registry: Registry,
  tables: OverrideTables,
  tell: (publication: Publication) => Promise<void>,
): Publish {
  return async (committed, rejected) => {
    const changes = committed.filter(({ table }) => table !== 'audit' && table !== 'policies');
    if (changes.length === 0 && rejected.length === 0) return;
    const registered: RegisteredNamespace[] = [];
    const keys: Record<keyof KeyChanges, KeyRecord[]> = { added: [], removed: [] };
    const publication: Publication = { rejected, registered, keys };
    let overridesChanged = false;
    for (const change of changes) {
      if (change.table === 'namespaces') {
        registered.push(registry.registered(change.after!));
      } else if (change.table === 'keys') {
        if (change.after === undefined) keys.removed.push(change.before!);
        else keys.added.push(change.after);
      } else if (change.table === 'overrides') {
        const { before, after } = change;
        tables.apply(before && registry.place(before), after && registry.place(after));
        overridesChanged = true;
      }
    }
    if (overridesChanged) Object.assign(publication, await tables.compile());
    await tell(publication);
  };
}
