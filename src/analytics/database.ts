/**
 * The analytics of this machine in one SQLite file beside the store: figures of each namespace by
 * minute and by hour, lists of identifiers by hour, and the use of each override. Figures are added
 * to what is stored, so that the same minute can be written many times, also after a restart.
 *
 * WAL with synchronous=NORMAL: what is written survives the end of the process at any point. A
 * power failure may lose the last seconds, and damages nothing. A file that cannot be read is moved
 * aside when weir starts, and replaced by an empty one: analytics never stop a start. Texts are
 * blobs, since libsql ends the process if a damaged text is not valid UTF-8.
 */

import { existsSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type Database from 'libsql';
import { FIGURES, type Figures } from '../core/figures.ts';
import { restrictFile } from '../core/file-ownership.ts';
import { requirePackage } from '../core/packages.ts';
import { inTransaction } from '../core/sqlite.ts';
import { GRANULARITY_MS, type Granularity } from './granularity.ts';
import { FIGURE_TABLES, schemaVersions } from './schema.ts';
import type { OverrideUsage, UsageEntry } from './usage-rows.ts';

const Sqlite = requirePackage('libsql');

export const ANALYTICS_FILE = 'analytics.db';

/** How often the time until which weir ran is written while there is nothing else to write. */
const RUN_INTERVAL_MS = 60_000;

const FIGURE_COLUMNS = FIGURES.map(({ column }) => column);

/** Figures to add. */
export interface FiguresEntry {
  /** Its key, here and in all of this file: see `namespaceKey`. */
  namespace: string;
  /** Minutes since the Unix epoch. */
  minute: number;
  figures: Figures;
}

/** The identifiers of a namespace in an hour, as one run of weir counted them. */
export interface IdentifiersEntry {
  namespace: string;
  /** Hours since the Unix epoch. */
  hour: number;
  record: string;
}

/** Decisions of a minute since the Unix epoch. */
export interface MinuteDecisions {
  time: number;
  allowed: number;
  denied: number;
}

/** A time in which weir ran, in Unix ms. */
export interface Run {
  start: number;
  until: number;
}

/** What is older is deleted: minutes and hours since the Unix epoch. */
export interface Retention {
  minute: number;
  hour: number;
}

/** Columns of figures, by their names in the database. */
type FigureRow = Record<string, number>;

interface IdentifierRow {
  hour: number;
  run: number;
  record: ArrayBuffer;
}

export class AnalyticsDatabase {
  readonly path: string;
  readonly #database: Database.Database;
  /** Of this start: it distinguishes the lists of two runs in one hour. */
  readonly #run: number;
  #writtenUntilMs = 0;
  readonly #ids = new Map<string, number>();
  readonly #statements = new Map<string, Database.Statement>();

  /** @throws the error of SQLite for a damaged file */
  private constructor(path: string, run: number) {
    this.path = path;
    this.#run = run;
    this.#database = new Sqlite(path, { timeout: 0 });
    try {
      restrictFile(path);
      this.#database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL');
      this.#createTables();
      this.#loadNamespaces();
    } catch (error) {
      this.#database.close();
      throw error;
    }
  }

  /**
   * Opens or creates the file in the data directory.
   * @param run a number that no earlier run had: the time of the start
   * @param onDamaged called with the new path of a file that was moved aside, and why
   */
  static open(
    directory: string,
    run: number,
    onDamaged: (movedTo: string, error: Error) => void,
  ): AnalyticsDatabase {
    const path = join(directory, ANALYTICS_FILE);
    try {
      return new AnalyticsDatabase(path, run);
    } catch (error) {
      if (!existsSync(path)) throw error;
      const movedTo = `${path}.damaged`;
      renameSync(path, movedTo);
      for (const suffix of ['-wal', '-shm']) rmSync(path + suffix, { force: true });
      onDamaged(movedTo, error as Error);
      return new AnalyticsDatabase(path, run);
    }
  }

  /** When this run began, in Unix ms. */
  get startedMs(): number {
    return this.#run;
  }

  /**
   * Writes all of it, or nothing.
   * @param untilMs until when this run has lasted
   * @throws the error of SQLite
   */
  write(
    figures: readonly FiguresEntry[],
    identifiers: readonly IdentifiersEntry[],
    usage: readonly UsageEntry[] = [],
    untilMs = this.#run,
  ): void {
    const isEmpty = figures.length === 0 && identifiers.length === 0 && usage.length === 0;
    if (isEmpty && untilMs - this.#writtenUntilMs < RUN_INTERVAL_MS) return;
    this.#inTransaction(() => {
      const run = 'INSERT OR REPLACE INTO runs VALUES (?, ?)';
      this.#statement(run).run(this.#run, untilMs);
      for (const { namespace, minute, figures: added } of figures) {
        const id = this.#idOf(namespace);
        this.#addFigures('minute', id, minute, added);
        this.#addFigures('hour', id, Math.floor(minute / 60), added);
      }
      for (const { namespace, hour, record } of identifiers) {
        const sql = 'INSERT OR REPLACE INTO identifiers VALUES (?, ?, ?, ?)';
        this.#statement(sql).run(this.#idOf(namespace), hour, this.#run, Buffer.from(record));
      }
      for (const { id, applied, lastAppliedMs } of usage) {
        const sql =
          'INSERT INTO overrides VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET ' +
          'applied = applied + excluded.applied, ' +
          'last_applied = max(last_applied, excluded.last_applied)';
        // libsql would take a blob that is the first argument for names: an array is none.
        this.#statement(sql).run([Buffer.from(id), applied, lastAppliedMs]);
      }
    });
    this.#writtenUntilMs = untilMs;
  }

  /** The written times in which weir ran, in a range of Unix ms, the earliest first. */
  runs(fromMs: number, toMs: number): Run[] {
    const sql = 'SELECT start, until FROM runs WHERE until >= ? AND start < ? ORDER BY start';
    return this.#statement(sql).all(fromMs, toMs) as unknown as Run[];
  }

  /** Unix time in ms from which on the use of overrides was written. */
  get usageSinceMs(): number {
    const row = this.#statement('SELECT time FROM overrides_since').get();
    return (row as { time: number }).time;
  }

  /** The use of an override that was written. */
  usageOf(id: string): OverrideUsage {
    const sql = 'SELECT applied, last_applied AS lastAppliedMs FROM overrides WHERE id = ?';
    const row = this.#statement(sql).get([Buffer.from(id)]) as OverrideUsage | undefined;
    return row ?? { applied: 0, lastAppliedMs: 0 };
  }

  /** Deletes the use of some overrides. @throws the error of SQLite */
  deleteUsage(ids: readonly string[]): void {
    if (ids.length === 0) return;
    this.#inTransaction(() => {
      for (const id of ids) {
        this.#statement('DELETE FROM overrides WHERE id = ?').run([Buffer.from(id)]);
      }
    });
  }

  /** Deletes the use of all overrides but these. @throws the error of SQLite */
  deleteOtherUsage(overrides: Iterable<{ id: string }>): void {
    const rows = this.#database.prepare('SELECT id FROM overrides').all() as { id: ArrayBuffer }[];
    if (rows.length === 0) return;
    const others = new Set(rows.map(({ id }) => Buffer.from(id).toString()));
    for (const { id } of overrides) others.delete(id);
    this.deleteUsage([...others]);
  }

  /** Deletes what is older than the retention. @throws the error of SQLite */
  prune({ minute, hour }: Retention): void {
    this.#inTransaction(() => {
      this.#statement('DELETE FROM runs WHERE until < ?').run(minute * GRANULARITY_MS.minute);
      for (const id of this.#ids.values()) {
        const remove = (table: string, column: string, before: number) => {
          this.#statement(`DELETE FROM ${table} WHERE namespace = ? AND ${column} < ?`).run(
            id,
            before,
          );
        };
        remove(FIGURE_TABLES.minute, 'time', minute);
        remove(FIGURE_TABLES.hour, 'time', hour);
        remove('identifiers', 'hour', hour);
      }
    });
  }

  /** Deletes all of some namespaces. @throws the error of SQLite */
  deleteNamespaces(namespaces: readonly string[]): void {
    const known = namespaces.filter((namespace) => this.#ids.has(namespace));
    if (known.length === 0) return;
    this.#inTransaction(() => {
      for (const namespace of known) {
        const id = this.#ids.get(namespace)!;
        for (const table of [...Object.values(FIGURE_TABLES), 'identifiers']) {
          this.#statement(`DELETE FROM ${table} WHERE namespace = ?`).run(id);
        }
        this.#statement('DELETE FROM namespaces WHERE id = ?').run(id);
      }
    });
    for (const namespace of known) this.#ids.delete(namespace);
  }

  /** Deletes all namespaces but these. @throws the error of SQLite */
  deleteOthers(namespaces: ReadonlySet<string>): void {
    this.deleteNamespaces([...this.#ids.keys()].filter((namespace) => !namespaces.has(namespace)));
  }

  /** The figures of all namespaces that have some. @param to exclusive, as in all ranges */
  totals(fromHour: number, toHour: number): Map<string, Figures> {
    const totals = new Map<string, Figures>();
    const sums = FIGURE_COLUMNS.map((column) => `sum(${column}) AS ${column}`).join(', ');
    const table = FIGURE_TABLES.hour;
    const sql = `SELECT ${sums} FROM ${table} WHERE namespace = ? AND time >= ? AND time < ?`;
    for (const [name, id] of this.#ids) {
      const row = this.#statement(sql).get(id, fromHour, toHour) as FigureRow;
      // Sums of no row are null.
      if (row[FIGURE_COLUMNS[0]] !== null) totals.set(name, figuresIn(row));
    }
    return totals;
  }

  /** The points in time with figures, in order. Times are minutes or hours since the epoch. */
  timeline(
    namespace: string,
    granularity: Granularity,
    from: number,
    to: number,
  ): { time: number; figures: Figures }[] {
    const id = this.#ids.get(namespace);
    if (id === undefined) return [];
    const sql =
      `SELECT time, ${FIGURE_COLUMNS.join(', ')} FROM ${FIGURE_TABLES[granularity]} ` +
      'WHERE namespace = ? AND time >= ? AND time < ? ORDER BY time';
    const rows = this.#statement(sql).all(id, from, to) as FigureRow[];
    return rows.map((row) => ({ time: row.time, figures: figuresIn(row) }));
  }

  /** The decisions of some namespaces together in each minute with figures, in order. */
  minuteDecisions(namespaces: readonly string[], from: number, to: number): MinuteDecisions[] {
    const ids = namespaces.flatMap((namespace) => this.#ids.get(namespace) ?? []);
    const sql =
      `SELECT time, sum(allowed) AS allowed, sum(denied) AS denied FROM ${FIGURE_TABLES.minute} ` +
      'WHERE namespace IN (SELECT value FROM json_each(?)) AND time >= ? AND time < ? ' +
      'GROUP BY time ORDER BY time';
    return this.#statement(sql).all([
      JSON.stringify(ids),
      from,
      to,
    ]) as unknown as MinuteDecisions[];
  }

  /**
   * The records of `IdentifiersEntry` of a namespace, of all runs.
   * @param liveHours of which those of this run are left out
   */
  identifiers(
    namespace: string,
    fromHour: number,
    toHour: number,
    liveHours: readonly number[] = [],
  ): string[] {
    const id = this.#ids.get(namespace);
    if (id === undefined) return [];
    const sql =
      'SELECT hour, run, record FROM identifiers WHERE namespace = ? AND hour >= ? AND hour < ?';
    const rows = this.#statement(sql).all(id, fromHour, toHour) as IdentifierRow[];
    return rows
      .filter(({ hour, run }) => run !== this.#run || !liveHours.includes(hour))
      .map(({ record }) => Buffer.from(record).toString());
  }

  /** Moves the write-ahead log into the file, which is complete by itself then. */
  close(): void {
    this.#database.pragma('wal_checkpoint(TRUNCATE)');
    this.#database.close();
  }

  #createTables(): void {
    const [{ user_version: version }] = this.#database.pragma('user_version') as {
      user_version: number;
    }[];
    const versions = schemaVersions(FIGURES, this.#run);
    const newest = versions.length;
    if (version === newest) return;
    if (version > newest)
      throw new Error(`its version is ${version}; this weir reads 1 to ${newest}`);
    this.#inTransaction(() => {
      for (const sql of versions.slice(version).flat()) this.#database.exec(sql);
      this.#database.exec(`PRAGMA user_version = ${newest}`);
    });
  }

  #loadNamespaces(): void {
    const rows = this.#database.prepare('SELECT id, name FROM namespaces').all() as {
      id: number;
      name: ArrayBuffer;
    }[];
    for (const { id, name } of rows) this.#ids.set(Buffer.from(name).toString(), id);
  }

  #idOf(namespace: string): number {
    const known = this.#ids.get(namespace);
    if (known !== undefined) return known;
    // libsql would take a blob that is the first argument for names.
    const id = Math.max(0, ...this.#ids.values()) + 1;
    this.#statement('INSERT INTO namespaces VALUES (?, ?)').run(id, Buffer.from(namespace));
    this.#ids.set(namespace, id);
    return id;
  }

  #addFigures(granularity: Granularity, namespace: number, time: number, added: Figures): void {
    // The order of the columns in the file is that in which versions have added them.
    const columns = ['namespace', 'time', ...FIGURE_COLUMNS];
    const sums = FIGURE_COLUMNS.map((column) => `${column} = ${column} + excluded.${column}`);
    const sql =
      `INSERT INTO ${FIGURE_TABLES[granularity]} (${columns.join(', ')}) ` +
      `VALUES (${columns.map(() => '?').join(', ')}) ` +
      `ON CONFLICT (namespace, time) DO UPDATE SET ${sums.join(', ')}`;
    this.#statement(sql).run(namespace, time, ...FIGURES.map(({ name }) => added[name]));
  }

  /** A transaction that fails leaves no ids behind. */
  #inTransaction(work: () => void): void {
    const idCount = this.#ids.size;
    try {
      inTransaction(this.#database, work);
    } catch (error) {
      for (const name of [...this.#ids.keys()].slice(idCount)) this.#ids.delete(name);
      throw error;
    }
  }

  #statement(sql: string): Database.Statement {
    let statement = this.#statements.get(sql);
    if (statement === undefined) {
      statement = this.#database.prepare(sql);
      this.#statements.set(sql, statement);
    }
    return statement;
  }
}

function figuresIn(row: FigureRow): Figures {
  return Object.fromEntries(FIGURES.map(({ name, column }) => [name, row[column]])) as Figures;
}
