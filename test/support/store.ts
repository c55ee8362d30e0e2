/** Reads and writes the store of a stopped server. */

import { type KeyRecord, makeKey, rootKeyRecord } from '../../src/auth/keys.ts';
import { DataDirectory } from '../../src/registry/store/directory.ts';
import type { RecordTypes, TableName } from '../../src/registry/store/schema.ts';
import { SqliteStore } from '../../src/registry/store/sqlite.ts';
import type { Change, Store } from '../../src/registry/store/store.ts';

export function withStore<T>(dataDir: string, work: (store: Store) => T): T {
  const directory = DataDirectory.open(dataDir);
  try {
    const store = SqliteStore.open(directory);
    try {
      return work(store);
    } finally {
      store.close();
    }
  } finally {
    directory.close();
  }
}

/** Adds records in one transaction. */
export function addRecords<T extends TableName>(
  store: Store,
  table: T,
  records: readonly RecordTypes[T][],
): void {
  const first = (store.read(table).at(-1)?.row ?? 0) + 1;
  const changes = records.map((record, i) => {
    return { table, before: undefined, after: { ...record, row: first + i } };
  });
  store.commit(changes as unknown as Change[]);
}

/** The records of a table, without their row numbers. */
export function readRecords<T extends TableName>(store: Store, table: T): RecordTypes[T][] {
  return store.read(table).map(({ row: _, ...record }) => record as unknown as RecordTypes[T]);
}

/** Adds a root key with the given changes, and returns its text. */
export function addKey(store: Store, changes: Partial<KeyRecord>): string {
  const key = makeKey();
  addRecords(store, 'keys', [keyRecord(key, changes)]);
  return key;
}

/** Adds random keys until the store has `count` keys. */
export function fillWithKeys(store: Store, count: number): void {
  const missing = count - store.read('keys').length;
  const records = Array.from({ length: missing }, (_, i) => keyRecord(makeKey(), { name: `${i}` }));
  addRecords(store, 'keys', records);
}

function keyRecord(key: string, changes: Partial<KeyRecord>): KeyRecord {
  return { ...rootKeyRecord(key, 'test', 1_700_000_000_000), ...changes };
}
