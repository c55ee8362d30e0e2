/** What a restart forgets: every answer is noted with its time, and compared with what is left. */

import { execFileSync } from 'node:child_process';
import { closeSync, constants, existsSync, openSync, renameSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { SHARDS } from '../../src/limits.ts';
import { deathsOf, startFaulty } from '../support/faults.ts';
import { check, exchange, LASTING_MS, metric, requestBytes } from '../support/http.ts';
import { eachOnItsOwn } from '../support/own.ts';
import { random } from '../support/random.ts';
import { MODES, type Running, until } from '../support/server.ts';
import { figure, newSeed, trials } from './promises.ts';

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
const own = eachOnItsOwn(ARGS);

const bodyOf = (id: number) => ({ identifier: `id_${id}`, limit: LIMIT, duration: LASTING_MS });
const requests = Array.from({ length: COUNTERS }, (_, id) => {
  return requestBytes({ body: JSON.stringify(bodyOf(id)) });
});

/** An admission that was answered. */
interface Admission {
  id: number;
  atMs: number;
}

/** Asks on one connection, one check after the other, until it ends. @returns what was sent last */
async function ask(
  server: Running,
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
async function askAll(server: Running): Promise<number> {
  return (await exchange(server.port, requests, COUNTERS, true)).length;
}

/** What is used of each counter, by looks that cost nothing. */
async function usedOf(server: Running): Promise<number[]> {
  const looks = Array.from({ length: COUNTERS }, (_, id) => {
    return requestBytes({ body: JSON.stringify({ ...bodyOf(id), cost: 0 }) });
  });
  const answers = await exchange(server.port, looks, COUNTERS, true);
  return answers.map(({ body }) => LIMIT - JSON.parse(body).remaining);
}

interface Outcome {
  admissions: number;
  /** Tokens of answered admissions that are not counted any more, and the age of the oldest. */
  forgotten: number;
  oldestMs: number;
}

/**
 * Lets clients ask, ends the server as told, starts another, and counts what it has forgotten.
 * @param start starts the first
 */
async function lose(
  mode: (typeof MODES)[number],
  below: (n: number) => number,
  end: (server: Running) => void,
  start: (options: { args: string[] }) => Promise<Running> = own.start,
): Promise<Outcome> {
  const options = { args: [...ARGS, '--decide', mode] };
  const first = await start(options);
  const before = await usedOf(first);
  const admissions: Admission[] = [];
  const clients = Array.from({ length: CONNECTIONS }, () =>
    ask(first, below, (id) => admissions.push({ id, atMs: performance.now() })),
  );
  await new Promise((resolve) => setTimeout(resolve, 2 * EVERY_MS + below(2 * EVERY_MS)));
  end(first);
  const endedMs = performance.now();
  await first.exited;
  const onTheirWay = (await Promise.all(clients)).filter((id) => id !== undefined);
  const second = await own.start(options);
  const after = await usedOf(second);
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

const sum = (outcomes: Outcome[], of: (outcome: Outcome) => number) => {
  return outcomes.reduce((total, outcome) => total + of(outcome), 0);
};

test('kill -9 under load forgets at most one interval of checkpoints and the writing of one', async () => {
  const kills = trials(2, 100);
  const seed = newSeed();
  const below = random(seed);
  const outcomes: Outcome[] = [];
  for (let kill = 0; kill < kills; kill++) {
    const outcome = await lose(MODES[kill % 2], below, ({ child }) => child.kill('SIGKILL'));
    outcomes.push(outcome);
    // A checkpoint of this size is written in some milliseconds; a busy machine may take longer.
    expect(outcome.oldestMs).toBeLessThan(EVERY_MS + 1_000);
  }
  const ages = outcomes.map(({ oldestMs }) => oldestMs).toSorted((a, b) => a - b);
  const forgotten = sum(outcomes, (outcome) => outcome.forgotten);
  const admissions = sum(outcomes, (outcome) => outcome.admissions);
  figure(
    'P6',
    `kill -9 under load, checkpoints every ${EVERY_MS} ms`,
    `${kills} kills, ${admissions} admissions`,
    `${forgotten} forgotten, the oldest ${Math.round(ages.at(-1)!)} ms before` +
      ` (median ${Math.round(ages[ages.length >> 1])}); seed ${seed}`,
  );
  expect(admissions).toBeGreaterThan(kills * 100);
}, 600_000);

test('SIGTERM under load forgets nothing', async () => {
  const stops = trials(1, 50);
  const seed = newSeed();
  const below = random(seed);
  const outcomes: Outcome[] = [];
  for (let stop = 0; stop < stops; stop++) {
    outcomes.push(await lose(MODES[stop % 2], below, ({ child }) => child.kill('SIGTERM')));
  }
  const admissions = sum(outcomes, (outcome) => outcome.admissions);
  const forgotten = sum(outcomes, (outcome) => outcome.forgotten);
  figure(
    'P6',
    'SIGTERM under load',
    `${stops} stops, ${admissions} admissions`,
    `${forgotten} forgotten; seed ${seed}`,
  );
  expect(forgotten).toBe(0);
}, 600_000);

test('SIGTERM while shard workers die, amid their checkpoints too, forgets nothing', async () => {
  const stops = trials(1, 20);
  const seed = newSeed();
  const below = random(seed);
  let deaths = 0;
  const outcomes: Outcome[] = [];
  for (let stop = 0; stop < stops; stop++) {
    let faulty: Running | undefined;
    const start = async ({ args }: { args: string[] }) => {
      faulty = await startFaulty(own.dataDir, args, 60, ['exit', 'throw', 'loop']);
      own.started.push(faulty);
      return faulty;
    };
    const end = ({ child }: Running) => child.kill('SIGTERM');
    outcomes.push(await lose('in-place', below, end, start));
    deaths += deathsOf(faulty!).total;
  }
  const forgotten = sum(outcomes, (outcome) => outcome.forgotten);
  const tried = `${stops} stops, ${deaths} deaths`;
  figure('P6', 'SIGTERM while shard workers die', tried, `${forgotten} forgotten; seed ${seed}`);
  expect(deaths).toBeGreaterThan(stops);
  expect(forgotten).toBe(0);
}, 600_000);

test('a disk that takes no more checkpoints is counted and logged, checks go on, and files come back', async () => {
  const server = await own.start();
  const limitFiles = (bytes: string) => {
    execFileSync('prlimit', ['--pid', String(server.child.pid), `--fsize=${bytes}`]);
  };
  limitFiles('1:');
  const failures = () => metric(server.adminUrl, 'weir_checkpoint_failures_total');
  await until('it has failed', async () => {
    for (let id = 0; id < 50; id++) await check(server.port, bodyOf(id));
    return (await failures()) >= SHARDS;
  });
  const failing = 'counters cannot be written; a restart would forget them';
  await until('the log says so', () => server.stderr().includes(failing));
  expect(server.stderr()).toContain('"error":"EFBIG"');
  limitFiles('unlimited:');
  await until('the log says so', () => server.stderr().includes('counters are written again'));
  for (let id = 0; id < 50; id++) await check(server.port, bodyOf(id));
  const failed = await failures();
  expect(await server.stop()).toEqual({ code: 0, signal: null });
  const again = await own.start();
  const used = await usedOf(again);
  expect([used[0] > 1, used.slice(0, 51)]).toEqual([true, [...Array(50).fill(used[0]), 0]]);
  const tried = `${failed} writes that failed`;
  figure(
    'P6',
    'files that may not grow, and may again',
    tried,
    '0 forgotten by the stop behind it',
  );
}, 60_000);

test('a disk that stalls for longer than a thread may hang is waited for, and checks go on', async () => {
  const server = await own.start();
  const paths = [0, 1].map((number) => join(own.dataDir, `counters-0.${number}`));
  await until('they are there', async () => {
    await askAll(server);
    return paths.every((path) => existsSync(path));
  });
  // Opening such a file for writing waits for a reader.
  for (const path of paths) {
    execFileSync('mkfifo', [`${path}.pipe`]);
    renameSync(`${path}.pipe`, path);
  }
  const startedMs = performance.now();
  let checks = 0;
  while (performance.now() - startedMs < STALL_MS) checks += await askAll(server);
  const running = await metric(server.adminUrl, 'weir_workers_running');
  for (const path of paths) {
    closeSync(openSync(path, constants.O_RDONLY | constants.O_NONBLOCK));
    rmSync(path);
  }
  await until('all workers run', async () => {
    await askAll(server);
    return (await metric(server.adminUrl, 'weir_workers_running')) === 2;
  });
  await until('it is written again', async () => {
    // The second file is written once something is decided after the first.
    await askAll(server);
    return paths.every((path) => existsSync(path));
  });
  const replaced = await metric(server.adminUrl, 'weir_workers_replaced_total');
  figure(
    'P6',
    `a disk that stalls for ${STALL_MS} ms`,
    `${checks} checks`,
    `${replaced} workers replaced`,
  );
  expect([running, replaced], server.stderr().slice(-2_000)).toEqual([1, 0]);
  const used = await usedOf(server);
  expect(await server.stop()).toEqual({ code: 0, signal: null });
  expect(await usedOf(await own.start())).toEqual(used);
}, 60_000);
