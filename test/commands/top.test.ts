/**
 * The tables of `weir top` without a terminal. The rates depend on time, so tests compare counts.
 * test/system/terminal has the live view.
 */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { LONGEST_WINDOW_MS } from '../support/http.ts';
import { removeDirectory, temporaryDirectory, waitUntil } from '../support/server.ts';
import { useServer } from '../support/test-server.ts';
import { callWeir } from '../support/weir-command.ts';

/** A minute after the begin of an hour. The counts are those of the hour, which must not end. */
const START_MS = Date.UTC(2026, 10, 26, 12, 1);
const CLOCK = new URL('../support/system-clock.preload.mjs', import.meta.url).pathname;
const HOSTILE = '\u001b[2J\u202e日本';

const files = temporaryDirectory();
// After the server has stopped: hooks run in the reverse order.
afterAll(() => removeDirectory(files));
const clock = join(files, 'clock.json');
writeFileSync(clock, JSON.stringify({ atMs: Date.now(), wallMs: START_MS, rate: 1 }));
const server = useServer({ env: { CLOCK_FILE: clock }, execArgv: ['--import', CLOCK] });
beforeAll(async () => {
  for (const identifier of ['a', 'b', HOSTILE]) {
    const check = { namespace: 'login', identifier, limit: 1, duration: LONGEST_WINDOW_MS };
    await server.check(check);
  }
  // A namespace gets its figures after its first check was answered.
  await waitUntil('all checks are counted', async () => {
    const { stdout } = await weir(['login', '--interval', '100ms']);
    return stdout.match(/ 1 {2}["ab]/g)?.length === 3;
  });
});
const weir = (args: string[]) => callWeir(server.url, ['top', ...args]);

describe('weir top without a terminal', () => {
  test('prints one table and ends, or as many as --count says', async () => {
    for (const [args, count] of [
      [[], 1],
      [['--count', '2'], 2],
    ] as const) {
      const { code, stdout, stderr } = await weir(['--interval', '100ms', ...args]);
      expect([code, stderr]).toEqual([0, '']);
      const tables = stdout.split('\n\nweir top');
      expect(tables).toHaveLength(count);
      for (const table of tables) {
        expect(table).toMatch(
          /^total {2}0 checks\/s {2}0 allowed\/s {2}0 denied\/s {2}- % denied$/m,
        );
        expect(table).toMatch(
          /^ *ALLOWED\/S {2}DENIED\/S {2}DENIED % {2}ALLOWED {2}DENIED {2}NAMESPACE$/m,
        );
        expect(table).toMatch(/^ +0 +0 +- +3 +\d+ {2}login$/m);
      }
    }
  });

  test('prints the identifiers of a namespace, with escaped characters', async () => {
    const { code, stdout, stderr } = await weir(['login', '--interval', '100ms']);
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toMatch(/^TOKENS\/S {2}TOKENS {2}IDENTIFIER$/m);
    expect(stdout).toContain('0       1  a\n');
    expect(stdout).toContain(String.raw`0       1  "\u001b[2J\u{202e}日本"`);
    expect(stdout).not.toMatch(/[^\P{C}\n]/u);
  });
});
