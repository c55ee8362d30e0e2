/** What a restart forgets: every answer is noted with its time, and compared with what is left. */

import { execFileSync } from 'node:child_process';
import { closeSync, constants, existsSync, openSync, renameSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { SHARDS } from '../../src/core/constants.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import { newSeed, recordMeasurement, trialCount } from '../support/guarantees.ts';
import {
  exchange,
  LONGEST_WINDOW_MS,
  readMetric,
  requestBytes,
  sendCheck,
} from '../support/http.ts';
import { seededRandom } from '../support/seeded-random.ts';
import { DECIDE_MODES, type ServerProcess, waitUntil } from '../support/server.ts';
import { readWorkerDeaths, startWithWorkerFaults } from '../support/worker-faults.ts';

const COUNTERS = 400;
const CONNECTIONS = 8;
const LIMIT = 1_000_000_000;
const EVERY_MS = 300;
/** A worker without a sign of life for half as long is replaced, unless it waits for the disk. */
const STALL_MS = 1_200;

const ARGS = [
  ...['--acceptors', '2', '--workers', '2', '--counters', '16384'],
  ...['--checkpoint-ms', String(EVERY_MS), '--drain-ms', '1000'],
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

/** An admission that was answered. */
interface AllowedCheck {
  id: number;
  atMs: number;
}

/** Asks on one connection, one check after the other, until it ends. @returns what was sent last */
async function sendChecks(
  server: ServerProcess,
  below: (n: number) => number,
  admit: (id: number) => void,
): Promise<number | undefined> {
  const socket = connect(server.port, '127.0.0.1');
  socket.setNoDelay(true);
  let onItsWay: number | undefined;
  const send = () => {
    onItsWay = below(COUNTERS);
    socket.write(requests[onItsWay]);
  };
  socket.on('connect', send);
  socket.on('error', () => {});
  socket.on('data', (data) => {
    if (!data.includes('"success":true')) throw new Error(`${data}`);
    admit(onItsWay!);
    onItsWay = undefined;
    // The last answer of a server that drains says so.
    if (data.includes('Connection: close') || data.includes('connection: close')) socket.end();
    else send();
  });
  await new Promise((closed) => socket.on('close', closed));
  return onItsWay;
}

/** One check of each counter. @returns how many that is */
async function sendAllChecks(server: ServerProcess): Promise<number> {
  return (await exchange(server.port, requests, COUNTERS, true)).length;
}

/** What is used of each counter, by looks that cost nothing. */
async function readUsage(server: ServerProcess): Promise<number[]> {
  const looks = Array.from({ length: COUNTERS }, (_, id) => {
    return requestBytes({ body: JSON.stringify({ ...bodyOf(id), cost: 0 }) });
  });
  const answers = await exchange(server.port, looks, COUNTERS, true);
  return answers.map(({ body }) => LIMIT - JSON.parse(body).remaining);
}

interface RestartLoss {
  admissions: number;
  /** Tokens of answered admissions that are not counted any more, and the age of the oldest. */
  forgotten: number;
  oldestMs: number;
}

/**
 * Lets clients ask, ends the server as told, starts another, and counts what it has forgotten.
 * @param start starts the first
 */
async function restartUnderLoad(
  mode: (typeof DECIDE_MODES)[number],
  below: (n: number) => number,
  end: (server: ServerProcess) => void,
  start: (options: { args: string[] }) => Promise<ServerProcess> = own.start,
): Promise<RestartLoss> {
  const options = { args: [...ARGS, '--decide', mode] };
  const first = await start(options);
  const before = await readUsage(first);
  const admissions: AllowedCheck[] = [];
  const clients = Array.from({ length: CONNECTIONS }, () =>
    sendChecks(first, below, (id) => admissions.push({ id, atMs: performance.now() })),
  );
  await new Promise((resolve) => setTimeout(resolve, 2 * EVERY_MS + below(2 * EVERY_MS)));
  end(first);
  const endedMs = performance.now();
  await first.exited;
  const onTheirWay = (await Promise.all(clients)).filter((id) => id !== undefined);
  const second = await own.start(options);
  const after = await readUsage(second);
  expect(await second.stop()).toEqual({ code: 0, signal: null });

  let forgotten = 0;
  let oldestMs = 0;
  for (let id = 0; id < COUNTERS; id++) {
    const answered = admissions.filter((admission) => admission.id === id);
    const counted = after[id] - before[id];
    const unanswered = onTheirWay.filter((sent) => sent === id).length;
    // What was counted and not answered was on its way when the server ended.
    expect(counted).toBeLessThanOrEqual(answered.length + unanswered);
    const lost = Math.max(0, answered.length - counted);
    forgotten += lost;
    if (lost > 0) oldestMs = Math.max(oldestMs, endedMs - answered[answered.length - lost].atMs);
  }
  return { admissions: admissions.length, forgotten, oldestMs };
}

const sum = (outcomes: RestartLoss[], of: (outcome: RestartLoss) => number) => {
  return outcomes.reduce((total, outcome) => total + of(outcome), 0);
};

test('kill -9 under load forgets at most one interval of checkpoints and the writing of one', async () => {
  const kills = trialCount(2, 100);
  const seed = newSeed();
  const below = seededRandom(seed);
  const outcomes: RestartLoss[] = [];
  for (let kill = 0; kill < kills; kill++) {
    const outcome = await restartUnderLoad(DECIDE_MODES[kill % 2], below, ({ child }) =>
      child.kill('SIGKILL'),
    );
    outcomes.push(outcome);
    // A checkpoint of this size is written in some milliseconds; a busy machine may take longer.
    expect(outcome.oldestMs).toBeLessThan(EVERY_MS + 1_000);
  }
  const ages = outcomes.map(({ oldestMs }) => oldestMs).toSorted((a, b) => a - b);
  const forgotten = sum(outcomes, (outcome) => outcome.forgotten);
  const admissions = sum(outcomes, (outcome) => outcome.admissions);
  recordMeasurement(
    'P6',
    `kill -9 under load, checkpoints every ${EVERY_MS} ms`,
    `${kills} kills, ${admissions} admissions`,
    `${forgotten} forgotten, the oldest ${Math.round(ages.at(-1)!)} ms before` +
      ` (median ${Math.round(ages[ages.length >> 1])}); seed ${seed}`,
  );
  expect(admissions).toBeGreaterThan(kills * 100);
}, 600_000);

test('SIGTERM under load forgets nothing', async () => {
  const stops = trialCount(1, 50);
  const seed = newSeed();
  const below = seededRandom(seed);
  const outcomes: RestartLoss[] = [];
  for (let stop = 0; stop < stops; stop++) {
    outcomes.push(
      await restartUnderLoad(DECIDE_MODES[stop % 2], below, ({ child }) => child.kill('SIGTERM')),
    );
  }
  const admissions = sum(outcomes, (outcome) => outcome.admissions);
  const forgotten = sum(outcomes, (outcome) => outcome.forgotten);
  recordMeasurement(
    'P6',
    'SIGTERM under load',
    `${stops} stops, ${admissions} admissions`,
    `${forgotten} forgotten; seed ${seed}`,
  );
  expect(forgotten).toBe(0);
}, 600_000);

test('SIGTERM while shard workers die, amid their checkpoints too, forgets nothing', async () => {
  const stops = trialCount(1, 20);
  const seed = newSeed();
  const below = seededRandom(seed);
  let deaths = 0;
  const outcomes: RestartLoss[] = [];
  for (let stop = 0; stop < stops; stop++) {
    let faulty: ServerProcess | undefined;
    const start = async ({ args }: { args: string[] }) => {
      faulty = await startWithWorkerFaults(own.dataDir, args, 60, ['exit', 'throw', 'loop']);
      own.started.push(faulty);
      return faulty;
    };
    const end = ({ child }: ServerProcess) => child.kill('SIGTERM');
    outcomes.push(await restartUnderLoad('in-place', below, end, start));
    deaths += readWorkerDeaths(faulty!).total;
  }
  const forgotten = sum(outcomes, (outcome) => outcome.forgotten);
  const tried = `${stops} stops, ${deaths} deaths`;
  recordMeasurement(
    'P6',
    'SIGTERM while shard workers die',
    tried,
    `${forgotten} forgotten; seed ${seed}`,
  );
  expect(deaths).toBeGreaterThan(stops);
  expect(forgotten).toBe(0);
}, 600_000);

test('a disk that takes no more checkpoints is counted and logged, checks go on, and files come back', async () => {
  const server = await own.start();
  const limitFiles = (bytes: string) => {
    execFileSync('prlimit', ['--pid', String(server.child.pid), `--fsize=${bytes}`]);
  };
  limitFiles('1:');
  const failures = () => readMetric(server.adminUrl, 'weir_checkpoint_failures_total');
  await waitUntil('it has failed', async () => {
    for (let id = 0; id < 50; id++) await sendCheck(server.port, bodyOf(id));
    return (await failures()) >= SHARDS;
  });
  const failing = 'counters cannot be written; a restart would lose them';
  await waitUntil('the log says so', () => server.stderr().includes(failing));
  expect(server.stderr()).toContain('"error":"EFBIG"');
  limitFiles('unlimited:');
  await waitUntil('the log says so', () => server.stderr().includes('counters are written again'));
  for (let id = 0; id < 50; id++) await sendCheck(server.port, bodyOf(id));
  const failed = await failures();
  expect(await server.stop()).toEqual({ code: 0, signal: null });
  const again = await own.start();
  const used = await readUsage(again);
  expect([used[0] > 1, used.slice(0, 51)]).toEqual([true, [...Array(50).fill(used[0]), 0]]);
  const tried = `${failed} writes that failed`;
  recordMeasurement(
    'P6',
    'files that may not grow, and may again',
    tried,
    '0 forgotten by the stop behind it',
  );
}, 60_000);

test('a disk that stalls for longer than a thread may hang is waited for, and checks go on', async () => {
  const server = await own.start();
  const paths = [0, 1].map((number) => join(own.dataDir, `counters-0.${number}`));
  await waitUntil('they are there', async () => {
    await sendAllChecks(server);
    return paths.every((path) => existsSync(path));
  });
  // Opening such a file for writing waits for a reader.
  for (const path of paths) {
    execFileSync('mkfifo', [`${path}.pipe`]);
    renameSync(`${path}.pipe`, path);
  }
  const startedMs = performance.now();
  let checks = 0;
  while (performance.now() - startedMs < STALL_MS) checks += await sendAllChecks(server);
  const running = await readMetric(server.adminUrl, 'weir_workers_running');
  for (const path of paths) {
    closeSync(openSync(path, constants.O_RDONLY | constants.O_NONBLOCK));
    rmSync(path);
  }
  await waitUntil('all workers run', async () => {
    await sendAllChecks(server);
    return (await readMetric(server.adminUrl, 'weir_workers_running')) === 2;
  });
  await waitUntil('it is written again', async () => {
    // The second file is written once something is decided after the first.
    await sendAllChecks(server);
    return paths.every((path) => existsSync(path));
  });
  const replaced = await readMetric(server.adminUrl, 'weir_workers_replaced_total');
  recordMeasurement(
    'P6',
    `a disk that stalls for ${STALL_MS} ms`,
    `${checks} checks`,
    `${replaced} workers replaced`,
  );
  expect([running, replaced], server.stderr().slice(-2_000)).toEqual([1, 0]);
  const used = await readUsage(server);
  expect(await server.stop()).toEqual({ code: 0, signal: null });
  expect(await readUsage(await own.start())).toEqual(used);
}, 60_000);
