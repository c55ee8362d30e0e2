/** Creates an API key in the data directory of a stopped server. */

import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { addKey, createKey, newKey } from '../api/operations/v1/keys-create.ts';
import { ApiError, StartError } from '../core/errors.ts';
import { keyCreation } from '../registry/audit-entries.ts';
import { Registry } from '../registry/registry.ts';
import { DataDirectory, STORE_FILE, withStartError } from '../registry/store/directory.ts';
import { SqliteStore } from '../registry/store/sqlite.ts';
import { systemMs } from '../shared-memory/clock.ts';
import { withFlag } from './server-client.ts';

/**
 * Checks no permission: a user who may write to the directory can do everything anyway.
 * @throws StartError
 */
export function createKeyOffline(path: string, fields: object): { keyId: string; key: string } {
  try {
    return storeKey(path, fields);
  } catch (error) {
    throw error instanceof ApiError ? new StartError(withFlag(error.message)) : error;
  }
}

function storeKey(path: string, fields: object): { keyId: string; key: string } {
  const at = systemMs();
  const { key, record } = newKey(createKey.validator.validate(fields), at);
  if (!existsSync(join(path, STORE_FILE))) {
    throw new StartError(
      `--data-dir must be the data directory of a server; ${resolve(path)} has no ${STORE_FILE}`,
    );
  }
  // SQLite creates files with the modes that the umask leaves.
  process.umask(0o077);
  const directory = DataDirectory.open(path);
  const store = SqliteStore.open(directory);
  if (store.replica !== undefined) {
    throw new StartError(
      `the store in ${resolve(path)} is a replica of the registry in Redis: start one machine` +
        ' with WEIR_ROOT_KEY, and create a key there',
    );
  }
  const registry = new Registry(store);
  addKey(registry, record);
  registry.audit({ at, ...keyCreation(record), keyId: null, by: 'command line' });
  withStartError(`the store ${store.path} cannot be written`, () => registry.commit(store));
  store.close();
  directory.close();
  return { keyId: record.id, key };
}
