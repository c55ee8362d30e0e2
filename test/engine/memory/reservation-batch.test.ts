/** Lists of checks that are one reservation. `reservations.test.ts` has random ones. */

import { expect, test, vi } from 'vitest';
import type { Check } from '../../../src/core/check.ts';
import { ENDED_HOLD_MS, MULTI_LIMIT_MAX } from '../../../src/core/constants.ts';
import { RULE } from '../../../src/core/window-rules.ts';
import { HOLD_KIND, type HoldId, handleOf } from '../../../src/engine/hold-id.ts';
import { HoldTable } from '../../../src/engine/holds/hold-table.ts';
import { NONE, recordOfReference, shardOfReference } from '../../../src/engine/holds/layout.ts';
import { shardOf } from '../../../src/engine/table/shard.ts';
import { ACCEPTOR_STAT, WORKER_STAT } from '../../../src/shared-memory/stats.ts';
import { checkOf } from '../../support/engines.ts';
import { acceptorStats, newHoldEngine, workerStats } from '../../support/hold-engine.ts';
import { expectConsistent, recordsOf } from '../../support/hold-tables.ts';

const TTL_MS = 10_000;

function checksOf(count: number, terms: Partial<Check> = {}): Check[] {
  return Array.from({ length: count }, (_, number) => {
    return checkOf(`id ${number}`, { limit: 100, durationMs: 60_000, cost: 10 + number, ...terms });
  });
}

function newRun(...policies: Parameters<typeof newHoldEngine>) {
  const run = newHoldEngine(...policies);
  const { holds, clock, holdTables } = run;
  return {
    ...run,
    reserve: (checks: readonly Check[]) => ({ ...holds.reserve(checks, clock.ms, TTL_MS) }),
    usedOf: (checks: readonly Check[]) => checks.map((check) => run.used(check)),
    expectConsistent: () => {
      for (const table of holdTables) expectConsistent(table);
    },
    /** The ids that its other records would have. */
    membersOf: (id: HoldId) => {
      const members: HoldId[] = [];
      let next = holdTables[id.shard].nextOfList(id);
      while (next !== NONE) {
        const member = { ...id, shard: shardOfReference(next), record: recordOfReference(next) };
        members.push(member);
        next = holdTables[member.shard].nextOfList(member);
      }
      return members;
    },
  };
}

test('a list has one id, a record for each check in its shard, and one expiry', () => {
  const run = newRun('release');
  const { holds, clock, holdTables } = run;
  const checks = checksOf(40, { cost: 3 });
  const shards = checks.map(({ identity }) => shardOf(identity));
  expect(new Set(shards).size).toBeGreaterThan(10);
  const { allowed, id, expiresAt } = run.reserve(checks);
  expect([allowed, expiresAt]).toEqual([true, clock.ms + TTL_MS]);
  expect([id!.kind, id!.shard]).toEqual([HOLD_KIND.reservation, shards[0]]);
  expect(run.membersOf(id!).map(({ shard }) => shard)).toEqual(shards.slice(1));
  for (const [shard, table] of holdTables.entries()) {
    expect(recordsOf(table)).toHaveLength(shards.filter((own) => own === shard).length);
  }
  const [first, second] = checks[0].namespace.hashState;
  expect(holds.namespacesOf(id!)).toEqual(checks.map(() => [first, second]));
  // An operator sees each of them under the identity of its check.
  const [, member] = [id!, ...run.membersOf(id!)];
  const shown = holds.liveHolds(checks[1].identity);
  expect(shown).toMatchObject({ reservedTokens: 3, inUse: 0, count: 1 });
  expect(shown.listed[0]).toMatchObject({ handle: handleOf(member), tokens: 3, expiresAt });
  run.expectConsistent();
});

test('a commit of a list applies one cost to each check, and its repetition none', () => {
  const run = newRun('release');
  const { holds } = run;
  const rules = [RULE.fixed, RULE.sliding, RULE.gcra, RULE.fixed];
  // The last one has the counter of the first.
  const checks = [...checksOf(3), checksOf(1)[0]].map((check, n) => ({ ...check, rule: rules[n] }));
  const { id } = run.reserve(checks);
  expect(run.usedOf(checks)).toEqual([20, 11, 12, 20]);
  const commit = { charged: 4 + 15 + 0 + 10, released: 6 + 12, isLate: false };
  expect(holds.commit(id!, [4, 15, 0, 10])).toEqual(commit);
  expect(run.usedOf(checks)).toEqual([14, 15, 0, 14]);
  expect(holds.commit(id!, [50, 50, 50, 50])).toEqual(commit);
  expect(holds.cancel(id!)).toBe(18);
  expect(run.usedOf(checks)).toEqual([14, 15, 0, 14]);
  run.expectConsistent();
});

test('a cancellation of a list returns the tokens of all of its checks', () => {
  const run = newRun('release');
  const checks = checksOf(5);
  const { id } = run.reserve(checks);
  expect(run.holds.cancel(id!)).toBe(10 + 11 + 12 + 13 + 14);
  expect(run.usedOf(checks)).toEqual([0, 0, 0, 0, 0]);
  run.expectConsistent();
});

test.each([
  ['release', 0],
  ['charge', 10],
] as const)('all checks of a list expire: %s', (onExpiry, left) => {
  const run = newRun(onExpiry);
  const { clock, holds } = run;
  const checks = checksOf(4, { cost: 10 });
  const { id } = run.reserve(checks);
  const before = workerStats.get(WORKER_STAT.holdsExpired);
  run.newScheduler().step(clock.ms + TTL_MS - 1);
  expect(run.usedOf(checks)).toEqual([10, 10, 10, 10]);
  clock.ms += TTL_MS;
  run.newScheduler().step(clock.ms);
  expect(workerStats.get(WORKER_STAT.holdsExpired) - before).toBe(4);
  expect(run.usedOf(checks)).toEqual([left, left, left, left]);
  // A late commit counts the actual costs, whichever of them the worker has ended.
  const commit = { charged: 22, released: 4 * left - (left === 0 ? 0 : 22), isLate: true };
  expect(holds.commit(id!, [1, 2, 10, 9])).toEqual(commit);
  expect(run.usedOf(checks)).toEqual([1, 2, 10, 9]);
  run.expectConsistent();
});

test('a list with one denied check counts nothing and records nothing', () => {
  const run = newRun('release');
  const checks = checksOf(3).with(1, { ...checksOf(2)[1], limit: 5 });
  const denied = run.reserve(checks);
  expect(denied).toMatchObject({ allowed: false, id: undefined, expiresAt: 0 });
  expect(denied.decisions.slice(0, 3).map(({ allowed }) => allowed)).toEqual([true, false, true]);
  expect(run.usedOf(checks)).toEqual([0, 0, 0]);
  for (const table of run.holdTables) expect(recordsOf(table)).toEqual([]);
  run.expectConsistent();
});

test('a check of a list cannot be named by an id of its own', () => {
  const run = newRun('release');
  const { holds } = run;
  const checks = checksOf(3);
  const { id } = run.reserve(checks);
  for (const member of run.membersOf(id!)) {
    expect(holds.commit(member, [0])).toBeUndefined();
    expect(holds.cancel(member)).toBeUndefined();
    expect(holds.namespacesOf(member)).toBeUndefined();
    const lease = { ...member, kind: HOLD_KIND.lease };
    expect([holds.release(lease), holds.renew(lease, 1_000).granted]).toEqual([undefined, false]);
  }
  // Nor does an id without the secret lead to them.
  expect(holds.cancel({ ...id!, secret: [1, 2, 3] })).toBeUndefined();
  expect(run.usedOf(checks)).toEqual([10, 11, 12]);
  expect(holds.cancel(id!)).toBe(33);
});

test('one shard without room denies the whole list, and nothing is counted', () => {
  for (const whenFull of ['deny', 'allow'] as const) {
    const run = newRun('release', whenFull);
    const [first, full] = checksOf(2, { cost: 1, limit: 1_000 });
    const shard = shardOf(full.identity);
    expect(shardOf(first.identity)).not.toBe(shard);
    const { capacity } = run.holdTables[shard].memory;
    // One record is left, and two are needed.
    for (let number = 1; number < capacity; number++) run.reserve([full]);
    const used = capacity - 1;
    const before = acceptorStats.get(ACCEPTOR_STAT.fullHoldDecisions);
    const list = [first, full, full];
    const answer = run.reserve(list);
    const allowed = whenFull === 'allow';
    expect(answer).toMatchObject({ allowed, id: undefined, expiresAt: 0 });
    expect(acceptorStats.get(ACCEPTOR_STAT.fullHoldDecisions) - before).toBe(1);
    const counted = allowed ? [1, used + 2] : [0, used];
    expect(run.usedOf([first, full])).toEqual(counted);
    expect(recordsOf(run.holdTables[shardOf(first.identity)])).toEqual([]);
    expect(run.reserve([first, full]).id).toBeDefined();
    run.expectConsistent();
  }
});

test('the longest list is one reservation', () => {
  const run = newRun('release');
  const checks = checksOf(MULTI_LIMIT_MAX, { cost: 1 });
  const { id } = run.reserve(checks);
  expect(run.holds.namespacesOf(id!)).toHaveLength(MULTI_LIMIT_MAX);
  expect(run.holds.commit(id!, Array(MULTI_LIMIT_MAX).fill(2))).toMatchObject({ charged: 200 });
  expect(run.usedOf(checks)).toEqual(Array(MULTI_LIMIT_MAX).fill(2));
});

test('a list whose first check is forgotten is unknown, and its others stay as they are', () => {
  const run = newRun('charge');
  const { clock, holds } = run;
  const checks = checksOf(2, { durationMs: 10 * ENDED_HOLD_MS });
  expect(shardOf(checks[0].identity)).not.toBe(shardOf(checks[1].identity));
  const { id } = run.reserve(checks);
  clock.ms += TTL_MS;
  run.newScheduler().step(clock.ms);
  // The shard of the first alone has seen the later time.
  clock.ms += ENDED_HOLD_MS;
  run.decide(checks[0]);
  clock.ms -= 1;
  expect(holds.commit(id!, [50, 50])).toBeUndefined();
  expect(run.used(checks[1])).toBe(11);
});

test('the leases of an identity end at once, beside its reservations', () => {
  const { reserve, ...run } = newRun('release');
  const { holds } = run;
  const [check] = checksOf(1);
  const { namespace, identity } = check;
  const request = { namespace, identity, limit: 5, cost: 2, ttlMs: TTL_MS };
  const leases = [holds.acquire(request).id!, holds.acquire(request).id!];
  const { id } = reserve([check]);
  expect(holds.liveHolds(identity)).toMatchObject({ reservedTokens: 10, inUse: 4, count: 3 });
  expect([holds.endLeases(identity), holds.endLeases(identity)]).toEqual([2, 0]);
  expect(leases.map((lease) => holds.release(lease))).toEqual([0, 0]);
  expect(holds.liveHolds(identity)).toMatchObject({ reservedTokens: 10, inUse: 0, count: 1 });
  expect(holds.cancel(id!)).toBe(10);
});

test('a failure while a list takes its locks frees all of them', () => {
  const run = newRun('release');
  const checks = checksOf(6);
  const { lock } = HoldTable.prototype;
  const last = Math.max(...checks.map(({ identity }) => shardOf(identity)));
  const spy = vi.spyOn(HoldTable.prototype, 'lock').mockImplementation(function (this: HoldTable) {
    if (this.memory.shard === last) throw new Error('no lock');
    lock.call(this);
  });
  expect(() => run.reserve(checks)).toThrow('no lock');
  spy.mockRestore();
  expect(run.usedOf(checks)).toEqual([0, 0, 0, 0, 0, 0]);
  expect(run.reserve(checks).id).toBeDefined();
});
