/**
 * What weir keeps for ever: the hash key, API keys (as digests) and namespaces. One interface, so
 * that whoever needs records does not know what holds them. Only the main thread has a store.
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

export interface Store {
  /** 16 bytes, made with the store: the same identifiers hash the same after a restart. */
  readonly hashKey: Uint8Array;
  keys(): KeyRecord[];
  namespaces(): NamespaceRecord[];
  /** Durable when it returns; throws when it could not be made so, and then changed nothing. */
  addKey(key: KeyRecord): void;
  addNamespaces(namespaces: readonly NamespaceRecord[]): void;
  close(): void;
}
