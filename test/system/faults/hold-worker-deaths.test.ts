/** Shard workers that die or hang under a load of holds. */

import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { useDataDirectory } from '../../support/data-directory.ts';
import { newSeed, recordMeasurements, trialCount } from '../../support/guarantees.ts';
import { readMetric, readMetrics } from '../../support/http.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { waitUntil } from '../../support/server.ts';
import {
  describeDeaths,
  FAULT_KINDS,
  readWorkerDeaths,
  workerFaults,
} from '../../support/worker-faults.ts';
import { HOLD_COST_MAX, HoldClient, inspectHolds, readUsage } from './hold-clients.ts';
import { expectCleanStop, expectHealthy } from './server-health.ts';

/**
 * Not `memory`, which `worker-deaths.test.ts` has. If the heap of a thread is full while V8 compiles
 * code of it, V8 of Node 20 now and then aborts the process.
 */
const KINDS = FAULT_KINDS.filter((kind) => kind !== 'memory');
/** Deaths of each kind. */
const DEATHS = trialCount(2, 100);
const TIMEOUT_MS = trialCount(180_000, 1_800_000);
vi.setConfig({ testTimeout: TIMEOUT_MS });
const CLIENTS = 16;
const TTL_SHORT_MS = 1_000;
/** Such holds are live at the end. */
const TTL_LONG_MS = TIMEOUT_MS + 600_000;
/** Of so many holds, one has the long time to live. */
const LONG = trialCount(50, 2_000);

const own = useDataDirectory([]);

test(`after ${DEATHS} deaths of each kind, no answer is lost, and metrics and inspections agree`, async () => {
  const server = await own.start({
    args: ['--acceptors', '2', '--workers', '1', '--counters', '16384'],
    ...workerFaults(200, KINDS),
  });
  const seed = newSeed();
  const below = seededRandom(seed);
  const nextTtlMs = () => (below(LONG) === 0 ? TTL_LONG_MS : TTL_SHORT_MS + below(1_000));
  const clients = Array.from({ length: CLIENTS }, (_, i) => {
    return new HoldClient({ name: `client_${i}`, below, nextTtlMs });
  });
  // A client rejects if an answer is missing or wrong.
  const running = Promise.all(clients.map((client) => client.run(server.port)));
  const hasDied = () => {
    const { byKind } = readWorkerDeaths(server);
    return KINDS.every((kind) => byKind[kind] >= DEATHS);
  };
  const load = async () => {
    for (let polls = 0; polls < TIMEOUT_MS / 125 && !hasDied(); polls++) {
      expectHealthy(server);
      await sleep(100);
    }
    for (const client of clients) client.isStopping = true;
  };
  await Promise.all([running, load()]);
  const deaths = readWorkerDeaths(server);
  expect([deaths, hasDied()]).toEqual([deaths, true]);
  const missing = clients.filter(({ unanswered }) => unanswered > 0);
  expect(missing).toEqual([]);

  const identifiers = clients.flatMap(({ windows, leases }) => [...windows, ...leases]);
  const readSums = async () => {
    const metrics = await readMetrics(server.adminUrl);
    const of = (name: string, kind: string) => metrics.get(`${name}{kind="${kind}"}`)!;
    return {
      reserved: of('weir_held_tokens', 'reservation'),
      inUse: of('weir_held_tokens', 'lease'),
      live: of('weir_holds_live', 'reservation') + of('weir_holds_live', 'lease'),
    };
  };
  const inspectAll = async () => {
    const sums = { reserved: 0, inUse: 0, live: 0 };
    for (const [identifier] of identifiers) {
      const { reserved, inUse, live } = await inspectHolds(server.port, identifier);
      sums.reserved += reserved;
      sums.inUse += inUse;
      sums.live += live;
    }
    return sums;
  };
  await sleep(TTL_SHORT_MS + 1_000);
  // A worker that has just started publishes its sums when it has ended the expired holds.
  await waitUntil('the metrics are those of the inspections', async () => {
    return JSON.stringify(await readSums()) === JSON.stringify(await inspectAll());
  });
  const sums = await inspectAll();

  const nowMs = Date.now();
  for (const [identifier, history] of clients.flatMap(({ leases }) => [...leases])) {
    const { inUse } = await inspectHolds(server.port, identifier);
    expect([identifier, inUse]).toEqual([identifier, history.range(nowMs, nowMs)[0]]);
  }
  const windows = clients.flatMap((client) => [...client.windows]);
  const usage = await readUsage(
    server.port,
    windows.map(([identifier]) => identifier),
  );
  let extra = 0;
  for (const [identifier, history] of windows) {
    const used = usage.get(identifier)!;
    const [least] = history.range(nowMs, nowMs);
    expect([identifier, used >= least]).toEqual([identifier, true]);
    extra += used - least;
  }
  const operations = clients.reduce((n, client) => n + client.operations, 0);
  const trials = `${describeDeaths(deaths)}; seed ${seed}`;
  const shown = `${sums.live} live holds of ${sums.reserved + sums.inUse} tokens`;
  recordMeasurements('workers die under holds', trials, {
    P1: `0 leases above a limit; ${shown}, as the metrics say`,
    P2: `${extra} tokens of expired reservations stayed counted`,
    P3: `0 of ${operations} unanswered`,
  });
  expect(sums.live).toBeGreaterThan(0);
  // A worker that dies while it ends a reservation leaves its tokens counted.
  expect(extra).toBeLessThanOrEqual(deaths.total * HOLD_COST_MAX);
  expect(await readMetric(server.adminUrl, 'weir_workers_replaced_total')).toBeGreaterThan(0);
  expect(KINDS.length * DEATHS).toBeLessThanOrEqual(deaths.total);
  await expectCleanStop(server);
});
