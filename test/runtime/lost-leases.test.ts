/** What servers do with leases that a crash has lost, under both values of WEIR_ON_LOST_LEASES. */

import { existsSync, mkdirSync, readFileSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import {
  HOLD_TTL_MAX_MS,
  LEASE_HORIZON_RETRY_MS,
  LEASE_HORIZON_STEP_MS,
  SHARDS,
} from '../../src/core/constants.ts';
import { EXIT } from '../../src/core/exit.ts';
import { LEASE_HORIZON_FILE, readHorizon } from '../../src/engine/holds/horizon-file.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import { readMetrics, sendRequest } from '../support/http.ts';
import { logRecords } from '../support/log-records.ts';
import type { ApiClient, Fields } from '../support/operations.ts';
import {
  type ServerProcess,
  spawnServer,
  startSteppedServer,
  waitUntil,
} from '../support/server.ts';

/** No checkpoint is written but the last one of a stop. */
const ARGS = ['--counters', '1024', '--acceptors', '1', '--checkpoint-ms', '1h'];
const TTL_MS = 60_000;
const WAIT_METRIC = 'weir_lease_wait_seconds';
const WARNING =
  'weir crashed in its last run, and the leases that it lost may still be live: every' +
  ' acquire is denied until they have ended (WEIR_ON_LOST_LEASES is wait)';

const own = useDataDirectory(ARGS);
/** The first ones, before there are leases. There are no others until a stop. */
const waitForCheckpoints = ({ adminUrl }: ServerProcess) => {
  return waitUntil('each shard has a checkpoint', async () => {
    return (await readMetrics(adminUrl)).has('weir_checkpoint_age_seconds');
  });
};
const start = async (policy: 'continue' | 'wait') => {
  const args = [...ARGS, '--on-lost-leases', policy];
  const server = own.adopt(await startSteppedServer(own.dataDir, { args }));
  await waitForCheckpoints(server);
  return server;
};
const kill9 = async ({ child, exited }: ServerProcess) => {
  child.kill('SIGKILL');
  await exited;
};
const stop = async (server: ServerProcess) => {
  expect(await server.stop()).toEqual({ code: 0, signal: null });
};
const acquire = (server: ApiClient, identifier = 'job', ttl = TTL_MS) => {
  return server.ok('ratelimits.acquire', { identifier, limit: 1, ttl });
};
const horizonFile = () => join(own.dataDir, LEASE_HORIZON_FILE);
const readiness = async ({ adminUrl }: ServerProcess): Promise<Fields> => {
  const port = Number(new URL(adminUrl).port);
  const { status, body } = await sendRequest(port, { method: 'GET', path: '/readyz' });
  return { http: status, ...JSON.parse(body) };
};

test('by default a lease that a crash has lost is granted again, and no file is written', async () => {
  const first = await own.start();
  await waitForCheckpoints(first);
  const { leaseId } = await acquire(first);
  expect(existsSync(horizonFile())).toBe(false);
  await kill9(first);
  const next = await start('continue');
  expect(await acquire(next)).toMatchObject({ success: true, inUse: 1 });
  expect(await next.ok('ratelimits.renew', { leaseId, ttl: TTL_MS })).toMatchObject({
    success: false,
  });
  expect(await next.metric(WAIT_METRIC)).toBe(0);
});

describe('with WEIR_ON_LOST_LEASES=wait', () => {
  test('after a crash every acquire is denied until the last lost lease has ended', async () => {
    const first = await start('wait');
    const { expiresAt } = await acquire(first);
    await kill9(first);
    const next = await start('wait');
    const denied = { success: false, leaseId: null, inUse: 0, limit: 1, expiresAt: null };
    expect(await acquire(next)).toEqual(denied);
    expect(await acquire(next, 'other')).toEqual(denied);
    // A shard worker may still start.
    await waitUntil('it is ready', async () => (await readiness(next)).status === 'ready');
    const untilMs = Number(expiresAt) + LEASE_HORIZON_STEP_MS;
    const until = new Date(untilMs).toISOString().replace('.000Z', 'Z');
    const warnings = () => logRecords(next, WARNING);
    await expect.poll(warnings).toMatchObject([{ level: 40, until, file: horizonFile() }]);
    const waitS = await next.metric(WAIT_METRIC);
    expect(waitS).toBeGreaterThan(0);
    expect(waitS).toBeLessThanOrEqual((TTL_MS + LEASE_HORIZON_STEP_MS) / 1_000);
    await next.stepClock(Number(expiresAt) - next.nowMs() - 1_000);
    expect(await acquire(next)).toEqual(denied);
    await next.stepClock(LEASE_HORIZON_STEP_MS + 2_000);
    expect(await acquire(next)).toMatchObject({ success: true, inUse: 1 });
    expect(await next.metric(WAIT_METRIC)).toBe(0);
    expect(warnings()).toHaveLength(1);
  });

  test('a stop saves all leases, so the next start grants at once', async () => {
    const first = await start('wait');
    const { leaseId } = await acquire(first);
    expect(existsSync(horizonFile())).toBe(true);
    await stop(first);
    expect(existsSync(horizonFile())).toBe(false);
    const next = await start('wait');
    expect(await acquire(next)).toMatchObject({ success: false, inUse: 1 });
    expect(await acquire(next, 'other')).toMatchObject({ success: true });
    expect(await next.ok('ratelimits.release', { leaseId })).toEqual({ released: 1 });
    expect(logRecords(next, WARNING)).toEqual([]);
  });

  test('a stop that cannot write the last checkpoint makes the next start wait', async () => {
    const first = await start('wait');
    await acquire(first);
    const files = Array.from({ length: SHARDS }, (_, shard) => {
      return [0, 1].map((number) => join(own.dataDir, `counters-${shard}.${number}`));
    }).flat();
    for (const file of files) {
      rmSync(file, { force: true });
      mkdirSync(file);
    }
    await stop(first);
    expect(existsSync(horizonFile())).toBe(true);
    for (const file of files) rmdirSync(file);
    expect(await acquire(await start('wait'))).toMatchObject({ success: false, inUse: 0 });
  });

  test('a stop does not end a wait, and leases that are known are renewed in it', async () => {
    const first = await start('wait');
    const { leaseId } = await acquire(first);
    await stop(first);
    const second = await start('wait');
    await acquire(second, 'lost');
    await kill9(second);
    const waiting = await start('wait');
    const renewed = await waiting.ok('ratelimits.renew', { leaseId, ttl: 2 * TTL_MS });
    expect(renewed).toMatchObject({ success: true, inUse: 1 });
    expect(await acquire(waiting, 'lost')).toMatchObject({ success: false, inUse: 0 });
    await stop(waiting);
    const next = await start('wait');
    expect(await acquire(next, 'lost')).toMatchObject({ success: false, inUse: 0 });
    await expect.poll(() => logRecords(next, WARNING)).toHaveLength(1);
  });

  test('a start after a crash may be told to continue', async () => {
    const first = await start('wait');
    await acquire(first);
    await kill9(first);
    const next = await start('continue');
    expect(await acquire(next)).toMatchObject({ success: true });
    expect(logRecords(next, WARNING)).toEqual([]);
  });

  test('a damaged file makes the wait as long as the longest ttl', async () => {
    const first = await start('wait');
    await acquire(first);
    await kill9(first);
    writeFileSync(horizonFile(), readFileSync(horizonFile()).subarray(1));
    const next = await start('wait');
    expect(await acquire(next)).toMatchObject({ success: false });
    expect(await next.metric(WAIT_METRIC)).toBeGreaterThan(HOLD_TTL_MAX_MS / 1_000 - 300);
  });

  test('a file that cannot be read stops the start', async () => {
    const first = await start('wait');
    await stop(first);
    mkdirSync(horizonFile());
    const server = await spawnServer(own.dataDir, { args: ARGS });
    own.started.push(server);
    expect(await server.exited).toEqual({ code: EXIT.CANNOT_SERVE, signal: null });
    expect(server.stderr()).toContain(`${horizonFile()} is a directory, not a regular file`);
  });

  test('a lease whose horizon cannot be written is a 503, in the log and in /readyz', async () => {
    const server = await start('wait');
    const unfinished = `${horizonFile()}.new`;
    mkdirSync(unfinished);
    const fields = { identifier: 'job', limit: 1, ttl: TTL_MS };
    const cause = `${horizonFile()} cannot be written (EISDIR)`;
    const { status, body, headers } = await server.call('ratelimits.acquire', fields);
    expect([status, headers['retry-after']]).toEqual([503, '1']);
    expect(body).toContain(`no lease can be granted or renewed: ${cause}; nothing was changed`);
    const message = 'the lease horizon cannot be written; acquire and renew get a 503';
    await waitUntil('the failure is logged', () => logRecords(server, message).length > 0);
    const logged = { level: 50, error: 'EISDIR', path: horizonFile(), failures: 1 };
    expect(logRecords(server, message)).toMatchObject([logged]);
    const { http, status: state, reasons } = await readiness(server);
    expect([http, state]).toEqual([200, 'degraded']);
    const text = expect.stringContaining(`disk: ${cause}; leases get a 503. It began `);
    expect(reasons).toContainEqual(text);
    const reserved = { identifier: 'a', limit: 1, cost: 1, duration: TTL_MS, ttl: TTL_MS };
    expect(await server.ok('ratelimits.reserve', reserved)).toMatchObject({ success: true });
    rmdirSync(unfinished);
    let lease: Fields | undefined;
    await waitUntil(`the disk is tried again after ${LEASE_HORIZON_RETRY_MS} ms`, async () => {
      const answer = await server.call('ratelimits.acquire', fields);
      if (answer.status === 200) lease = JSON.parse(answer.body);
      return lease !== undefined;
    });
    expect(lease).toMatchObject({ success: true, inUse: 1 });
    expect(readHorizon(own.dataDir)).toBe(Number(lease!.expiresAt) + LEASE_HORIZON_STEP_MS);
    await waitUntil('its end is logged', () => {
      return logRecords(server, 'leases are granted again').length > 0;
    });
    await waitUntil('it is ready', async () => (await readiness(server)).status === 'ready');
  });
});
