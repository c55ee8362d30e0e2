/** SIGUSR1, by which Node would open its inspector on port 9229. */

import { spawn } from 'node:child_process';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { describe, expect, test } from 'vitest';
import { EXIT } from '../../src/core/exit.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import { LONGEST_WINDOW_MS, listen, sendCheck } from '../support/http.ts';
import {
  CLI_PATH,
  cleanEnvironment,
  freePort,
  ROOT_KEY,
  type ServerProcess,
  spawnServer,
  waitUntil,
} from '../support/server.ts';

const own = useDataDirectory(['--counters', '1024', '--acceptors', '1']);
const BODY = { identifier: 'a', limit: 100, duration: LONGEST_WINDOW_MS };

/** The number of TCP sockets on which a process listens. */
function listeningPorts(pid: number): number {
  const directory = `/proc/${pid}/fd`;
  const inodes = readdirSync(directory).map((name) => {
    try {
      return /socket:\[(\d+)/.exec(readlinkSync(`${directory}/${name}`))?.[1];
    } catch {
      // It was closed meanwhile.
      return undefined;
    }
  });
  return ['tcp', 'tcp6'].flatMap((name) => {
    const rows = readFileSync(`/proc/${pid}/net/${name}`, 'utf8').split('\n').slice(1);
    return rows.filter((row) => {
      const [, , , state, , , , , , inode] = row.trim().split(/\s+/);
      return state === '0A' && inodes.includes(inode);
    });
  }).length;
}

const SIGUSR1 = 1n << 9n;

/** Whether SIGUSR1 is in a set of signals of /proc, such as those that a process catches. */
function hasSignal(pid: number, set: 'SigCgt' | 'ShdPnd'): boolean {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const [, signals] = new RegExp(`^${set}:\\s*(\\S+)`, 'm').exec(status) ?? [];
  return (BigInt(`0x${signals}`) & SIGUSR1) !== 0n;
}

/** Waits until a starting Node process catches SIGUSR1, whose default would end it. */
async function untilCaught(pid: number): Promise<void> {
  while (!hasSignal(pid, 'SigCgt')) await new Promise(setImmediate);
}

/** It serves on the check port and the admin port, and listens on no other. */
async function expectUnharmed(server: ServerProcess): Promise<void> {
  expect(await sendCheck(server.port, BODY)).toMatchObject({ success: true });
  await waitUntil('it listens on two ports', () => listeningPorts(server.child.pid!) === 2);
  expect((await fetch(`${server.adminUrl}/readyz`)).status).toBe(200);
  expect(await server.stop()).toEqual({ code: 0, signal: null });
}

describe.runIf(process.platform === 'linux')('SIGUSR1', () => {
  test('is ignored by a server, which logs it, and opens no port', async () => {
    const server = await own.start();
    for (let i = 1; i <= 3; i++) {
      server.child.kill('SIGUSR1');
      await waitUntil('the log has the line', () => {
        return server.stderr().split('SIGUSR1 is ignored').length === i + 1;
      });
    }
    expect(listeningPorts(server.child.pid!)).toBe(2);
    expect(server.stderr()).not.toContain('Debugger listening');
    await expectUnharmed(server);
  });

  test('leaves no port open where it comes while Node starts', async () => {
    for (let i = 0; i < 3; i++) {
      const args = ['--counters', '1024', '--acceptors', '1'];
      // This flag alone does not ask for an inspector.
      const execArgv = i % 2 === 0 ? [] : [`--inspect-port=${await freePort()}`];
      const env = { WEIR_ROOT_KEY: ROOT_KEY };
      const server = await spawnServer(own.dataDir, { args, env, execArgv });
      own.started.push(server);
      await untilCaught(server.child.pid!);
      // At several moments of the start.
      for (let wait = 0; wait < i; wait++) await new Promise((next) => setTimeout(next, 20));
      server.child.kill('SIGUSR1');
      await waitUntil('it serves', () => server.stdout().includes('serves checks'));
      await expectUnharmed(server);
    }
  });

  test('is ignored by commands', async () => {
    let socket: Socket | undefined;
    const silent = createServer((connected) => {
      socket = connected;
    });
    const port = await listen(silent);
    const settings = { WEIR_KEY: 'k', WEIR_URL: `http://127.0.0.1:${port}` };
    const env = { ...cleanEnvironment(), ...settings } as NodeJS.ProcessEnv;
    const command = spawn(process.execPath, [CLI_PATH, 'keys', 'list', '--timeout', '1m'], {
      env,
    });
    const ended = new Promise((resolve) => command.once('exit', resolve));
    let stderr = '';
    command.stderr.on('data', (data) => {
      stderr += data;
    });
    await waitUntil('it waits for the response', () => socket !== undefined);
    command.kill('SIGUSR1');
    await waitUntil('the signal is delivered', () => !hasSignal(command.pid!, 'ShdPnd'));
    expect([command.exitCode, listeningPorts(command.pid!), stderr]).toEqual([null, 0, '']);
    socket?.destroy();
    expect(await ended).toBe(EXIT.NO_ANSWER);
    expect(stderr).not.toContain('Debugger');
    silent.close();
  });

  test('does not close an inspector that the flags ask for', async () => {
    const server = await own.start({ execArgv: ['--inspect=127.0.0.1:0'] });
    expect(listeningPorts(server.child.pid!)).toBe(3);
    server.child.kill('SIGUSR1');
    await waitUntil('the log has the line', () => server.stderr().includes('SIGUSR1 is ignored'));
    expect(listeningPorts(server.child.pid!)).toBe(3);
  });
});
