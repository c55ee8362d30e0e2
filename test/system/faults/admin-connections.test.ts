/** Floods of connections to the admin port of a real server. */

import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { describe, expect, test } from 'vitest';
import { useDataDirectory } from '../../support/data-directory.ts';
import { sendUntilClosed } from '../../support/raw-connection.ts';

const PROBES = ['/livez', '/readyz', '/metrics'];

describe('a flood of connections to the admin port', () => {
  const host = 'HTTP/1.1\r\nHost: localhost\r\n';
  const own = useDataDirectory(['--counters', '1024', '--acceptors', '1']);

  test('of pipelined requests gets at most one response per connection, and little memory', async () => {
    // Garbage alone takes up to 105 MiB in a young generation of the usual size.
    const server = await own.start({ execArgv: ['--max-semi-space-size=1'] });
    const { port } = new URL(server.adminUrl);
    const residentMiB = () => {
      const status = readFileSync(`/proc/${server.child.pid}/status`, 'utf8');
      return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1_024;
    };
    const beforeMiB = residentMiB();
    const requests = 'GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(2_000);
    const results = await Promise.all(
      Array.from({ length: 20 }, () => sendUntilClosed(Number(port), [requests], 10_000)),
    );
    for (const { statuses } of results) expect(statuses.length).toBeLessThanOrEqual(1);
    // Without the bound, one of these connections took 180 MiB.
    expect(residentMiB() - beforeMiB).toBeLessThan(100);
    const one = `GET /livez ${host}Connection: close\r\n\r\n`;
    expect((await sendUntilClosed(Number(port), [one], 10_000)).statuses).toEqual([200]);
  });

  test('that send nothing is closed when the time for a request is over', async () => {
    const server = await own.start();
    const { port } = new URL(server.adminUrl);
    const idle = Array.from({ length: 50 }, () => {
      const socket = connect(Number(port), '127.0.0.1').resume();
      socket.on('error', () => {});
      return new Promise((resolve) => socket.once('close', resolve));
    });
    await Promise.all(idle);
    expect((await fetch(`${server.adminUrl}/livez`)).status).toBe(200);
  });

  const ATTEMPTS = 30;

  test.each([
    ['send nothing', ['']],
    ['send a part of a request', ['GET /livez HTTP/1.1\r\nHost: ', 'G']],
    ['stay open after a response', [`GET /livez ${host}\r\n`, `GET / ${host}\r\n`]],
    ['do not read their responses', [`GET /metrics ${host}\r\n`.repeat(2)]],
    ['do each of these', ['', 'GET', `GET / ${host}\r\n`, `GET /metrics ${host}\r\n`]],
  ])(
    'that %s does not keep probes from being answered',
    { timeout: 180_000 },
    async (_name, sent) => {
      const server = await own.start();
      const { port } = new URL(server.adminUrl);
      const script = new URL('../../support/connection-holder.process.mjs', import.meta.url)
        .pathname;
      const attacker = spawn(process.execPath, [script, port, '600', JSON.stringify(sent)]);
      await new Promise((resolve) => attacker.stdout.once('data', resolve));
      try {
        for (let i = 0; i < ATTEMPTS; i++) {
          for (const path of PROBES) {
            const request = `GET ${path} HTTP/1.1\r\nHost: weir:7071\r\nConnection: close\r\n\r\n`;
            const { statuses } = await sendUntilClosed(Number(port), [request], 10_000);
            expect([i, path, statuses]).toEqual([i, path, [200]]);
          }
        }
      } finally {
        attacker.stdin.end();
      }
    },
  );
});
