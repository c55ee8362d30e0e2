/** Reservations of several checks whose records are lost one by one. */

import { expect, test } from 'vitest';
import type { Check } from '../../../src/core/check.ts';
import { HOLDS_MIN, SHARDS } from '../../../src/core/constants.ts';
import type { MemoryHolds } from '../../../src/engine/memory/memory-holds.ts';
import { shardOf } from '../../../src/engine/table/shard.ts';
import { TestEngine } from '../../support/engines.ts';

const TTL_MS = 60_000;
const COSTS = [1, 2, 3];

/** A check in a shard. */
function checkIn(engine: TestEngine, shard: number, cost: number): Check {
  for (let n = 0; ; n++) {
    const check = engine.check(`user ${n}`, { cost, limit: 100 });
    if (shardOf(check.identity) === shard) return check;
  }
}

test('a reservation has as many checks after another hold has got the record of one', async () => {
  const engine = await TestEngine.open('in-place', 1_000);
  const holds = engine.engine.holds as MemoryHolds;
  const checks = COSTS.map((cost, shard) => checkIn(engine, shard, cost));
  const id = holds.reserve(checks, engine.clock.monotonicMs(), TTL_MS).id!;
  expect(holds.namespacesOf(id)).toHaveLength(3);
  holds.commit(id, COSTS);
  // All records of the shard of the second check get holds of one check.
  const [{ namespace }, { identity }] = checks;
  for (let n = 0; n < HOLDS_MIN / SHARDS + 100; n++) {
    holds.acquire({ namespace, identity, limit: 1_000, cost: 1, ttlMs: TTL_MS });
  }
  expect(holds.namespacesOf(id)).toHaveLength(3);
  expect(holds.commit(id, COSTS)).toMatchObject({ charged: 1 });
  engine.close();
});

test('and after a longer list has got it', async () => {
  const engine = await TestEngine.open('in-place', 1_000);
  const holds = engine.engine.holds as MemoryHolds;
  const checks = COSTS.map((cost, shard) => checkIn(engine, shard, cost)).slice(0, 2);
  const startedMs = engine.clock.monotonicMs();
  const id = holds.reserve(checks, startedMs, TTL_MS).id!;
  holds.commit(id, COSTS.slice(0, 2));
  const longList = [7, 1, 8, 9, 10, 11].map((shard) => checkIn(engine, shard, 0));
  for (let n = 0; n < HOLDS_MIN / SHARDS + 100; n++) holds.reserve(longList, startedMs, TTL_MS);
  expect(holds.namespacesOf(id)).toHaveLength(2);
  engine.close();
});
