/**
 * The data directory, locked for one process and owned by the main thread. `file-ownership.ts` sets
 * owners and modes. Every failure is a StartError that names the path and the cause.
 *
 * The lock is that of SQLite on the file `lock`, which the kernel releases when the process ends.
 * The file's user version is a lower bound of the store's revision; 0 means no store. It shows that
 * a store is missing, or is an older copy, or has lost its write-ahead log. Such a store would be
 * consistent, but without the last records.
 */

import { existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import type Database from 'libsql';
import { describeStorageError } from '../../core/errno.ts';
import { StartError } from '../../core/errors.ts';
import {
  type DirectoryExposure,
  requireAccess,
  requireUsableFiles,
  restrictDirectory,
  restrictFile,
} from '../../core/file-ownership.ts';
import { requirePackage } from '../../core/packages.ts';
import { LEASE_HORIZON_FILE } from '../../engine/holds/horizon-file.ts';
import { parseFileName } from '../../engine/memory/checkpoint/format.ts';

const Sqlite = requirePackage('libsql');

const LOCK_FILE = 'lock';
export const STORE_FILE = 'store.db';
/** A store that is being created. A leftover file of an earlier start was never used. */
export const UNFINISHED_STORE_FILE = 'store.db.new';

export class DataDirectory {
  readonly path: string;
  /** Set if other users may read or write the directory. */
  readonly exposure: DirectoryExposure | undefined;
  readonly #lock: Database.Database;
  #acknowledgedRevision: number;

  private constructor(
    path: string,
    lock: Database.Database,
    exposure: DirectoryExposure | undefined,
  ) {
    this.path = path;
    this.exposure = exposure;
    this.#lock = lock;
    const [{ user_version: acknowledged }] = lock.pragma('user_version') as {
      user_version: number;
    }[];
    this.#acknowledgedRevision = acknowledged;
  }

  /** Creates the directory if it is missing, and locks it. */
  static open(setting: string): DataDirectory {
    const path = resolve(setting);
    return withStartError(`the data directory ${path} cannot be used`, () => {
      createDirectory(path);
      requireAccess(path);
      requireNoForeignFiles(path);
      const exposure = restrictDirectory(path);
      const lockPath = join(path, LOCK_FILE);
      requireUsableFiles(path, readdirSync(path).filter(isStoreFile));
      const lock = new Sqlite(lockPath, { timeout: 0 });
      // Before locking: closing any descriptor of a file releases the process's locks on it.
      restrictFile(lockPath);
      try {
        lock.exec('PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = DELETE; BEGIN EXCLUSIVE');
        lock.exec('COMMIT'); // The exclusive locking mode keeps the lock.
      } catch (error) {
        if ((error as { code?: string }).code === 'SQLITE_BUSY') {
          throw new StartError(`the data directory ${path} is in use by another weir`);
        }
        throw error;
      }
      // After locking: another weir may have been creating and removing files.
      const names = readdirSync(path).filter((name) => name !== LOCK_FILE);
      const storeFiles = names.filter(isStoreFile);
      requireUsableFiles(path, storeFiles);
      for (const name of [...storeFiles, ...names.filter(isCountersFile)]) {
        restrictFile(join(path, name));
      }
      return new DataDirectory(path, lock, exposure);
    });
  }

  /** The path of the store, and whether it must be created. */
  locateStore(): { path: string; isNew: boolean } {
    const path = join(this.path, STORE_FILE);
    if (existsSync(path)) return { path, isNew: false };
    if (this.acknowledgedRevision > 0 || existsSync(`${path}-wal`)) {
      throw new StartError(
        `${path} is missing although it was created before: restore it, or empty ${this.path}` +
          ' to start with an empty store',
      );
    }
    const leftover = readdirSync(this.path).filter(isUnfinishedStoreFile);
    for (const name of leftover) rmSync(join(this.path, name));
    return { path, isNew: true };
  }

  get lockPath(): string {
    return join(this.path, LOCK_FILE);
  }

  /** A lower bound of the store's revision; 0 if no store was ever created here. */
  get acknowledgedRevision(): number {
    return this.#acknowledgedRevision;
  }

  /** Durable when it returns. */
  acknowledge(revision: number): void {
    if (revision === this.#acknowledgedRevision) return;
    this.#lock.exec(`PRAGMA user_version = ${revision}`);
    this.#acknowledgedRevision = revision;
  }

  close(): void {
    // Otherwise the file stays open and locked after `close` until a garbage collection.
    this.#lock.exec('PRAGMA locking_mode = NORMAL; SELECT 1 FROM sqlite_schema');
    this.#lock.close();
  }
}

/** Runs a function and turns its errors, except StartErrors, into StartErrors. */
export function withStartError<T>(message: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof StartError) throw error;
    throw new StartError(`${message}: ${describeStorageError(error)}`);
  }
}

/** Without the option `recursive`, which never returns if the file system fails with ENOENT. */
function createDirectory(path: string): void {
  if (existsSync(path)) return;
  createDirectory(dirname(path));
  mkdirSync(path, { mode: 0o700 });
}

/**
 * The store, the analytics and the lock, with their SQLite journals, and the lease horizon. Copies
 * do not match.
 */
function isStoreFile(name: string): boolean {
  if (name === LEASE_HORIZON_FILE) return true;
  return /^(lock|store\.db(\.new)?|analytics\.db)(-(wal|shm|journal))?$/.test(name);
}

function isCountersFile(name: string): boolean {
  return parseFileName(name) !== undefined;
}

function isUnfinishedStoreFile(name: string): boolean {
  return isStoreFile(name) && name.startsWith(UNFINISHED_STORE_FILE);
}

/** Rejects a directory that contains files of other programs, before its mode is changed. */
function requireNoForeignFiles(path: string): void {
  const names = readdirSync(path);
  if (names.includes(LOCK_FILE) || names.includes(STORE_FILE)) return;
  const foreign = names.find((name) => name !== 'lost+found' && !isUnfinishedStoreFile(name));
  if (foreign === undefined) return;
  throw new StartError(
    `the data directory ${path} holds ${JSON.stringify(foreign)} but no store: give weir a` +
      ' directory of its own',
  );
}
