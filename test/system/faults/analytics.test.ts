/**
 * The sums of metrics, analytics and events equal the answers, over shard workers that die under
 * load, a restart, and a kill.
 */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { ANALYTICS_INTERVAL_MS } from '../../../src/core/constants.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { IS_LONG, newSeed, recordMeasurement, trialCount } from '../../support/guarantees.ts';
import { LONGEST_WINDOW_MS, readMetrics } from '../../support/http.ts';
import { callOperationOk, type Fields } from '../../support/operations.ts';
import { DECIDE_MODES, type ServerProcess, waitUntil } from '../../support/server.ts';
import { FAULT_KINDS, readWorkerDeaths, workerFaults } from '../../support/worker-faults.ts';
import { type PreparedCheck, prepareCheck, Traffic } from './traffic.ts';

vi.setConfig({ testTimeout: 600_000 });

/** Checks of each run: a multiple of a packet. Acceptors buffer the events of the short form. */
const CHECKS = 16 * trialCount(600, 100_000);
const CONNECTIONS = 32;
/** The process notices an endless loop, and memory that is used up, late. */
const KINDS = IS_LONG ? FAULT_KINDS : ['throw', 'exit'];
const NAMESPACES = ['login', 'search', 'é'];
const IDS = 300;
const SIZES = ['--acceptors', '2', '--workers', '1', '--counters', '16384'];

const own = useDataDirectory(SIZES);

interface Sums {
  allowed: number;
  denied: number;
  tokensAllowed: number;
  tokensDenied: number;
}
type Answers = Map<string, Sums>;

const OUTCOMES = ['allowed', 'denied'];
const newSums = (): Sums => ({ allowed: 0, denied: 0, tokensAllowed: 0, tokensDenied: 0 });
const SUM_NAMES = Object.keys(newSums()) as (keyof Sums)[];
const countDecision = (sums: Sums, isAllowed: boolean, cost: number) => {
  sums[isAllowed ? 'allowed' : 'denied']++;
  sums[isAllowed ? 'tokensAllowed' : 'tokensDenied'] += cost;
};
const countChecks = (all: Sums[]) => {
  return all.reduce((sum, { allowed, denied }) => sum + allowed + denied, 0);
};
const namespaceOf = (id: number) => NAMESPACES[id % NAMESPACES.length];

function checksFor({ isAsync = false }): PreparedCheck[] {
  return Array.from({ length: IDS }, (_, id) => {
    const names = { namespace: namespaceOf(id), identifier: `id_${id}` };
    const terms = { limit: 100 + 40 * id, duration: LONGEST_WINDOW_MS, cost: 1 + (id % 3) };
    const async = isAsync && id % 5 === 0 ? { async: true } : {};
    return prepareCheck(id, { ...names, ...terms, ...async });
  });
}

/** Sends checks, and adds up their answers. */
async function run(
  server: ServerProcess,
  checks: PreparedCheck[],
  answers: Answers,
  { seed = newSeed(), checksPerPacket = 16 } = {},
) {
  const traffic = new Traffic({
    ...{ port: server.port, connections: CONNECTIONS, checksPerPacket, seed, checks: CHECKS },
    nextCheck: (below) => checks[below(IDS)],
    onDecision: ({ id, cost }, allowed) => {
      const sums = answers.get(namespaceOf(id)) ?? newSums();
      countDecision(sums, allowed, cost);
      answers.set(namespaceOf(id), sums);
    },
  });
  await traffic.ended;
  expect([traffic.connectionErrors, traffic.unanswered]).toEqual([[], 0]);
  // A worker that dies fails its check, which is no decision.
  for (const status of traffic.errors.keys()) expect(status).toBe(503);
}

async function analyticsOf(server: ServerProcess): Promise<Record<string, Sums>> {
  const { namespaces } = await callOperationOk(server.port, 'analytics.getNamespaces');
  return Object.fromEntries(
    (namespaces as (Fields & Sums)[]).map((namespace) => {
      const sums = SUM_NAMES.map((sum) => [sum, namespace[sum]]);
      return [namespace.name, Object.fromEntries(sums)];
    }),
  );
}

/** The same from the timelines. */
async function timelinesOf(server: ServerProcess, granularity: string) {
  const sums: Record<string, Sums> = {};
  for (const namespaceName of NAMESPACES) {
    const fields = { namespaceName, granularity };
    const { points } = await callOperationOk(server.port, 'analytics.getTimeline', fields);
    const sum = newSums();
    for (const point of points as Sums[]) for (const key of SUM_NAMES) sum[key] += point[key];
    sums[namespaceName] = sum;
  }
  return sums;
}

/** The sums of the events in all files, and how many were dropped. */
function eventsOf(): Record<string, Sums> {
  const sums: Record<string, Sums> = {};
  const files = readdirSync(own.dataDir).filter((name) => name.startsWith('events.jsonl'));
  for (const file of files) {
    // One line at a time: all of them are some hundred megabytes.
    for (const line of linesOf(join(own.dataDir, file))) {
      const { namespace, decision, cost } = JSON.parse(line);
      sums[namespace] ??= newSums();
      countDecision(sums[namespace], decision === 'allowed', cost);
    }
  }
  return sums;
}

/** Each line must be complete. */
function* linesOf(path: string): Iterable<string> {
  const bytes = readFileSync(path);
  let from = 0;
  for (let end = bytes.indexOf(10); end >= 0; end = bytes.indexOf(10, from)) {
    yield bytes.toString('utf8', from, end);
    from = end + 1;
  }
  expect(from).toBe(bytes.length);
}

async function droppedEvents(server: ServerProcess): Promise<number> {
  return (await readMetrics(server.adminUrl)).get('weir_events_total{outcome="dropped"}') ?? -1;
}

async function metricsOf(server: ServerProcess): Promise<Record<string, Sums>> {
  const metrics = await readMetrics(server.adminUrl);
  return Object.fromEntries(
    NAMESPACES.map((name) => {
      const read = (metric: string, outcome: string) => {
        return metrics.get(`weir_${metric}_total{namespace="${name}",outcome="${outcome}"}`) ?? 0;
      };
      const [allowed, denied] = OUTCOMES.map((outcome) => read('decisions', outcome));
      const [tokensAllowed, tokensDenied] = OUTCOMES.map((outcome) => read('tokens', outcome));
      return [name, { allowed, denied, tokensAllowed, tokensDenied }];
    }),
  );
}

test.each(DECIDE_MODES)(
  'metrics, analytics and events equal the answers, with --decide %s and dying workers, over a restart',
  async (decide) => {
    const events = ['--events', 'all', '--events-files', '100'];
    const args = [...SIZES, '--decide', decide, ...events];
    const seed = newSeed();
    // Acceptors take one check at a time of a connection if shard workers decide.
    const checksPerPacket = decide === 'worker' ? 1 : 16;
    const checks = checksFor({ isAsync: true });
    const answers: Answers = new Map();
    const faults = workerFaults(trialCount(100, 300), KINDS);
    let server = await own.start({ args, ...faults });
    await run(server, checks, answers, { seed, checksPerPacket });
    const expected = () => Object.fromEntries(answers);
    expect(await metricsOf(server)).toEqual(expected());
    expect(await analyticsOf(server)).toEqual(expected());
    const deaths = readWorkerDeaths(server).total;
    expect(await droppedEvents(server)).toBe(0);
    await server.stop();
    expect(eventsOf()).toEqual(expected());
    server = await own.start({ args });
    expect(await analyticsOf(server)).toEqual(expected());
    await run(server, checks, answers, { seed: seed + 1_000, checksPerPacket });
    expect(await analyticsOf(server)).toEqual(expected());
    expect(await timelinesOf(server, 'minute')).toEqual(expected());
    expect(await timelinesOf(server, 'hour')).toEqual(expected());
    expect(await droppedEvents(server)).toBe(0);
    await server.stop();
    expect(eventsOf()).toEqual(expected());
    const fault = `${deaths} worker deaths and a restart, --decide ${decide}`;
    recordMeasurement('P3', fault, `${2 * CHECKS} checks`, 'all sums equal the answers');
  },
);

test('events that are written and dropped add up to the answers while nobody reads them', async () => {
  const answers: Answers = new Map();
  const server = await own.start({ args: [...SIZES, '--events', 'all', '--events-file', '-'] });
  server.child.stdout?.pause();
  do await run(server, checksFor({}), answers);
  while ((await droppedEvents(server)) === 0);
  server.child.stdout?.resume();
  const total = countChecks([...answers.values()]);
  await waitUntil('all others are written', async () => {
    const metrics = await readMetrics(server.adminUrl);
    const written = metrics.get('weir_events_total{outcome="written"}')!;
    return written + metrics.get('weir_events_total{outcome="dropped"}')! === total;
  });
});

test('a kill loses at most the figures of the last second', async () => {
  const checks = checksFor({});
  const answers: Answers = new Map();
  let server = await own.start();
  await run(server, checks, answers);
  // Nothing is queried: it is written by itself.
  await sleep(2 * ANALYTICS_INTERVAL_MS);
  const before = Object.fromEntries(structuredClone(answers));
  const traffic = new Traffic({
    ...{ port: server.port, connections: CONNECTIONS, checksPerPacket: 1, seed: 1 },
    nextCheck: (below) => checks[below(IDS)],
  });
  await waitUntil('checks are answered', () => traffic.responses > trialCount(1_000, 10_000));
  server.child.kill('SIGKILL');
  await server.exited;
  await traffic.stop();
  server = await own.start();
  const after = await analyticsOf(server);
  for (const [name, sums] of Object.entries(before)) {
    for (const key of SUM_NAMES) {
      expect(after[name][key]).toBeGreaterThanOrEqual(sums[key]);
    }
  }
  const more = countChecks(Object.values(after)) - countChecks(Object.values(before));
  expect(more).toBeLessThanOrEqual(traffic.sent);
});
