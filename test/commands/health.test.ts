/** `weir health` with a real server. */

import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { useDataDirectory } from '../support/data-directory.ts';
import { freePort, ROOT_KEY, spawnServer } from '../support/server.ts';
import { SMALL } from '../support/test-server.ts';
import { callWeir } from '../support/weir-command.ts';

const own = useDataDirectory(SMALL);

function health(args: string[], env: Record<string, string> = {}) {
  return callWeir('', ['health', ...args], {
    cwd: own.dataDir,
    env: { WEIR_URL: undefined, ...env },
  });
}

describe('weir health', () => {
  test('succeeds for a server that answers checks, found by URL, variable and file', async () => {
    const server = await own.start();
    const { port } = new URL(server.adminUrl);
    writeFileSync(join(own.dataDir, 'weir.json'), JSON.stringify({ adminPort: Number(port) }));
    const ready = { code: 0, stdout: 'ready\n', stderr: '' };
    // A server that serves is degraded until its shard workers have started.
    await expect.poll(() => health(['--url', server.adminUrl])).toEqual(ready);
    expect(await health([], { WEIR_ADMIN_PORT: port })).toEqual(ready);
    expect(await health([], { WEIR_ADMIN_PORT: port, WEIR_ADMIN_HOST: '0.0.0.0' })).toEqual(ready);
    expect(await health([], { WEIR_CONFIG: 'weir.json' })).toEqual(ready);
    const { code, stdout } = await health(['--json', '--url', server.adminUrl]);
    expect([code, JSON.parse(stdout)]).toEqual([0, expect.objectContaining({ status: 'ready' })]);
    await server.stop();
  });

  test('fails with 1 for a server that drains', async () => {
    const args = [...SMALL, '--drain-ms', '60000'];
    const server = await own.start({ args });
    // An open connection keeps it from stopping.
    const connection = connect(server.port, '127.0.0.1');
    await once(connection, 'connect');
    server.child.kill('SIGTERM');
    await expect
      .poll(() => health(['--url', server.adminUrl]))
      .toEqual({ code: 1, stdout: 'not ready: draining\n', stderr: '' });
    connection.destroy();
    expect(await server.exited).toEqual({ code: 0, signal: null });
  });

  test('fails with 3 if nothing answers, or another server', async () => {
    const port = await freePort();
    const absent = await health(['--url', `http://127.0.0.1:${port}`]);
    expect(absent).toEqual({
      code: 3,
      stdout: '',
      stderr: expect.stringContaining(
        `no response from http://127.0.0.1:${port} (--url): connect ECONN`,
      ),
    });
    const server = await own.start();
    expect(await health(['--url', server.url])).toEqual({
      code: 3,
      stdout: '',
      stderr: expect.stringContaining('that is not from the admin port of weir: check the URL'),
    });
    await server.stop();
  });

  test('with --wait and --pid, waits only while the process runs', async () => {
    const args = ['--wait', '60s', '--url', `http://127.0.0.1:${await freePort()}`];
    const server = await spawnServer(own.dataDir, { args: ['--acceptors', 'none'] });
    const pid = String(server.child.pid);
    const startedMs = performance.now();
    const waiting = health([...args, '--pid', pid]);
    expect(await server.exited).toEqual({ code: 2, signal: null });
    expect(await waiting).toEqual({
      code: 3,
      stdout: '',
      stderr: `weir: the process ${pid} has ended before it was ready\n`,
    });
    expect(performance.now() - startedMs).toBeLessThan(30_000);
    const other = await own.start();
    const [url, running] = [other.adminUrl, String(other.child.pid)];
    expect((await health(['--wait', '60s', '--pid', running, '--url', url])).code).toBe(0);
    expect((await health(['--pid', 'x'])).code).toBe(2);
    await other.stop();
  });

  test('with --wait, waits for a server that starts later, and not longer', async () => {
    const adminPort = String(await freePort());
    const waiting = health(['--wait', '30s'], { WEIR_ADMIN_PORT: adminPort });
    const server = await spawnServer(own.dataDir, {
      args: [...SMALL, '--admin-port', adminPort],
      env: { WEIR_ROOT_KEY: ROOT_KEY },
    });
    // Degraded on a busy machine: its shard worker may not run yet, or has not run for a second.
    const stdout = expect.stringMatching(
      /^(ready|degraded\n1 of 1 shard workers do not run\. .*)(\nearlier: a shard worker does not run, .*)?\n$/,
    );
    expect(await waiting).toEqual({ code: 0, stdout, stderr: '' });
    await server.stop();
    expect((await health(['--wait', '200ms'], { WEIR_ADMIN_PORT: adminPort })).code).toBe(3);
  });
});
