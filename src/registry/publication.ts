/**
 * Turns changes of the registry into publications for acceptors: tables of overrides, keys and
 * namespaces. It runs on the main thread.
 */

import type { KeyChanges } from '../auth/keyring.ts';
import type { KeyRecord } from '../auth/keys.ts';
import type { PublishedTables } from '../overrides/active.ts';
import type { OverrideEntry } from '../overrides/sets.ts';
import type { OverrideTables } from '../overrides/tables.ts';
import type { Policy } from '../policies/policy.ts';
import type { RegisteredNamespace } from './known-namespaces.ts';
import type { Registry } from './registry.ts';
import type { Publisher } from './writer.ts';

/** The state at the start. Also fills the tables, to which later changes are applied. */
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

/** @param send sends a publication to all acceptors; resolves when all have activated it */
export function createPublisher(
  registry: Registry,
  tables: OverrideTables,
  send: (publication: Publication) => Promise<void>,
): Publisher {
  // One publication after the other: the tables must not change while they are compiled.
  let last: Promise<void> = Promise.resolve();
  return (committed, rejectedNamespaces) => {
    // Looked up now: the next change may remove what this one refers to.
    const changes = committed.filter(({ table }) => table !== 'audit' && table !== 'policies');
    if (changes.length === 0 && rejectedNamespaces.length === 0) return Promise.resolve();
    const registeredNamespaces: RegisteredNamespace[] = [];
    const keys: Record<keyof KeyChanges, KeyRecord[]> = { added: [], removed: [] };
    const publication: Publication = { rejectedNamespaces, registeredNamespaces, keys };
    const overrides: [OverrideEntry | undefined, OverrideEntry | undefined][] = [];
    for (const change of changes) {
      if (change.table === 'namespaces') {
        // A removed one was replaced by another of its name: acceptors know the name by its new id.
        if (change.after === undefined) continue;
        registeredNamespaces.push(registry.registeredNamespace(change.after));
      } else if (change.table === 'keys') {
        if (change.after === undefined) keys.removed.push(change.before!);
        else keys.added.push(change.after);
      } else if (change.table === 'overrides') {
        const { before, after } = change;
        overrides.push([
          before && registry.overrideEntry(before),
          after && registry.overrideEntry(after),
        ]);
      }
    }
    const publish = async () => {
      for (const [before, after] of overrides) tables.apply(before, after);
      if (overrides.length > 0) Object.assign(publication, await tables.compile());
      await send(publication);
    };
    const published = last.then(publish);
    last = published.catch(() => {});
    return published;
  };
}

/** A message for acceptors, without the parts that have not changed. */
export interface Publication extends Partial<PublishedTables> {
  /** Namespaces that have become durable. */
  registeredNamespaces?: RegisteredNamespace[];
  /** Names that exceed the maximum number of namespaces. */
  rejectedNamespaces?: string[];
  keys?: KeyChanges;
  /** All policies. */
  policies?: readonly Policy[];
}
