/** Random reservations through the engine of an acceptor, beside a model. */

import fc from 'fast-check';
import { describe, expect, test, vi } from 'vitest';
import type { Check } from '../../../src/core/check.ts';
import { ENDED_HOLD_MS } from '../../../src/core/constants.ts';
import { RULE } from '../../../src/core/window-rules.ts';
import { EXPIRED_HOLD_POLICIES } from '../../../src/engine/hold-engine.ts';
import type { HoldId } from '../../../src/engine/hold-id.ts';
import { rebuild } from '../../../src/engine/holds/rebuild.ts';
import type { ShardHolds } from '../../../src/engine/memory/shard-holds.ts';
import { HoldScheduler } from '../../../src/engine/memory/shard-worker/hold-scheduler.ts';
import { shardOf } from '../../../src/engine/table/shard.ts';
import { groupsFor } from '../../../src/engine/table/size.ts';
import { allocateControl, Control } from '../../../src/shared-memory/control.ts';
import { ACCEPTOR_STAT, WORKER_STAT } from '../../../src/shared-memory/stats.ts';
import { checkOf } from '../../support/engines.ts';
import { IS_LONG, newSeed, trialCount } from '../../support/guarantees.ts';
import {
  acceptorStats,
  HOLD_ENGINE_COUNTERS,
  newHoldEngine,
  workerStats,
} from '../../support/hold-engine.ts';
import { expectConsistent } from '../../support/hold-tables.ts';
import { START_MS } from '../../support/limiter-model.ts';
import { type ModelReservation, ReservationModel } from '../../support/reservation-model.ts';

const IDENTIFIERS = ['a', 'b', 'c'];
const RULES = Object.values(RULE);
const LIMIT = 20;

const terms = fc.record({
  identifier: fc.constantFrom(...IDENTIFIERS),
  rule: fc.constantFrom(...RULES),
  durationMs: fc.constantFrom(4_000, 60_000),
  /** GCRA has one limit. */
  lowerLimit: fc.constantFrom(LIMIT, LIMIT, 7),
  cost: fc.oneof(fc.nat(8), fc.nat(30)),
});
const command = fc.record({
  kind: fc.constantFrom(
    ...(['reserve', 'reserve', 'reserve', 'check', 'commit', 'commit', 'commit'] as const),
    ...(['cancel', 'expire', 'reset', 'rebuild'] as const),
  ),
  /** More than one is a list, of a reservation alone. */
  terms: fc.oneof(
    { weight: 3, arbitrary: fc.array(terms, { minLength: 1, maxLength: 1 }) },
    { weight: 1, arbitrary: fc.array(terms, { minLength: 2, maxLength: 4 }) },
  ),
  ttlMs: fc.constantFrom(1_000, 3_000, 7_000, 600_000),
  which: fc.nat(1_000),
  passedMs: fc.oneof(
    { weight: 20, arbitrary: fc.constantFrom(0, 0, 0, 1, 37, 500, 999, 1_000, 2_500) },
    { weight: 4, arbitrary: fc.constantFrom(4_000, 60_000) },
    { weight: 1, arbitrary: fc.constant(ENDED_HOLD_MS) },
  ),
  /** How far the clock of the thread is behind the others, or ahead of them. */
  offsetMs: fc.constantFrom(0, 0, 0, 0, -4_500, -1, 700),
});

function shardOfIdentifier(identifier: string): number {
  return shardOf(checkOf(identifier).identity);
}

/** The times of the shards, each with one group. A time never runs back. */
class ModelTimes {
  readonly #counters = new Map<number, number>();
  readonly #holds = new Map<number, number>();

  ofCounters(shard: number, nowMs: number): number {
    return advance(this.#counters, shard, nowMs);
  }

  ofHolds(shard: number, nowMs: number): number {
    return advance(this.#holds, shard, nowMs);
  }

  ofBoth(shard: number, nowMs: number): number {
    const holdsMs = this.ofHolds(shard, this.ofCounters(shard, nowMs));
    return this.ofCounters(shard, holdsMs);
  }

  /** What `ofHolds` and `ofBoth` would be. */
  afterHolds(shard: number, nowMs: number): number {
    return Math.max(this.#holds.get(shard) ?? 0, nowMs);
  }

  afterBoth(shard: number, nowMs: number): number {
    return Math.max(this.afterHolds(shard, nowMs), this.#counters.get(shard) ?? 0);
  }
}

function advance(times: Map<number, number>, shard: number, nowMs: number): number {
  const now = Math.max(times.get(shard) ?? 0, nowMs);
  times.set(shard, now);
  return now;
}

/**
 * Whether a list of several shards may use a record again whose hold is still known by the time of
 * its own shard. The model forgets by that time alone.
 */
function isForgottenEarly(
  model: ReservationModel,
  times: ModelTimes,
  shards: readonly number[],
  nowMs: number,
): boolean {
  const latest = shards.map((shard) => times.afterHolds(shard, nowMs));
  return model.lists.flat().some((reservation) => {
    const at = shards.indexOf(shardOfIdentifier(reservation.identifier));
    if (at === -1 || isForgottenAt(reservation, latest[at])) return false;
    return isForgottenAt(reservation, Math.max(...latest));
  });
}

/**
 * Whether one of a list is forgotten, by the time of its shard, and another is not: what the table
 * has of the list depends on whether the record was used again.
 */
function isForgottenInPart(
  list: readonly ModelReservation[],
  times: ModelTimes,
  shards: readonly number[],
  nowMs: number,
): boolean {
  const isForgotten = list.map((of, n) => isForgottenAt(of, times.afterBoth(shards[n], nowMs)));
  return new Set(isForgotten).size > 1;
}

function isForgottenAt({ state, endedAt }: ModelReservation, nowMs: number): boolean {
  return state !== 'live' && endedAt + ENDED_HOLD_MS <= nowMs;
}

describe.each(EXPIRED_HOLD_POLICIES)('reservations, where an expiry means %s,', (onExpiry) => {
  const run = newHoldEngine(onExpiry);
  const { engine, holds, clock, holdTables } = run;

  const timeout = IS_LONG ? 3_600_000 : 60_000;
  test('are what a list of reservations is, and allow nothing beyond the limit', {
    timeout,
  }, () => {
    expect(groupsFor(HOLD_ENGINE_COUNTERS)).toBe(1);
    const seed = newSeed();
    const seen: Record<string, number> = {};
    let operations = 0;
    const property = fc.property(fc.array(command, { maxLength: 80, size: 'max' }), (commands) => {
      run.restore();
      const model = new ReservationModel(onExpiry, seen);
      const ids = new Map<ModelReservation[], HoldId>();
      const times = new ModelTimes();
      let clockMs = START_MS;
      for (const { kind, which, passedMs, offsetMs, ttlMs, ...given } of commands) {
        operations++;
        clockMs += passedMs;
        clock.ms = clockMs + offsetMs;
        if (kind === 'expire') {
          const before = workerStats.get(WORKER_STAT.holdsExpired);
          run.newScheduler().step(clock.ms);
          let expired = 0;
          for (const reservation of model.lists.flat()) {
            if (reservation.state !== 'live' || reservation.expiresAt > clock.ms) continue;
            // With the time of its shard, more may have expired than by the clock of the worker.
            const now = times.ofBoth(shardOfIdentifier(reservation.identifier), clock.ms);
            if (model.expire(reservation, now)) expired++;
          }
          expect(workerStats.get(WORKER_STAT.holdsExpired) - before).toBe(expired);
          continue;
        }
        const chosen = model.lists[which % model.lists.length];
        const isOnReservation = kind === 'commit' || kind === 'cancel';
        if (isOnReservation && chosen === undefined) continue;
        const first = given.terms[0];
        const asked = kind === 'reserve' ? given.terms : [first];
        const costed = isOnReservation
          ? chosen.map((of, n) => ({ ...of, cost: given.terms[n]?.cost ?? first.cost }))
          : asked.map(({ lowerLimit, ...of }) => {
              return { ...of, limit: of.rule === RULE.gcra ? LIMIT : lowerLimit };
            });
        const checks = costed.map(({ identifier, rule, durationMs, limit, cost }) => {
          return checkOf(identifier, { rule, durationMs, limit, cost });
        });
        const shards = checks.map(({ identity }) => shardOf(identity));
        const [check] = checks;
        if (kind === 'rebuild') {
          rebuild(holdTables[shards[0]]);
          continue;
        }
        if (kind === 'reserve' && isForgottenEarly(model, times, shards, clock.ms)) continue;
        if (isOnReservation && isForgottenInPart(chosen, times, shards, clock.ms)) continue;
        // Of a reservation that is forgotten, the others are not looked for.
        const isForgotten =
          isOnReservation && isForgottenAt(chosen[0], times.afterBoth(shards[0], clock.ms));
        const nows = shards.map((shard, n) => {
          if (!isOnReservation) return times.ofCounters(shard, clock.ms);
          return isForgotten && n > 0 ? 0 : times.ofBoth(shard, clock.ms);
        });
        const usedBefore = costed.map((of, n) => model.used(of, nows[n]));
        if (kind === 'check') {
          expect(run.decide(check).allowed).toBe(model.check(costed[0], first.cost, nows[0]));
        } else if (kind === 'reserve') {
          const now = Math.max(...shards.map((shard) => times.ofHolds(shard, clock.ms)));
          const allowed = model.reserve(costed, nows, now + ttlMs);
          const reservation = holds.reserve(checks, clock.ms, ttlMs);
          const { id, expiresAt } = reservation;
          expect([reservation.allowed, id !== undefined]).toEqual([allowed, allowed]);
          expect(expiresAt).toBe(allowed ? now + ttlMs : 0);
          if (checks.length === 1) {
            const { limit, rule } = check;
            const left = Math.max(0, limit - model.used(costed[0], nows[0]));
            const { remaining } = reservation.decisions[0];
            if (allowed || rule !== RULE.sliding) expect(remaining).toBe(left);
          }
          if (id !== undefined) ids.set(model.lists.at(-1)!, id);
        } else if (kind === 'reset') {
          model.reset(first.identifier);
          const nothing = { durationsMs: undefined, rule: undefined };
          engine.reset(check.identity, nothing, () => {});
        } else {
          const before = chosen.map((of) => ({ ...of }));
          const costs = kind === 'commit' ? costed.map(({ cost }) => cost) : [];
          const expected = model.commit(chosen, costs, nows);
          const id = ids.get(chosen)!;
          if (kind === 'commit') expect(holds.commit(id, costs)).toEqual(expected);
          else expect(holds.cancel(id)).toEqual(expected?.released);
          // Again, with other costs: it changes nothing.
          const others = chosen.map((_, n) => (costs[n] ?? 0) + 3);
          expect(holds.commit(id, others)).toEqual(expected);
          expect(holds.cancel(id)).toBe(expected?.released);
          expect(expected === undefined).toBe(isForgotten);
          if (expected === undefined) continue;
          const { hashState } = check.namespace;
          const fingerprint = [hashState[0], hashState[1]];
          expect(holds.namespacesOf(id)).toEqual(chosen.map(() => fingerprint));
          for (const [n, of] of chosen.entries()) {
            if (before[n].state === 'ended' || of.state !== 'ended') continue;
            expectBounds(of, costs[n] ?? 0, nows[n]);
            if (of.isVoided) expect(of.released).toBe(0);
          }
        }
        for (const [n, of] of costed.entries()) {
          // The engine and the model agree, and no more than the limit and what was declared beyond
          // it counts, with the tokens of all live reservations.
          const used = model.used(of, nows[n]);
          expect(run.used(checks[n])).toBe(used);
          const isSpent = used > Math.max(usedBefore[n], LIMIT) && kind !== 'commit';
          // A fixed window of the list may count in the counter of a sliding one, by its own rule.
          const hasOneRule = costed.every(({ identifier, rule }) => {
            return identifier !== of.identifier || rule === of.rule;
          });
          expect(isSpent && hasOneRule).toBe(false);
          if (of.rule === RULE.fixed) expect(used).toBeLessThanOrEqual(LIMIT + model.excess(of));
        }
      }
      for (const table of holdTables) expectConsistent(table);
    });
    fc.assert(property, { seed, numRuns: trialCount(200, 15_000) });
    console.info(`reservations (${onExpiry}), seed ${seed}: ${operations} operations`, seen);
    const kinds = ['committed', 'late', 'repeated', 'forgotten', 'excess', 'released', 'voided'];
    for (const kind of [...kinds, 'expired', 'windowEnded', 'lists', 'deniedLists']) {
      expect(seen[kind], kind).toBeGreaterThan(0);
    }
  });

  /** The rules in words, which the model does not share. @param actual cost of the commit */
  function expectBounds(ended: ModelReservation, actual: number, now: number): void {
    const { rule, amount, released, charged, durationMs, limit, decidedMs, isLate } = ended;
    const elapsedMs = now - decidedMs;
    expect(released).toBeGreaterThanOrEqual(0);
    expect(released).toBeLessThanOrEqual(Math.max(0, amount - actual));
    expect(charged).toBeGreaterThanOrEqual(actual);
    expect(charged).toBeLessThanOrEqual(Math.max(amount, actual));
    if (!isLate) expect(charged).toBe(Math.max(amount, actual) - released);
    if (rule === RULE.gcra) {
      const refilled = Math.floor((elapsedMs * limit) / durationMs);
      expect(released).toBeLessThanOrEqual(Math.max(0, amount - actual - refilled));
    }
    const windows = Math.floor(now / durationMs) - Math.floor(decidedMs / durationMs);
    if (rule === RULE.fixed && windows > 0) expect(released).toBe(0);
    if (rule === RULE.sliding && windows > 1) expect(released).toBe(0);
  }
});

describe('a full table of holds', () => {
  /** Holds of one shard, until it has no record left. */
  const fill = (run: ReturnType<typeof newHoldEngine>) => {
    const { holds, clock, holdTables } = run;
    const check = checkOf('a', { limit: 1_000, cost: 1, durationMs: 60_000 });
    const { capacity } = holdTables[shardOf(check.identity)].memory;
    const ids: HoldId[] = [];
    for (let number = 0; number < capacity; number++) {
      ids.push(holds.reserve([check], clock.ms, 30_000).id!);
    }
    expect(ids).not.toContain(undefined);
    return { check, ids, taken: ids.length };
  };
  const lease = ({ namespace, identity }: Check) => {
    return { namespace, identity, limit: 10, cost: 1, ttlMs: 1_000 };
  };
  const full = () => acceptorStats.get(ACCEPTOR_STAT.fullHoldDecisions);

  test('denies holds without counting them, or allows them without an id', () => {
    const denying = newHoldEngine('release', 'deny');
    const { check, taken } = fill(denying);
    const before = full();
    const denied = denying.holds.reserve([check], denying.clock.ms, 30_000);
    expect(denied).toMatchObject({ id: undefined, expiresAt: 0, allowed: false });
    expect(denied.decisions[0].remaining).toBe(1_000 - taken);
    expect(denying.used(check)).toBe(taken);
    expect(denying.holds.acquire(lease(check))).toMatchObject({
      ...{ granted: false, id: undefined, inUse: 0 },
    });
    expect(full() - before).toBe(2);

    const allowing = newHoldEngine('release', 'allow');
    fill(allowing);
    const allowed = allowing.holds.reserve([check], allowing.clock.ms, 30_000);
    expect(allowed).toMatchObject({ id: undefined, expiresAt: 0, allowed: true });
    expect(allowing.used(check)).toBe(taken + 1);
    expect(allowing.holds.acquire(lease(check))).toMatchObject({ granted: true, id: undefined });
    // A check over the limit is denied all the same.
    const over = { ...check, cost: 1_000 };
    expect(allowing.holds.reserve([over], allowing.clock.ms, 1_000).allowed).toBe(false);
    const overLimit = { ...lease(check), cost: 11 };
    expect(allowing.holds.acquire(overLimit).granted).toBe(false);
  });

  test('has room as soon as one hold has ended, whose id is unknown from then on', () => {
    const run = newHoldEngine('release');
    const { holds, clock } = run;
    const { check, ids, taken } = fill(run);
    expect(holds.commit(ids[5], [1])).toMatchObject({ charged: 1 });
    expect(holds.commit(ids[5], [1])).toMatchObject({ charged: 1 });
    const { id } = holds.reserve([check], clock.ms, 30_000);
    expect(id!.record).toBe(ids[5].record);
    expect([holds.commit(ids[5], [1]), holds.cancel(ids[5])]).toEqual([undefined, undefined]);
    expect(run.used(check)).toBe(taken + 1);
    expect(holds.cancel(id!)).toBe(1);
  });
});

test('a check that a full table of counters allows uncounted has no tokens to return', () => {
  const run = newHoldEngine('release', 'deny', 'allow');
  const { holds, clock, decide } = run;
  const shard = shardOf(checkOf('a').identity);
  // A denied counter is protected from eviction.
  const checks: Check[] = [];
  for (let number = 0; checks.length < 4 * 256; number++) {
    const check = checkOf(`filler ${number}`, { limit: 1, durationMs: 60_000 });
    if (shardOf(check.identity) === shard) checks.push(check);
  }
  for (const check of checks) {
    decide(check);
    decide(check);
  }
  const reservation = holds.reserve([checkOf('a', { durationMs: 60_000 })], clock.ms, 1_000);
  expect(reservation).toMatchObject({ id: { shard }, allowed: true });
  expect(run.used(checkOf('a', { durationMs: 60_000 }))).toBe(0);
  expect(holds.cancel(reservation.id!)).toBe(0);
});

test('what is done to holds is counted, once for each call that did it', () => {
  const { holds, clock } = newHoldEngine('release');
  const names = [
    ...(['reservations', 'commits', 'lateCommits', 'cancellations'] as const),
    ...(['concurrencyLeasesReleased', 'fullHoldDecisions'] as const),
  ];
  const counts = () => names.map((name) => acceptorStats.get(ACCEPTOR_STAT[name]));
  const before = counts();
  const check = checkOf('a', { limit: 10, cost: 6, durationMs: 60_000 });
  const first = holds.reserve([check], clock.ms, 1_000).id!;
  expect(holds.reserve([check], clock.ms, 1_000).id).toBeUndefined();
  clock.ms += 1_000;
  expect(holds.commit(first, [2])).toEqual({ charged: 2, released: 0, isLate: true });
  const second = holds.reserve([check], clock.ms, 1_000).id!;
  expect(holds.cancel(second)).toBe(6);
  expect(holds.commit({ ...second, secret: [1, 2, 3] }, [1])).toBeUndefined();
  expect(holds.cancel({ ...second, record: 0 })).toBeUndefined();
  expect(holds.cancel({ ...second, record: 2 ** 28 - 1 })).toBeUndefined();
  const { namespace, identity } = check;
  const request = { namespace, identity, limit: 1, cost: 1, ttlMs: 1_000 };
  const lease = holds.acquire(request).id!;
  expect(holds.acquire(request).granted).toBe(false);
  expect([holds.release(lease), holds.release(lease)]).toEqual([1, 0]);
  expect(counts().map((count, index) => count - before[index])).toEqual([2, 1, 1, 1, 1, 0]);
});

test('the worker ends expired holds of all shards in steps, and then pauses until the next', () => {
  const run = newHoldEngine('release');
  const { holds, clock, newScheduler } = run;
  const checks = Array.from({ length: 600 }, (_, number) => {
    return checkOf(`id ${number}`, { limit: 10, durationMs: 60_000 });
  });
  for (const check of checks) {
    const { namespace, identity } = check;
    if (identity.h3 % 2 === 0) expect(holds.reserve([check], clock.ms, 1_000).id).toBeDefined();
    else holds.acquire({ namespace, identity, limit: 10, cost: 1, ttlMs: 1_000 });
  }
  const before = workerStats.get(WORKER_STAT.holdsExpired);
  const ended = () => workerStats.get(WORKER_STAT.holdsExpired) - before;
  const scheduler = newScheduler();
  clock.ms += 930;
  expect(scheduler.step(clock.ms)).toBe(50);
  clock.ms += 50;
  expect(scheduler.step(clock.ms)).toBe(20);
  clock.ms += 19;
  // It looks again after its pause.
  expect(scheduler.step(clock.ms)).toBe(1);
  expect(ended()).toBe(0);
  clock.ms += 1;
  expect(scheduler.step(clock.ms)).toBe(50);
  expect(ended()).toBe(checks.length);
  for (const check of checks) expect(run.used(check)).toBe(0);
  for (const table of run.holdTables) expectConsistent(table);
});

test('a step of the worker ends a bounded number of holds of a shard', () => {
  const control = new Control(allocateControl(1, 1));
  const expire = vi.fn<(nowMs: number, max: number) => number>();
  // The next one expires so soon that others may expire with it.
  const shard = { expire, nextExpiryMs: START_MS + 1 } as unknown as ShardHolds;
  const scheduler = new HoldScheduler([shard, shard], control.workerStats(0));
  for (const count of [256, 3, 0, 0]) expire.mockReturnValueOnce(count);
  expect([scheduler.step(START_MS), scheduler.step(START_MS), scheduler.step(START_MS)]).toEqual([
    0, 10, 10,
  ]);
  expect(expire.mock.calls).toEqual(Array(4).fill([START_MS, 256]));
  expect(control.workerStats(0).get(WORKER_STAT.holdsExpired)).toBe(259);
});
