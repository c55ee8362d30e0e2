/**
 * The store in one SQLite file: WAL, synchronous=FULL, a CRC for each record and a count for each
 * table. It is verified at the start. A store that fails verification stops the start with one
 * sentence and is never replaced by an empty one. For the audit log, the start verifies only the
 * structure and the count. Its records are verified when a page of them is read, and a damaged
 * record fails the request for its page.
 */

import { randomBytes } from 'node:crypto';
import { chmodSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import type Database from 'libsql';
import { AUDIT_ENTRIES_MAX } from '../../core/constants.ts';
import { storageErrorCause } from '../../core/errno.ts';
import { StartError } from '../../core/errors.ts';
import { requirePackage } from '../../core/packages.ts';
import { inTransaction } from '../../core/sqlite.ts';
import { createStore, isKnownVersion, MARKER, upgradeSchema, WRITE_META } from './create-store.ts';
import { type DataDirectory, withStartError } from './directory.ts';
import {
  type AuditEntry,
  type RecordTypes,
  SCHEMA_VERSION,
  TABLE_NAMES,
  type TableName,
  type WithRow,
} from './schema.ts';
import type { Change, ReplicaMark, Store } from './store.ts';

const Sqlite = requirePackage('libsql');

interface Row {
  row: number;
  record: ArrayBuffer;
  crc: number;
}

export class SqliteStore implements Store {
  #hashKey: Uint8Array;
  #replica: ReplicaMark | undefined;
  #writeError: string | undefined;
  readonly path: string;
  readonly #directory: DataDirectory;
  readonly #database: Database.Database;
  readonly #statements = new Map<string, Database.Statement>();
  /** The inodes of the store and its write-ahead log when they were opened, by path. */
  readonly #inodes: ReadonlyMap<string, number>;

  private constructor(path: string, directory: DataDirectory) {
    this.path = path;
    this.#directory = directory;
    this.#database = new Sqlite(path, { timeout: 0 });
    try {
      this.#database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL');
      this.#verify();
      this.#hashKey = Buffer.from(this.#readMeta('hashKey'), 'hex');
      this.#replica = this.#readReplica();
      const paths = [path, `${path}-wal`];
      this.#inodes = new Map(paths.map((file) => [file, statSync(file).ino]));
    } catch (error) {
      this.#database.close();
      throw error;
    }
  }

  /** Opens or creates the store of a locked directory. @throws StartError */
  static open(directory: DataDirectory): SqliteStore {
    const { path, isNew } = directory.locateStore();
    if (isNew)
      withStartError(`the store ${path} cannot be created`, () => {
        createStore(directory.path, path);
      });
    const store = withStartError(`the store ${path} cannot be trusted`, () => {
      return new SqliteStore(path, directory);
    });
    withStartError(`the data directory ${directory.path} cannot be used`, () =>
      store.#acknowledge(),
    );
    return store;
  }

  read<T extends TableName>(table: T): WithRow<RecordTypes[T]>[] {
    const sql = `SELECT rowid AS row, record, crc FROM ${table} ORDER BY rowid`;
    const rows = withStartError(`the store ${this.path} cannot be trusted`, () => {
      return this.#database.prepare(sql).all() as Row[];
    });
    return rows.map((row) => this.#parseRecord(table, row));
  }

  readAudit(beforeRow: number, limit: number): WithRow<AuditEntry>[] {
    const sql =
      'SELECT rowid AS row, record, crc FROM audit WHERE rowid < ? ORDER BY rowid DESC LIMIT ?';
    const rows = withStartError(`the store ${this.path} cannot be trusted`, () => {
      return this.#statement(sql).all(beforeRow, limit) as Row[];
    });
    return rows.map((row) => this.#parseRecord('audit', row));
  }

  get newestAuditRow(): number {
    const newest = this.#database.prepare('SELECT max(rowid) AS row FROM audit').get();
    return (newest as { row: number | null }).row ?? 0;
  }

  get auditCount(): number {
    return Number(this.#readMeta('audit.count'));
  }

  get hashKey(): Uint8Array {
    return this.#hashKey;
  }

  get replica(): ReplicaMark | undefined {
    return this.#replica;
  }

  get writeError(): string | undefined {
    return this.#writeError;
  }

  commit(changes: readonly Change[], replica?: ReplicaMark): void {
    try {
      this.#requireSameFiles();
      inTransaction(this.#database, () => {
        this.#writeAll(changes);
        this.#writeReplica(replica);
      });
      this.#writeError = undefined;
    } catch (error) {
      this.#writeError = storageErrorCause(error);
      this.#truncateWal();
      throw error;
    }
    this.#replica = replica;
    this.#hashKey = replica?.hashKey ?? this.#hashKey;
    try {
      this.#acknowledge();
    } catch {
      // The records are durable, and an error would have them written twice. The revision in the
      // lock file is lower than it could be until the next commit.
    }
  }

  saveCopy(name: string): string {
    const path = join(this.#directory.path, `${name}-${randomBytes(4).toString('hex')}.db`);
    this.#database.prepare('VACUUM INTO ?').run(path);
    chmodSync(path, 0o600);
    return path;
  }

  close(): void {
    // So that a backup of the one file is complete.
    this.#truncateWal();
    this.#database.close();
  }

  #parseRecord<T extends TableName>(table: T, { row, record, crc }: Row): WithRow<RecordTypes[T]> {
    const bytes = Buffer.from(record);
    if (crc32(bytes) !== crc)
      this.#failVerification(`a record of ${table} does not match its checksum`);
    return { ...(JSON.parse(bytes.toString()) as RecordTypes[T]), row };
  }

  /** Writes to a removed file succeed, but are lost when the process ends. */
  #requireSameFiles(): void {
    for (const [file, inode] of this.#inodes) {
      if (statSync(file).ino !== inode) throw new Error(`${file} was replaced`);
    }
  }

  /**
   * Moves the write-ahead log into the file. A transaction that failed at its fsync is complete in
   * the log, and a crash would bring it back. The checkpoint removes it, or if the checkpoint fails
   * too, the next transaction overwrites it.
   */
  #truncateWal(): void {
    try {
      this.#database.pragma('wal_checkpoint(TRUNCATE)');
    } catch {
      // All acknowledged changes are in the log or in the file.
    }
  }

  #writeAll(changes: readonly Change[]): void {
    const counts = new Map<TableName, number>();
    for (const change of changes) {
      const { table, before, after } = change;
      this.#write(change);
      const added = Number(after !== undefined) - Number(before !== undefined);
      counts.set(table, (counts.get(table) ?? 0) + added);
    }
    for (const [table, added] of counts) {
      const name = `${table}.count`;
      const count = Number(this.#readMeta(name)) + added;
      const removed =
        table === 'audit' ? this.#removeOldestAuditEntries(count - AUDIT_ENTRIES_MAX) : 0;
      this.#writeMeta(name, String(count - removed));
    }
    this.#writeMeta('revision', String(this.#revision() + 1));
  }

  #readReplica(): ReplicaMark | undefined {
    const text = this.#findMeta('replica');
    if (text === undefined) return undefined;
    return { ...(JSON.parse(text) as Omit<ReplicaMark, 'hashKey'>), hashKey: this.#hashKey };
  }

  #writeReplica(replica: ReplicaMark | undefined): void {
    if (replica === undefined) {
      this.#statement("DELETE FROM meta WHERE name = 'replica'").run();
      return;
    }
    const { hashKey, ...mark } = replica;
    this.#writeMeta('replica', JSON.stringify(mark));
    this.#writeMeta('hashKey', Buffer.from(hashKey).toString('hex'));
  }

  /** @returns how many entries of the audit log were removed */
  #removeOldestAuditEntries(excess: number): number {
    if (excess <= 0) return 0;
    const oldest = 'SELECT rowid FROM audit ORDER BY rowid LIMIT ?';
    return this.#statement(`DELETE FROM audit WHERE rowid IN (${oldest})`).run(excess).changes;
  }

  #writeMeta(name: string, value: string): void {
    this.#statement(WRITE_META).run(name, Buffer.from(value), crc32(name + value));
  }

  #write({ table, before, after }: Change): void {
    const row = (after ?? before)!.row;
    let changed = 0;
    if (after === undefined) {
      changed = this.#statement(`DELETE FROM ${table} WHERE rowid = ?`).run(row).changes;
    } else {
      const { row: _, ...record } = after;
      const bytes = Buffer.from(JSON.stringify(record));
      const sql =
        before === undefined
          ? `INSERT INTO ${table} (record, crc, rowid) VALUES (?, ?, ?)`
          : `UPDATE ${table} SET record = ?, crc = ? WHERE rowid = ?`;
      changed = this.#statement(sql).run(bytes, crc32(bytes), row).changes;
    }
    if (changed !== 1) throw new Error(`${changed} rows of ${table} changed instead of 1`);
  }

  /** Statements are reused: a dropped statement keeps its memory until a garbage collection. */
  #statement(sql: string): Database.Statement {
    let statement = this.#statements.get(sql);
    if (statement === undefined) {
      statement = this.#database.prepare(sql);
      this.#statements.set(sql, statement);
    }
    return statement;
  }

  #revision(): number {
    return Number(this.#readMeta('revision'));
  }

  /** Records the revision outside of the store, to detect a store that was lost or replaced. */
  #acknowledge(): void {
    this.#directory.acknowledge(this.#revision());
  }

  #readMeta(name: string): string {
    const value = this.#findMeta(name);
    if (value === undefined) this.#failVerification(`it has no ${name}`);
    return value;
  }

  #findMeta(name: string): string | undefined {
    const found = this.#statement('SELECT record, crc FROM meta WHERE name = ?').get(name);
    const row = found as Row | undefined;
    if (row === undefined) return undefined;
    const value = Buffer.from(row.record).toString();
    if (crc32(name + value) !== row.crc)
      this.#failVerification(`${name} does not match its checksum`);
    return value;
  }

  #verify(): void {
    const [{ quick_check: found }] = this.#database.pragma('quick_check(1)') as {
      quick_check: string;
    }[];
    if (found !== 'ok') this.#failVerification(found.replaceAll('\n', ' '));
    const tables = this.#database.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").get();
    if (tables === undefined) this.#failVerification('it is empty');
    if (this.#readMeta('marker') !== MARKER) this.#failVerification('it is not a store of weir');
    const version = this.#readMeta('version');
    if (!isKnownVersion(version)) {
      this.#failVerification(
        `it has version ${version}, and this weir supports versions 1 to ${SCHEMA_VERSION}`,
      );
    }
    const revision = this.#revision();
    const { acknowledgedRevision, lockPath } = this.#directory;
    if (revision < acknowledgedRevision) {
      this.#failVerification(
        `it is at revision ${revision}, and ${acknowledgedRevision} was acknowledged: its log` +
          ` ${this.path}-wal was lost, or it is an older copy (then remove ${lockPath})`,
      );
    }
    upgradeSchema(this.#database, Number(version));
    for (const table of TABLE_NAMES) {
      const rows = this.#database.prepare(`SELECT count(*) AS found FROM ${table}`).get();
      const { found } = rows as { found: number };
      const expected = Number(this.#readMeta(`${table}.count`));
      if (found !== expected) this.#failVerification(`it has ${found} of ${expected} ${table}`);
    }
  }

  #failVerification(reason: string): never {
    throw new StartError(`the store ${this.path} cannot be trusted: ${reason}`);
  }
}
