/** `weir stats` on a running server. */

import { beforeAll, describe, expect, test } from 'vitest';
import type { Figures } from '../../src/core/figures.ts';
import { sendCheck } from '../support/http.ts';
import { waitUntil } from '../support/server.ts';
import { commandServer } from '../support/weir-command.ts';

const HOUR_MS = 3_600_000;
const LONG_IDENTIFIER = 'long '.repeat(100);

const own = commandServer();
const { weir, lines } = own;

const check = async (namespace: string, identifier: string, cost = 1) => {
  const fields = { namespace, identifier, cost, limit: 5, duration: 30 * 24 * HOUR_MS };
  await sendCheck(own.server.port, fields);
};
/** The cells of the lines of a text. */
const cellsOf = (text: string) => text.split('\n').map((line) => line.trim().split(/ {2,}/));
const TITLES = ['ALLOWED', 'DENIED', 'DENIED %', 'TOKENS ALLOWED', 'TOKENS DENIED'];
/** The tables of figures in a text: their rows, by the titles of the columns. */
const tablesOf = (text: string) => {
  const tables = text.split('\n\n').map((table) => cellsOf(table.trim()));
  return tables
    .filter(([header]) => header[0] === TITLES[0])
    .map(([header, ...rows]) => {
      expect(header.slice(0, -1).filter((title) => TITLES.includes(title))).toEqual(TITLES);
      return rows.map((row) => Object.fromEntries(header.map((title, i) => [title, row[i]])));
    });
};
const rowOf = (cells: string[], NAMESPACE: string) => {
  return { ...Object.fromEntries(TITLES.map((title, i) => [title, cells[i]])), NAMESPACE };
};
const LOGIN = rowOf(['8', '3', '27.3', '13', '5'], 'login');

beforeAll(async () => {
  for (let i = 0; i < 7; i++) await check('login', 'é');
  await check('login', 'b', 4);
  await check('login', 'b', 3);
  await check('login', '\u001b[2J\u202e', 2);
  await check('login', LONG_IDENTIFIER, 2);
  await check('\u001b[31m', 'x');
  // A namespace gets its figures after its first check was answered.
  await waitUntil('both namespaces have their figures', async () => {
    const [{ namespaces }] = await lines(['stats']);
    const checks = (namespaces as Figures[]).map(({ allowed, denied }) => allowed + denied);
    return checks.join() === '11,1';
  });
});

describe('weir stats', () => {
  test('prints a line for each namespace, the busiest first, with escaped names', async () => {
    const { code, stdout, stderr } = await weir(['stats']);
    expect([code, stderr]).toEqual([0, '']);
    const [range] = cellsOf(stdout);
    expect(range[0]).toMatch(/^\d{4}-\d\d-\d\dT\d\d:00:00Z to \d{4}-\d\d-\d\dT\d\d:00:00Z$/);
    const other = rowOf(['1', '0', '0.0', '1', '0'], '"\\u001b[31m"');
    expect(tablesOf(stdout)).toMatchObject([[LOGIN, other]]);
  });

  test('prints the busiest identifiers of all namespaces, with their namespace', async () => {
    const { stdout } = await weir(['stats']);
    const [denied, spent] = stdout
      .slice(stdout.indexOf('Identifiers of all namespaces\n'))
      .split('\n\n')
      .slice(1)
      .map((table) => cellsOf(table.trimEnd()));
    expect(denied).toEqual([
      ['DENIED', 'NAMESPACE', 'IDENTIFIER'],
      ['2', 'login', 'é'],
      ['1', 'login', 'b'],
    ]);
    expect(spent.slice(0, 3)).toEqual([
      ['TOKENS', 'NAMESPACE', 'IDENTIFIER'],
      ['5', 'login', 'é'],
      ['4', 'login', 'b'],
    ]);
    expect(spent).toContainEqual(['1', '"\\u001b[31m"', 'x']);
  });

  test('prints the known identifiers that begin with --prefix, and that others may exist', async () => {
    const tableOf = async (...args: string[]) => {
      const { stdout } = await weir(['stats', '--prefix', ...args]);
      const [, table, note] = stdout.split('\n\n');
      return { rows: cellsOf(table), note };
    };
    const { rows, note } = await tableOf('é');
    expect(rows).toEqual([
      ['DENIED', 'TOKENS', 'LAST DENIED', 'NAMESPACE', 'IDENTIFIER', 'FROM'],
      ['2', '5', expect.stringMatching(/^20.*Z$/), 'login', 'é', 'analytics, decisions'],
    ]);
    expect(note).toBe('Others that begin with "é" may exist: counters have no texts.\n');
    const long = await tableOf('l', 'login', '--limit', '1');
    const cutOff = `"${LONG_IDENTIFIER.slice(0, 96)}"…`;
    expect(long.rows[1]).toEqual(['-', '2', '-', 'login', cutOff, 'analytics']);
    // No pattern.
    expect((await tableOf('*')).rows).toEqual([['No identifier is known.']]);
    const [response] = await lines(['stats', '--prefix', 'b']);
    expect(response).toMatchObject({ identifiers: [{ identifier: 'b' }], truncated: false });
  });

  test('says how many namespaces --limit leaves out', async () => {
    const { stdout } = await weir(['stats', '--limit', '1']);
    expect(stdout).toContain('login\n\n1 more with fewer checks: see --limit\n');
    expect(stdout).not.toContain('[31m');
  });

  test('prints the sums, the times and the identifiers of a namespace, by name or id', async () => {
    const { code, stdout, stderr } = await weir(['stats', 'login', '--last', '10m']);
    expect([code, stderr]).toEqual([0, '']);
    const [sums, points] = tablesOf(stdout);
    expect(sums).toMatchObject([LOGIN]);
    expect(points).toHaveLength(10);
    for (const { TIME } of points) expect(TIME).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:00Z$/);
    for (const title of TITLES.filter((title) => title !== 'DENIED %')) {
      const sum = points.reduce((all, point) => all + Number(point[title]), 0);
      expect([title, sum]).toEqual([title, Number(sums[0][title])]);
    }
    const isBar = (text = '') => /^#+x+$/.test(text);
    expect(points.some((point) => isBar(point['# ALLOWED, x DENIED']))).toBe(true);
    const [, denied, spent] = stdout.split(/^ *(?:DENIED|TOKENS) {2}IDENTIFIER\n/m);
    const listed = (text: string) => cellsOf(text.trim()).map((cells) => cells.join(' '));
    expect(listed(denied)).toEqual(['2 é', '1 b']);
    // The order of two with the same count is that of their hashes.
    expect(listed(spent).slice(0, 2)).toEqual(['5 é', '4 b']);
    const [escaped, cutOff] = [String.raw`2 "\u001b[2J\u{202e}"`, LONG_IDENTIFIER.slice(0, 96)];
    expect(listed(spent).slice(2).toSorted()).toEqual([escaped, `2 "${cutOff}"…`]);
    expect(stdout).not.toMatch(/[^\P{C}\n]/u);

    const [{ namespace }] = await lines(['stats', 'login']);
    const { id } = namespace as { id: string };
    const byId = await weir(['stats', id, '--last', '10m']);
    expect(tablesOf(byId.stdout)[0]).toMatchObject([LOGIN]);
  });

  test('prints an hour for each line with --by hour, and by itself for a long time', async () => {
    for (const args of [
      ['--by', 'hour', '--last', '5h'],
      ['--last', '5h'],
    ]) {
      const { stdout } = await weir(['stats', 'login', ...args]);
      expect(
        stdout.match(/^.*T\d\d:00:00Z.*$/gm)!.filter((line) => !line.includes(' to ')).length,
      ).toBe(5);
    }
  });

  test('prints the responses of the server with --json', async () => {
    const [all, ranked, ...others] = await lines(['stats', '--last', '2h', '--limit', '1']);
    expect(others).toEqual([]);
    expect(ranked).toMatchObject({ spent: [{ identifier: 'é', namespace: { name: 'login' } }] });
    expect(all).toMatchObject({ namespaces: [{ name: 'login', allowed: 8, denied: 3 }], total: 2 });
    expect((all.end as number) - (all.start as number)).toBe(2 * HOUR_MS);
    const [timeline, identifiers] = await lines(['stats', 'login', '--limit', '1']);
    expect(timeline).toMatchObject({ granularity: 'minute', namespace: { name: 'login' } });
    expect(identifiers).toMatchObject({
      complete: true,
      denied: [{ identifier: 'é', count: 2, error: 0 }],
      spent: [{ identifier: 'é', count: 5, error: 0 }],
    });
  });

  test('ends with 4 for a key without read_analytics', async () => {
    const create = ['keys', 'create', '--name', 'k', '--permission', 'ratelimit.*.limit'];
    const [{ key }] = await lines(create);
    const denied = await weir(['stats'], { WEIR_KEY: key as string });
    expect([denied.code, denied.stderr]).toEqual([4, expect.stringContaining('FORBIDDEN')]);
  });
});
