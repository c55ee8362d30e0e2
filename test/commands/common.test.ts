/** Shared behaviour of the commands: help, version, timeouts and lists. */

import { readFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer, type Server, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  CREATE_ACTION,
  GLOBAL_PERMISSIONS,
  NAMESPACE_ACTIONS,
} from '../../src/auth/permissions.ts';
import { COMMANDS } from '../../src/commands/run.ts';
import { EXIT, EXIT_MEANINGS } from '../../src/core/exit.ts';
import { listen } from '../support/http.ts';
import { waitUntil } from '../support/server.ts';
import { callWeir, commandServer, jsonLines } from '../support/weir-command.ts';

const commands = commandServer();

/** Commands that call no server. */
const LOCAL = ['serve', 'config', 'print', 'completion', 'version', 'cluster', 'rls'];
/** Help texts with a line of more than 100 characters. */
const WIDE = ['health', 'migrate'];
const REMOTE = Object.keys(COMMANDS).filter((name) => ![...LOCAL, ...WIDE].includes(name));
const CLI_PAGE = readFileSync(new URL('../../docs/cli.md', import.meta.url), 'utf8');
const WITHOUT_JSON = ['serve', 'top', 'run', 'gateway', 'print', 'completion', 'version'];
/** The first exit codes of the commands for which 0 is not only a success. */
const EXIT_CODES: Readonly<Record<string, string>> = {
  check: 'allowed\n  1  denied',
  reserve: 'reserved\n  1  denied',
  acquire: 'granted\n  1  denied',
  renew: 'renewed\n  1  the lease has ended, or is unknown',
  run: 'success of the command\n  1  denied: the command did not run',
};
const weir = (...args: string[]) => commands.weir(args);

const listenAndGetUrl = async (other: Server) => `http://127.0.0.1:${await listen(other)}`;

describe('the help', () => {
  test('lists every command in one line, and names the help of a command', async () => {
    const [general, ...others] = await Promise.all([weir('help'), weir('--help'), weir('-h')]);
    expect([general.code, general.stderr]).toEqual([EXIT.OK, '']);
    for (const other of others) expect(other).toEqual(general);
    for (const command of [...LOCAL, ...REMOTE, 'help']) {
      expect(general.stdout).toMatch(new RegExp(`^  ${command} +\\w.{10,}$`, 'm'));
    }
    expect(general.stdout).toContain('weir help <command>');
    expect(general.stdout).not.toContain('--data-dir');
  });

  test.each([...LOCAL, ...REMOTE])(
    'of %s has the common layout, with help and with --help',
    async (command) => {
      const help = await weir('help', command);
      expect([help.code, help.stderr]).toEqual([EXIT.OK, '']);
      // `weir serve --help` is printed by the server.
      if (command !== 'serve') expect(await weir(command, '--help')).toEqual(help);
      const titles = help.stdout.split('\n').filter((line) => /^\w[\w ]*:$/.test(line));
      expect(titles).toEqual(['Usage:', 'Options:', 'Examples:', 'Exit codes:']);
      const [, usage] = help.stdout.split('\n');
      expect(usage.trim()).toMatch(command === 'serve' ? /^weir \[serve\]/ : `weir ${command}`);
      const isServer = command === 'serve';
      expect(help.stdout.includes('--data-dir, WEIR_DATA_DIR')).toBe(isServer);
      expect(help.stdout.includes('--timeout <duration>')).toBe(!LOCAL.includes(command));
      expect(help.stdout.includes('--json')).toBe(!WITHOUT_JSON.includes(command));
      const codes = EXIT_CODES[command] ?? 'success';
      expect(help.stdout).toContain(`Exit codes:\n  0  ${codes}\n  2  `);
      const section = `### weir ${command}\n\n\`\`\`text\n${help.stdout}\`\`\`\n`;
      expect(CLI_PAGE.includes(section)).toBe(!isServer);
      for (const line of isServer ? [] : help.stdout.split('\n')) {
        expect(line.length).toBeLessThanOrEqual(100);
      }
    },
  );

  test.each(['', ...LOCAL, ...REMOTE, ...WIDE, 'keys create'])(
    'of "%s" has no line twice',
    async (command) => {
      const { stdout } = await weir('help', ...command.split(' ').filter(Boolean));
      const lines = stdout.split('\n').map((line) => line.trim());
      const texts = lines.filter((line) => line !== '');
      expect(texts.filter((line, i) => texts.indexOf(line) !== i)).toEqual([]);
    },
  );

  test('lists the exit codes with their meanings', async () => {
    const { stdout } = await weir('help');
    for (const [code, meaning] of Object.entries(EXIT_MEANINGS)) {
      expect(stdout).toContain(`  ${code}  ${meaning}\n`);
    }
  });
});

test('weir help keys lists every permission', async () => {
  const { stdout } = await weir('help', 'keys');
  for (const permission of GLOBAL_PERMISSIONS) expect(stdout).toContain(permission);
  for (const action of NAMESPACE_ACTIONS) expect(stdout).toContain(`\n  ${action}\n`);
  expect(stdout).toContain(`\n  ${CREATE_ACTION} (with ratelimit.* only)\n`);
});

test('weir help accepts the name of a subcommand', async () => {
  expect(await weir('help', 'keys', 'create')).toEqual(await weir('help', 'keys'));
});

test.each(['--version', '-v', 'version'])(
  'weir %s prints weir, Node and the platform',
  async (argument) => {
    const { code, stdout, stderr } = await weir(argument);
    const platform = `${process.platform}-${process.arch}`;
    const { version } = JSON.parse(
      readFileSync(new URL('../../package.json', import.meta.url), 'utf8'),
    );
    expect([code, stdout, stderr]).toEqual([
      EXIT.OK,
      `weir ${version} (node ${process.version}, ${platform})\n`,
      '',
    ]);
  },
);

describe('a server that accepts connections and never responds', () => {
  const sockets: Socket[] = [];
  let url = '';
  const silent = createServer((socket) => {
    socket.on('error', () => {});
    sockets.push(socket);
  });
  beforeAll(async () => {
    url = await listenAndGetUrl(silent);
  });
  afterAll(() => {
    for (const socket of sockets) socket.destroy();
    silent.close();
  });

  const window = ['--limit', '1', '--duration', '1s'];
  test.each<[string[]]>([
    [['check', 'a', ...window]],
    [['overrides', 'set', 'a', '--namespace', 'n', ...window]],
    [['overrides', 'import', '-']],
    [['overrides', 'export']],
    [['keys', 'list']],
    [['keys', 'revoke', 'key_1']],
    [['gateway', 'nginx']],
  ])('ends %j after the timeout, with a message that names --timeout', async (args) => {
    const timeout = ['--timeout', '10ms'];
    const { code, stdout, stderr } = await callWeir(url, [...args, ...timeout], { input: '' });
    expect([code, stdout]).toEqual([EXIT.NO_ANSWER, '']);
    expect(stderr).toContain(`weir: no response from ${url} (WEIR_URL) within 10ms`);
    expect(stderr).toMatch(/; set --timeout <duration> to wait longer\n$/);
  });

  test('makes a write report that the server may have executed it, as JSON too', async () => {
    const args = ['keys', 'revoke', 'key_1', '--timeout', '10ms', '--json'];
    const { code, stdout, stderr } = await callWeir(url, args);
    expect([code, stdout, JSON.parse(stderr)]).toEqual([
      EXIT.NO_ANSWER,
      '',
      {
        error: {
          code: 'NO_ANSWER',
          message: `no response from ${url} (WEIR_URL) within 10ms; the server may have executed the request; set --timeout <duration> to wait longer`,
        },
      },
    ]);
  });

  test('that stops in the middle of a body ends a command by the timeout as well', async () => {
    const slow = createHttpServer((_request, response) => {
      response.writeHead(200, { 'Content-Length': '100' }).write('{"keys":[');
    });
    const slowUrl = await listenAndGetUrl(slow);
    const { code, stderr } = await callWeir(slowUrl, ['keys', 'list', '--timeout', '100ms']);
    expect([code, stderr]).toEqual([EXIT.NO_ANSWER, expect.stringContaining('within 100ms')]);
    slow.closeAllConnections();
    slow.close();
  });
});

describe('a list', () => {
  test('of namespaces is a table, and with --json the items', async () => {
    for (const name of ['first', 'with space']) {
      await weir('check', 'a', '--namespace', name, '--limit', '1', '--duration', '1s');
    }
    const list = () => commands.lines(['namespaces', 'list']);
    // A namespace has its id soon after its first check.
    await waitUntil('both have an id', async () => (await list()).length === 2);
    const namespaces = await list();
    expect(namespaces.map(({ name }) => name)).toEqual(['first', 'with space']);
    const { stdout } = await weir('namespaces', 'list');
    const [one, two] = namespaces.map(({ id }) => `${id}`);
    const space = ' '.repeat(one.length - 2);
    expect(stdout).toBe(`ID${space}  NAME\n${one}  first\n${two}  "with space"\n`);
  });

  test('of the audit log requests no more than --limit, and shows unknown fields as key=value', async () => {
    const entries = Array.from({ length: 250 }, (_, i) => ({
      at: 1_900_000_000_000 - i,
      action: 'window.shift',
      keyId: `key_${i}`,
      target: { namespace: 'a b' },
      by: ['x'],
      limit: i,
    }));
    const requests: string[] = [];
    const fake = createHttpServer((request, response) => {
      const { pathname, searchParams } = new URL(request.url ?? '', 'http://weir');
      requests.push(`${pathname} ${searchParams}`);
      const from = Number(searchParams.get('cursor') ?? 0);
      const to = from + Number(searchParams.get('limit'));
      const page = { entries: entries.slice(from, to) };
      response.end(JSON.stringify(to < entries.length ? { ...page, cursor: `${to}` } : page));
    });
    const url = await listenAndGetUrl(fake);
    expect(await jsonLines(url, ['audit', 'list'])).toEqual(entries.slice(0, 100));
    expect(requests.splice(0)).toEqual(['/v1/audit.list limit=100']);
    expect(await jsonLines(url, ['audit', 'list', '--limit', '130'])).toEqual(
      entries.slice(0, 130),
    );
    expect(requests.length).toBe(2);
    expect(await jsonLines(url, ['audit', 'list', '--limit', '999'])).toEqual(entries);
    const { stdout } = await callWeir(url, ['audit', 'list', '--limit', '1']);
    expect(stdout).toBe(
      'TIME                  ID  ACTION        BY     TARGET           CHANGE\n' +
        '2030-03-17T17:46:40Z  -   window.shift  key_0  namespace="a b"  limit=0\n',
    );
    fake.close();
  });
});
