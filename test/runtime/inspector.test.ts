/** SIGUSR1, by which Node opens its inspector on port 9229. */

import { execFileSync, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { describe, expect, test } from 'vitest';
import { EXIT } from '../../src/core/exit.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import { LONGEST_WINDOW_MS, sendCheck } from '../support/http.ts';
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

/** How many TCP sockets a process listens with. */
function listeningPorts(pid: number): number {
  const inodes = execFileSync('sh', ['-c', `readlink /proc/${pid}/fd/* || true`])
    .toString()
    .match(/(?<=socket:\[)\d+/g);
  return ['tcp', 'tcp6'].flatMap((name) => {
    const rows = readFileSync(`/proc/${pid}/net/${name}`, 'utf8').split('\n').slice(1);
    return rows.filter((row) => {
      const [, , , state, , , , , , inode] = row.trim().split(/\s+/);
      return state === '0A' && inodes?.includes(inode);
    });
  }).length;
}

/** Waits until SIGUSR1 no longer ends a process that Node has just begun to be. */
async function untilCaught(pid: number): Promise<void> {
  const SIGUSR1 = 1n << 9n;
  for (;;) {
    const [, caught] = /^SigCgt:\s*(\S+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
    if ((BigInt(`0x${caught}`) & SIGUSR1) !== 0n) return;
    await new Promise(setImmediate);
  }
}

/** The port of the checks and the admin port, and nothing else. */
async function expectUnharmed(server: ServerProcess): Promise<void> {
  expect(await sendCheck(server.port, BODY)).toMatchObject({ success: true });
  await waitUntil('nothing else listens', () => listeningPorts(server.child.pid!) === 2);
  expect((await fetch(`${server.adminUrl}/readyz`)).status).toBe(200);
  expect(await server.stop()).toEqual({ code: 0, signal: null });
}

describe.runIf(process.platform === 'linux')('SIGUSR1', () => {
  test('is ignored by a server, which says so, and opens no port', async () => {
    const server = await own.start();
    for (let i = 1; i <= 3; i++) {
      server.child.kill('SIGUSR1');
      await waitUntil('the log says so', () => {
        return server.stderr().split('SIGUSR1 is ignored').length === i + 1;
      });
    }
    expect(listeningPorts(server.child.pid!)).toBe(2);
    expect(server.stderr()).not.toContain('Debugger listening');
    await expectUnharmed(server);
  });

  test('opens nothing that stays open where it comes while Node starts', async () => {
    for (let i = 0; i < 6; i++) {
      const args = ['--counters', '1024', '--acceptors', '1'];
      // A port is no wish for an inspector.
      const execArgv = i % 2 === 0 ? [] : [`--inspect-port=${await freePort()}`];
      const env = { WEIR_ROOT_KEY: ROOT_KEY };
      const server = await spawnServer(own.dataDir, { args, env, execArgv });
      own.started.push(server);
      await untilCaught(server.child.pid!);
      for (let wait = 0; wait < i; wait++) await new Promise((next) => setTimeout(next, 12));
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
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
    const { port } = silent.address() as AddressInfo;
    const given = { WEIR_KEY: 'k', WEIR_URL: `http://127.0.0.1:${port}` };
    const env = { ...cleanEnvironment(), ...given } as NodeJS.ProcessEnv;
    const command = spawn(process.execPath, [CLI_PATH, 'keys', 'list'], { env });
    const ended = new Promise((resolve) => command.once('exit', resolve));
    let said = '';
    command.stderr.on('data', (data) => {
      said += data;
    });
    await waitUntil('it waits for its answer', () => socket !== undefined);
    command.kill('SIGUSR1');
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect([command.exitCode, listeningPorts(command.pid!), said]).toEqual([null, 0, '']);
    socket?.destroy();
    expect(await ended).toBe(EXIT.NO_ANSWER);
    silent.close();
  });

  test('changes nothing for an inspector that the flags ask for', async () => {
    const server = await own.start({ execArgv: ['--inspect=127.0.0.1:0'] });
    expect(listeningPorts(server.child.pid!)).toBe(3);
    server.child.kill('SIGUSR1');
    await waitUntil('the log says so', () => server.stderr().includes('SIGUSR1 is ignored'));
    expect(listeningPorts(server.child.pid!)).toBe(3);
  });
});
