/**
 * The durable state of weir: the hash key, API keys (as digests), namespaces and overrides, the
 * audit log of changes to them, and the policies that were last recorded in it. This interface
 * hides the database. Only the main thread has a store. It reads everything except the audit log
 * once, at the start, and pages of the audit log on request.
 */

import type { AuditEntry, RecordTypes, TableName, WithRow } from './schema.ts';

/** A record is added (no `before`), changed, or removed (no `after`). A change keeps the row. */
export type Change = {
  [T in TableName]: {
    table: T;
    before: WithRow<RecordTypes[T]> | undefined;
    after: WithRow<RecordTypes[T]> | undefined;
  };
}[TableName];

/** Which version of which registry in Redis a store is a replica of. */
export interface ReplicaMark {
  /** The id of the registry: 32 hexadecimal digits. */
  history: string;
  version: number;
  /** The id of the commit that made the version; empty for version 0. */
  commit: string;
  /** The ids of some commits before it, the newest first. */
  earlier: readonly string[];
  /** All machines with one registry hash with one key. */
  hashKey: Uint8Array;
}

export interface Store {
  readonly path: string;
  /** 16 bytes, created with the store, so that hashes stay the same after a restart. */
  readonly hashKey: Uint8Array;
  /** Undefined unless the store is a replica, without changes of its own. */
  readonly replica: ReplicaMark | undefined;
  /** Why the last commit failed: a code or a sentence. Undefined if it did not fail. */
  readonly writeError: string | undefined;
  /** All records of a table, ordered by row. */
  read<T extends TableName>(table: T): WithRow<RecordTypes[T]>[];
  /**
   * The newest entries of the audit log, in descending order.
   * @param beforeRow only entries with lower rows
   */
  readAudit(beforeRow: number, limit: number): WithRow<AuditEntry>[];
  /** How many entries the audit log has. */
  readonly auditCount: number;
  /** The row of its newest entry; 0 if it is empty. */
  readonly newestAuditRow: number;
  /**
   * Writes all changes or none; they are durable when it returns. Removes the oldest entries of the
   * audit log if there are too many.
   * @param replica what the store is then a replica of; without it, it is no replica any more. The
   *   hash key of the replica becomes that of the store.
   * @throws if the changes cannot be written
   */
  commit(changes: readonly Change[], replica?: ReplicaMark): void;
  /**
   * Copies the store to a new file in its directory.
   * @param name without an ending
   * @returns the path
   * @throws if the copy cannot be written
   */
  saveCopy(name: string): string;
  close(): void;
}
