/**
 * The tables of `weir top` without a terminal. The rates depend on time, so tests compare counts.
 * test/system/terminal has the live view.
 */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { LONGEST_WINDOW_MS, sendCheck } from '../support/http.ts';
import {
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
  waitUntil,
} from '../support/server.ts';
import { callWeir } from '../support/weir-command.ts';

/** A minute after the begin of an hour. The counts are those of the hour, which must not end. */
const START_MS = Date.UTC(2026, 10, 26, 12, 1);
const CLOCK = new URL('../support/system-clock.preload.mjs', import.meta.url).pathname;
const HOSTILE = '\u001b[2J\u202e日本';

const dataDir = temporaryDirectory();
const files = temporaryDirectory();
let server: ServerProcess;
beforeAll(async () => {
  const clock = join(files, 'clock.json');
  writeFileSync(clock, JSON.stringify({ atMs: Date.now(), wallMs: START_MS, rate: 1 }));
  server = await startServer(dataDir, {
    args: ['--counters', '1024', '--acceptors', '1'],
    env: { CLOCK_FILE: clock },
    execArgv: ['--import', CLOCK],
  });
  for (const identifier of ['a', 'b', HOSTILE]) {
    const check = { namespace: 'login', identifier, limit: 1, duration: LONGEST_WINDOW_MS };
    await sendCheck(server.port, check);
  }
  // A namespace gets its figures after its first check was answered.
  await waitUntil('all checks are counted', async () => {
    const { stdout } = await weir(['login', '--interval', '100ms']);
    return stdout.match(/ 1 {2}["ab]/g)?.length === 3;
  });
});
afterAll(async () => {
  await server.stop();
  for (const path of [dataDir, files]) removeDirectory(path);
});

const weir = (args: string[], env: Record<string, string> = {}) => {
  return callWeir(server.url, ['top', ...args], { env });
};

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
        expect(table).toMatch(/^ *ALLOWED\/S {2}DENIED\/S {2}ALLOWED {2}DENIED {2}NAMESPACE$/m);
        expect(table).toMatch(/^ +0 +0 +3 +\d+ {2}login$/m);
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

  test('ends with an error for a wrong option, key or namespace', async () => {
    const wrong: [string[], Record<string, string>, number, string][] = [
      [['--interval', '5'], {}, 2, '--interval must be a duration with a unit'],
      [['--interval', '1ms'], {}, 2, '--interval must be from 100ms to 3600000ms; got "1ms"'],
      [['--count', '0'], {}, 2, '--count must be an integer from 1 to'],
      [['mistyped'], {}, 4, 'NOT_FOUND: there is no namespace "mistyped"'],
      [[], { WEIR_KEY: 'wrong' }, 4, 'UNAUTHORIZED'],
      [[], { WEIR_URL: 'http://127.0.0.1:1' }, 3, 'no response from'],
    ];
    for (const [args, env, code, message] of wrong) {
      expect(await weir(args, env)).toEqual({
        ...{ code, stdout: '', stderr: expect.stringContaining(message) },
      });
    }
  });
});
