/**
 * Servers under load while the Redis that they share changes: a primary is killed and its Sentinels
 * promote a replica, and the slots of a Redis Cluster move between its nodes. All answers are
 * replayed. Without Redis every check is denied (WEIR_ON_ENGINE_DOWN=deny), so no window may exceed
 * its limit, and a check that fits is denied only where the metrics count it.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, test } from 'vitest';
import { KeySpace } from '../../../src/engine/redis/scripts/keys.ts';
import { slotOfKey } from '../../../src/redis/slot.ts';
import { IS_LONG, newSeed, recordMeasurement, trialCount } from '../../support/guarantees.ts';
import { readMetrics } from '../../support/http.ts';
import {
  isRedisMissing,
  type RedisCluster,
  type RedisServer,
  type SentinelSet,
  startCluster,
  startSentinels,
} from '../../support/programs/redis.ts';
import { type ServerProcess, waitUntil } from '../../support/server.ts';
import {
  type ClusterReport,
  describeReport,
  type RunningCluster,
  startServersAt,
} from './cluster-run.ts';

const SERVERS = IS_LONG ? 3 : 2;
const FAILOVERS = IS_LONG ? 5 : 1;
/** Slots with a bucket that are moved, each to the next node. */
const MOVES = trialCount(4, 192);
const LIMITS = [10, 50, 200, 1_000, ...Array.from({ length: 40 }, (_, i) => 15 + (i % 11))];
const HOT = 4;
const DURATION_MS = 1_000;
/** The load goes on for so long after a fault. */
const AFTER_FAULT_MS = trialCount(500, 2 * DURATION_MS);
/** Between two samples of the metrics. */
const SAMPLE_MS = 25;
/** How long a slot is on both nodes. */
const MOVING_MS = 30;
/** A Sentinel starts no other failover of its primary earlier. */
const BETWEEN_FAILOVERS_MS = 10_000;

const loads = { durationMs: DURATION_MS, costs: [1, 1, 1, 2, 5, 0], connectionsPerServer: 2 };
const LOAD_BEFORE_MS = trialCount(500, DURATION_MS);

describe.skipIf(isRedisMissing)('servers under load', () => {
  let cluster: RunningCluster | undefined;
  let redis: SentinelSet | RedisCluster | undefined;
  afterEach(async () => {
    await cluster?.close();
    await redis?.close();
    cluster = undefined;
    redis = undefined;
  });

  test('allow no window more than its limit when a replica replaces the killed primary', {
    timeout: 600_000,
  }, async () => {
    const sentinels = await startSentinels({ replicas: 1, downAfterMs: 500 });
    redis = sentinels;
    cluster = await startServersAt(Array.from({ length: SERVERS }, () => sentinels.url));
    const { servers } = cluster;
    const seed = newSeed();
    const outages: number[] = [];
    const report = await cluster.run({
      ...{ ...loads, limits: LIMITS, nextId: hotOrNot, seed },
      during: async () => {
        for (let round = 0; round < FAILOVERS; round++) {
          await sleep(LOAD_BEFORE_MS);
          const killed = await sentinels.primary();
          const outage = watchOutage(servers);
          await killed.kill();
          await waitUntil('a replica is the primary', async () => {
            return (await sentinels.primary()) !== killed;
          });
          await waitUntil('all are ready', () => areReady(servers));
          await sleep(AFTER_FAULT_MS);
          outages.push(await outage.end());
          if (round + 1 < FAILOVERS) {
            await killed.restart();
            await waitUntil('it is a replica', () => isReplica(killed));
            await sleep(BETWEEN_FAILOVERS_MS);
          }
        }
      },
    });
    expectExact(report);
    record('failover by Sentinel', `${FAILOVERS} kills`, report, outages, seed);
  });

  test('allow no window more than its limit while the slots of a Redis Cluster move', {
    timeout: 600_000,
  }, async () => {
    const nodes = await startCluster(3);
    redis = nodes;
    cluster = await startServersAt(Array.from({ length: SERVERS }, () => nodes.url));
    const { servers } = cluster;
    const seed = newSeed();
    const keys = new KeySpace('weir', true);
    const outages: number[] = [];
    const report = await cluster.run({
      ...{ ...loads, limits: LIMITS, nextId: hotOrNot, seed },
      during: async () => {
        await sleep(LOAD_BEFORE_MS);
        const outage = watchOutage(servers);
        for (let move = 0; move < MOVES; move++) {
          const bucket = (move * 5) % keys.bucketCount;
          const slot = slotOfKey(keys.members(bucket));
          const from = nodes.nodes.indexOf(await nodes.ownerOf(slot));
          const finish = await nodes.beginMove(slot, nodes.nodes[(from + 1) % 3]);
          await sleep(MOVING_MS);
          await finish();
        }
        outages.push(await outage.end());
        await waitUntil('all are ready', () => areReady(servers));
        await sleep(AFTER_FAULT_MS);
      },
    });
    expectExact(report);
    record('slots moved in a Redis Cluster', `${MOVES} slots`, report, outages, seed);
  });
});

function hotOrNot(below: (n: number) => number): number {
  return below(2) === 0 ? HOT + below(LIMITS.length - HOT) : below(HOT);
}

function expectExact(report: ClusterReport): void {
  const { certainlyFalse, unprovenDenials, withoutRedis, recoveryDenials, writtenOff } = report;
  expect(report, describeReport(report)).toMatchObject({ errors: [], overAdmission: 0 });
  // Redis denies by the tokens of a machine that did not answer as if they were used.
  if (writtenOff === 0) {
    const counted = unprovenDenials + withoutRedis + recoveryDenials;
    expect(certainlyFalse, describeReport(report)).toBeLessThanOrEqual(counted);
  }
  // The load went on after the change.
  expect(report.decisions).toBeGreaterThan(withoutRedis);
}

function record(
  fault: string,
  trials: string,
  report: ClusterReport,
  outagesMs: readonly number[],
  seed: number,
): void {
  const { decisions, overAdmission, denials, certainlyFalse, unprovenDenials } = report;
  const what = `${SERVERS} servers, ${trials}, ${decisions} decisions (seed ${seed})`;
  recordMeasurement('P1', fault, what, `${overAdmission} tokens too many`);
  const lasted = outagesMs.map((ms) => `${(ms / 1_000).toFixed(1)} s`).join(', ');
  recordMeasurement(
    'P2',
    fault,
    what,
    `of ${denials} denials ${certainlyFalse} certainly false; ${unprovenDenials} without proof,` +
      ` ${report.withoutRedis} without Redis within ${lasted};` +
      ` ${report.writtenOff} leases written off`,
  );
}

/** Watches decisions without Redis, until `end` says from the first to the last of them, ms. */
function watchOutage(servers: readonly ServerProcess[]): { end: () => Promise<number> } {
  let isEnding = false;
  const watch = async () => {
    let known = await countWithoutRedis(servers);
    let firstMs: number | undefined;
    let lastMs = 0;
    while (!isEnding) {
      const beforeMs = performance.now();
      await sleep(SAMPLE_MS);
      const count = await countWithoutRedis(servers);
      if (count > known) {
        firstMs ??= beforeMs;
        lastMs = performance.now();
      }
      known = count;
    }
    return firstMs === undefined ? 0 : lastMs - firstMs;
  };
  const watching = watch();
  return {
    end: () => {
      isEnding = true;
      return watching;
    },
  };
}

async function countWithoutRedis(servers: readonly ServerProcess[]): Promise<number> {
  let sum = 0;
  for (const { adminUrl } of servers) {
    for (const [name, value] of await readMetrics(adminUrl)) {
      if (name.startsWith('weir_engine_down_decisions_total')) sum += value;
    }
  }
  return sum;
}

async function areReady(servers: readonly ServerProcess[]): Promise<boolean> {
  const states = await Promise.all(
    servers.map(async ({ adminUrl }) => {
      return ((await (await fetch(`${adminUrl}/readyz`)).json()) as { status: string }).status;
    }),
  );
  return states.every((status) => status === 'ready');
}

async function isReplica(server: RedisServer): Promise<boolean> {
  return String(await server.command('INFO', 'replication')).includes('master_link_status:up');
}
