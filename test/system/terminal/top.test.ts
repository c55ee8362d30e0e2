/**
 * The live view of `weir top` in a real terminal. The rates depend on time, so tests compare
 * counts, and which rates are above 0.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { sendCheck } from '../../support/http.ts';
import { isMissing } from '../../support/programs/program.ts';
import {
  CLI_PATH,
  freePort,
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
  waitUntil,
} from '../../support/server.ts';
import { PseudoTerminal } from './pseudo-terminal.ts';

const HOUR_MS = 3_600_000;
const HOUR_END_MS = 60_000;
const ESCAPE = '\u001b';
const ENTER = `${ESCAPE}[?1049h${ESCAPE}[?25l${ESCAPE}[?7l`;
const LEAVE = `${ESCAPE}[?7h${ESCAPE}[?25h${ESCAPE}[?1049l`;
const HOSTILE = `${ESCAPE}[2J\u202e日本`;

const dataDir = temporaryDirectory();
let port: number;
let server: ServerProcess;
/** Serves on the same port every time. */
const start = () => {
  return startServer(dataDir, { args: ['--port', String(port), '--counters', '1024'] });
};
beforeAll(async () => {
  // The counts are those of the current hour, which must not end before the tests do.
  const restMs = HOUR_MS - (Date.now() % HOUR_MS);
  if (restMs < HOUR_END_MS) await sleep(restMs);
  port = await freePort();
  server = await start();
  for (const identifier of ['a', 'b', HOSTILE]) await check('login', identifier);
}, 2 * HOUR_END_MS);
afterAll(async () => {
  await server.stop();
  removeDirectory(dataDir);
});

const url = () => `http://127.0.0.1:${port}`;
const check = (namespace: string, identifier: string) => {
  return sendCheck(port, { namespace, identifier, limit: 1, duration: 3_600_000_000 });
};
const openTop = async (
  args: string[] = [],
  size = { rows: 24, columns: 100 },
  more: Record<string, string> = {},
) => {
  const env = { PATH: process.env.PATH, WEIR_URL: url(), WEIR_KEY: ROOT_KEY, ...more };
  const command = [process.execPath, CLI_PATH, 'top', '--interval', '100ms', ...args];
  const terminal = await PseudoTerminal.open(command, { env, ...size });
  onTestFinished(() => terminal.close());
  return terminal;
};
/** What the command has drawn, a text for each time. */
const drawings = ({ output }: PseudoTerminal): string[] => {
  return output
    .split(`${ESCAPE}[H`)
    .slice(1)
    .map((text) => text.split(`${ESCAPE}[J`)[0]);
};
const linesOf = (drawing = '') => drawing.replaceAll(`${ESCAPE}[K`, '').split(/\r+\n/);
const lastLines = (terminal: PseudoTerminal) => linesOf(drawings(terminal).at(-1));
const waitForLine = (terminal: PseudoTerminal, pattern: RegExp) => {
  return waitUntil(`a line matches ${pattern}`, () => {
    return lastLines(terminal).some((line) => pattern.test(line));
  });
};

describe.skipIf(isMissing('script', '--version'))('weir top in a terminal', () => {
  test('shows new checks, and restores the terminal after q', async () => {
    const terminal = await openTop();
    await waitForLine(terminal, /^ +0 +0 +- +3 +\d+ {2}login$/);
    for (let i = 0; i < 3; i++) await check('new', 'x');
    await waitForLine(terminal, / 1 +2 {2}new$/);
    const rates = /^ *(\d+\.?\d*) +(\d+\.?\d*) +([\d.]+) +\d +\d {2}new$/;
    const shown = drawings(terminal).flatMap((drawing) => linesOf(drawing));
    const rows = shown.flatMap((line) => rates.exec(line) ?? []);
    expect(rows.length).toBeGreaterThan(0);
    const totals = /^total {2}([\d.]+) checks\/s {2}([\d.]+) allowed\/s .* ([\d.]+) % denied$/;
    const checks = shown.map((line) => Number(totals.exec(line)?.[1] ?? 0));
    expect(Math.max(...checks)).toBeGreaterThan(0);
    terminal.type('q');
    const { code, settings } = await terminal.end();
    expect(code).toBe(0);
    expect(settings).toMatch(/\sicanon\b/);
    expect(terminal.output.startsWith(ENTER)).toBe(true);
    expect(terminal.output.endsWith(LEAVE)).toBe(true);
    expect(terminal.output.split(LEAVE)).toHaveLength(2);
  });

  test.each<[string, (terminal: PseudoTerminal) => void]>([
    ['Ctrl-C', (terminal) => terminal.type('\u0003')],
    ['SIGTERM', (terminal) => terminal.kill('SIGTERM')],
    ['SIGHUP', (terminal) => terminal.kill('SIGHUP')],
  ])('restores the terminal after %s, also while the server does not respond', async (_, end) => {
    const terminal = await openTop(['--timeout', '60s']);
    await waitForLine(terminal, /login$/);
    server.child.kill('SIGSTOP');
    end(terminal);
    const { code, settings } = await terminal.end();
    server.child.kill('SIGCONT');
    expect(code).toBe(0);
    expect(settings).toMatch(/\sicanon\b/);
    expect(terminal.output.endsWith(LEAVE)).toBe(true);
  });

  test('shows the identifiers that grow, in at most the lines and columns of the screen', async () => {
    const size = { rows: 14, columns: 30 };
    const terminal = await openTop(['login'], size);
    await waitForLine(terminal, /^TOKENS\/S {2}TOKENS {2}IDENTIFIER$/);
    const isDrawnWithin = ({ rows, columns }: typeof size) => {
      return (drawing: string) => {
        const lines = linesOf(drawing);
        return lines.length <= rows && lines.every((line) => [...line].length <= columns);
      };
    };
    expect(drawings(terminal).every(isDrawnWithin(size))).toBe(true);
    expect(lastLines(terminal)[0]).toMatch(/^weir top {2}http:.*…$/);
    await waitUntil('b is the first in its list', async () => {
      await check('login', 'b');
      const lines = lastLines(terminal);
      const header = lines.findIndex((line) => /^DENIED\/S {2}DENIED {2}IDENT/.test(line));
      return /^ *[\d.]+ +\d+ {2}b$/.test(lines[header + 1]);
    });
    const smaller = { rows: 6, columns: 20 };
    terminal.resize(smaller.rows, smaller.columns);
    await waitUntil('it is drawn smaller', () => {
      return isDrawnWithin(smaller)(drawings(terminal).at(-1)!);
    });
    terminal.resize(40, 100);
    await waitForLine(terminal, /^ +0 +1 {2}"\\u001b\[2J\\u\{202e\}日本"$/);
    terminal.type('q');
    expect((await terminal.end()).code).toBe(0);
  });

  test('fits 80 columns, sorts with s and pauses with p, as its last line says', async () => {
    for (const namespace of ['aaa', 'zzz']) await check(namespace, 'x');
    const terminal = await openTop([], { rows: 24, columns: 80 });
    const order = () => {
      const names = lastLines(terminal).map((line) => line.split(/ +/).at(-1));
      return names.filter((name) => ['aaa', 'login', 'zzz'].includes(name ?? ''));
    };
    const keys = () => lastLines(terminal).at(-1);
    await waitForLine(terminal, /zzz$/);
    expect(keys()).toBe('q quit   s sort: by checks   p pause');
    expect(lastLines(terminal)).toHaveLength(24);
    expect(lastLines(terminal).join('')).not.toContain('…');
    terminal.type('s');
    await waitUntil('it sorts by denied checks', () => keys()?.includes('by denied') === true);
    terminal.type('s');
    await waitUntil('it sorts by name', () => keys()?.includes('by name') === true);
    expect(order()).toEqual(['aaa', 'login', 'zzz']);
    terminal.type('p');
    await waitUntil('it pauses', () => keys()?.includes('p go on: paused') === true);
    const [paused] = lastLines(terminal);
    const count = drawings(terminal).length;
    await waitUntil('it is drawn again', () => drawings(terminal).length > count + 15);
    expect(lastLines(terminal)[0]).toBe(paused);
    terminal.type('p');
    await waitUntil('it goes on', () => lastLines(terminal)[0] !== paused);
    terminal.type('q');
    expect((await terminal.end()).code).toBe(0);
  });

  test('has colors on a terminal, without NO_COLOR', async () => {
    const size = { rows: 24, columns: 80 };
    const color = `${ESCAPE}[1mtotal `;
    for (const [env, hasColor] of [
      [{ TERM: 'xterm' }, true],
      [{ TERM: 'xterm', NO_COLOR: '1' }, false],
      [{ TERM: 'dumb' }, false],
    ] as const) {
      const terminal = await openTop([], size, env);
      await waitUntil('it is drawn', () => drawings(terminal).length > 1);
      expect([env, terminal.output.includes(color)]).toEqual([env, hasColor]);
      terminal.type('q');
      await terminal.end();
    }
  });

  test('says that the server does not respond, and goes on when it is back', async () => {
    const terminal = await openTop();
    await waitForLine(terminal, /login$/);
    await server.stop();
    await waitForLine(terminal, /^no new figures: no response from http/);
    expect(lastLines(terminal).some((line) => line.endsWith('login'))).toBe(true);
    server = await start();
    await check('later', 'x');
    await waitForLine(terminal, / 1 +0 {2}later$/);
    expect(lastLines(terminal).join()).not.toContain('no new figures');
    terminal.type('q');
    expect((await terminal.end()).code).toBe(0);
  });
});
