/** Puts records into the store of a stopped server. */

import { makeKey, rootRecord } from '../../src/auth/keys.ts';
import { DataDirectory } from '../../src/store/directory.ts';
import { SqliteStore } from '../../src/store/sqlite.ts';
import type { KeyRecord, Store } from '../../src/store/store.ts';

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

/** Adds a key that differs from a root key as given, and returns its text. */
export function addKey(store: Store, changes: Partial<KeyRecord>): string {
  const key = makeKey();
  store.addKey({ ...rootRecord(key, 'test', 1_700_000_000_000), ...changes });
  return key;
}
