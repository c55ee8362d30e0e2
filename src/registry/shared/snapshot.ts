/**
 * All records of a registry at one version, by table and row, and the changes that lead from one
 * snapshot to another. Rows are the same on all machines: each change is made on top of a version,
 * and so each machine gives the next row to the same record.
 *
 * Records that come from Redis are validated. An invalid record is an error, and is not applied.
 */

import { isDeepStrictEqual } from 'node:util';
import {
  isCount,
  isObject,
  type RecordTypes,
  TABLE_NAMES,
  TABLES,
  type TableName,
  type WithRow,
} from '../store/schema.ts';
import type { Change } from '../store/store.ts';

export type AnyRecord = WithRow<RecordTypes[TableName]>;

export class Snapshot {
  readonly #tables = new Map<TableName, Map<number, AnyRecord>>(
    TABLE_NAMES.map((table) => [table, new Map()]),
  );

  /** @param read the records of a table */
  static of(read: (table: TableName) => Iterable<AnyRecord>): Snapshot {
    const snapshot = new Snapshot();
    for (const table of TABLE_NAMES) {
      for (const record of read(table)) snapshot.put(table, record);
    }
    return snapshot;
  }

  /** By row, in no order. */
  records(table: TableName): ReadonlyMap<number, AnyRecord> {
    return this.#tables.get(table)!;
  }

  /** Adds a record, or replaces the one in its row. */
  put(table: TableName, record: AnyRecord): void {
    this.#tables.get(table)!.set(record.row, record);
  }

  /** Applying changes again that were applied before changes nothing. */
  apply(changes: readonly Change[]): void {
    for (const { table, before, after } of changes) {
      if (after !== undefined) this.put(table, after);
      else this.#tables.get(table)!.delete(before!.row);
    }
  }

  /**
   * The changes that turn another snapshot into this one. A record whose identity differs is
   * removed and added. Removals come first, except those of namespaces, which overrides refer to;
   * additions are ordered by row.
   */
  changesFrom(other: Snapshot): Change[] {
    const removed: Change[] = [];
    const put: Change[] = [];
    const removedNamespaces: Change[] = [];
    // Overrides refer to namespaces.
    for (const table of TABLES_IN_ORDER) {
      const [from, to] = [other.records(table), this.records(table)];
      const remove = (before: AnyRecord) => {
        const list = table === 'namespaces' ? removedNamespaces : removed;
        list.push({ table, before, after: undefined } as Change);
      };
      for (const [row, before] of from) if (!to.has(row)) remove(before);
      const rows = [...to.keys()].sort((a, b) => a - b);
      for (const row of rows) {
        const [before, after] = [from.get(row), to.get(row)!];
        if (before !== undefined && isDeepStrictEqual(before, after)) continue;
        const isSame =
          before !== undefined && identityOf(table, before) === identityOf(table, after);
        if (before !== undefined && !isSame) remove(before);
        put.push({ table, before: isSame ? before : undefined, after } as Change);
      }
    }
    return [...removed, ...put, ...removedNamespaces];
  }
}

const TABLES_IN_ORDER = [
  'namespaces',
  ...TABLE_NAMES.filter((table) => table !== 'namespaces'),
] as const;

/** A text that stays the same when a record changes. */
function identityOf(table: TableName, record: AnyRecord): string {
  const identity = TABLES[table].identity as (record: AnyRecord) => readonly unknown[];
  return JSON.stringify(identity(record));
}

/** A record without its row, as Redis stores it. */
export function encodeRecord({ row: _, ...record }: AnyRecord): string {
  return JSON.stringify(record);
}

/** @throws for a text that is no record of the table */
export function decodeRecord(table: TableName, row: string, text: string): AnyRecord {
  return requireRecord(table, { ...(JSON.parse(text) as object), row: Number(row) });
}

/** The changes of a commit, as the log has them. */
export function encodeChanges(changes: readonly Change[]): string {
  return JSON.stringify(changes);
}

/** @throws for a text that is no list of changes */
export function decodeChanges(text: string): Change[] {
  const changes: unknown = JSON.parse(text);
  if (!Array.isArray(changes)) throw new Error('the changes in the log are no list');
  return changes.map((change: { table?: unknown; before?: unknown; after?: unknown } | null) => {
    const { table: name, before, after } = change ?? {};
    const table = TABLE_NAMES.find((known) => known === name);
    if (table === undefined || (before === undefined && after === undefined)) {
      throw new Error('the log has an invalid change');
    }
    const record = (value: unknown) =>
      value === undefined ? undefined : requireRecord(table, value);
    return { table, before: record(before), after: record(after) } as Change;
  });
}

function requireRecord(table: TableName, value: unknown): AnyRecord {
  const record = (isObject(value) ? value : {}) as Record<string, unknown>;
  const isValid =
    isCount(record.row) &&
    Object.entries(TABLES[table].fields).every(([name, isOfType]) =>
      isOfType(record[name], record),
    );
  if (!isValid) throw new Error(`the registry in Redis has an invalid record of ${table}`);
  return record as unknown as AnyRecord;
}
