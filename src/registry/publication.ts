/**
 * Turns changes of the registry into publications for acceptors: tables of overrides, keys and
 * namespaces. It runs on the main thread.
 */

import type { UsageRows } from '../analytics/usage-rows.ts';
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
import { hasEnded, type Override, type Registry } from './registry.ts';
import type { StatsRows } from './stats-rows.ts';
import type { NamespaceRecord } from './store/schema.ts';
import type { Change } from './store/store.ts';
import type { Publisher } from './writer.ts';

/** The state at the start. Also fills the tables, to which later changes are applied. */
export function initialPublication(
  registry: Registry,
  rows: StatsRows,
  usage: UsageRows,
  tables: OverrideTables,
  nowMs: number,
): Publication {
  for (const override of registry.overrides()) {
    const entry = counted(registry.overrideEntry(override), usage);
    tables.apply(undefined, entry);
    // It has ended while no server ran. Its record is removed when the clock ticks.
    if (hasEnded(override, nowMs)) tables.end(entry);
  }
  return {
    ...tables.compileSync(),
    keys: { added: registry.keys(), removed: [] },
    registeredNamespaces: registry.namespaces().map((record) => registered(record, rows)),
    deletedNamespaces: registry
      .deletedNamespaces()
      .map((record) => ({ ...keyed(record), successorKey: namespaceKey(record.name, record.row) })),
  };
}

/** Overrides that are taken out of the tables in one turn of the event loop. */
const ENDS_PER_TURN = 2_000;

interface Publishers {
  publish: Publisher;
  /** Takes overrides that have ended out of the tables, all in one publication. */
  publishEnds: (ended: readonly Override[]) => Promise<void>;
}

/**
 * @param send sends a publication to all acceptors; resolves when all have activated it
 * @param onDeleted called when no acceptor uses namespaces with these keys and overrides with these
 *   ids any more. A key that another namespace has by then is left out
 */
export function createPublisher(
  registry: Registry,
  rows: StatsRows,
  usage: UsageRows,
  tables: OverrideTables,
  send: (publication: Publication) => Promise<void>,
  onDeleted: (namespaceKeys: readonly string[], overrideIds: readonly string[]) => void,
): Publishers {
  // One publication after the other: the tables must not change while they are compiled.
  let last: Promise<void> = Promise.resolve();
  const enqueue = (publication: () => Promise<void>) => {
    const published = last.then(publication);
    last = published.catch(() => {});
    return published;
  };
  const publish: Publisher = async (committed, rejectedNamespaces) => {
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
    /**
     * By id: the overrides before and after all changes. In another registry, which replaces this
     * one, their rows may be those of other overrides.
     */
    const overrides = new Map<string, [OverrideEntry | undefined, OverrideEntry | undefined]>();
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
        const { id } = (after ?? before)!;
        const [first] = overrides.get(id) ?? [before && entryOf(before)];
        overrides.set(id, [first, after && entryOf(after)]);
      }
    }
    const hasOthers =
      changes.some(({ table }) => table !== 'overrides') || rejectedNamespaces.length > 0;
    await enqueue(async () => {
      let areTablesChanged = false;
      const deletedOverrides: string[] = [];
      for (const [before, after] of overrides.values()) {
        if (before === undefined && after === undefined) continue;
        if (tables.apply(before, after && counted(after, usage))) areTablesChanged = true;
        if (before !== undefined && before.id !== after?.id) deletedOverrides.push(before.id);
      }
      if (areTablesChanged) Object.assign(publication, await tables.compile());
      // Otherwise only records were removed of overrides that have ended before.
      if (areTablesChanged || hasOthers) await send(publication);
      const unused = deletedNamespaces.filter(({ name, key }) => !isUsed(registry, name, key));
      onDeleted([...new Set(unused.map(({ key }) => key))], deletedOverrides);
    });
  };
  const publishEnds = (ended: readonly Override[]) => {
    return enqueue(async () => {
      let areTablesChanged = false;
      for (const [i, override] of ended.entries()) {
        // There may be very many: other work of this thread gets a turn.
        if (i % ENDS_PER_TURN === ENDS_PER_TURN - 1) await new Promise(setImmediate);
        // One that was changed meanwhile is in a publication that follows.
        const isUnchanged = registry.override(override.scope, override) === override;
        if (isUnchanged && tables.end(registry.overrideEntry(override))) areTablesChanged = true;
      }
      if (areTablesChanged) await send(await tables.compile());
    });
  };
  return { publish, publishEnds };
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

function counted(override: OverrideEntry, usage: UsageRows): OverrideEntry {
  return { ...override, usageRow: usage.rowOf(override.id) };
}

function keyed({ name, predecessor }: NamespaceRecord) {
  return { name, key: namespaceKey(name, predecessor) };
}

/**
 * What acceptors get to know of a namespace whose record was marked as deleted, or was removed.
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
