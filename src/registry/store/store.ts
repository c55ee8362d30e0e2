/**
 * The durable state of weir: the hash key, API keys (as digests), namespaces and overrides, the
 * audit log of changes to them, and the policies that were last recorded in it. This interface
 * hides the database. Only the main thread has a store. It reads everything except the audit log
 * once, at the start, and pages of the audit log on request.
 */

import type { KeyRecord } from '../../auth/keys.ts';
import type { Policy } from '../../policies/policy.ts';

export interface NamespaceRecord {
  id: string;
  name: string;
  createdMs: number;
  /** The row of the namespace of the same name that was deleted last. */
  predecessor?: number;
  /** Set when it is deleted. The record is kept for its row, which its successor refers to. */
  deletedMs?: number;
}

export interface OverrideRecord {
  id: string;
  /** The id of a namespace, or a pattern of names. */
  scope: string;
  identifier: string;
  /** Whether `identifier` is a CIDR block. Only set where it is true. */
  isCidr?: boolean;
  limit: number;
  durationMs: number;
  isAsync: boolean;
  createdMs: number;
  /** The end, Unix time in ms: from then on it does not apply. Only set where there is one. */
  expiresMs?: number;
}

export const AUDIT_ACTIONS = [
  'key.create',
  'key.revoke',
  'namespace.create',
  'namespace.delete',
  'override.create',
  'override.update',
  'override.delete',
  'overrides.delete',
  'overrides.import',
  'policy.create',
  'policy.update',
  'policy.delete',
] as const;

/** The sources of changes that are made without an API key. `expiry`: an override has ended. */
export const AUDIT_SOURCES = [
  'configuration file',
  'command line',
  'first start',
  'expiry',
] as const;

/** The record of one change. */
export interface AuditEntry {
  /** Unix time in ms. */
  at: number;
  action: (typeof AUDIT_ACTIONS)[number];
  /** The id of the API key that made the change; null without one. */
  keyId: string | null;
  /** Set if `keyId` is null. */
  by?: (typeof AUDIT_SOURCES)[number];
  /** The key, override, policy or namespaces that changed. */
  target: object;
  before?: object;
  after?: object;
  /** For an import, instead of `before` and `after`. */
  counts?: ImportCounts;
}

/** The numbers of overrides in an import. */
export interface ImportCounts {
  created: number;
  updated: number;
  unchanged: number;
}

/** A record and its row. The row never changes, and later records have higher rows. */
export type WithRow<T> = T & { row: number };

export interface RecordTypes {
  keys: KeyRecord;
  namespaces: NamespaceRecord;
  overrides: OverrideRecord;
  audit: AuditEntry;
  /** Compared with the configuration file at a start, to find changes made while no server ran. */
  policies: Policy;
}

export type TableName = keyof RecordTypes;

export const TABLE_NAMES = [
  'keys',
  'namespaces',
  'overrides',
  'audit',
  'policies',
] as const satisfies readonly TableName[];

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
