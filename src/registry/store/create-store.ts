/**
 * Creates a store, and upgrades one of an older version. A new store is completed
 * under a temporary name and then renamed, so that a file under the final name is never incomplete.
 * An upgrade is one transaction. Failures are those of SQLite.
 */

import { randomBytes } from 'node:crypto';
import { chmodSync, closeSync, fsyncSync, openSync, renameSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { crc32 } from 'node:zlib';
import type Database from 'libsql';
import { HASH_KEY_BYTES } from '../../core/hash.ts';
import { requirePackage } from '../../core/packages.ts';
import { inTransaction } from '../../core/sqlite.ts';
import { UNFINISHED_STORE_FILE } from './directory.ts';
import { SCHEMA_VERSION, TABLE_NAMES, TABLES } from './schema.ts';

const Sqlite = requirePackage('libsql');

export const MARKER = 'weir';

export const WRITE_META = 'INSERT OR REPLACE INTO meta (name, record, crc) VALUES (?, ?, ?)';

/** Records are blobs: libsql ends the process if a damaged text is not valid UTF-8. */
const CREATE_META =
  'CREATE TABLE meta (name TEXT PRIMARY KEY, record BLOB NOT NULL, crc INTEGER NOT NULL) STRICT';

export function isKnownVersion(version: string): boolean {
  return /^[1-9]\d*$/.test(version) && Number(version) <= SCHEMA_VERSION;
}

export function createStore(directory: string, path: string): void {
  const unfinished = join(directory, UNFINISHED_STORE_FILE);
  const database = new Sqlite(unfinished);
  chmodSync(unfinished, 0o600);
  database.exec('PRAGMA synchronous = FULL');
  inTransaction(database, () => {
    database.exec(CREATE_META);
    writeMeta(database, 'marker', MARKER);
    writeMeta(database, 'revision', '1');
    writeMeta(database, 'hashKey', randomBytes(HASH_KEY_BYTES).toString('hex'));
    addTables(database, 0);
  });
  database.close();
  renameSync(unfinished, path);
  const handle = openSync(dirname(path), 'r');
  fsyncSync(handle);
  closeSync(handle);
}

/** Adds the tables that a store of an older version lacks, all or none. */
export function upgradeSchema(database: Database.Database, from: number): void {
  if (from === SCHEMA_VERSION) return;
  inTransaction(database, () => addTables(database, from));
}

/** @param from the version whose tables exist; 0 for none */
function addTables(database: Database.Database, from: number): void {
  for (const table of TABLE_NAMES.filter((name) => TABLES[name].since > from)) {
    database.exec(`CREATE TABLE ${table} (record BLOB NOT NULL, crc INTEGER NOT NULL) STRICT`);
    writeMeta(database, `${table}.count`, '0');
  }
  writeMeta(database, 'version', String(SCHEMA_VERSION));
}

function writeMeta(database: Database.Database, name: string, value: string): void {
  database.prepare(WRITE_META).run(name, Buffer.from(value), crc32(name + value));
}
