/** The built command as its own process: each command, and an output that cannot be written. */

import { execFile } from 'node:child_process';
import { beforeAll, describe, expect, test } from 'vitest';
import { NO_LEASE_ID, NO_RESERVATION_ID } from '../src/api/texts/examples.ts';
import { COMMANDS } from '../src/commands/run.ts';
import { EXIT } from '../src/core/exit.ts';
import { CLI_PATH, ROOT_KEY } from './support/server.ts';
import { callWeir, commandServer, runWeir } from './support/weir-command.ts';

const commands = commandServer();

/** A command line for each command. `reset` comes last, because it changes counters. */
const COMMAND_LINES = [
  ['check', 'a', '--limit', '5', '--duration', '30d', '--cost', '0'],
  ['inspect', 'a'],
  ['explain', 'a', '--namespace', 'default'],
  ['reserve', 'a', '--limit', '5', '--duration', '30d', '--cost', '0', '--ttl', '1s'],
  ['commit', NO_RESERVATION_ID, '--cost', '1'],
  ['cancel', NO_RESERVATION_ID],
  ['acquire', 'a', '--limit', '5', '--ttl', '1s'],
  ['renew', NO_LEASE_ID, '--ttl', '1s'],
  ['release', NO_LEASE_ID],
  ['run', '--concurrency', '5', '--identifier', 'job', '--', 'sh', '-c', 'exit 9'],
  ['holds', 'end', 'a', '1c-09f3'],
  ['overrides', 'list', '--namespace', 'default'],
  ['blocks', 'list'],
  ['keys', 'list', '--json'],
  ['namespaces', 'list'],
  ['policies', 'list'],
  ['stats'],
  ['top', '--interval', '100ms'],
  ['events', 'tail', '--once', '--lines', '1'],
  ['audit', 'list'],
  ['config', 'check'],
  ['migrate', 'to-redis'],
  ['cluster', 'status', '--json'],
  ['health', '--url', 'http://127.0.0.1:1'],
  ['rls', 'validate', new URL('../examples/envoy-rls/rules', import.meta.url).pathname],
  ['gateway', 'nginx'],
  ['print', 'grafana'],
  ['completion', 'bash'],
  ['version'],
  ['-v'],
  ['help', 'check'],
  ['--help'],
  ['reset', 'a'],
];

describe('as its own process', () => {
  beforeAll(async () => {
    await commands.weir(['check', 'a', '--limit', '5', '--duration', '30d']);
  });

  test('each command has a test', () => {
    const names = COMMAND_LINES.map(([name]) => name);
    expect(names).toEqual(expect.arrayContaining(Object.keys(COMMANDS)));
  });

  test.each(COMMAND_LINES.map((args) => [args]))('weir %j does what it does here', async (args) => {
    const own = await runWeir(commands.server.url, args);
    const here = await callWeir(commands.server.url, args);
    // Times differ, and so do ids, rates and the counters that `reset` has cleared.
    const hasOtherFigures = ['top', 'reset', 'reserve', 'acquire'].includes(args[0]);
    const comparable = ({ code, stdout, stderr }: typeof own) => {
      return [code, hasOtherFigures ? stdout !== '' : stdout.replace(/\d+/g, 'n'), stderr];
    };
    expect(comparable(own)).toEqual(comparable(here));
  });

  test('weir serve prints its help with --help', async () => {
    const help = await callWeir('', ['help', 'serve']);
    expect(await runWeir('', ['serve', '--help'])).toEqual(help);
    expect(await runWeir('', ['--port', '1', '-h'])).toEqual(help);
  });

  /** Runs `"$@"`, which is `weir overrides list`, in a shell script. */
  function runScript(script: string, ...args: string[]): Promise<[stdout: string, stderr: string]> {
    const env = { ...process.env, WEIR_URL: commands.server.url, WEIR_KEY: ROOT_KEY };
    const command = [process.execPath, CLI_PATH, 'overrides', 'list', '--namespace', 'piped'];
    return new Promise((resolve) => {
      const all = ['-c', script, 'sh', ...command, ...args];
      execFile('sh', all, { env }, (_error, stdout, stderr) => resolve([stdout, stderr]));
    });
  }

  test('a closed pipe ends a command without a message, but not with 0', async () => {
    // The table and the JSON exceed the buffer of a pipe.
    const overrides = Array.from({ length: 3_000 }, (_, i) => {
      const values = { namespaceName: 'piped', limit: i, duration: 10_000 };
      return JSON.stringify({ ...values, identifier: `user_${i}` });
    });
    const imported = await commands.weir(['overrides', 'import', '-'], {}, overrides.join('\n'));
    expect(imported.code).toBe(EXIT.OK);
    const script = '{ "$@"; echo "$?" >&2; } | head -n 1';
    expect(await runScript(script)).toEqual([
      expect.stringMatching(/^IDENTIFIER .*\n$/),
      `${EXIT.USAGE}\n`,
    ]);
    expect(await runScript(script, '--json')).toEqual([
      expect.stringMatching(/^\{.*\}\n$/),
      `${EXIT.USAGE}\n`,
    ]);
  });

  test('a full disk ends a command with a message', async () => {
    const [, stderr] = await runScript('"$@" > /dev/full; echo "$?" >&2');
    const message = /^weir: standard output: ENOSPC.*\n(\d)\n$/;
    expect(message.exec(stderr)?.[1]).toBe(String(EXIT.USAGE));
  });
});
