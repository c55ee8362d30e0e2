/**
 * What weir keeps for ever: the hash key, API keys (as digests), namespaces and overrides. One
 * interface, so that whoever needs records does not know what holds them. Only the main thread has
 * a store; it reads it once, at start.
 */

export interface KeyRecord {
  id: string;
  /** SHA-256 of the key, in hexadecimal; the key itself is nowhere. */
  digest: string;
  name: string;
  permissions: string[];
  createdMs: number;
  /** Unix time in ms from which the key is refused; null for never. */
  expiresMs: number | null;
}

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

/** A record and its row, which stays as long as the record does: later ones have higher rows. */
export type Stored<T> = T & { row: number };

export interface Records {
  keys: KeyRecord;
  namespaces: NamespaceRecord;
  overrides: OverrideRecord;
}

export type TableName = keyof Records;

/** A record that comes (nothing before), changes, or goes (nothing after). The row stays. */
export type Change = {
  [T in TableName]: {
    table: T;
    before: Stored<Records[T]> | undefined;
    after: Stored<Records[T]> | undefined;
  };
}[TableName];

export interface Store {
  /** 16 bytes, made with the store: the same identifiers hash the same after a restart. */
  readonly hashKey: Uint8Array;
  /** All records of a table, in the order of their rows. */
  read<T extends TableName>(table: T): Stored<Records[T]>[];
  /** All or nothing; durable when it returns. Throws when it could not be made so. */
  commit(changes: readonly Change[]): void;
  close(): void;
}
