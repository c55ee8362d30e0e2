/**
 * From what has changed in the registry to what acceptors are told: the tables of overrides, keys
 * and namespaces. On the main thread.
 */

import type { KeyChanges } from '../auth/keyring.ts';
import type { KeyRecord } from '../auth/keys.ts';
import type { PublishedTables } from '../overrides/active.ts';
import type { OverrideTables } from '../overrides/tables.ts';
import type { Policy } from '../policies/policy.ts';
import type { RegisteredNamespace } from './known-namespaces.ts';
import type { Registry } from './registry.ts';
import type { Publisher } from './writer.ts';

/** Everything, for acceptors that start; fills the tables, which then follow the changes. */
export function initialPublication(registry: Registry, tables: OverrideTables): Publication {
  for (const override of registry.overrides())
    tables.apply(undefined, registry.overrideEntry(override));
  return {
    ...tables.compileSync(),
    keys: { added: registry.keys(), removed: [] },
    registeredNamespaces: registry
      .namespaces()
      .map((namespace) => registry.registeredNamespace(namespace)),
  };
}

/** @param send hands a publication to all acceptors; resolves when they have switched */
export function createPublisher(
  registry: Registry,
  tables: OverrideTables,
  send: (publication: Publication) => Promise<void>,
): Publisher {
  return async (committed, rejectedNamespaces) => {
    const changes = committed.filter(({ table }) => table !== 'audit' && table !== 'policies');
    if (changes.length === 0 && rejectedNamespaces.length === 0) return;
    const registeredNamespaces: RegisteredNamespace[] = [];
    const keys: Record<keyof KeyChanges, KeyRecord[]> = { added: [], removed: [] };
    const publication: Publication = { rejectedNamespaces, registeredNamespaces, keys };
    let overridesChanged = false;
    for (const change of changes) {
      if (change.table === 'namespaces') {
        registeredNamespaces.push(registry.registeredNamespace(change.after!));
      } else if (change.table === 'keys') {
        if (change.after === undefined) keys.removed.push(change.before!);
        else keys.added.push(change.after);
      } else if (change.table === 'overrides') {
        const { before, after } = change;
        tables.apply(
          before && registry.overrideEntry(before),
          after && registry.overrideEntry(after),
        );
        overridesChanged = true;
      }
    }
    if (overridesChanged) Object.assign(publication, await tables.compile());
    await send(publication);
  };
}

/** What an acceptor has to know; what has not changed is left out. */
export interface Publication extends Partial<PublishedTables> {
  /** Namespaces that are durable now, and names for which there was no room. */
  registeredNamespaces?: RegisteredNamespace[];
  rejectedNamespaces?: string[];
  keys?: KeyChanges;
  /** All that are in force. */
  policies?: readonly Policy[];
}
