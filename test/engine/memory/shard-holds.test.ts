/** The holds of one shard: a worker that dies, other threads in between, resets, and odd terms. */

import { describe, expect, test, vi } from 'vitest';
import type { Check } from '../../../src/core/check.ts';
import { newDecision } from '../../../src/core/decision.ts';
import type { Identity } from '../../../src/core/hash.ts';
import { RULE, type RuleNumber } from '../../../src/core/window-rules.ts';
import type { HoldPolicies } from '../../../src/engine/hold-engine.ts';
import type { HoldId } from '../../../src/engine/hold-id.ts';
import { HoldTable } from '../../../src/engine/holds/hold-table.ts';
import { allocateHolds, LOCK, NONE } from '../../../src/engine/holds/layout.ts';
import { Leases } from '../../../src/engine/holds/leases.ts';
import { recoverHolds } from '../../../src/engine/holds/rebuild.ts';
import { ReservationBatch } from '../../../src/engine/memory/reservation-batch.ts';
import { ShardHolds } from '../../../src/engine/memory/shard-holds.ts';
import { CounterTable } from '../../../src/engine/memory/table.ts';
import { lockAt } from '../../../src/engine/table/layout.ts';
import { breakLock } from '../../../src/engine/table/lock.ts';
import { allocateTable } from '../../../src/engine/table/table-memory.ts';
import { DyingThread } from '../../support/dying-thread.ts';
import { checkOf } from '../../support/engines.ts';
import {
  expectConsistent,
  HOLDS_SHARD,
  holdIdentity,
  oneShardBatch,
  recordsOf,
} from '../../support/hold-tables.ts';
import { START_MS } from '../../support/limiter-model.ts';

const MINUTE = 60_000;
const LIMIT = 100;
const TTL_MS = 10_000;
const WORKER = 1_000;
const ACCEPTOR = 1;
const ID = holdIdentity(0, 2, 5, 1);
const OTHER_ID = holdIdentity(1, 2, 5, 2);

const RELEASE: HoldPolicies = { whenFull: 'deny', onExpiry: 'release' };
const CHARGE: HoldPolicies = { whenFull: 'deny', onExpiry: 'charge' };
/** The fixed and the sliding window share the counters of a duration. */
const DURATIONS = { [RULE.fixed]: MINUTE, [RULE.sliding]: 2 * MINUTE, [RULE.gcra]: MINUTE };
const RULES = Object.entries(DURATIONS).map(([rule, durationMs]) => {
  return { rule: Number(rule) as RuleNumber, durationMs, limit: LIMIT };
});

function allocateShard() {
  return { counters: allocateTable(HOLDS_SHARD, 2), holds: allocateHolds(HOLDS_SHARD, 64, 2) };
}

/** A shard as one thread has it. */
class Shard {
  readonly counters: CounterTable;
  readonly table: HoldTable;
  readonly holds: ShardHolds;
  readonly leases: Leases;
  readonly reservations: ReservationBatch;

  constructor(buffers: ReturnType<typeof allocateShard>, owner: number, policies = RELEASE) {
    this.counters = new CounterTable(buffers.counters, HOLDS_SHARD, owner, 'deny', () => {});
    this.table = new HoldTable(buffers.holds, HOLDS_SHARD, owner, () => {});
    this.holds = new ShardHolds(this.counters, this.table, policies);
    this.leases = new Leases(this.table, policies.whenFull);
    const { batch, tables } = oneShardBatch(this.counters, this.table);
    this.reservations = new ReservationBatch(batch, tables, policies.whenFull);
  }

  reserve(terms: Partial<Check>, nowMs: number, ttlMs = TTL_MS): HoldId | undefined {
    const check = checkOf('x', { identity: ID, limit: LIMIT, durationMs: MINUTE, ...terms });
    this.reservations.decide([check], nowMs, ttlMs);
    return this.reservations.id;
  }

  /** @returns the tokens that were returned */
  cancel(id: HoldId, nowMs: number): number | undefined {
    return this.holds.settle(id, 0, nowMs)?.released;
  }

  check(terms: Partial<Check>, nowMs: number): boolean {
    const check = checkOf('x', { identity: ID, limit: LIMIT, durationMs: MINUTE, ...terms });
    const decision = newDecision();
    this.counters.decide(check.identity, 1, nowMs, check, true, decision);
    return decision.allowed;
  }

  acquire(cost: number, nowMs: number): HoldId | undefined {
    const { namespace } = checkOf('x');
    const lease = { granted: false, id: undefined, inUse: 0, limit: 0, expiresAt: 0 };
    const request = { namespace, identity: ID, limit: LIMIT, cost, ttlMs: TTL_MS };
    this.leases.acquire(request, nowMs, lease);
    return lease.id;
  }

  used({ rule, durationMs }: { rule: RuleNumber; durationMs: number }, nowMs: number): number {
    const [counter] = this.counters.inspect(ID, nowMs, durationMs, rule);
    return counter?.used ?? 0;
  }

  /** As `HostedMemoryEngine`, for a worker that has ended. */
  breakLocks(buffers: ReturnType<typeof allocateShard>, owner: number): void {
    recoverHolds(buffers.holds, HOLDS_SHARD, owner);
    const { words, groups } = this.counters;
    for (let group = 0; group < groups; group++) breakLock(words, lockAt(group), owner);
  }

  reset(id: Identity, nowMs: number): void {
    this.counters.reset(id, nowMs, undefined, undefined, () => {
      this.holds.voidLocked(id, undefined, undefined);
    });
  }
}

describe('a worker that dies while it ends holds', () => {
  /** Tokens of each counter that were used by checks, and those that a reservation has. */
  const PLAIN = 3;
  const HELD = 40;
  const EXPIRED_MS = START_MS + TTL_MS;

  test.each([
    ['returns their tokens', RELEASE],
    ['charges them', CHARGE],
  ])('at any store loses no hold and returns no token twice, where it %s', (_, policies) => {
    for (let stores = 0; ; stores++) {
      const buffers = allocateShard();
      const acceptor = new Shard(buffers, ACCEPTOR, policies);
      const ids: HoldId[] = [];
      for (const terms of RULES) {
        expect(acceptor.check({ ...terms, cost: PLAIN }, START_MS)).toBe(true);
        ids.push(acceptor.reserve({ ...terms, cost: HELD }, START_MS)!);
      }
      const lease = acceptor.acquire(7, START_MS)!;
      const others = [
        acceptor.reserve({ cost: 1, durationMs: 1_000 }, START_MS)!,
        acceptor.reserve({ cost: 1, identity: OTHER_ID }, START_MS, 4 * TTL_MS)!,
      ];
      expect(acceptor.holds.settle(others[0], 1, START_MS)).toMatchObject({ charged: 1 });

      const thread = new DyingThread(stores);
      const worker = new Shard(buffers, WORKER, policies);
      thread.use(worker.counters);
      thread.use(worker.table.memory);
      const hasDied = thread.run(() => worker.holds.expire(EXPIRED_MS, 256));
      acceptor.breakLocks(buffers, WORKER);
      expect([acceptor.table.memory.words[LOCK], acceptor.counters.words[lockAt(0)]]).toEqual([
        0, 0,
      ]);
      expectConsistent(acceptor.table);
      for (const id of [...ids, lease, ...others]) {
        expect(acceptor.table.find(id, EXPIRED_MS)).toBe(id.record);
      }
      for (const terms of RULES) {
        expect(acceptor.used(terms, EXPIRED_MS)).toBeGreaterThanOrEqual(PLAIN);
        expect(acceptor.used(terms, EXPIRED_MS)).toBeLessThanOrEqual(PLAIN + HELD);
      }

      new Shard(buffers, WORKER + 1, policies).holds.expire(EXPIRED_MS, 256);
      expectConsistent(acceptor.table);
      const expired = [...ids, lease].map(({ record }) => record);
      const live = recordsOf(acceptor.table).filter((record) => acceptor.table.isLive(record));
      expect(live).toEqual([others[1].record]);
      expect(expired.map((record) => acceptor.table.isLive(record))).not.toContain(true);
      expect(acceptor.leases.release(lease, EXPIRED_MS)).toBe(0);

      // A late commit would return what it believes to be charged.
      for (const id of ids) expect(acceptor.holds.settle(id, 0, EXPIRED_MS)?.isLate).toBe(true);
      for (const terms of RULES) {
        expect(acceptor.used(terms, EXPIRED_MS)).toBeGreaterThanOrEqual(PLAIN);
        const next = acceptor.reserve({ ...terms, cost: 1 }, EXPIRED_MS)!;
        expect(acceptor.cancel(next, EXPIRED_MS)).toBe(1);
      }
      expect(acceptor.holds.settle(others[1], 2, EXPIRED_MS)).toMatchObject({ charged: 2 });
      expectConsistent(acceptor.table);
      if (hasDied) continue;
      expect(stores).toBeGreaterThan(50);
      for (const terms of RULES) expect(acceptor.used(terms, EXPIRED_MS)).toBe(PLAIN);
      break;
    }
  });
});

describe('a reset', () => {
  test('leaves nothing to return to reservations that have expired, either', () => {
    for (const terms of RULES) {
      const shard = new Shard(allocateShard(), ACCEPTOR, CHARGE);
      const id = shard.reserve({ ...terms, cost: 40 }, START_MS)!;
      expect(shard.holds.expire(START_MS + TTL_MS, 256)).toBe(1);
      shard.reset(ID, START_MS + TTL_MS);
      expect(shard.check({ ...terms, cost: LIMIT }, START_MS + TTL_MS)).toBe(true);
      const commit = { charged: 40, released: 0, isLate: true };
      expect(shard.holds.settle(id, 10, START_MS + TTL_MS)).toEqual(commit);
      expect(shard.check({ ...terms, cost: 1 }, START_MS + TTL_MS)).toBe(false);
    }
  });

  test('voids reservations of its rule and duration alone, and no lease', () => {
    const shard = new Shard(allocateShard(), ACCEPTOR);
    const ids = RULES.map((terms) => shard.reserve({ ...terms, cost: 5 }, START_MS)!);
    const [fixed, sliding, gcra] = ids;
    const lease = shard.acquire(7, START_MS)!;
    shard.holds.voidLocked(ID, MINUTE, RULE.fixed);
    shard.holds.voidLocked(OTHER_ID, undefined, undefined);
    const cancel = (id: HoldId) => shard.cancel(id, START_MS);
    expect([cancel(fixed), cancel(sliding), cancel(gcra)]).toEqual([0, 5, 5]);
    expect(shard.leases.release(lease, START_MS)).toBe(7);
    expectConsistent(shard.table);
  });

  test('does not change what a reservation costs beyond its tokens', () => {
    for (const terms of RULES) {
      const shard = new Shard(allocateShard(), ACCEPTOR);
      const id = shard.reserve({ ...terms, cost: 5 }, START_MS)!;
      shard.reset(ID, START_MS);
      const commit = { charged: 12, released: 0, isLate: false };
      expect(shard.holds.settle(id, 12, START_MS)).toEqual(commit);
      expect(shard.used(terms, START_MS)).toBe(7);
    }
  });
});

test('a limit of 0 has no bucket: a commit beyond its reservation counts nothing there', () => {
  for (const terms of RULES) {
    const shard = new Shard(allocateShard(), ACCEPTOR);
    const none = { ...terms, limit: 0, cost: 0 };
    const id = shard.reserve(none, START_MS)!;
    expect(shard.holds.settle(id, 5, START_MS)).toMatchObject({ charged: 0, released: 0 });
    expect(shard.used(terms, START_MS)).toBe(0);
    expect(shard.check({ ...terms, cost: LIMIT }, START_MS)).toBe(true);
    // Where another limit has been counted, the tokens are counted under it.
    const second = shard.reserve(none, START_MS)!;
    expect(shard.holds.settle(second, 5, START_MS)).toMatchObject({ charged: 5 });
    expect(shard.used(terms, START_MS)).toBe(LIMIT + 5);
  }
});

test('a record that gets another hold before the worker has the locks keeps it', () => {
  const buffers = allocateShard();
  const [worker, acceptor] = [new Shard(buffers, WORKER), new Shard(buffers, ACCEPTOR)];
  const { capacity } = worker.table.memory;
  const first = acceptor.reserve({ cost: 1 }, START_MS)!;
  // The worker has read whose hold it is, and is stopped for longer than the next hold lives.
  const lock = worker.counters.lock.bind(worker.counters);
  let second: HoldId | undefined;
  vi.spyOn(worker.counters, 'lock').mockImplementationOnce((id, nowMs) => {
    acceptor.holds.settle(first, 1, START_MS);
    for (let number = 1; number < capacity; number++) {
      acceptor.reserve({ cost: 0, identity: OTHER_ID }, START_MS, 100 * TTL_MS);
    }
    second = acceptor.reserve({ cost: 9, identity: OTHER_ID }, START_MS);
    acceptor.table.advanceTime(START_MS + 2 * TTL_MS);
    return lock(id, nowMs);
  });
  worker.holds.expire(START_MS + TTL_MS, 1);
  expect(second!.record).toBe(first.record);
  worker.holds.expire(START_MS + 2 * TTL_MS, 1);
  expect(worker.table.find(second!, START_MS + 2 * TTL_MS)).not.toBe(NONE);
  const terms = { cost: LIMIT, identity: OTHER_ID };
  expect(acceptor.check(terms, START_MS + 2 * TTL_MS)).toBe(true);
});

test('a bucket that is full again counts under the limit of the reservation, swept or not', () => {
  const gcra = { rule: RULE.gcra, durationMs: MINUTE };
  for (const isSwept of [false, true]) {
    const shard = new Shard(allocateShard(), ACCEPTOR);
    const id = shard.reserve({ ...gcra, cost: 1 }, START_MS, 10 * MINUTE)!;
    expect(shard.check({ ...gcra, limit: 5, cost: 1 }, START_MS)).toBe(true);
    const fullMs = START_MS + MINUTE;
    expect(shard.used(gcra, fullMs)).toBe(0);
    if (isSwept) shard.counters.reset(ID, fullMs);
    expect(shard.holds.settle(id, 51, fullMs)).toMatchObject({ charged: 51 });
    expect(shard.used(gcra, fullMs)).toBe(50);
    expect(shard.used(gcra, fullMs + MINUTE / 2)).toBe(0);
  }
});
