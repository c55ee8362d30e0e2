/**
 * Turns changes of the registry into publications for acceptors: tables of overrides, keys and
 * namespaces. It runs on the main thread.
 */

import type { KeyChanges } from '../auth/keyring.ts';
import type { KeyRecord } from '../auth/keys.ts';
import { namespaceKey } from '../core/namespace.ts';
import type { PublishedTables } from '../overrides/active.ts';
import type { OverrideEntry } from '../overrides/sets.ts';
import type { OverrideTables } from '../overrides/tables.ts';
import type { Policy } from '../policies/policy.ts';
import type {
  DeletedNamespace,
  NamespaceChanges,
  RegisteredNamespace,
} from './known-namespaces.ts';
import type { Override, Registry } from './registry.ts';
import type { StatsRows } from './stats-rows.ts';
import type { Change, NamespaceRecord } from './store/store.ts';
import type { Publisher } from './writer.ts';

/** The state at the start. Also fills the tables, to which later changes are applied. */
export function initialPublication(
  registry: Registry,
  rows: StatsRows,
  tables: OverrideTables,
): Publication {
  for (const override of registry.overrides())
    tables.apply(undefined, registry.overrideEntry(override));
  return {
    ...tables.compileSync(),
    keys: { added: registry.keys(), removed: [] },
    registeredNamespaces: registry.namespaces().map((record) => registered(record, rows)),
    deletedNamespaces: registry
      .deletedNamespaces()
      .map((record) => ({ ...keyed(record), successorKey: namespaceKey(record.name, record.row) })),
  };
}

/**
 * @param send sends a publication to all acceptors; resolves when all have activated it
 * @param onDeleted called when no acceptor uses namespaces with these keys any more. Another one
 *   that has such a key by then is left out
 */
export function createPublisher(
  registry: Registry,
  rows: StatsRows,
  tables: OverrideTables,
  send: (publication: Publication) => Promise<void>,
  onDeleted: (keys: readonly string[]) => void,
): Publisher {
  // One publication after the other: the tables must not change while they are compiled.
  let last: Promise<void> = Promise.resolve();
  return async (committed, rejectedNamespaces) => {
    // Looked up now: the next change may remove what this one refers to.
    const changes = committed.filter(({ table }) => table !== 'audit' && table !== 'policies');
    if (changes.length === 0 && rejectedNamespaces.length === 0) return;
    const entryOf = entriesAmong(changes, registry);
    const registeredNamespaces: RegisteredNamespace[] = [];
    const deletedNamespaces: DeletedNamespace[] = [];
    const keys: Record<keyof KeyChanges, KeyRecord[]> = { added: [], removed: [] };
    const publication: Publication = {
      ...{ deletedNamespaces, registeredNamespaces, rejectedNamespaces, keys },
    };
    const overrides: [OverrideEntry | undefined, OverrideEntry | undefined][] = [];
    for (const change of changes) {
      if (change.table === 'namespaces') {
        const { id } = (change.after ?? change.before)!;
        const live = registry.namespaceById(id);
        if (live !== undefined) registeredNamespaces.push(registered(live, rows));
        else deletedNamespaces.push(...deletedOf(registry, (change.before ?? change.after)!));
      } else if (change.table === 'keys') {
        if (change.after === undefined) keys.removed.push(change.before!);
        else keys.added.push(change.after);
      } else if (change.table === 'overrides') {
        const { before, after } = change;
        overrides.push([before && entryOf(before), after && entryOf(after)]);
      }
    }
    const publish = async () => {
      for (const [before, after] of overrides) tables.apply(before, after);
      if (overrides.length > 0) Object.assign(publication, await tables.compile());
      await send(publication);
      const unused = deletedNamespaces.filter(({ name, key }) => !isUsed(registry, name, key));
      if (unused.length > 0) onDeleted([...new Set(unused.map(({ key }) => key))]);
    };
    const published = last.then(publish);
    last = published.catch(() => {});
    await published;
  };
}

/** Finds the entries of overrides, also where one of the changes has removed their namespace. */
function entriesAmong(changes: readonly Change[], registry: Registry) {
  const namespaces = new Map<string, NamespaceRecord>();
  for (const { table, before, after } of changes) {
    if (table === 'namespaces') for (const it of [before, after]) if (it) namespaces.set(it.id, it);
  }
  return (override: Override) => registry.overrideEntry(override, namespaces.get(override.scope));
}

function registered(record: NamespaceRecord, rows: StatsRows): RegisteredNamespace {
  const owner = keyed(record);
  return { id: record.id, ...owner, statsRow: rows.rowOf(owner) };
}

function keyed({ name, predecessor }: NamespaceRecord) {
  return { name, key: namespaceKey(name, predecessor) };
}

/**
 * What acceptors must know of a record that was deleted or forgotten.
 * @returns nothing if another namespace has its key: acceptors know the name by its new id
 */
function deletedOf(registry: Registry, record: NamespaceRecord): DeletedNamespace[] {
  const { name, key } = keyed(record);
  if (isUsed(registry, name, key)) return [];
  return [{ name, key, successorKey: namespaceKey(name, registry.predecessorOf(name)) }];
}

/** Whether a namespace has this key now. */
function isUsed(registry: Registry, name: string, key: string): boolean {
  const live = registry.namespaceByName(name);
  return live !== undefined && keyed(live).key === key;
}

/** A message for acceptors, without the parts that have not changed. */
export interface Publication extends Partial<PublishedTables>, NamespaceChanges {
  keys?: KeyChanges;
  /** All policies. */
  policies?: readonly Policy[];
}
