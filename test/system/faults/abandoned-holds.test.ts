/** Reservations that no client ends: their tokens return, and nothing grows. */

import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { useDataDirectory } from '../../support/data-directory.ts';
import { recordMeasurements, trialCount } from '../../support/guarantees.ts';
import { LONGEST_WINDOW_MS, readMetric } from '../../support/http.ts';
import { callOperationOk } from '../../support/operations.ts';
import type { ServerProcess } from '../../support/server.ts';
import { operationBytes, readUsage, WINDOW_LIMIT } from './hold-clients.ts';
import { allowedCheckBytes, openConnections, residentMiB } from './http-connections.ts';
import { expectCleanStop } from './server-health.ts';
import { expectAnswered, Traffic } from './traffic.ts';

vi.setConfig({ testTimeout: trialCount(300_000, 3_600_000) });

const RESERVATIONS = trialCount(20_000, 1_000_000);
/** Few, so that the shards of the table get about the same number. */
const PER_IDENTIFIER = trialCount(4, 20);
const COST = 3;
/** The first reservation of a round ends so long after its beginning. */
const ROUND_MS = trialCount(4_000, 90_000);
const TTL_MIN_MS = 1_000;
/** By round: the time from the first end to the last one. 0: all end at the same moment. */
const SPREADS_MS = [0, trialCount(2_000, 50_000), 0, 0];
/** The rounds before use every record of the table once, and the memory of it. */
const MEASURED_ROUNDS = 2;
const GROWTH_MAX_PERCENT = 5;

const own = useDataDirectory([
  ...['--acceptors', '2', '--workers', '1', '--counters', String(trialCount(16_384, 131_072))],
  ...['--holds', String(trialCount(26_000, 1_200_000))],
]);

const identifierOf = (n: number) => `abandoned_${Math.floor(n / PER_IDENTIFIER)}`;

interface Round {
  /** How late a reservation ended, at most. */
  lateMs: number;
  /** Of checks of another identifier, from a second before the expiry until the last end. */
  checkMs: number[];
}

/** Sends checks of another identifier one after the other. @returns how long each took */
async function measureChecks({ port }: ServerProcess, isDone: () => boolean): Promise<number[]> {
  const [connection] = openConnections(port, 1);
  const bytes = allowedCheckBytes('other');
  const durations: number[] = [];
  while (!isDone()) {
    const sentMs = performance.now();
    const { status } = await connection.send(bytes);
    durations.push(performance.now() - sentMs);
    expect(status).toBe(200);
    await sleep(1);
  }
  connection.socket.destroy();
  return durations.sort((a, b) => a - b);
}

/** Makes reservations, and waits until they have ended. */
async function abandon(server: ServerProcess, spreadMs: number): Promise<Round> {
  const firstEndMs = Date.now() + ROUND_MS;
  /** No reservation expires earlier. */
  const expiries: number[] = [];
  const nextCheck = () => {
    const n = expiries.length;
    const ttl = Math.round(firstEndMs + (n * spreadMs) / RESERVATIONS - Date.now());
    const terms = { limit: WINDOW_LIMIT, duration: LONGEST_WINDOW_MS, cost: COST };
    const fields = { identifier: identifierOf(n), ...terms, ttl: Math.max(TTL_MIN_MS, ttl) };
    expiries.push(Date.now() + fields.ttl);
    return { id: 0, cost: COST, bytes: operationBytes('ratelimits.reserve', fields) };
  };
  let reserved = 0;
  const traffic = new Traffic({
    ...{ port: server.port, connections: 16, checksPerPacket: 16, checks: RESERVATIONS, seed: 1 },
    nextCheck,
    onDecision: (_, allowed) => {
      if (allowed) reserved++;
    },
  });
  await traffic.ended;
  expectAnswered(traffic);
  expect(reserved).toBe(RESERVATIONS);
  expiries.sort((a, b) => a - b);
  await sleep(Math.max(0, expiries[0] - 1_000 - Date.now()));
  let isDone = false;
  const checks = measureChecks(server, () => isDone);
  let lateMs = 0;
  for (let live = RESERVATIONS; live > 0; await sleep(20)) {
    live = await readMetric(server.adminUrl, 'weir_holds_live{kind="reservation"}');
    const dueMs = expiries[Math.min(RESERVATIONS - live, RESERVATIONS - 1)];
    lateMs = Math.max(lateMs, Date.now() - dueMs);
  }
  isDone = true;
  return { lateMs, checkMs: await checks };
}

/** The least of some readings: the amount of garbage varies. */
async function leastMemory(server: ServerProcess): Promise<number> {
  let least = Number.POSITIVE_INFINITY;
  for (let i = 0; i < 10; i++) {
    await sleep(100);
    least = Math.min(least, residentMiB(server));
  }
  return least;
}

test(`all tokens of ${RESERVATIONS} abandoned reservations return, and the memory does not grow`, async () => {
  const server = await own.start();
  const identifiers = Array.from({ length: RESERVATIONS / PER_IDENTIFIER }, (_, i) => {
    return identifierOf(i * PER_IDENTIFIER);
  });
  const rounds: Round[] = [];
  const memory: number[] = [];
  for (const spreadMs of SPREADS_MS) {
    rounds.push(await abandon(server, spreadMs));
    const usage = await readUsage(server.port, identifiers);
    expect([...usage.values()].filter((used) => used !== 0)).toEqual([]);
    memory.push(await leastMemory(server));
  }
  const expired = await readMetric(server.adminUrl, 'weir_expired_holds_total');
  const full = await readMetric(server.adminUrl, 'weir_full_hold_decisions_total{decision="deny"}');
  const { holds } = await callOperationOk(server.port, 'ratelimits.inspect', {
    identifier: identifiers[0],
  });
  const [before, after] = memory.slice(-MEASURED_ROUNDS);
  const growth = (100 * (after - before)) / before;
  const lateOf = (ofRound: (spreadMs: number) => boolean) => {
    return Math.max(...rounds.filter((_, i) => ofRound(SPREADS_MS[i])).map((of) => of.lateMs));
  };
  const lateMs = lateOf((spreadMs) => spreadMs === 0);
  const spreadLateMs = lateOf((spreadMs) => spreadMs > 0);
  const p99Ms = Math.max(
    ...rounds.map(({ checkMs }) => checkMs[Math.floor(checkMs.length * 0.99)]),
  );
  const trials = `${rounds.length} rounds of ${RESERVATIONS} reservations`;
  recordMeasurements('reservations that no client ends', trials, {
    P2:
      `0 tokens missing; ends within ${Math.max(...SPREADS_MS) / 1_000} s at most ` +
      `${spreadLateMs} ms late, at one moment ${lateMs} ms; checks meanwhile: p99 ` +
      `${p99Ms.toFixed(1)} ms`,
    P7: `${growth.toFixed(1)} % of ${before.toFixed(0)} MiB in the last round`,
  });
  expect([expired, full]).toEqual([rounds.length * RESERVATIONS, 0]);
  expect(holds).toMatchObject({ reserved: 0, live: 0 });
  expect(Math.max(lateMs, spreadLateMs)).toBeLessThan(trialCount(5_000, 60_000));
  expect(growth).toBeLessThan(GROWTH_MAX_PERCENT);
  await expectCleanStop(server);
});
