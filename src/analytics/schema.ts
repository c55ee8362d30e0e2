/**
 * The tables of the analytics database, and what each version of them has added. The columns of
 * figures come from their declarations.
 */

import type { Figure } from '../core/figures.ts';
import type { Granularity } from './granularity.ts';

/** The tables of figures. Their times are minutes or hours since the Unix epoch. */
export const FIGURE_TABLES: Readonly<Record<Granularity, string>> = {
  minute: 'minutes',
  hour: 'hours',
};

/**
 * The statements of each version, from version 1 on.
 * @param nowMs Unix time in ms from which on the use of overrides is counted
 */
export function schemaVersions(figures: readonly Figure[], nowMs: number): string[][] {
  const columnsOf = (version: number) => {
    const added = figures.filter(({ since }) => since === version);
    return added.map(({ column }) => `${column} REAL NOT NULL`);
  };
  const figureTable = (name: string) =>
    `CREATE TABLE ${name} (namespace INTEGER NOT NULL, time INTEGER NOT NULL, ` +
    `${columnsOf(1).join(', ')}, PRIMARY KEY (namespace, time)) STRICT, WITHOUT ROWID`;
  const tables = [
    [
      'CREATE TABLE namespaces (id INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE) STRICT',
      ...Object.values(FIGURE_TABLES).map(figureTable),
      'CREATE TABLE identifiers (namespace INTEGER NOT NULL, hour INTEGER NOT NULL, ' +
        'run INTEGER NOT NULL, record BLOB NOT NULL, PRIMARY KEY (namespace, hour, run)) ' +
        'STRICT, WITHOUT ROWID',
    ],
    [
      'CREATE TABLE overrides (id BLOB PRIMARY KEY, applied REAL NOT NULL, ' +
        'last_applied INTEGER NOT NULL) STRICT, WITHOUT ROWID',
      'CREATE TABLE overrides_since (time INTEGER NOT NULL) STRICT',
      `INSERT INTO overrides_since VALUES (${nowMs})`,
    ],
    [],
    // When weir ran, in Unix ms: minutes without checks have no figures.
    ['CREATE TABLE runs (start INTEGER PRIMARY KEY, until INTEGER NOT NULL) STRICT'],
  ];
  const newest = Math.max(tables.length, ...figures.map(({ since }) => since));
  return Array.from({ length: newest }, (_, i) => {
    const columns = i === 0 ? [] : columnsOf(i + 1);
    const added = Object.values(FIGURE_TABLES).flatMap((table) => {
      return columns.map((column) => `ALTER TABLE ${table} ADD COLUMN ${column} DEFAULT 0`);
    });
    return [...(tables[i] ?? []), ...added];
  });
}
