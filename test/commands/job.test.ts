/**
 * `weir run` as its own process, on a running server. It reaches the server through a proxy, which
 * lists its operations, and which can be out of order.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, writeFileSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { EXIT } from '../../src/core/exit.ts';
import { listen } from '../support/http.ts';
import { CLI_PATH, ROOT_KEY, waitUntil } from '../support/server.ts';
import { useServer } from '../support/test-server.ts';

const server = useServer({ hasSteppedClock: true });

const proxy = {
  url: '',
  isDown: false,
  /** Instead of those of the server. */
  response: '',
  /** The operations that were answered. */
  operations: [] as string[],
};

async function forward(path: string, body: string, response: ServerResponse): Promise<void> {
  if (proxy.isDown) {
    response.destroy();
    return;
  }
  const headers = { Authorization: `Bearer ${ROOT_KEY}`, 'Content-Type': 'application/json' };
  const answer =
    proxy.response === ''
      ? await fetch(server.url + path, { method: 'POST', headers, body })
      : new Response(proxy.response);
  response.writeHead(answer.status).end(await answer.text());
  proxy.operations.push(path.replace('/v1/ratelimits.', ''));
}

const listener = createServer(async (request, response) => {
  await forward(request.url ?? '', await text(request), response);
});
beforeAll(async () => {
  proxy.url = `http://127.0.0.1:${await listen(listener)}`;
});
afterEach(() => Object.assign(proxy, { isDown: false, response: '', operations: [] }));
afterAll(() => {
  listener.closeAllConnections();
  listener.close();
});

interface Job {
  child: ChildProcess;
  output: { stdout: string; stderr: string };
  /** Resolves when it and its command have ended. */
  ended: Promise<{ code: number | null; stdout: string; stderr: string }>;
}

const jobs: ChildProcess[] = [];
afterAll(() => {
  for (const child of jobs) child.kill('SIGKILL');
});

/** Runs a shell script by `weir run`. */
function start(identifier: string, script: string, options: string[] = [], url = proxy.url): Job {
  return startCommand(identifier, ['sh', '-c', script], options, url);
}

function startCommand(
  identifier: string,
  command: string[],
  options: string[] = [],
  url = proxy.url,
): Job {
  const limit = ['--concurrency', '1', '--identifier', identifier];
  const args = [CLI_PATH, 'run', ...limit, ...options, '--', ...command];
  const env = { PATH: process.env.PATH, WEIR_URL: url, WEIR_KEY: ROOT_KEY } as NodeJS.ProcessEnv;
  const child = spawn(process.execPath, args, { env });
  jobs.push(child);
  const output = { stdout: '', stderr: '' };
  child.stdout.on('data', (data) => {
    output.stdout += data;
  });
  child.stderr.on('data', (data) => {
    output.stderr += data;
  });
  const ended = once(child, 'close').then(([code]) => ({ code, ...output }));
  return { child, output, ended };
}

const says = ({ output }: Job, what: string) => {
  return waitUntil(`it prints ${what}`, () => (output.stdout + output.stderr).includes(what));
};

/** How many tokens the live leases of an identifier use. */
async function inUse(identifier: string): Promise<number> {
  const acquired = await server.ok<{ success: boolean; leaseId: string; inUse: number }>(
    'ratelimits.acquire',
    { identifier, limit: 1, ttl: 86_400_000 },
  );
  if (!acquired.success) return acquired.inUse;
  await server.ok('ratelimits.release', { leaseId: acquired.leaseId });
  return 0;
}

const takeLease = (identifier: string, ttl = 3_600_000) => {
  return server.ok<{ leaseId: string }>('ratelimits.acquire', { identifier, limit: 1, ttl });
};

/** A script that runs until its standard input ends. */
const UNTIL_CLOSED = 'echo started; cat; exit 7';
const ENDED = 'weir: the lease has ended, and the command runs on: the limit may be exceeded\n';

describe('weir run', () => {
  test('connects the command to its own standard streams, and ends with its exit code', async () => {
    const job = start('streams', 'read line; echo "out $line"; echo error >&2; exit 7');
    job.child.stdin?.end('in\n');
    expect(await job.ended).toEqual({ code: 7, stdout: 'out in\n', stderr: 'error\n' });
    expect(proxy.operations).toEqual(['acquire', 'release']);
    expect(await inUse('streams')).toBe(0);
  });

  test('passes the words after -- unchanged', async () => {
    const { ended } = startCommand('words', ['printf', '%s|', '--help', '-h', '--', '', 'a b']);
    expect(await ended).toEqual({ code: 0, stdout: '--help|-h|--||a b|', stderr: '' });
  });

  test('holds a lease while the command runs', async () => {
    const job = start('held', UNTIL_CLOSED);
    await says(job, 'started');
    expect(await inUse('held')).toBe(1);
    job.child.stdin?.end();
    expect((await job.ended).code).toBe(7);
    expect(await inUse('held')).toBe(0);
  });

  test('runs nothing and ends with 1 if it is denied', async () => {
    await takeLease('denied');
    const stderr = 'weir: denied: in use 1, limit 1\n';
    const denied = { code: EXIT.DENIED, stdout: '', stderr };
    expect(await start('denied', 'echo runs').ended).toEqual(denied);
    expect(await start('denied', 'echo runs', ['--wait', '2s']).ended).toEqual(denied);
    // The wait has asked more than once.
    expect(proxy.operations.length).toBeGreaterThan(2);
  });

  test('with --wait runs the command as soon as another lease has ended', async () => {
    const { leaseId } = await takeLease('waiting');
    const job = start('waiting', 'echo runs', ['--wait', '5m']);
    await waitUntil('it was denied', () => proxy.operations.length > 0);
    expect(job.output).toEqual({ stdout: '', stderr: '' });
    await server.ok('ratelimits.release', { leaseId });
    expect(await job.ended).toEqual({ code: 0, stdout: 'runs\n', stderr: '' });
  });

  test('ends as a shell for a command that it cannot run, and releases the lease', async () => {
    const missing = await startCommand('missing', ['no-such-command']).ended;
    const text = 'weir: "no-such-command" cannot be run: no such file or directory\n';
    expect(missing).toEqual({ code: 127, stdout: '', stderr: text });
    const file = join(server.directory, 'not-executable');
    writeFileSync(file, 'text');
    const denied = await startCommand('missing', [file]).ended;
    expect([denied.code, denied.stderr]).toEqual([126, expect.stringContaining('permission')]);
    expect(proxy.operations).toEqual(['acquire', 'release', 'acquire', 'release']);
  });

  test('runs nothing without a response of the server', async () => {
    const { code, stdout, stderr } = await start('none', 'echo runs', [], 'http://127.0.0.1:2')
      .ended;
    expect([code, stdout]).toEqual([EXIT.NO_ANSWER, '']);
    expect(stderr).toMatch(/^weir: no response from .*ECONNREFUSED.*\n$/);
  });
});

describe('weir run and a full table of holds', () => {
  test('runs the command without a lease, and says so', async () => {
    const counts = { inUse: 0, limit: 1 };
    proxy.response = JSON.stringify({ success: true, leaseId: null, ...counts, expiresAt: null });
    const stderr = 'weir: there is no room for a record: the command runs without a lease\n';
    expect(await start('full', 'exit 7').ended).toEqual({ code: 7, stdout: '', stderr });
    expect(proxy.operations).toEqual(['acquire']);
  });
});

describe('weir run and signals', () => {
  test.each(['SIGTERM', 'SIGINT', 'SIGHUP'] as const)(
    'pass %s to the command, wait for its end, and release the lease',
    async (signal) => {
      const script = `trap 'echo got; read line; exit 3' ${signal.slice(3)}; echo started
        while :; do sleep 0.02; done`;
      const job = start(signal, script);
      await says(job, 'started');
      job.child.kill(signal);
      await says(job, 'got');
      expect(await inUse(signal)).toBe(1);
      job.child.stdin?.end('go on\n');
      expect(await job.ended).toEqual({ code: 3, stdout: 'started\ngot\n', stderr: '' });
      expect(await inUse(signal)).toBe(0);
    },
  );

  test('ends with 128 and the number of the signal that ended the command', async () => {
    const job = start('by signal', 'echo started; exec sleep 60');
    await says(job, 'started');
    job.child.kill('SIGTERM');
    expect(await job.ended).toEqual({ code: 143, stdout: 'started\n', stderr: '' });
    expect((await start('by signal', 'kill -9 $$').ended).code).toBe(137);
    expect(await inUse('by signal')).toBe(0);
  });

  test('killed by kill -9, its command runs on, and its lease ends by its ttl', async () => {
    const [go, done] = ['go', 'done'].map((name) => join(server.directory, name));
    const script = `echo started; until [ -e "${go}" ] || [ ! -d "${server.directory}" ]
      do sleep 0.02; done; echo end > "${done}"`;
    const job = start('killed', script, ['--ttl', '1h']);
    await says(job, 'started');
    job.child.kill('SIGKILL');
    await once(job.child, 'exit');
    expect(await inUse('killed')).toBe(1);
    await server.stepClock(3_500_000);
    expect(await inUse('killed')).toBe(1);
    await server.stepClock(100_000);
    expect(await inUse('killed')).toBe(0);
    writeFileSync(go, '');
    await waitUntil('the command has ended', () => existsSync(done));
  });
});

describe('weir run and renewals', () => {
  const renewals = () => proxy.operations.filter((name) => name === 'renew').length;

  test('renews the lease every third of its ttl', async () => {
    const job = start('renewed', UNTIL_CLOSED, ['--ttl', '9s']);
    await says(job, 'started');
    await server.stepClock(3_000);
    await waitUntil('it is renewed', () => renewals() > 0);
    // The lease of the acquire would have ended now.
    await server.stepClock(4_000);
    expect(await inUse('renewed')).toBe(1);
    job.child.stdin?.end();
    expect(await job.ended).toEqual({ code: 7, stdout: 'started\n', stderr: '' });
    expect(proxy.operations.at(-1)).toBe('release');
  });

  test('a lease that has ended is one line, and the command runs on', async () => {
    const job = start('lost', UNTIL_CLOSED, ['--ttl', '3s']);
    await says(job, 'started');
    await server.stepClock(10_000);
    await says(job, ENDED);
    const { leaseId } = await takeLease('lost');
    job.child.stdin?.end();
    expect(await job.ended).toEqual({ code: 7, stdout: 'started\n', stderr: ENDED });
    // It releases nothing: another client has the place now.
    expect(await inUse('lost')).toBe(1);
    expect(proxy.operations).toEqual(['acquire', 'renew']);
    await server.ok('ratelimits.release', { leaseId });
  });

  test('a server that is back before the lease ends is one line, and the lease is kept', async () => {
    const job = start('back', UNTIL_CLOSED, ['--ttl', '6s']);
    await says(job, 'started');
    proxy.isDown = true;
    await says(job, 'the lease is not renewed yet: no response from');
    proxy.isDown = false;
    await waitUntil('it is renewed', () => renewals() > 0);
    expect(await inUse('back')).toBe(1);
    job.child.stdin?.end();
    const { code, stderr } = await job.ended;
    expect([code, stderr.trim().split('\n').length]).toEqual([7, 1]);
    expect(await inUse('back')).toBe(0);
  });

  test('a server that is not back before the lease ends is a second line', async () => {
    const job = start('away', UNTIL_CLOSED, ['--ttl', '3s']);
    await says(job, 'started');
    proxy.isDown = true;
    await says(job, ENDED);
    job.child.stdin?.end();
    const { code, stderr } = await job.ended;
    expect([code, stderr.trim().split('\n').length]).toEqual([7, 2]);
    expect(stderr).toMatch(/^weir: the lease is not renewed yet: .*\nweir: the lease has ended/);
  });

  test('a lease that cannot be released is one line', async () => {
    const job = start('unreleased', UNTIL_CLOSED, ['--ttl', '1h']);
    await says(job, 'started');
    proxy.isDown = true;
    job.child.stdin?.end();
    const { code, stderr } = await job.ended;
    const line = 'weir: the lease is not released, it ends by itself within 1h: no response from';
    expect([code, stderr.slice(0, line.length)]).toEqual([7, line]);
    expect(stderr).not.toContain('rlls_');
  });
});
