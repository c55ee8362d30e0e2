/**
 * The durable state of weir: the hash key, API keys (as digests), namespaces and overrides, the
 * audit log of changes to them, and the policies that were last audited. An interface, so that the
 * rest of weir does not know the database behind it. Only the main thread has a store. It reads
 * all but the audit log once, at start, and a page of the audit log when a client asks for one.
 */

import type { KeyRecord } from '../../auth/keys.ts';
import type { Policy } from '../../policies/policy.ts';

export interface NamespaceRecord {
  id: string;
  name: string;
  createdMs: number;
}

export interface OverrideRecord {
  id: string;
  /** The id of a namespace, or a pattern of names. */
  scope: string;
  identifier: string;
  limit: number;
  durationMs: number;
  isAsync: boolean;
  createdMs: number;
}

export type AuditAction =
  | 'key.create'
  | 'key.revoke'
  | 'namespace.create'
  | 'override.create'
  | 'override.update'
  | 'override.delete'
  | 'overrides.import'
  | 'policy.create'
  | 'policy.update'
  | 'policy.delete';

/** Made by what no API key has changed. */
export type AuditSource = 'configuration file' | 'command line' | 'first start';

/** One change, as the audit log tells of it. */
export interface AuditEntry {
  /** Unix time in ms. */
  at: number;
  action: AuditAction;
  /** The id of the API key that made the change; null where none did. */
  keyId: string | null;
  /** What made the change where no API key did. */
  by?: AuditSource;
  /** The key, override, policy or namespaces that changed. */
  target: object;
  before?: object;
  after?: object;
  /** Of an import, in place of before and after. */
  counts?: object;
}

/** A record and its row, which stays as long as the record does: later ones have higher rows. */
export type WithRow<T> = T & { row: number };

export interface RecordTypes {
  keys: KeyRecord;
  namespaces: NamespaceRecord;
  overrides: OverrideRecord;
  audit: AuditEntry;
  /** By which a start sees what has changed in the configuration file while no server ran. */
  policies: Policy;
}

export type TableName = keyof RecordTypes;

/** A record that comes (nothing before), changes, or goes (nothing after). The row stays. */
export type Change = {
  [T in TableName]: {
    table: T;
    before: WithRow<RecordTypes[T]> | undefined;
    after: WithRow<RecordTypes[T]> | undefined;
  };
}[TableName];

export interface Store {
  /** 16 bytes, made with the store: the same identifiers hash the same after a restart. */
  readonly hashKey: Uint8Array;
  /** All records of a table, in the order of their rows. */
  read<T extends TableName>(table: T): WithRow<RecordTypes[T]>[];
  /**
   * The newest entries of the audit log, the newest first.
   * @param beforeRow only entries with lower rows
   */
  readAudit(beforeRow: number, limit: number): WithRow<AuditEntry>[];
  /** How many entries the audit log has. */
  readonly auditCount: number;
  /** The row of its newest entry; 0 where it has none. */
  readonly newestAuditRow: number;
  /**
   * All or nothing; durable when it returns. Throws when it could not be made so. The oldest
   * entries of the audit log are removed where they are too many.
   */
  commit(changes: readonly Change[]): void;
  close(): void;
}
