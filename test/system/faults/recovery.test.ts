/**
 * Usage lost in a restart: every allowed check is recorded, and compared with the usage after it. A
 * stop without another fault is part of `restart.test.ts`.
 */

import { execFileSync } from 'node:child_process';
import { closeSync, constants, existsSync, openSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { SHARDS } from '../../../src/core/constants.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { IS_LONG, newSeed, recordMeasurement, trialCount } from '../../support/guarantees.ts';
import {
  exchange,
  LONGEST_WINDOW_MS,
  readMetric,
  readMetrics,
  requestBytes,
  sendCheck,
} from '../../support/http.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import {
  DECIDE_MODES,
  type ServerOptions,
  type ServerProcess,
  waitUntil,
} from '../../support/server.ts';
import { readWorkerDeaths, workerFaults } from '../../support/worker-faults.ts';
import { openConnections } from './http-connections.ts';

vi.setConfig({ testTimeout: 600_000 });

const COUNTERS = 400;
const CONNECTIONS = 8;
const LIMIT = 1_000_000_000;
const CHECKPOINT_MS = 300;
/** Longer than a worker may be without a heartbeat, except while it waits for the disk. */
const STALL_MS = 1_200;

/** How long a run of a shard worker lasts on average before it fails. */
const LIFE_MS = trialCount(150, 60);
/** How it fails. The process notices an endless loop after half a second only. */
const DEATHS = ['exit', 'throw', ...(IS_LONG ? ['loop'] : [])];

const ARGS = [
  ...['--acceptors', '2', '--workers', '2', '--counters', '16384'],
  ...['--checkpoint-ms', String(CHECKPOINT_MS), '--drain-ms', '1000'],
];
const own = useDataDirectory(ARGS);

const bodyOf = (id: number) => ({
  identifier: `id_${id}`,
  limit: LIMIT,
  duration: LONGEST_WINDOW_MS,
});
const requests = Array.from({ length: COUNTERS }, (_, id) => {
  return requestBytes({ body: JSON.stringify(bodyOf(id)) });
});

/** Sends sequential checks until the connection ends. @returns the id of an unanswered check */
async function sendChecks(
  server: ServerProcess,
  below: (n: number) => number,
  onAllowed: (id: number) => void,
): Promise<number | undefined> {
  const [connection] = openConnections(server.port, 1);
  for (;;) {
    const id = below(COUNTERS);
    const response = await connection.send(requests[id]).catch(() => undefined);
    if (response === undefined) return id;
    if (!response.body.includes('"success":true')) throw new Error(response.body);
    onAllowed(id);
    // A server that drains announces the last response of a connection.
    if (response.headers.connection === 'close') return undefined;
  }
}

/** Sends one check to each counter. @returns the number of responses */
async function sendAllChecks(server: ServerProcess): Promise<number> {
  return (await exchange(server.port, requests, COUNTERS, true)).length;
}

/** The usage of each counter, by checks without a cost. */
async function readUsage(server: ServerProcess): Promise<number[]> {
  const checks = Array.from({ length: COUNTERS }, (_, id) => {
    return requestBytes({ body: JSON.stringify({ ...bodyOf(id), cost: 0 }) });
  });
  const responses = await exchange(server.port, checks, COUNTERS, true);
  return responses.map(({ body }) => LIMIT - JSON.parse(body).remaining);
}

interface RestartLoss {
  allowed: number;
  /** Tokens of allowed checks that are not counted after the restart. */
  lost: number;
  /** The age of the oldest of them at the end of the server. */
  oldestMs: number;
}

/**
 * Runs clients, ends the server, starts another, and counts the lost usage.
 * @param faults of the first server
 */
async function restartUnderLoad(
  mode: (typeof DECIDE_MODES)[number],
  below: (n: number) => number,
  end: (server: ServerProcess) => unknown,
  faults: ServerOptions = {},
): Promise<RestartLoss> {
  const options = { args: [...ARGS, '--decide', mode] };
  const first = await own.start({ ...options, ...faults });
  const before = await readUsage(first);
  /** By counter, when the responses to its allowed checks were received. */
  const allowedMs = Array.from({ length: COUNTERS }, (): number[] => []);
  const clients = Array.from({ length: CONNECTIONS }, () => {
    return sendChecks(first, below, (id) => allowedMs[id].push(performance.now()));
  });
  await sleep(2 * CHECKPOINT_MS + below(2 * CHECKPOINT_MS));
  await end(first);
  const endedMs = performance.now();
  await first.exited;
  const pendingIds = (await Promise.all(clients)).filter((id) => id !== undefined);
  const second = await own.start(options);
  const after = await readUsage(second);
  expect(await second.stop()).toEqual({ code: 0, signal: null });

  let lost = 0;
  let oldestMs = 0;
  for (const [id, answered] of allowedMs.entries()) {
    const counted = after[id] - before[id];
    const unanswered = pendingIds.filter((sent) => sent === id).length;
    // A counted check without a response was pending when the server ended.
    expect(counted).toBeLessThanOrEqual(answered.length + unanswered);
    const missing = Math.max(0, answered.length - counted);
    lost += missing;
    if (missing > 0) oldestMs = Math.max(oldestMs, endedMs - answered[answered.length - missing]);
  }
  return { allowed: allowedMs.flat().length, lost, oldestMs };
}

const sum = (outcomes: RestartLoss[], name: keyof RestartLoss) => {
  return outcomes.reduce((total, outcome) => total + outcome[name], 0);
};

test('kill -9 under load loses at most one checkpoint interval and one checkpoint duration', async () => {
  const kills = trialCount(1, 100);
  const seed = newSeed();
  const below = seededRandom(seed);
  const outcomes: RestartLoss[] = [];
  for (let kill = 0; kill < kills; kill++) {
    let ageMs = 0;
    const end = async ({ child, adminUrl }: ServerProcess) => {
      const startedMs = performance.now();
      const age = 'weir_checkpoint_age_seconds';
      await waitUntil('each shard has a checkpoint', async () => {
        ageMs = 1_000 * ((await readMetrics(adminUrl)).get(age) ?? Number.NaN);
        return !Number.isNaN(ageMs);
      });
      child.kill('SIGKILL');
      ageMs += performance.now() - startedMs;
    };
    const outcome = await restartUnderLoad(DECIDE_MODES[kill % 2], below, end);
    outcomes.push(outcome);
    // Writing a checkpoint of this size takes a few milliseconds. On a busy machine it takes longer,
    // and the metric says so.
    expect(outcome.oldestMs).toBeLessThan(Math.max(CHECKPOINT_MS + 1_000, ageMs + 10));
  }
  const ages = outcomes.map(({ oldestMs }) => oldestMs).toSorted((a, b) => a - b);
  const lost = sum(outcomes, 'lost');
  const allowed = sum(outcomes, 'allowed');
  const fault = `kill -9 under load, checkpoints every ${CHECKPOINT_MS} ms`;
  const oldest = `the oldest ${Math.round(ages.at(-1)!)} ms before`;
  const measured = `${lost} lost, ${oldest} (median ${Math.round(ages[kills >> 1])}); seed ${seed}`;
  recordMeasurement('P6', fault, `${kills} kills, ${allowed} allowed checks`, measured);
  expect(allowed).toBeGreaterThan(kills * 100);
});

test('SIGTERM under load loses no usage if shard workers decide', async () => {
  const stops = trialCount(1, 20);
  const seed = newSeed();
  const below = seededRandom(seed);
  const outcomes: RestartLoss[] = [];
  for (let stop = 0; stop < stops; stop++) {
    const end = ({ child }: ServerProcess) => child.kill('SIGTERM');
    outcomes.push(await restartUnderLoad('worker', below, end));
  }
  const lost = sum(outcomes, 'lost');
  const trials = `${stops} stops, ${sum(outcomes, 'allowed')} allowed checks`;
  recordMeasurement('P6', 'SIGTERM, decisions in workers', trials, `${lost} lost; seed ${seed}`);
  expect(lost).toBe(0);
});

test('SIGTERM while shard workers die, during checkpoints too, loses no usage', async () => {
  const stops = trialCount(1, 20);
  const seed = newSeed();
  const below = seededRandom(seed);
  const outcomes: RestartLoss[] = [];
  let deaths = 0;
  for (let stop = 0; stop < stops; stop++) {
    const end = async (server: ServerProcess) => {
      await waitUntil('two workers have died', () => readWorkerDeaths(server).total > 1);
      server.child.kill('SIGTERM');
      await server.exited;
      deaths += readWorkerDeaths(server).total;
    };
    const faults = workerFaults(LIFE_MS, DEATHS);
    outcomes.push(await restartUnderLoad('in-place', below, end, faults));
  }
  const lost = sum(outcomes, 'lost');
  const trials = `${stops} stops, ${deaths} deaths, ${sum(outcomes, 'allowed')} allowed checks`;
  recordMeasurement('P6', 'SIGTERM while workers die', trials, `${lost} lost; seed ${seed}`);
  expect(lost).toBe(0);
});

test('failed checkpoint writes are counted and logged, checks go on, and writes succeed again', async () => {
  const server = await own.start();
  const limitFiles = (bytes: string) => {
    execFileSync('prlimit', ['--pid', String(server.child.pid), `--fsize=${bytes}`]);
  };
  limitFiles('1:');
  const failures = () => readMetric(server.adminUrl, 'weir_checkpoint_failures_total');
  await waitUntil('checkpoints have failed', async () => {
    for (let id = 0; id < 50; id++) await sendCheck(server.port, bodyOf(id));
    return (await failures()) >= SHARDS;
  });
  const failing = 'counters cannot be written; a restart would lose them';
  await waitUntil('the log reports the failures', () => server.stderr().includes(failing));
  expect(server.stderr()).toContain('"error":"EFBIG"');
  limitFiles('unlimited:');
  await waitUntil('the log reports the recovery', () => {
    return server.stderr().includes('counters are written again');
  });
  for (let id = 0; id < 50; id++) await sendCheck(server.port, bodyOf(id));
  const failed = await failures();
  expect(await server.stop()).toEqual({ code: 0, signal: null });
  const again = await own.start();
  const used = await readUsage(again);
  expect([used[0] > 1, used.slice(0, 51)]).toEqual([true, [...Array(50).fill(used[0]), 0]]);
  const trials = `${failed} failed writes`;
  recordMeasurement('P6', 'file size limit, removed later', trials, '0 lost by the next stop');
});

test('a disk that stalls longer than a heartbeat may be late replaces no worker, and checks go on', async () => {
  const server = await own.start();
  const paths = [0, 1].map((number) => join(own.dataDir, `counters-0.${number}`));
  await waitUntil('the checkpoint files exist', async () => {
    await sendAllChecks(server);
    return paths.every((path) => existsSync(path));
  });
  // Opening a FIFO for writing blocks until it has a reader.
  for (const path of paths) {
    execFileSync('mkfifo', [`${path}.pipe`]);
    renameSync(`${path}.pipe`, path);
  }
  const startedMs = performance.now();
  let checks = 0;
  let running = 2;
  // The stall begins with the next checkpoint.
  while (running !== 1 || performance.now() - startedMs < STALL_MS) {
    checks += await sendAllChecks(server);
    running = await readMetric(server.adminUrl, 'weir_workers_running');
  }
  // No worker may open a FIFO that has no reader any more.
  const readers = paths.map((path) => openSync(path, constants.O_RDONLY | constants.O_NONBLOCK));
  for (const path of paths) rmSync(path);
  for (const reader of readers) closeSync(reader);
  await waitUntil('all workers run', async () => {
    await sendAllChecks(server);
    return (await readMetric(server.adminUrl, 'weir_workers_running')) === 2;
  });
  await waitUntil('both files are written again', async () => {
    // A worker writes the second file when counters have changed after the first.
    await sendAllChecks(server);
    return paths.every((path) => existsSync(path));
  });
  const replaced = await readMetric(server.adminUrl, 'weir_workers_replaced_total');
  const fault = `a disk that stalls for ${STALL_MS} ms`;
  recordMeasurement('P6', fault, `${checks} checks`, `${replaced} workers replaced`);
  expect([running, replaced], server.stderr().slice(-2_000)).toEqual([1, 0]);
  const used = await readUsage(server);
  expect(await server.stop()).toEqual({ code: 0, signal: null });
  expect(await readUsage(await own.start())).toEqual(used);
});
