/** What the random operations of `lease-table-model.test.ts` do not compare. */

import { describe, expect, test } from 'vitest';
import { newDecision, OUTCOME } from '../../../src/core/decision.ts';
import { RULE } from '../../../src/core/window-rules.ts';
import { CounterTable } from '../../../src/engine/memory/table.ts';
import { addToLease, newLeaseState } from '../../../src/engine/redis/counter/lease-state.ts';
import { pauseUntil } from '../../../src/engine/redis/counter/pause.ts';
import { totalAt } from '../../../src/engine/redis/lease-layout.ts';
import { allocateLeaseTable, attachLeaseTable } from '../../../src/engine/redis/lease-memory.ts';
import { LeaseTable, VERDICT } from '../../../src/engine/redis/lease-table.ts';
import { GROUP_SLOTS, NO_SLOT } from '../../../src/engine/table/layout.ts';
import { allocateTable } from '../../../src/engine/table/table-memory.ts';
import { counterKey } from '../../../src/engine/windows/registry.ts';
import {
  brokenInvariants,
  MINUTE,
  OFFSET_MS,
  START_MS,
  TestLeases,
  testCheck,
  testIdentity,
  WINDOW,
} from '../../support/lease-tables.ts';

const ID = testIdentity(7);
const NOW = START_MS + 10_000;
const END = START_MS + MINUTE;
const RESET = (WINDOW + 1) * MINUTE;

describe('a check', () => {
  test('of a counter without a slot needs tokens, also with cost 0 or above its limit', () => {
    const leases = new TestLeases();
    for (const cost of [0, 1, 101]) {
      expect(leases.decide(ID, NOW, { cost }).verdict).toBe(VERDICT.needsTokens);
      expect(leases.decideAsync(ID, NOW, { cost }).verdict).toBe(VERDICT.needsTokens);
    }
    expect(leases.read(ID)).toBeUndefined();
  });

  test('is not allowed from a lease after its deadline', () => {
    const leases = new TestLeases();
    leases.lend(ID, NOW, 5);
    expect(leases.decide(ID, END, {}).verdict).toBe(VERDICT.needsTokens);
    expect(leases.decide(ID, END - 0.001, {}).verdict).toBe(VERDICT.decided);
    leases.lend(ID, NOW, 5, { boundUntilMs: NOW });
    expect(leases.decide(ID, NOW, { cost: 0 }).verdict).toBe(VERDICT.needsTokens);
  });

  test('wants a prefetch once, when the lease gets below its mark', () => {
    const leases = new TestLeases();
    leases.lend(ID, NOW, 10, { prefetchBelow: 8 });
    const verdicts = Array.from({ length: 5 }, () => leases.decide(ID, NOW).verdict);
    const { decided, decidedPrefetch } = VERDICT;
    expect(verdicts).toEqual([decided, decided, decidedPrefetch, decided, decided]);
  });

  test('of GCRA always needs Redis', () => {
    const leases = new TestLeases();
    const gcra = { rule: RULE.gcra };
    leases.lend(ID, NOW, 5);
    for (const { verdict } of [
      leases.decide(ID, NOW, gcra),
      leases.reserve(ID, NOW, gcra),
      leases.decideAsync(ID, NOW, gcra),
    ]) {
      expect(verdict).toBe(VERDICT.needsTokens);
    }
    expect(leases.table.countDenied(ID, NOW, testCheck(gcra))).toBe(false);
  });
});

describe('reserved tokens', () => {
  test('become usage, or a lease again', () => {
    const leases = new TestLeases();
    const { table } = leases;
    leases.lend(ID, NOW, 5);
    leases.reserve(ID, NOW, { cost: 2 });
    leases.reserve(ID, NOW, { cost: 3 });
    expect(leases.read(ID)).toMatchObject({ lease: 0, reserved: 5, spent: 0 });
    table.commit(ID, MINUTE, WINDOW, 2);
    table.abort(ID, MINUTE, WINDOW, 3);
    expect(leases.read(ID)).toMatchObject({ lease: 3, reserved: 0, spent: 2 });
    expect(leases.isDirty(ID)).toBe(false);
    expect(brokenInvariants(table)).toEqual([]);
  });

  test('of a window that has ended count in it, unless they are returned', () => {
    const leases = new TestLeases();
    const { table } = leases;
    leases.lend(ID, NOW, 5, { spent: 1 });
    leases.reserve(ID, NOW, { cost: 2 });
    leases.reserve(ID, NOW, { cost: 3 });
    leases.decideAsync(ID, END, { cost: 1 });
    expect(leases.read(ID)).toMatchObject({ previousSpent: 6, spent: 1, reserved: 0, lease: 0 });
    table.commit(ID, MINUTE, WINDOW, 2);
    table.abort(ID, MINUTE, WINDOW, 3);
    expect(leases.read(ID)).toMatchObject({ previousSpent: 3, spent: 1, reserved: 0, lease: 0 });
    expect(leases.isDirty(ID)).toBe(true);
    expect(brokenInvariants(table)).toEqual([]);
  });

  test('of a check that had no slot are counted by Redis, and not again when they are used', () => {
    const leases = new TestLeases();
    leases.lend(ID, NOW, 5);
    leases.table.commit(ID, MINUTE, WINDOW, 2);
    expect(leases.read(ID)).toMatchObject({ lease: 5, reserved: 0, spent: 0 });
    expect(leases.isDirty(ID)).toBe(false);
  });

  test('never come back to a lease that serves more checks than theirs', () => {
    const leases = new TestLeases();
    leases.lend(ID, NOW, 5, { lentLimit: 100, coversSliding: false });
    leases.reserve(ID, NOW, { cost: 5 });
    leases.lend(ID, NOW, 1, { lentLimit: 50, coversSliding: true });
    expect(leases.read(ID)).toMatchObject({ lentLimit: 100, coversSliding: false });
    leases.table.abort(ID, MINUTE, WINDOW, 5);
    expect(leases.decide(ID, NOW, { limit: 99 }).verdict).toBe(VERDICT.needsTokens);
    leases.lend(ID, NOW, 1, { lentLimit: 50, coversSliding: true });
    expect(leases.read(ID)).toMatchObject({ lentLimit: 50, coversSliding: true });
  });
});

describe('an asynchronous check', () => {
  test('uses the lease, and beyond it what is left of the limit, which Redis is told', () => {
    const leases = new TestLeases();
    leases.lend(ID, NOW, 2, { others: 90 });
    expect(leases.decideAsync(ID, NOW, { cost: 2 })).toMatchObject({ allowed: true, remaining: 8 });
    expect(leases.isDirty(ID)).toBe(false);
    expect(leases.decideAsync(ID, NOW, { cost: 8 })).toMatchObject({ allowed: true, remaining: 0 });
    expect(leases.isDirty(ID)).toBe(true);
    expect(leases.decideAsync(ID, NOW, { cost: 1 })).toMatchObject({ allowed: false });
    expect(leases.read(ID)).toMatchObject({ spent: 10, lease: 0, others: 90 });
  });

  test('is not denied because of leases of others', () => {
    const leases = new TestLeases();
    leases.lend(ID, NOW, 5, { others: 20, othersDeducted: 60 });
    expect(leases.decideAsync(ID, NOW, { cost: 79 }).allowed).toBe(true);
  });

  test('is reported at once when it is an eighth of what is left, once for each message', () => {
    const leases = new TestLeases();
    leases.lend(ID, NOW, 0, { others: 19 });
    const { decided, decidedReport } = VERDICT;
    const verdicts = (...costs: number[]) => {
      return costs.map((cost) => leases.decideAsync(ID, NOW, { cost }).verdict);
    };
    // Of 81 tokens 9 leave 72.
    expect(verdicts(8, 1, 30, 1)).toEqual([decided, decidedReport, decided, decided]);
    leases.work(ID, NOW, (state) => {
      state.reported = 30;
    });
    expect(verdicts(1, 20)).toEqual([decidedReport, decided]);
    // Nothing of the next window was reported.
    expect(leases.decideAsync(ID, END, { cost: 11 }).verdict).toBe(decided);
    expect(leases.decideAsync(ID, END, { cost: 1 }).verdict).toBe(decidedReport);
    expect(leases.decideAsync(ID, END, { cost: 89 }).verdict).toBe(decided);
    expect(leases.decideAsync(ID, END, { cost: 1 }).verdict).toBe(decided);
  });

  test('moves the counter to the window of the time; what was not reported is kept', () => {
    const leases = new TestLeases();
    leases.lend(ID, NOW, 5, { others: 20, isStored: true });
    leases.decideAsync(ID, NOW, { cost: 30, limit: 200 });
    expect(leases.decideAsync(ID, END, { cost: 7 })).toMatchObject({
      allowed: true,
      remaining: 93,
      reset: RESET + MINUTE,
      window: WINDOW + 1,
    });
    expect(leases.read(ID)).toMatchObject({
      window: WINDOW + 1,
      spent: 7,
      previousSpent: 30,
      previousUsage: 50,
      previousKnownUsage: 50,
      others: 0,
      lease: 0,
      isStored: false,
    });
    expect(leases.isDirty(ID)).toBe(true);
    // The one before is of no use after another window.
    leases.decideAsync(ID, END + 2 * MINUTE, { cost: 1 });
    expect(leases.read(ID)).toMatchObject({ window: WINDOW + 3, spent: 1, previousSpent: 0 });
    // An old time decides in the newest window.
    expect(leases.decideAsync(ID, NOW, { cost: 1 }).window).toBe(WINDOW + 3);
    expect(brokenInvariants(leases.table)).toEqual([]);
  });

  test('of a sliding window counts what the window before carries over', () => {
    const leases = new TestLeases();
    leases.lend(ID, NOW, 0, { previousUsage: 60, previousKnownUsage: 0 });
    const sliding = { rule: RULE.sliding } as const;
    expect(leases.decideAsync(ID, NOW, { ...sliding, cost: 51 }).allowed).toBe(false);
    expect(leases.decideAsync(ID, NOW, { ...sliding, cost: 50 })).toMatchObject({
      allowed: true,
      remaining: 0,
    });
    const one = new TestLeases();
    one.lend(ID, START_MS, 0, { previousUsage: 1, previousKnownUsage: 1 });
    expect(one.decideAsync(ID, START_MS, { ...sliding, cost: 100 }).allowed).toBe(false);
    expect(one.decideAsync(ID, START_MS, { ...sliding, cost: 99 }).allowed).toBe(true);
  });
});

test('a machine that pauses denies sliding checks up to the limit of its tokens, until it may ask', () => {
  const leases = new TestLeases();
  const before = { previousUsage: 100, previousKnownUsage: 100 };
  const pause = pauseUntil(NOW + 200);
  // 83 of the 100 tokens of the window before count, so 16 are left beside the one that was used.
  leases.lend(ID, NOW, 0, { ...before, spent: 1, lentLimit: 100, pause });
  const sliding = { rule: RULE.sliding } as const;
  const { decided, needsTokens } = VERDICT;
  expect(leases.decide(ID, NOW, sliding)).toMatchObject({
    ...{ verdict: decided, allowed: false, remaining: 0, reset: RESET },
    ...{ outcome: OUTCOME.shared, passesAt: OFFSET_MS + NOW + 200 },
  });
  expect(leases.decide(ID, NOW + 199, sliding).verdict).toBe(decided);
  expect(leases.decide(ID, NOW, { ...sliding, cost: 17 })).toMatchObject({
    ...{ verdict: decided, allowed: false, outcome: OUTCOME.decided },
  });
  expect(leases.decide(ID, NOW, { ...sliding, cost: 0 })).toMatchObject({ allowed: true });
  for (const other of [{}, { ...sliding, limit: 101 }]) {
    expect(leases.decide(ID, NOW, other).verdict).toBe(needsTokens);
  }
  expect(leases.decide(ID, NOW + 201, sliding).verdict).toBe(needsTokens);
  leases.lend(ID, NOW, 2, { ...before, spent: 1, coversSliding: true, pause });
  expect(leases.decide(ID, NOW, sliding)).toMatchObject({ allowed: true });
});

test('the cost of a denied check counts in the window of its time', () => {
  const leases = new TestLeases();
  leases.lend(ID, NOW, 0, { spent: 100 });
  expect(leases.table.countDenied(ID, END, testCheck({ cost: 7 }))).toBe(true);
  expect(leases.read(ID)).toMatchObject({ window: WINDOW + 1, spent: 7, previousSpent: 100 });
  expect(leases.isDirty(ID)).toBe(true);
});

test('a counter that a dead thread left half written is made right with its lock', () => {
  const DEAD = 9;
  const leases = new TestLeases();
  const dead = new LeaseTable(leases.buffer, 0, leases.state, DEAD, () => {});
  const slot = leases.lend(ID, NOW, 5);
  dead.acquire(dead.lockFor(ID));
  // The thread dies between the usage and its sum.
  dead.details[totalAt(slot, WINDOW & 1)] += 2;
  expect(brokenInvariants(leases.table, [DEAD])).not.toEqual([]);
  expect(leases.table.breakLocks(DEAD)).toBe(1);
  expect(brokenInvariants(leases.table)).toEqual([]);
});

describe('without Redis', () => {
  test('each machine applies the limit, or its share, to what it has allowed itself', () => {
    for (const [machines, share] of [
      [1, 10],
      [3, 3],
      [20, 1],
    ]) {
      const leases = new TestLeases();
      const allowed = Array.from({ length: 12 }, () => {
        return leases.decideLocally(ID, NOW, { limit: 10 }, machines).allowed;
      });
      expect(allowed.filter(Boolean)).toHaveLength(share);
      expect(allowed.slice(0, share)).not.toContain(false);
      expect(leases.read(ID)).toMatchObject({ spent: share, window: WINDOW });
      expect(leases.isDirty(ID)).toBe(true);
      expect(leases.decideLocally(ID, END, { limit: 10 }, machines)).toMatchObject({
        allowed: true,
        remaining: share - 1,
        reset: RESET + MINUTE,
      });
      expect(leases.decideLocally(ID, END, { limit: 0 }, machines).allowed).toBe(false);
      expect(brokenInvariants(leases.table)).toEqual([]);
    }
  });

  test('a lease is used, also where the known usage leaves nothing', () => {
    const leases = new TestLeases();
    leases.lend(ID, NOW, 5, { others: 99, spent: 10 });
    const allowed = { allowed: true, remaining: 0 };
    expect(leases.decideLocally(ID, NOW, { cost: 4 })).toMatchObject(allowed);
    expect(leases.read(ID)).toMatchObject({ lease: 1, spent: 14 });
    expect(leases.decideLocally(ID, NOW, { cost: 2 })).toMatchObject({ allowed: false });
    expect(leases.read(ID)).toMatchObject({ lease: 1, spent: 14 });
    expect(brokenInvariants(leases.table)).toEqual([]);
  });

  test('the known usage of other machines counts, unless limits are divided', () => {
    const leases = new TestLeases();
    leases.lend(ID, NOW, 0, { others: 60, spent: 10 });
    expect(leases.decideLocally(ID, NOW, { cost: 31 }).allowed).toBe(false);
    expect(leases.decideLocally(ID, NOW, { cost: 30 })).toMatchObject({ allowed: true });
    expect(leases.decideLocally(ID, NOW, { cost: 10 }, 2)).toMatchObject({ allowed: true });
    expect(leases.read(ID)).toMatchObject({ spent: 50 });
    expect(brokenInvariants(leases.table)).toEqual([]);
  });

  test.each([RULE.fixed, RULE.sliding, RULE.gcra])(
    'rule %i decides as the memory engine does',
    (rule) => {
      const leases = new TestLeases();
      const memory = new CounterTable(allocateTable(0, 1), 0, 1, 'deny', () => {});
      const decision = newDecision();
      let random = 7;
      const next = (below: number) => {
        random = (Math.imul(random, 1_664_525) + 1_013_904_223) | 0;
        return (random >>> 8) % below;
      };
      let nowMs = START_MS;
      for (let step = 0; step < 1_500; step++) {
        nowMs += next(800);
        const id = testIdentity(next(3));
        const check = testCheck({ rule, cost: next(9), limit: 100 + next(2), durationMs: 30_000 });
        memory.decide(id, 1, nowMs + OFFSET_MS, check, true, decision);
        const { verdict, ...local } = leases.decideLocally(id, nowMs, check);
        expect(verdict).toBe(VERDICT.decided);
        expect(local).toEqual(decision);
      }
      expect(brokenInvariants(leases.table)).toEqual([]);
    },
  );

  test('a check of a denied batch is taken back', () => {
    const leases = new TestLeases();
    leases.decideLocally(ID, NOW, { cost: 3 });
    leases.table.refundLocally(ID, testCheck({ cost: 2 }), 1, { window: WINDOW });
    expect(leases.read(ID)).toMatchObject({ spent: 1 });
    const gcra = { rule: RULE.gcra, limit: 10 };
    const key = counterKey(RULE.gcra, MINUTE);
    const { window } = leases.decideLocally(ID, NOW, { ...gcra, cost: 10 });
    expect(leases.decideLocally(ID, NOW, gcra).allowed).toBe(false);
    leases.table.refundLocally(ID, testCheck({ ...gcra, cost: 4 }), 1, { window });
    expect(leases.table.readUnreported(leases.table.find(ID, key))).toBe(6);
    expect(leases.decideLocally(ID, NOW, { ...gcra, cost: 4 })).toMatchObject({
      allowed: true,
      remaining: 0,
    });
    expect(brokenInvariants(leases.table)).toEqual([]);
  });

  test.each([1, 3])(
    'tokens of a bucket are taken back by the limit of their check (limit ÷ %s)',
    (machines) => {
      const leases = new TestLeases();
      const rates = [600, 60].map((limit) => testCheck({ rule: RULE.gcra, limit, cost: 3 }));
      const decisions = rates.map((check) => leases.decideLocally(ID, NOW, check, machines));
      for (const check of rates) leases.table.refundLocally(ID, check, machines, decisions[0]);
      const all = testCheck({ ...rates[0], cost: 600 / machines });
      expect(leases.decideLocally(ID, NOW, all, machines).allowed).toBe(true);
      expect(leases.decideLocally(ID, NOW, testCheck({ ...all, cost: 1 })).allowed).toBe(false);
    },
  );

  test('the local clock stands in for a bucket that has not answered', () => {
    const leases = new TestLeases();
    leases.state.setClock(0, 0, 0);
    leases.state.setLocalClock(OFFSET_MS, 0);
    expect(leases.decideLocally(ID, NOW)).toMatchObject({ reset: RESET, window: WINDOW });
  });
});

describe('a full table', () => {
  const fill = (change: Parameters<TestLeases['work']>[2]) => {
    const leases = new TestLeases();
    for (let i = 0; i < 4 * GROUP_SLOTS; i++) leases.work(testIdentity(i), NOW, change);
    return leases;
  };
  const inserted = (leases: TestLeases) => {
    return leases.work(testIdentity(9_999), NOW) !== NO_SLOT;
  };

  test('evicts counters whose usage Redis knows', () => {
    const leases = fill(() => {});
    expect(inserted(leases)).toBe(true);
    expect(leases.decideLocally(testIdentity(10_000), NOW)).toMatchObject({
      verdict: VERDICT.decided,
      outcome: OUTCOME.evicted,
    });
    expect(brokenInvariants(leases.table)).toEqual([]);
  });

  test.each<[string, Parameters<TestLeases['work']>[2]]>([
    ['a lease', (state) => Object.assign(state, { lease: 1, lentLimit: 1 })],
    ['a message under way', (state) => Object.assign(state, { isPinned: true })],
  ])('evicts no counter with %s before its window has ended', (_name, change) => {
    const leases = fill(change);
    expect(inserted(leases)).toBe(false);
    expect(leases.decideLocally(testIdentity(10_000), NOW, { cost: 3 })).toMatchObject({
      verdict: VERDICT.full,
      outcome: OUTCOME.full,
      allowed: true,
      remaining: 97,
      reset: RESET,
    });
    expect(brokenInvariants(leases.table)).toEqual([]);
  });

  test('evicts no counter with usage that Redis does not know, until it counts no more', () => {
    const leases = new TestLeases();
    let full = 0;
    for (let i = 0; i < 4 * GROUP_SLOTS; i++) {
      const { verdict } = leases.decideLocally(testIdentity(i), NOW);
      if (verdict === VERDICT.full) full++;
    }
    expect(full).toBeGreaterThanOrEqual(3 * GROUP_SLOTS);
    const dirty: number[] = [];
    leases.table.forEachDirtySlot((slot) => dirty.push(slot));
    expect(dirty).toHaveLength(4 * GROUP_SLOTS - full);
    expect(leases.decideLocally(testIdentity(9_999), END + MINUTE - 1).verdict).toBe(VERDICT.full);
    expect(leases.decideLocally(testIdentity(9_999), END + MINUTE).outcome).toBe(OUTCOME.decided);
    expect(brokenInvariants(leases.table)).toEqual([]);
  });

  test('keeps counters that deny checks while there are others to evict', () => {
    const leases = new TestLeases();
    const denying = Array.from({ length: 60 }, (_, i) => testIdentity(i));
    for (const id of denying)
      leases.work(id, NOW, (state) => Object.assign(state, { others: 200 }));
    for (let i = 0; i < 8 * GROUP_SLOTS; i++) {
      leases.work(testIdentity(1_000 + i), NOW, (state) =>
        Object.assign(state, { boundUntilMs: 0 }),
      );
    }
    for (const id of denying) {
      expect(leases.decide(id, NOW)).toMatchObject({ verdict: VERDICT.decided, allowed: false });
    }
  });
});

test('sequence numbers of a counter go on after its eviction, also for an old time', () => {
  const leases = new TestLeases();
  const { table } = leases;
  leases.work(ID, NOW, (state) => {
    state.sequence += 5_000_000;
  });
  const before = leases.read(ID)!;
  const lock = table.lockFor(ID);
  table.acquire(lock);
  table.remove(lock, table.find(ID, MINUTE));
  table.release(lock);
  leases.decideLocally(ID, NOW - 5_000);
  const after = leases.read(ID)!;
  expect(after.firstSequence).toBe(after.sequence + 1);
  expect(after.firstSequence).toBeGreaterThan(before.sequence);
});

test('two leases together serve what both of them serve', () => {
  const state = newLeaseState();
  addToLease(state, 0, 1_000, false);
  expect(state).toMatchObject({ lease: 0, lentLimit: 0 });
  addToLease(state, 3, 100, true);
  expect(state).toMatchObject({ lease: 3, lentLimit: 100, coversSliding: true });
  addToLease(state, 2, 50, false);
  expect(state).toMatchObject({ lease: 5, lentLimit: 100, coversSliding: false });
  addToLease(state, 1, 200, true);
  expect(state).toMatchObject({ lease: 6, lentLimit: 200, coversSliding: false });
});

test('a group is free again after an error under its lock', () => {
  const { table } = new TestLeases();
  const act = () => {
    throw new Error('it failed');
  };
  expect(() => table.withLock(ID, act)).toThrow('it failed');
  expect(brokenInvariants(table)).toEqual([]);
});

test('every slot can be visited, dirty ones apart', () => {
  const leases = new TestLeases(3);
  const ids = Array.from({ length: 100 }, (_, i) => testIdentity(i));
  for (const id of ids) leases.work(id, NOW);
  for (const id of ids.slice(0, 40)) leases.decideAsync(id, NOW);
  const all: number[] = [];
  for (let group = 0; group < 3; group++) {
    leases.table.forEachSlotOf(group, (slot) => all.push(slot));
  }
  expect(new Set(all).size).toBe(100);
  const dirty: number[] = [];
  leases.table.forEachDirtySlot((slot, lock) => {
    dirty.push(slot);
    leases.table.setDirty(lock, slot, false);
  });
  expect(new Set(dirty).size).toBe(40);
  leases.table.forEachDirtySlot(() => expect.unreachable());
  expect(brokenInvariants(leases.table)).toEqual([]);
});

test('a buffer of another shard or size is not attached', () => {
  const buffer = allocateLeaseTable(3, 2);
  expect(attachLeaseTable(buffer, 3).groups).toBe(2);
  expect(() => attachLeaseTable(buffer, 2)).toThrow('shard 2: its shard is 3, not 2');
  new Int32Array(buffer)[1] = 3;
  expect(() => attachLeaseTable(buffer, 3)).toThrow('bytes for 3 groups');
  const { state } = new TestLeases();
  expect(() => new LeaseTable(buffer, 3, state, 0, () => {})).toThrow('0 cannot own a lock');
});
