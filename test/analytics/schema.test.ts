import { expect, test } from 'vitest';
import { schemaVersions } from '../../src/analytics/schema.ts';
import { FIGURES } from '../../src/core/figures.ts';
import { requirePackage } from '../../src/core/packages.ts';

const NOW_MS = 1_795_179_540_000;
const VERSIONS = schemaVersions(FIGURES, NOW_MS);
/** With a figure of the next version, declared between those that exist. */
const NEXT_VERSIONS = schemaVersions(
  FIGURES.toSpliced(1, 0, { ...FIGURES[0], column: 'made_up', since: VERSIONS.length + 1 }),
  NOW_MS,
);

test('the tables of figures are those of the files that version 1 has made', () => {
  for (const name of ['minutes', 'hours']) {
    expect(VERSIONS[0]).toContain(
      `CREATE TABLE ${name} (namespace INTEGER NOT NULL, time INTEGER NOT NULL, ` +
        'allowed REAL NOT NULL, denied REAL NOT NULL, tokens_allowed REAL NOT NULL, ' +
        'tokens_denied REAL NOT NULL, PRIMARY KEY (namespace, time)) STRICT, WITHOUT ROWID',
    );
  }
});

test('a new figure is a version of its own: an upgrade adds its column, which is 0', () => {
  expect(NEXT_VERSIONS.slice(0, -1)).toEqual(VERSIONS);
  const database = new (requirePackage('libsql'))(':memory:');
  for (const sql of VERSIONS.flat()) database.exec(sql);
  for (const table of ['minutes', 'hours']) {
    database.exec(`INSERT INTO ${table} VALUES (1, 2${', 3'.repeat(FIGURES.length)})`);
  }
  for (const sql of NEXT_VERSIONS.at(-1)!) database.exec(sql);
  const counted = FIGURES.map(({ column }) => [column, 3]);
  const upgraded = { namespace: 1, time: 2, ...Object.fromEntries(counted), made_up: 0 };
  for (const table of ['minutes', 'hours']) {
    expect(database.prepare(`SELECT * FROM ${table}`).all()).toEqual([upgraded]);
  }
  database.close();
});
