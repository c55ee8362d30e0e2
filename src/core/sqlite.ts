/** Transactions of SQLite that fail with the error of their cause. */

import type Database from 'libsql';

/**
 * Runs work in a transaction, which holds the lock for writing from its beginning on. The
 * transactions of libsql roll back after SQLite has done so itself, as on a full disk. That fails,
 * and hides the cause.
 * @throws the error of the work or of SQLite; then nothing was written
 */
export function inTransaction(database: Database.Database, work: () => void): void {
  database.exec('BEGIN IMMEDIATE');
  try {
    work();
    database.exec('COMMIT');
  } catch (error) {
    if (database.inTransaction) database.exec('ROLLBACK');
    throw error;
  }
}
