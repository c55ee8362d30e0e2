/**
 * The data directory: locked for one process, and told apart from one that lost its store. Owners
 * and modes are set by `ownership.ts`. The main thread owns it. Every failure is a StartError that
 * names the path and the cause.
 *
 * The lock is SQLite's own on the file `lock`, which the kernel releases when the process ends in
 * whatever way. The file's user version is a revision that the store has reached at least, 0 for no
 * store. So a directory whose store has vanished is not taken for a new one, nor is an older
 * state taken for the last: a store that lost its log would be whole, and without the last records.
 */

import { existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import Database from 'libsql';
import { StartError } from '../../core/errors.ts';
import {
  type DirectoryExposure,
  requireAccess,
  requireUsableFiles,
  restrictDirectory,
  restrictFile,
} from '../../core/ownership.ts';
import { shardOfFileName } from '../../engine/memory/checkpoint/format.ts';

const LOCK_FILE = 'lock';
export const STORE_FILE = 'store.db';
/** A store in the making; one that is left over was never in force. */
export const UNFINISHED_STORE_FILE = 'store.db.new';

export class DataDirectory {
  readonly path: string;
  /** Set where other users may read or write the directory. */
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

  /** Makes and locks the directory. */
  static open(setting: string): DataDirectory {
    const path = resolve(setting);
    return withStartError(`the data directory ${path} cannot be used`, () => {
      makeDirectory(path);
      requireAccess(path);
      requireNoForeignFiles(path);
      const exposure = restrictDirectory(path);
      const lockPath = join(path, LOCK_FILE);
      requireUsableFiles(path, readdirSync(path).filter(isStoreFile));
      const lock = new Database(lockPath, { timeout: 0 });
      // Not once it is locked: to close any descriptor of a file gives up the locks of the process.
      restrictFile(lockPath);
      try {
        lock.exec('PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = DELETE; BEGIN EXCLUSIVE');
        lock.exec('COMMIT'); // In this locking mode the lock stays.
      } catch (error) {
        if ((error as { code?: string }).code === 'SQLITE_BUSY') {
          throw new StartError(`the data directory ${path} is in use by another weir`);
        }
        throw error;
      }
      // Not before the lock is held: another weir may be making and removing files.
      const names = readdirSync(path).filter((name) => name !== LOCK_FILE);
      const ours = names.filter(isStoreFile);
      requireUsableFiles(path, ours);
      for (const name of [...ours, ...names.filter(isCountersFile)]) restrictFile(join(path, name));
      return new DataDirectory(path, lock, exposure);
    });
  }

  /** The path of the store, and whether it has to be made. */
  locateStore(): { path: string; isNew: boolean } {
    const path = join(this.path, STORE_FILE);
    if (existsSync(path)) return { path, isNew: false };
    if (this.acknowledgedRevision > 0 || existsSync(`${path}-wal`)) {
      throw new StartError(
        `${path} is missing although it was made before: restore it, or empty ${this.path}` +
          ' to start anew',
      );
    }
    for (const left of unfinishedStoreFiles(this.path)) rmSync(join(this.path, left));
    return { path, isNew: true };
  }

  /** The revision that the store has reached at least; 0 when none was ever made here. */
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
    // `close` alone keeps the file open, and so locked, until the garbage is collected.
    this.#lock.exec('PRAGMA locking_mode = NORMAL; SELECT 1 FROM sqlite_schema');
    this.#lock.close();
  }
}

/** Runs what touches the disk; any failure that is not a sentence yet becomes one. */
export function withStartError<T>(what: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof StartError) throw error;
    throw new StartError(`${what}: ${(error as Error).message}`);
  }
}

/** Not by `recursive`, which tries for ever where the file system refuses with ENOENT. */
function makeDirectory(path: string): void {
  if (existsSync(path)) return;
  makeDirectory(dirname(path));
  mkdirSync(path, { mode: 0o700 });
}

/** The store and the lock with the files that SQLite makes beside them: copies are not ours. */
function isStoreFile(name: string): boolean {
  return /^(lock|store\.db(\.new)?)(-(wal|shm|journal))?$/.test(name);
}

function isCountersFile(name: string): boolean {
  return shardOfFileName(name) !== undefined;
}

function isUnfinishedStoreFile(name: string): boolean {
  return isStoreFile(name) && name.startsWith(UNFINISHED_STORE_FILE);
}

function unfinishedStoreFiles(path: string): string[] {
  return readdirSync(path).filter(isUnfinishedStoreFile);
}

/** A directory with other things in it is somebody else's: its mode is not ours to change. */
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
