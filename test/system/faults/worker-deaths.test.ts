/** Shard workers that die or hang under load, and the bounded effect of each death. */

import { execFileSync } from 'node:child_process';
import { closeSync, openSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { CHECK_QUEUE_ENTRIES } from '../../../src/core/constants.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { newSeed, recordMeasurement, trialCount } from '../../support/guarantees.ts';
import {
  errorIn,
  LONGEST_WINDOW_MS,
  readMetric,
  readMetrics,
  requestBytes,
  sendCheck,
  sendRequest,
} from '../../support/http.ts';
import { logRecords } from '../../support/log-records.ts';
import { callOperationOk } from '../../support/operations.ts';
import { isReady } from '../../support/readiness.ts';
import {
  removeDirectory,
  type ServerProcess,
  temporaryDirectory,
  waitUntil,
} from '../../support/server.ts';
import {
  describeDeaths,
  FAULT_KINDS,
  readWorkerDeaths,
  type WorkerDeaths,
  workerFaults,
} from '../../support/worker-faults.ts';
import { openConnections } from './http-connections.ts';
import { Ledger } from './ledger.ts';
import { expectCleanStop, expectHealthy } from './server-health.ts';
import { expectAnswered, prepareCheck, recordTraffic, Traffic } from './traffic.ts';

/** Deaths of each kind. */
const DEATHS = trialCount(1, 100);
const TIMEOUT_MS = trialCount(180_000, 1_200_000);
vi.setConfig({ testTimeout: TIMEOUT_MS });
const ACCEPTORS = 2;
const CONNECTIONS = 32;
const SIZES = ['--acceptors', String(ACCEPTORS), '--workers', '1', '--counters', '16384'];

const own = useDataDirectory([]);

/**
 * Runs traffic until each kind of death has occurred often enough.
 * @param isDone another condition of the end
 */
async function runUnderDeaths(
  server: ServerProcess,
  traffic: Traffic,
  isDone = async () => true,
): Promise<WorkerDeaths> {
  const pollsMax = TIMEOUT_MS / 125;
  for (let polls = 0; polls < pollsMax; polls++) {
    const { byKind } = readWorkerDeaths(server);
    if (Object.values(byKind).every((count) => count >= DEATHS) && (await isDone())) break;
    expectHealthy(server);
    await sleep(100);
  }
  await traffic.stop();
  await waitUntil('the worker runs again', () => isReady(server));
  const deaths = readWorkerDeaths(server);
  for (const kind of FAULT_KINDS)
    expect([kind, deaths.byKind[kind] >= DEATHS]).toEqual([kind, true]);
  return deaths;
}

describe('shard workers that die under load', () => {
  test(`with decisions in workers, after ${DEATHS} deaths of each kind, leave no check unanswered and no limit exceeded`, async () => {
    const IDS = 600;
    const limitOf = (id: number) => (id < 5 ? 2_000 + id : 10 + (id % 7));
    const checks = Array.from({ length: IDS }, (_, id) =>
      prepareCheck(id, { identifier: `id_${id}`, limit: limitOf(id), duration: 3_000, cost: 1 }),
    );
    const args = [...SIZES, '--decide', 'worker'];
    const server = await own.start({ args, ...workerFaults(150) });
    const seed = newSeed();
    const ledger = new Ledger(limitOf);
    const traffic = new Traffic({
      ...{ port: server.port, connections: CONNECTIONS, checksPerPacket: 1, seed, ledger },
      nextCheck: (below) => checks[below(3) === 0 ? below(IDS) : below(5)],
    });
    const deaths = await runUnderDeaths(server, traffic);
    // A death is reported before the supervisor notices it, and a worker may throw more than once
    // before that.
    await waitUntil('dead workers are replaced', async () => {
      const replaced = await readMetric(server.adminUrl, 'weir_workers_replaced_total');
      return replaced > deaths.total * 0.9;
    });
    const measured = await readMetrics(server.adminUrl);
    const repeated = measured.get('weir_queue_entries_repeated_total')!;
    const lost = measured.get('weir_queue_entries_lost_total')!;
    const unavailable = traffic.errors.get(503) ?? 0;
    const { maxExcess, falseDenials, tokensMissing } = ledger.report();
    const entries = `${repeated} entries repeated, ${lost} lost`;
    const trials = `${describeDeaths(deaths)}; seed ${seed}`;
    recordTraffic('workers die, decisions in workers', trials, traffic, ledger, {
      P2: `${falseDenials} windows denied early, by ${tokensMissing} tokens in all; ${entries}`,
    });
    expect([traffic.unanswered, traffic.connectionErrors]).toEqual([0, []]);
    expect([...traffic.errors.keys()].filter((status) => status !== 503)).toEqual([]);
    expect(maxExcess).toBeLessThanOrEqual(0);
    // Tokens counted for no allowed check: a repeated entry, or a check answered with a 503.
    expect(tokensMissing).toBeLessThanOrEqual(repeated + unavailable);
    expect(repeated).toBeLessThanOrEqual(deaths.total);
    const name = 'weir_errors_total{status="503",code="SERVICE_UNAVAILABLE"}';
    expect(measured.get(name) ?? 0).toBe(unavailable);
    expect(unavailable).toBeLessThanOrEqual(lost + deaths.total);
    expect((await sendRequest(server.port, { path: '/nowhere' })).status).toBe(404);
    await expectCleanStop(server);
  });

  test(`with asynchronous checks, after ${DEATHS} deaths of each kind, deduct every token once, except for entries in progress`, async () => {
    const COSTS = [1, 1, 2, 3];
    const COST_MAX = 3;
    /** Identifiers with a huge limit, whose usage is compared at the end. */
    const UNLIMITED = 200;
    /** Identifiers with a limit and windows of 1 s. */
    const LIMITED = 8;
    const LIMIT = 2_000;
    const isUnlimited = (id: number) => id < UNLIMITED;
    const limitOf = (id: number) => (isUnlimited(id) ? 1_000_000_000 : LIMIT);
    const bodyOf = (id: number) => {
      const duration = isUnlimited(id) ? LONGEST_WINDOW_MS : 1_000;
      return { identifier: `id_${id}`, limit: limitOf(id), duration };
    };
    const checks = Array.from({ length: UNLIMITED + LIMITED }, (_, id) =>
      COSTS.map((cost) => prepareCheck(id, { ...bodyOf(id), cost, async: true })),
    );
    const server = await own.start({ args: SIZES, ...workerFaults(200) });
    const seed = newSeed();
    const ledger = new Ledger(limitOf);
    let tokens = 0;
    const traffic = new Traffic({
      ...{ port: server.port, connections: CONNECTIONS, checksPerPacket: 16, seed, ledger },
      nextCheck: (below) => {
        const id = below(8) === 0 ? UNLIMITED + below(LIMITED) : below(UNLIMITED);
        return checks[id][below(COSTS.length)];
      },
      onDecision: ({ cost }, allowed) => {
        if (allowed) tokens += cost;
      },
    });
    // Queues fill up while a worker does not respond, on a slow machine not each time.
    const deaths = await runUnderDeaths(server, traffic, async () => {
      return (await readMetric(server.adminUrl, 'weir_queue_full_total')) > 0;
    });
    await waitUntil('the queues are empty', async () => {
      return (await readMetric(server.adminUrl, 'weir_queue_entries{worker="0"}')) === 0;
    });
    // After the queues are empty: the metrics of one scrape are not read atomically.
    const measured = await readMetrics(server.adminUrl);
    const metricOf = (name: string) => measured.get(name)!;
    const [repeated, lost] = ['repeated', 'lost'].map((what) => {
      return metricOf(`weir_queue_entries_${what}_total`);
    });

    // Allowed tokens equal used tokens for each identifier, except for entries in progress.
    let extra = 0;
    for (let id = 0; id < UNLIMITED; id++) {
      const { limit, remaining, reset } = await sendCheck(server.port, {
        ...bodyOf(id),
        cost: 0,
      });
      extra += Math.abs(limit - remaining - ledger.tokensAllowed(id, reset));
    }
    // Over all windows, queued tokens equal deducted tokens.
    const outcomes = ['applied', 'window_ended', 'table_full'];
    const sum = (name: string) =>
      outcomes.reduce((n, outcome) => n + metricOf(`${name}{outcome="${outcome}"}`), 0);
    const entries = sum('weir_deductions_total') - metricOf('weir_queue_deductions_total');
    const difference =
      sum('weir_deduction_tokens_total') - metricOf('weir_queue_deduction_tokens_total');
    // The excess over a limit is at most the content of the queues.
    const bound = ACCEPTORS * CHECK_QUEUE_ENTRIES * COST_MAX + lost * COST_MAX;
    const { maxExcess, windows } = ledger.report();

    const counted = `${repeated} entries repeated, ${lost} lost; excess bound ${bound}`;
    const trials = `${describeDeaths(deaths)}; seed ${seed}`;
    recordTraffic('workers die, in place, async', trials, traffic, ledger, {
      P2: `${extra} of ${tokens} tokens not deducted exactly once; ${counted}`,
    });
    expectAnswered(traffic);
    expect(extra).toBeLessThanOrEqual((repeated + lost) * COST_MAX);
    expect(entries).toBeGreaterThanOrEqual(-lost - repeated);
    expect(entries).toBeLessThanOrEqual(repeated);
    expect(Math.abs(difference)).toBeLessThanOrEqual((repeated + lost) * COST_MAX);
    expect(maxExcess).toBeLessThanOrEqual(bound);
    expect(windows).toBeGreaterThan(UNLIMITED + LIMITED);
    // Workers also died after the traffic, while they emptied the queues.
    expect(repeated + lost).toBeLessThanOrEqual(readWorkerDeaths(server).total);
    expect(metricOf('weir_queue_full_total')).toBeGreaterThan(0);
    await expectCleanStop(server);
  });
});

test.each([
  ['loop', { cpuMs: expect.toSatisfy((ms: number) => ms >= 500), threadState: 'R' }],
  ['wait', { asleepMs: expect.toSatisfy((ms: number) => ms >= 500), threadState: 'S' }],
])(
  'a shard worker that is unresponsive (%s) is replaced, and the log says what it did',
  async (kind, did) => {
    const server = await own.start({ args: ['--counters', '1024'], ...workerFaults(100, [kind]) });
    const replaced = () => logRecords(server, 'a shard worker is replaced');
    await waitUntil('it is replaced', () => replaced().length > 0);
    const [silentMs, countedMs] = Array(2).fill(expect.toSatisfy((ms: number) => ms >= 500));
    const facts = { silentMs, countedMs, ...did };
    expect(replaced()[0]).toMatchObject({ worker: 0, cause: 'unresponsive', ...facts });
    expectHealthy(server);
  },
);

test('a shard worker that hangs in native code is logged while it hangs, and then replaced', async () => {
  const directory = temporaryDirectory();
  onTestFinished(() => removeDirectory(directory));
  const fifo = join(directory, 'fifo');
  execFileSync('mkfifo', [fifo]);
  const faults = workerFaults(100, ['native'], fifo);
  const server = await own.start({ args: [...SIZES, '--decide', 'worker'], ...faults });
  const hanging = () => logRecords(server, 'an unresponsive shard worker does not end');
  const replaced = () => logRecords(server, 'a shard worker is replaced');
  await waitUntil('it is logged', () => hanging().length > 0);
  const countedMs = expect.toSatisfy((ms: number) => ms >= 500);
  expect(hanging()).toEqual([
    expect.objectContaining({ level: 50, worker: 0, countedMs, threadState: 'S' }),
  ]);
  expect(replaced()).toEqual([]);
  expect(await sendCheck(server.port, hungBody('a'))).toMatchObject({ success: true });
  closeSync(openSync(fifo, 'r+'));
  await waitUntil('it is replaced', () => replaced().length > 0);
  expect(replaced()[0]).toMatchObject({ worker: 0, cause: 'unresponsive' });
});

test('a shard worker with invalid shared memory ends the process, with one message', async () => {
  const trigger = join(own.dataDir, 'trigger');
  const faults = workerFaults(0, ['corrupt'], trigger);
  const server = await own.start({ args: ['--counters', '1024'], ...faults });
  writeFileSync(trigger, '');
  const { code } = await server.exited;
  expect(code === 0).toBe(false);
  expect(server.stderr().match(/^weir: .*$/gm)).toEqual([
    'weir: shard worker 0 failed: the check queue of the channel of acceptor 0 and worker 0,' +
      ' of capacity 1024, has depth -5',
  ]);
});

test('dead workers are replaced one by one, and SIGTERM stops all of them', async () => {
  const args = ['--acceptors', '1', '--workers', '4', '--counters', '1024', '--decide', 'worker'];
  const faults = workerFaults(400, ['exit', 'throw', 'bootstrap']);
  const server = await own.start({ args, ...faults });
  const fields = { limit: 1_000, duration: LONGEST_WINDOW_MS };
  let sent = 0;
  let unavailable = 0;
  for (; readWorkerDeaths(server).total < trialCount(4, 200); sent++) {
    const body = JSON.stringify({ ...fields, identifier: `id_${sent % 100}` });
    const response = await sendRequest(server.port, { body });
    // The check that the dying worker had begun, or one that waited too long for the next worker.
    if (response.status === 503) unavailable++;
    else expect(JSON.parse(response.body)).toMatchObject({ limit: 1_000 });
  }
  const deaths = readWorkerDeaths(server);
  const responses = `${unavailable} of ${sent} checks answered with a 503`;
  recordMeasurement('P3', 'one of four workers dies', describeDeaths(deaths), responses);
  expect(unavailable).toBeLessThanOrEqual(deaths.total);
  await expectCleanStop(server);
});

// Checks that wait for a shard worker that is often hung in an endless loop.
const HUNG_ARGS = [...SIZES, '--acceptors', '1', '--decide', 'worker'];
/** More than a test sends before it gives up: no check is denied. */
const HUNG_LIMIT = 10_000;
const hungBody = (identifier: string) => {
  return { identifier, limit: HUNG_LIMIT, duration: LONGEST_WINDOW_MS };
};

/** Repeats a check without a cost which the worker had begun when it died: it may get a 503. */
async function readRemaining({ port }: ServerProcess, identifier: string): Promise<number> {
  for (;;) {
    const remaining = await sendOne(port, { ...hungBody(identifier), cost: 0 });
    if (remaining !== undefined) return remaining;
  }
}

/** @returns undefined where the check was begun, and not finished before its deadline */
async function sendOne(port: number, fields: object): Promise<number | undefined> {
  const answer = await sendRequest(port, { body: JSON.stringify(fields) });
  if (answer.status === 200) return JSON.parse(answer.body).remaining;
  expect(errorIn(answer).message).toContain('the check may have been counted');
  return undefined;
}

const startHung = () => own.start({ args: HUNG_ARGS, ...workerFaults(100, ['loop']) });

test('a check whose client disconnects is counted, and its response is dropped', async () => {
  const server = await startHung();
  const metric = (name: string) => readMetric(server.adminUrl, name);
  const disconnect = async () => {
    const [{ socket, closed }] = openConnections(server.port, 1);
    socket.write(requestBytes({ body: JSON.stringify(hungBody('gone')) }), () => {
      setTimeout(() => socket.resetAndDestroy(), 5);
    });
    await closed;
  };
  await waitUntil('the worker runs', async () => (await metric('weir_workers_running')) === 1);
  // Creates the namespace: metrics lack the checks of a namespace that is not registered yet.
  const override = { ...hungBody('another'), namespaceName: 'default' };
  await callOperationOk(server.port, 'ratelimits.setOverride', override);
  // Several at a time: a hung worker gets no more checks once one of them was withdrawn.
  await waitUntil('some clients have disconnected before their responses', async () => {
    await Promise.all(Array.from({ length: 5 }, disconnect));
    return (await metric('weir_undelivered_responses_total')) >= 5;
  });
  const name = 'weir_tokens_total{namespace="default",outcome="allowed"}';
  const before = await metric(name);
  expect(before).toBeGreaterThanOrEqual(5);
  const remaining = await readRemaining(server, 'gone');
  const counted = await metric(name);
  const repeated = await metric('weir_queue_entries_repeated_total');
  expect(HUNG_LIMIT - remaining).toBeGreaterThanOrEqual(before);
  // And one that the worker is deciding.
  expect(HUNG_LIMIT - remaining).toBeLessThanOrEqual(counted + repeated + 1);
});

test('checks that a hung worker has not begun are withdrawn and decided in place', async () => {
  const server = await startHung();
  const withdrawn = () => readMetric(server.adminUrl, 'weir_queue_withdrawn_total');
  let sent = 0;
  let unfinished = 0;
  await waitUntil('some were withdrawn', async () => {
    await Promise.all(
      Array.from({ length: 5 }, async () => {
        const remaining = await sendOne(server.port, hungBody('late'));
        if (remaining === undefined) unfinished++;
        else {
          expect(remaining).toBeLessThan(HUNG_LIMIT);
          sent++;
        }
      }),
    );
    return (await withdrawn()) >= 5;
  });
  const remaining = await readRemaining(server, 'late');
  const repeated = await readMetric(server.adminUrl, 'weir_queue_entries_repeated_total');
  const used = HUNG_LIMIT - remaining;
  expect(used).toBeGreaterThanOrEqual(sent);
  expect(used).toBeLessThanOrEqual(sent + unfinished + repeated + 1);
});
