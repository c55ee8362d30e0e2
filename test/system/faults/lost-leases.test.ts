/**
 * WEIR_ON_LOST_LEASES=wait under `kill -9`: the jobs that run, as their clients believe, never
 * exceed the limit. The process is also killed in each system call that writes the lease horizon.
 */

import { spawn, spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test, vi } from 'vitest';
import { LEASE_HORIZON_STEP_MS } from '../../../src/core/constants.ts';
import { horizonPath, readHorizon } from '../../../src/engine/holds/horizon-file.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { newSeed, recordMeasurement, trialCount } from '../../support/guarantees.ts';
import { readMetric } from '../../support/http.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { type ServerProcess, waitUntil } from '../../support/server.ts';
import { callOn, operationBytes } from './hold-clients.ts';
import { openConnections } from './http-connections.ts';
import { expectCleanStop } from './server-health.ts';

vi.setConfig({ testTimeout: trialCount(180_000, 3_600_000) });

const KILLS = trialCount(4, 120);
/** Of so many kills, one comes while the server waits. The others come after the wait. */
const KILL_IN_WAIT = 3;
const CLIENTS = 6;
const IDENTIFIERS = ['job_0', 'job_1', 'job_2'];
const LIMIT = 3;
const TTL_MIN_MS = 1_000;
const TTL_MAX_MS = 3_000;
/** How far the clocks of the server and of this process may differ. */
const CLOCK_SLACK_MS = 5;
const CHECKPOINT_MS = 1_000;

const ARGS = ['--counters', '1024', '--acceptors', '2', '--checkpoint-ms', String(CHECKPOINT_MS)];
const own = useDataDirectory([...ARGS, '--on-lost-leases', 'wait']);

interface RunningJob {
  identifier: string;
  leaseId: string;
  cost: number;
  expiresAt: number;
}

/** The jobs that run, as their clients believe. */
class RunningJobs {
  granted = 0;
  renewed = 0;
  denied = 0;
  mostTokens = 0;
  readonly #jobs: RunningJob[] = [];
  readonly #inRequests = new Set<RunningJob>();

  start(job: RunningJob): void {
    this.granted++;
    this.#jobs.push(job);
    const own = this.#running().filter(({ identifier }) => identifier === job.identifier);
    const tokens = own.reduce((sum, { cost }) => sum + cost, 0);
    this.mostTokens = Math.max(this.mostTokens, tokens);
  }

  end(job: RunningJob): void {
    this.#jobs.splice(this.#jobs.indexOf(job), 1);
  }

  /** Does something with a job while no other client does. */
  async use(below: (n: number) => number, work: (job: RunningJob) => Promise<void>) {
    const free = this.#running().filter((job) => !this.#inRequests.has(job));
    const job = free[below(Math.max(1, free.length))];
    if (job === undefined) return;
    this.#inRequests.add(job);
    try {
      await work(job);
    } finally {
      this.#inRequests.delete(job);
    }
  }

  #running(): RunningJob[] {
    const nowMs = Date.now();
    return this.#jobs.filter(({ expiresAt }) => expiresAt > nowMs + CLOCK_SLACK_MS);
  }
}

/** Acquires, renews and releases, one request after the other, until the server ends. */
async function runClient(port: number, jobs: RunningJobs, below: (n: number) => number) {
  const [connection] = openConnections(port, 1);
  const nextTtlMs = () => TTL_MIN_MS + below(TTL_MAX_MS - TTL_MIN_MS + 1);
  const acquire = async () => {
    const identifier = IDENTIFIERS[below(IDENTIFIERS.length)];
    const fields = { identifier, limit: LIMIT, cost: 1 + below(2), ttl: nextTtlMs() };
    const answer = await callOn(connection, 'ratelimits.acquire', fields);
    if (!answer.success) {
      jobs.denied++;
      return;
    }
    const { leaseId, expiresAt } = answer as { leaseId: string; expiresAt: number };
    jobs.start({ identifier, leaseId, cost: fields.cost, expiresAt });
  };
  const renew = () => {
    return jobs.use(below, async (job) => {
      const fields = { leaseId: job.leaseId, ttl: nextTtlMs() };
      const { success, expiresAt } = await callOn(connection, 'ratelimits.renew', fields);
      // A job whose lease is lost may run until the end that it knows.
      if (!success) return;
      job.expiresAt = Number(expiresAt);
      jobs.renewed++;
    });
  };
  const release = () => {
    return jobs.use(below, async (job) => {
      // It has ended before its client says so.
      jobs.end(job);
      const request = operationBytes('ratelimits.release', { leaseId: job.leaseId });
      const { status } = await connection.send(request);
      // A lease that is lost is unknown.
      expect([200, 404]).toContain(status);
    });
  };
  const acts = [acquire, acquire, acquire, renew, release];
  while (!connection.isClosed) {
    try {
      await acts[below(acts.length)]();
    } catch (error) {
      if (!connection.isClosed) throw error;
    }
    await sleep(below(10));
  }
}

const waitS = ({ adminUrl }: ServerProcess) => readMetric(adminUrl, 'weir_lease_wait_seconds');

test('over kills at random moments, the jobs that run never exceed the limit', async () => {
  const seed = newSeed();
  const below = seededRandom(seed);
  const jobs = new RunningJobs();
  let longestWaitS = 0;
  for (let kill = 0; kill < KILLS; kill++) {
    const server = await own.start();
    longestWaitS = Math.max(longestWaitS, await waitS(server));
    const clients = Array.from({ length: CLIENTS }, () => runClient(server.port, jobs, below));
    if (kill % KILL_IN_WAIT !== KILL_IN_WAIT - 1) {
      await waitUntil('the wait has ended', async () => (await waitS(server)) === 0);
    }
    await sleep(100 + below(2_500));
    server.child.kill('SIGKILL');
    await server.exited;
    await Promise.all(clients);
    expect(jobs.mostTokens).toBeLessThanOrEqual(LIMIT);
  }
  const server = await own.start();
  await expectCleanStop(server);
  const fault = `kill -9 under leases, checkpoints every ${CHECKPOINT_MS} ms`;
  const trials = `${KILLS} kills, ${jobs.granted} leases, ${jobs.renewed} renewals`;
  const wait = `longest wait ${longestWaitS} s for a ttl of ${TTL_MAX_MS / 1_000} s`;
  recordMeasurement('P1', fault, trials, `limit ${LIMIT} not exceeded; ${wait}; seed ${seed}`);
  expect(jobs.mostTokens).toBe(LIMIT);
  expect([jobs.denied, jobs.renewed].every((count) => count > KILLS)).toBe(true);
  expect(longestWaitS).toBeGreaterThan(0);
  expect(longestWaitS).toBeLessThanOrEqual((TTL_MAX_MS + LEASE_HORIZON_STEP_MS) / 1_000);
});

/** Tests are skipped if strace is missing or may not attach; in CI they fail instead. */
const withoutTrace =
  spawnSync('strace', ['-qq', '-e', 'trace=none', 'true']).status !== 0 &&
  process.env.CI === undefined;

/**
 * The system calls of a write of the horizon in their order: which one of its kind a call is, and
 * what the file has before it.
 */
const CALLS = [
  ...([
    ['/^unlink', 1, 'old'],
    ['openat', 1, 'old'],
    ['write', 1, 'old'],
    ['fsync', 1, 'old'],
  ] as const),
  ...([
    ['/^rename', 1, 'old'],
    ['openat', 2, 'new'],
    ['fsync', 2, 'new'],
  ] as const),
];

/** Ends the process in a system call on the files of the horizon. */
async function injectKill({ child: { pid } }: ServerProcess, call: string, number: number) {
  const path = horizonPath(own.dataDir);
  const paths = [own.dataDir, path, `${path}.new`].flatMap((one) => ['-P', one]);
  const fault = `inject=${call}:signal=SIGKILL:when=${number}`;
  const options = ['-f', '-qq', ...paths, '-e', `trace=${call}`, '-e', fault];
  spawn('strace', [...options, '-p', String(pid)], { stdio: 'ignore' });
  await waitUntil('the server is traced', () => {
    return !/^TracerPid:\t0$/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  });
}

describe.skipIf(withoutTrace)('in a system call that writes the lease horizon,', () => {
  test('a kill -9 leaves the old horizon or the new one, and grants no lease', async () => {
    const fields = { identifier: 'job', limit: LIMIT, ttl: TTL_MIN_MS };
    let oldMs = 0;
    for (const [call, number, expected] of CALLS) {
      const server = await own.start();
      await waitUntil('the wait has ended', async () => (await waitS(server)) === 0);
      await injectKill(server, call, number);
      const [connection] = openConnections(server.port, 1);
      await expect(callOn(connection, 'ratelimits.acquire', fields)).rejects.toThrow('closed');
      expect(await server.exited).toEqual({ code: null, signal: 'SIGKILL' });
      const ms = readHorizon(own.dataDir);
      expect([call, ms === oldMs ? 'old' : 'new']).toEqual([call, expected]);
      expect(Number.isFinite(ms)).toBe(true);
      oldMs = ms;
    }
    const server = await own.start();
    await waitUntil('the wait has ended', async () => (await waitS(server)) === 0);
    const [connection] = openConnections(server.port, 1);
    const lease = await callOn(connection, 'ratelimits.acquire', fields);
    expect(lease.success).toBe(true);
    connection.socket.destroy();
    await expectCleanStop(server);
    expect(readHorizon(own.dataDir)).toBe(0);
    const fault = 'kill -9 in a write of the lease horizon';
    recordMeasurement('P1', fault, `${CALLS.length} calls`, 'no lease granted, no wait lost');
  });
});

test('a disk that is slower than WEIR_UNRESPONSIVE_MS delays a lease, and ends no acceptor', async () => {
  const file = join(own.dataDir, 'strike');
  const preload = new URL('../../support/acceptor-fault.preload.mjs', import.meta.url).pathname;
  const args = ['--counters', '1024', '--acceptors', '1', '--on-lost-leases', 'wait'];
  const directory = ['--data-dir', join(own.dataDir, 'data')];
  const server = await own.start({
    args: [...args, ...directory],
    execArgv: ['--import', preload],
    env: { FAULT: 'slowDisk', FAULT_FILE: file },
  });
  writeFileSync(file, '');
  await waitUntil('the disk is slow', () => server.stderr().includes('fault injected'));
  const [connection] = openConnections(server.port, 1);
  const fields = { identifier: 'job', limit: 1, ttl: TTL_MIN_MS };
  expect(await callOn(connection, 'ratelimits.acquire', fields)).toMatchObject({ success: true });
  expect(server.stderr()).toContain('fsync was slow');
  connection.socket.destroy();
  await expectCleanStop(server);
});
