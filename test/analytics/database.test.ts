import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ANALYTICS_FILE, AnalyticsDatabase } from '../../src/analytics/database.ts';
import { schemaVersions } from '../../src/analytics/schema.ts';
import { addFigures, FIGURES, NO_FIGURES } from '../../src/core/figures.ts';
import { requirePackage } from '../../src/core/packages.ts';
import { removeDirectory, temporaryDirectory } from '../support/server.ts';

const HOUR = 498_660;
const MINUTE = HOUR * 60;
const figures = (allowed: number) => {
  return { ...NO_FIGURES, allowed, denied: 1, tokensAllowed: 2 * allowed, tokensDenied: 0.5 };
};
const point = (namespace: string, minute: number, allowed: number) => {
  return { namespace, minute, figures: figures(allowed) };
};

let directory: string;
const damaged: string[] = [];
const opened: AnalyticsDatabase[] = [];
const open = (run: number) => {
  const database = AnalyticsDatabase.open(directory, run, (movedTo) => damaged.push(movedTo));
  opened.push(database);
  return database;
};
beforeEach(() => {
  directory = temporaryDirectory();
  damaged.length = 0;
});
afterEach(() => {
  for (const database of opened.splice(0)) database.close();
  removeDirectory(directory);
});

test('figures of a minute are added up, over writes and over runs, in its hour too', () => {
  const first = open(1);
  first.write([point('a', MINUTE, 3), point('é"\u0000', MINUTE + 59, 4)], []);
  first.write([point('a', MINUTE, 2), point('a', MINUTE + 60, 1)], []);
  opened.pop()?.close();
  const second = open(2);
  second.write([point('a', MINUTE, 10)], []);
  const twoAndThree = addFigures(addFigures(figures(3), figures(2)), figures(10));
  expect(second.timeline('a', 'minute', MINUTE, MINUTE + 61)).toEqual([
    { time: MINUTE, figures: twoAndThree },
    { time: MINUTE + 60, figures: figures(1) },
  ]);
  expect(second.timeline('a', 'hour', HOUR, HOUR + 1)).toEqual([
    { time: HOUR, figures: twoAndThree },
  ]);
  expect(second.timeline('unknown', 'hour', HOUR, HOUR + 1)).toEqual([]);
  expect([...second.totals(HOUR, HOUR + 1)]).toEqual([
    ['a', twoAndThree],
    ['é"\u0000', figures(4)],
  ]);
  expect([...second.totals(HOUR + 1, HOUR + 9).keys()]).toEqual(['a']);
});

test('the lists of two runs in one hour are both kept, and a run replaces its own', () => {
  const entry = (record: string) => [{ namespace: 'a', hour: HOUR, record }];
  const first = open(1);
  first.write([], entry('"old"'));
  first.write([], entry('"new"'));
  opened.pop()?.close();
  const second = open(2);
  second.write([], entry('"second"'));
  expect(second.identifiers('a', HOUR, HOUR + 1)).toEqual(['"new"', '"second"']);
  expect(second.identifiers('a', HOUR + 1, HOUR + 2)).toEqual([]);
});

test('only what is older than the retention is deleted', () => {
  const database = open(1);
  database.write(
    [point('a', MINUTE - 61, 1), point('a', MINUTE, 2), point('b', MINUTE - 61, 3)],
    [
      { namespace: 'a', hour: HOUR - 2, record: '1' },
      { namespace: 'a', hour: HOUR, record: '2' },
    ],
  );
  database.prune({ minute: MINUTE - 1, hour: HOUR });
  expect(database.timeline('a', 'minute', 0, MINUTE + 1).map(({ time }) => time)).toEqual([MINUTE]);
  expect([...database.totals(0, HOUR + 1).keys()]).toEqual(['a']);
  expect(database.identifiers('a', 0, HOUR + 1)).toEqual(['2']);
});

test('a write that fails leaves nothing behind, and can be repeated', () => {
  const database = open(1);
  const invalid = { namespace: 'new', minute: MINUTE, figures: { ...figures(1), denied: null } };
  expect(() => database.write([point('a', MINUTE, 1), invalid as never], [])).toThrow('NOT NULL');
  expect([...database.totals(0, HOUR + 1)]).toEqual([]);
  database.write([point('new', MINUTE, 1), point('a', MINUTE, 2)], []);
  expect([...database.totals(0, HOUR + 1).keys()]).toEqual(['new', 'a']);
});

test('a damaged file is moved aside, and one of a newer version too', () => {
  const path = join(directory, ANALYTICS_FILE);
  writeFileSync(path, 'this is no database, but long enough to be read as one'.repeat(100));
  const database = open(1);
  expect(damaged).toEqual([`${path}.damaged`]);
  expect(readFileSync(`${path}.damaged`, 'utf8')).toContain('this is no database');
  database.write([point('a', MINUTE, 1)], []);
  expect(database.totals(0, HOUR + 1).size).toBe(1);
  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(existsSync(path)).toBe(true);
});

test('a deleted namespace leaves nothing behind, and its id may be used again', () => {
  const database = open(1);
  const record = { namespace: 'gone', hour: HOUR, record: '[]' };
  database.write([point('kept', MINUTE, 1), point('gone', MINUTE, 2)], [record]);
  database.deleteNamespaces(['gone', 'unknown']);
  const namesAt = (at: AnalyticsDatabase) => [...at.totals(HOUR, HOUR + 1).keys()];
  expect(namesAt(database)).toEqual(['kept']);
  database.write([point('next', MINUTE, 3), point('gone', MINUTE + 1, 4)], []);
  expect(database.timeline('gone', 'minute', MINUTE, MINUTE + 2)).toEqual([
    { time: MINUTE + 1, figures: figures(4) },
  ]);
  expect(database.identifiers('gone', HOUR, HOUR + 1)).toEqual([]);
  expect(database.identifiers('next', HOUR, HOUR + 1)).toEqual([]);
  opened.pop()?.close();
  const second = open(2);
  expect(namesAt(second)).toEqual(['kept', 'next', 'gone']);
  second.deleteOthers(new Set(['next', 'unknown']));
  expect(namesAt(second)).toEqual(['next']);
});

test('the use of an override is added up, over writes and over runs', () => {
  const first = open(5);
  const entry = (id: string, applied: number, lastAppliedMs: number) => {
    return { id, applied, lastAppliedMs };
  };
  first.write([], [], [entry('rlor_1', 3, 100), entry('rlor_2', 1, 200)]);
  opened.pop()?.close();
  const second = open(9);
  second.write([], [], [entry('rlor_1', 2, 90)]);
  expect(second.usageOf('rlor_1')).toMatchObject({ applied: 5, lastAppliedMs: 100 });
  expect(second.usageOf('rlor_3')).toEqual({ applied: 0, lastAppliedMs: 0 });
  expect(second.usageSinceMs).toBe(5);
  second.deleteOtherUsage([{ id: 'rlor_1' }, { id: 'rlor_3' }]);
  const kept = ['rlor_1', 'rlor_2'].map((id) => second.usageOf(id).applied);
  expect(kept).toEqual([5, 0]);
  second.deleteUsage(['rlor_1', 'rlor_2']);
  expect(second.usageOf('rlor_1').applied).toBe(0);
});

test('a file of version 1 keeps its figures, and counts the use of overrides from now on', () => {
  const old = new (requirePackage('libsql'))(join(directory, ANALYTICS_FILE));
  for (const sql of schemaVersions(FIGURES, 1)[0]) old.exec(sql);
  old.exec("INSERT INTO namespaces VALUES (1, CAST('a' AS BLOB))");
  old.exec(`INSERT INTO hours VALUES (1, ${HOUR}, 3, 1, 6, 0.5); PRAGMA user_version = 1`);
  old.close();
  const upgraded = open(7);
  expect(damaged).toEqual([]);
  expect([...upgraded.totals(HOUR, HOUR + 1)]).toEqual([['a', figures(3)]]);
  expect(upgraded.usageSinceMs).toBe(7);
});

test('the times of runs are kept, with what is written and once a minute without, and pruned', () => {
  const [start, later] = [MINUTE * 60_000, (MINUTE + 5) * 60_000];
  const first = open(start);
  expect(first.runs(0, later)).toEqual([]);
  first.write([], [], [], start + 1_000);
  first.write([point('a', MINUTE, 1)], [], [], start + 2_000);
  first.write([], [], [], start + 30_000);
  expect(first.runs(0, later)).toEqual([{ start, until: start + 2_000 }]);
  first.write([], [], [], start + 62_000);
  expect(first.runs(0, later)).toEqual([{ start, until: start + 62_000 }]);
  opened.pop()?.close();
  const second = open(later);
  second.write([], [], [], later);
  expect(second.runs(start + 62_000, later + 1).length).toBe(2);
  expect(second.runs(start + 62_001, later + 1)).toEqual([{ start: later, until: later }]);
  second.prune({ minute: MINUTE + 2, hour: HOUR });
  expect(second.runs(0, later + 1)).toEqual([{ start: later, until: later }]);
});

test('decisions of several namespaces are added up by minute', () => {
  const database = open(1);
  const minutes = [MINUTE - 1, MINUTE, MINUTE + 1, MINUTE + 2];
  database.write(
    minutes.flatMap((minute) => [point('a', minute, 3), point('"b', minute, 4)]),
    [],
  );
  database.write([point('a', MINUTE + 1, 10), point('other', MINUTE, 100)], []);
  const found = database.minuteDecisions(['a', '"b', 'unknown'], MINUTE, MINUTE + 2);
  expect(found).toEqual([
    { time: MINUTE, allowed: 7, denied: 2 },
    { time: MINUTE + 1, allowed: 17, denied: 3 },
  ]);
  expect(database.minuteDecisions([], MINUTE, MINUTE + 2)).toEqual([]);
});
