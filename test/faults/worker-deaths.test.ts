/** Shard workers that die in every way, again and again, under load; what dies with them is told. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { CHECK_QUEUE_ENTRIES } from '../../src/core/constants.ts';
import { IS_LONG, newSeed, recordMeasurement, trialCount } from '../support/guarantees.ts';
import {
  LONGEST_WINDOW_MS,
  readMetric,
  readMetrics,
  sendCheck,
  sendRequest,
} from '../support/http.ts';
import { Ledger } from '../support/ledger.ts';
import {
  removeDirectory,
  type ServerProcess,
  temporaryDirectory,
  waitUntil,
} from '../support/server.ts';
import { expectCleanStop, expectHealthy } from '../support/server-health.ts';
import { prepareCheck, Traffic } from '../support/traffic.ts';
import {
  describeDeaths,
  FAULT_KINDS,
  readWorkerDeaths,
  startWithWorkerFaults,
  type WorkerDeaths,
} from '../support/worker-faults.ts';

/** Of each kind. */
const DEATHS = trialCount(1, 100);
const TIMEOUT_MS = IS_LONG ? 1_200_000 : 60_000;
const ACCEPTORS = 2;
const CONNECTIONS = 32;
const SIZES = ['--acceptors', String(ACCEPTORS), '--workers', '1', '--counters', '16384'];

let dataDir: string;
let server: ServerProcess;
beforeEach(() => {
  dataDir = temporaryDirectory();
});
afterEach(async () => {
  server.child.kill('SIGKILL');
  await server.exited;
  removeDirectory(dataDir);
});

/** Keeps a load up until there were enough deaths of each kind. */
async function runUnderDeaths(traffic: Traffic): Promise<WorkerDeaths> {
  const waitsMost = TIMEOUT_MS / 125;
  for (let waits = 0; waits < waitsMost; waits++) {
    if (Object.values(readWorkerDeaths(server).byKind).every((count) => count >= DEATHS)) break;
    expectHealthy(server);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  await traffic.stop();
  await waitUntil('the worker is back', async () => {
    return (await (await fetch(`${server.adminUrl}/readyz`)).text()).includes('"ready"');
  });
  const deaths = readWorkerDeaths(server);
  for (const kind of FAULT_KINDS)
    expect([kind, deaths.byKind[kind] >= DEATHS]).toEqual([kind, true]);
  return deaths;
}

const summarize = ({ sent, responses, connectionErrors }: Traffic) => ({
  unanswered: sent - responses,
  broken: connectionErrors,
});
const WHOLE = { unanswered: 0, broken: [] };

describe('shard workers that die under load', () => {
  test(
    `decided worker: ${DEATHS} deaths of each kind; every check is answered, nothing is admitted beyond a limit`,
    async () => {
      const IDS = 600;
      const limitOf = (id: number) => (id < 5 ? 2_000 + id : 10 + (id % 7));
      const asks = Array.from({ length: IDS }, (_, id) =>
        prepareCheck(id, { identifier: `id_${id}`, limit: limitOf(id), duration: 3_000, cost: 1 }),
      );
      server = await startWithWorkerFaults(dataDir, [...SIZES, '--decide', 'worker'], 150);
      const seed = newSeed();
      const ledger = new Ledger(limitOf);
      const traffic = new Traffic({
        port: server.port,
        connections: CONNECTIONS,
        checksPerPacket: 1,
        seed,
        ledger,
        nextCheck: (below) => asks[below(3) === 0 ? below(IDS) : below(5)],
      });
      const deaths = await runUnderDeaths(traffic);
      const measured = await readMetrics(server.adminUrl);
      const repeated = measured.get('weir_queue_entries_repeated_total')!;
      const lost = measured.get('weir_queue_entries_lost_total')!;
      const unavailable = traffic.errors.get(503) ?? 0;
      const { maxExcess, falseDenials, tokensMissing } = ledger.report();
      const tried = describeDeaths(deaths);
      const handed = `${repeated} entries repeated, ${lost} lost`;
      recordMeasurement(
        'P1',
        'workers die, decided worker',
        tried,
        `most beyond a limit: ${maxExcess}; ${handed}`,
      );
      const few = `${falseDenials} windows refused early, by ${tokensMissing} tokens in all`;
      recordMeasurement('P2', 'workers die, decided worker', `seed ${seed}`, few);
      const answers = `${traffic.unanswered} unanswered, ${unavailable} with a 503`;
      recordMeasurement('P3', 'workers die, decided worker', `${traffic.sent} sent`, answers);

      expect(summarize(traffic)).toEqual(WHOLE);
      expect([...traffic.errors.keys()].filter((status) => status !== 503)).toEqual([]);
      expect(maxExcess).toBeLessThanOrEqual(0);
      // What was counted and not admitted: an entry that was repeated, or answered with a 503.
      expect(tokensMissing).toBeLessThanOrEqual(repeated + unavailable);
      expect(repeated).toBeLessThanOrEqual(deaths.total);
      const name = 'weir_errors_total{status="503",code="SERVICE_UNAVAILABLE"}';
      expect(measured.get(name) ?? 0).toBe(unavailable);
      expect(unavailable).toBeLessThanOrEqual(lost + deaths.total);
      // One run may throw more than once before it is heard of.
      expect(measured.get('weir_workers_replaced_total')).toBeGreaterThan(deaths.total * 0.9);
      expect((await sendRequest(server.port, { path: '/nowhere' })).status).toBe(404);
      await expectCleanStop(server);
    },
    TIMEOUT_MS,
  );

  test(
    `decided in place, asynchronous: ${DEATHS} deaths of each kind; every token is deducted once, but for what a dying worker had in hand`,
    async () => {
      const COSTS = [1, 1, 2, 3];
      const COST_MAX = 3;
      /** Identifiers with room for all, and a window that does not end: what is used is looked at. */
      const ROOMY = 200;
      /** Identifiers with a limit and windows of a second. */
      const TIGHT = 8;
      const TIGHT_LIMIT = 2_000;
      const isRoomy = (id: number) => id < ROOMY;
      const limitOf = (id: number) => (isRoomy(id) ? 1_000_000_000 : TIGHT_LIMIT);
      const bodyOf = (id: number) => {
        const duration = isRoomy(id) ? LONGEST_WINDOW_MS : 1_000;
        return { identifier: `id_${id}`, limit: limitOf(id), duration };
      };
      const asks = Array.from({ length: ROOMY + TIGHT }, (_, id) =>
        COSTS.map((cost) => prepareCheck(id, { ...bodyOf(id), cost, async: true })),
      );
      server = await startWithWorkerFaults(dataDir, SIZES, 200);
      const seed = newSeed();
      const ledger = new Ledger(limitOf);
      let tokens = 0;
      const traffic = new Traffic({
        port: server.port,
        connections: CONNECTIONS,
        checksPerPacket: 16,
        seed,
        ledger,
        nextCheck: (below) => {
          const id = below(8) === 0 ? ROOMY + below(TIGHT) : below(ROOMY);
          return asks[id][below(COSTS.length)];
        },
        onDecision: ({ cost }, admitted) => {
          if (admitted) tokens += cost;
        },
      });
      const deaths = await runUnderDeaths(traffic);
      await waitUntil('the rings are empty', async () => {
        return (await readMetric(server.adminUrl, 'weir_queue_entries{worker="0"}')) === 0;
      });
      // Only now: the figures of one scrape are read one after the other.
      const measured = await readMetrics(server.adminUrl);
      const figureOf = (name: string) => measured.get(name)!;
      const [repeated, lost] = ['repeated', 'lost'].map((what) => {
        return figureOf(`weir_queue_entries_${what}_total`);
      });

      // By identifier, what was admitted is what is used, but for entries in the hand of the dead.
      let extra = 0;
      for (let id = 0; id < ROOMY; id++) {
        const { limit, remaining, reset } = await sendCheck(server.port, {
          ...bodyOf(id),
          cost: 0,
        });
        extra += Math.abs(limit - remaining - ledger.tokensAllowed(id, reset));
      }
      // By all, over window boundaries: what was handed over is what was taken out.
      const outcomes = ['applied', 'window_ended', 'table_full'];
      const sum = (name: string) =>
        outcomes.reduce((n, outcome) => n + figureOf(`${name}{outcome="${outcome}"}`), 0);
      const entries = sum('weir_deductions_total') - figureOf('weir_queue_deductions_total');
      const difference =
        sum('weir_deduction_tokens_total') - figureOf('weir_queue_deduction_tokens_total');
      // Beyond a limit no more is admitted than the rings hold.
      const bound = ACCEPTORS * CHECK_QUEUE_ENTRIES * COST_MAX + lost * COST_MAX;
      const { maxExcess, windows } = ledger.report();

      const fault = 'workers die, in place, async';
      const beyond = `most beyond a limit of ${TIGHT_LIMIT}: ${maxExcess} (bound ${bound})`;
      const tried = `${describeDeaths(deaths)}; seed ${seed}`;
      recordMeasurement('P1', fault, tried, `${beyond}, ${windows} windows`);
      const handed = `${repeated} entries repeated, ${lost} lost`;
      recordMeasurement(
        'P2',
        fault,
        `${tokens} tokens`,
        `${extra} deducted otherwise than once; ${handed}`,
      );
      recordMeasurement('P3', fault, `${traffic.sent} sent`, `${traffic.unanswered} unanswered`);
      expect(summarize(traffic)).toEqual(WHOLE);
      expect([...traffic.errors]).toEqual([]);
      expect(extra).toBeLessThanOrEqual((repeated + lost) * COST_MAX);
      expect(entries).toBeGreaterThanOrEqual(-lost - repeated);
      expect(entries).toBeLessThanOrEqual(repeated);
      expect(Math.abs(difference)).toBeLessThanOrEqual((repeated + lost) * COST_MAX);
      expect(maxExcess).toBeLessThanOrEqual(bound);
      expect(windows).toBeGreaterThan(ROOMY + TIGHT);
      expect(repeated + lost).toBeLessThanOrEqual(deaths.total);
      // A worker that hung left its rings to fill.
      expect(figureOf('weir_queue_full_total')).toBeGreaterThan(0);
      await expectCleanStop(server);
    },
    TIMEOUT_MS,
  );
});

test('a shard worker that finds its memory damaged ends the process, with one sentence', async () => {
  server = await startWithWorkerFaults(dataDir, ['--counters', '1024'], 0, ['damage']);
  writeFileSync(join(dataDir, 'strike'), '');
  const { code } = await server.exited;
  expect(code === 0).toBe(false);
  const said = server
    .stderr()
    .split('\n')
    .filter((line) => line.startsWith('weir: '));
  expect(said).toEqual(['weir: shard worker 0 failed: a ring of 1024 holds -5 items']);
});

test(
  'workers of which one dies are replaced one by one, and SIGTERM finds them all',
  async () => {
    const args = ['--acceptors', '1', '--workers', '4', '--counters', '1024', '--decide', 'worker'];
    server = await startWithWorkerFaults(dataDir, args, 400, ['exit', 'throw', 'bootstrap']);
    const body = { limit: 1_000, duration: LONGEST_WINDOW_MS };
    for (let i = 0; readWorkerDeaths(server).total < trialCount(8, 200); i++) {
      expect(await sendCheck(server.port, { ...body, identifier: `id_${i % 100}` })).toMatchObject({
        limit: 1_000,
      });
    }
    await expectCleanStop(server);
  },
  TIMEOUT_MS,
);
