/** Random leases of few identities in a table of few records, by threads whose clocks differ. */

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ENDED_HOLD_MS } from '../../../src/core/constants.ts';
import type { FullTablePolicy } from '../../../src/core/decision.ts';
import { RULE } from '../../../src/core/window-rules.ts';
import type { Lease } from '../../../src/engine/hold-engine.ts';
import { HOLD_KIND, type HoldId } from '../../../src/engine/hold-id.ts';
import { HOLD_STATE, NONE } from '../../../src/engine/holds/layout.ts';
import { Leases } from '../../../src/engine/holds/leases.ts';
import { rebuild } from '../../../src/engine/holds/rebuild.ts';
import { checkOf } from '../../support/engines.ts';
import { trialCount } from '../../support/guarantees.ts';
import { expectConsistent, holdIdentity, newHoldTable } from '../../support/hold-tables.ts';
import { START_MS } from '../../support/limiter-model.ts';

const IDENTITIES = [1, 2, 3].map((h3) => holdIdentity(0, 1, 0, h3));
const { namespace } = checkOf('x');

/** The leases of a new table, and how it answers. */
function newLeases(fullTablePolicy: FullTablePolicy = 'deny', holds = 64) {
  const table = newHoldTable(holds, 1);
  const leases = new Leases(table, fullTablePolicy);
  let wasFull = false;
  const answer = (ask: (into: Lease) => unknown): Lease => {
    // The answer must not show values of an earlier call.
    const into: Lease = { granted: true, id: undefined, inUse: -1, limit: -1, expiresAt: -1 };
    wasFull = ask(into) === true;
    return { ...into };
  };
  return {
    table,
    acquire: (identity: number, limit: number, cost: number, ttlMs: number, nowMs: number) => {
      const request = { namespace, identity: IDENTITIES[identity], limit, cost, ttlMs };
      const lease = answer((into) => leases.acquire(request, nowMs, into));
      return { ...lease, wasFull };
    },
    renew: (id: HoldId, ttlMs: number, nowMs: number) => {
      return answer((into) => leases.renew(id, ttlMs, nowMs, into));
    },
    release: (id: HoldId, nowMs: number) => leases.release(id, nowMs),
    endAll: (identity: number, nowMs: number) => leases.endAll(IDENTITIES[identity], nowMs),
    /** As the worker of the shard. */
    endExpired: (nowMs: number) => {
      const now = table.advanceTime(nowMs);
      while (table.queue.firstMs <= now) table.end(table.queue.first, HOLD_STATE.expired, now);
    },
  };
}

interface ModelLease {
  id: HoldId;
  identity: number;
  limit: number;
  cost: number;
  expiresAt: number;
  /** Whether its owner has ended it. */
  isReleased: boolean;
  /** Whether its record is that of a live hold: it may have expired. */
  isLive: boolean;
}

const command = fc.record({
  kind: fc.constantFrom(
    ...(['acquire', 'acquire', 'acquire', 'acquire', 'renew', 'renew', 'release'] as const),
    ...(['release', 'worker', 'rebuild'] as const),
  ),
  identity: fc.nat(IDENTITIES.length - 1),
  which: fc.nat(1_000),
  limit: fc.constantFrom(0, 3, 10, 10, 10),
  cost: fc.constantFrom(0, 1, 1, 2, 5, 11),
  ttlMs: fc.constantFrom(1_000, 3_000, 10_000),
  passedMs: fc.constantFrom(0, 0, 0, 1, 500, 999, 1_000, 5_000, ENDED_HOLD_MS),
  /** How far the clock of the thread is behind the others, or ahead of them. */
  offsetMs: fc.constantFrom(0, 0, 0, -5_000, -1, 1, 2_000),
});

describe('concurrency leases', () => {
  test('are what a list of leases is, at any order of calls, and of clocks', () => {
    const seen = { granted: 0, denied: 0, full: 0, renewed: 0, notRenewed: 0, released: 0 };
    const property = fc.property(
      fc.constantFrom<FullTablePolicy>('deny', 'allow'),
      fc.array(command, { maxLength: 100, size: 'max' }),
      (policy, commands) => {
        const { table, acquire, renew, release, endExpired } = newLeases(policy, 16);
        const all: ModelLease[] = [];
        let clockMs = START_MS;
        let now = 0;
        const isActive = (lease: ModelLease) => !lease.isReleased && lease.expiresAt > now;
        const inUse = (identity: number) => {
          const own = all.filter((lease) => lease.identity === identity && isActive(lease));
          return own.reduce((sum, { cost }) => sum + cost, 0);
        };
        const markEnded = (of: (lease: ModelLease) => boolean) => {
          for (const lease of all) if (of(lease) && !isActive(lease)) lease.isLive = false;
        };
        for (const { kind, which, passedMs, offsetMs, ...terms } of commands) {
          clockMs += passedMs;
          const threadMs = clockMs + offsetMs;
          const { identity, limit, cost, ttlMs } = terms;
          const lease = all[which % all.length];
          const isCall = kind === 'acquire' || kind === 'worker' || lease !== undefined;
          if (isCall && kind !== 'rebuild') now = Math.max(now, threadMs);
          const before = inUse(identity);
          if (kind === 'acquire') {
            markEnded((lease) => lease.identity === identity);
            const hasRoom = all.filter(({ isLive }) => isLive).length < table.memory.capacity;
            const got = acquire(identity, limit, cost, ttlMs, threadMs);
            const fits = before + cost <= limit;
            const isFull = fits && !hasRoom;
            const isRecorded = fits && hasRoom;
            expect(got).toEqual({
              granted: fits && (hasRoom || policy === 'allow'),
              id: isRecorded ? expect.objectContaining({ kind: HOLD_KIND.lease }) : undefined,
              inUse: isRecorded ? before + cost : before,
              limit,
              expiresAt: isRecorded ? now + ttlMs : 0,
              wasFull: isFull,
            });
            seen[isFull ? 'full' : fits ? 'granted' : 'denied']++;
            const { id, expiresAt } = got;
            if (id === undefined) continue;
            all.push({ id, identity, limit, cost, expiresAt, isReleased: false, isLive: true });
            expect(inUse(identity)).toBeLessThanOrEqual(limit);
          } else if (kind === 'renew' && lease !== undefined) {
            const granted = isActive(lease);
            if (granted) lease.expiresAt = now + ttlMs;
            const isKnown = table.find(lease.id, now) !== NONE;
            expect(isKnown || !granted).toBe(true);
            const known = {
              ...{ inUse: inUse(lease.identity), limit: lease.limit, expiresAt: lease.expiresAt },
            };
            const unknown = { inUse: 0, limit: 0, expiresAt: 0 };
            expect(renew(lease.id, ttlMs, threadMs)).toEqual({
              ...{ granted, id: lease.id },
              ...(isKnown ? known : unknown),
            });
            if (isKnown) markEnded(({ identity }) => identity === lease.identity);
            seen[granted ? 'renewed' : 'notRenewed']++;
          } else if (kind === 'release' && lease !== undefined) {
            const ends = isActive(lease);
            const isKnown = table.find(lease.id, now) !== NONE;
            expect(isKnown || !ends).toBe(true);
            expect(release(lease.id, threadMs)).toBe(isKnown ? (ends ? lease.cost : 0) : undefined);
            if (ends) Object.assign(lease, { isReleased: true, isLive: false });
            if (isKnown) markEnded(({ identity }) => identity === lease.identity);
            if (ends) seen.released++;
          } else if (kind === 'worker') {
            endExpired(threadMs);
            markEnded(() => true);
          } else if (kind === 'rebuild') rebuild(table);
        }
        expectConsistent(table);
      },
    );
    fc.assert(property, { numRuns: trialCount(150, 5_000) });
    for (const times of Object.values(seen)) expect(times).toBeGreaterThan(0);
  });

  test('end at their expiry without the worker, and only then', () => {
    const { acquire, renew } = newLeases();
    const first = acquire(0, 10, 6, 1_000, START_MS);
    expect(first).toMatchObject({ granted: true, inUse: 6, expiresAt: START_MS + 1_000 });
    const early = acquire(0, 10, 6, 1_000, START_MS + 999);
    expect(early).toMatchObject({ granted: false, inUse: 6, id: undefined });
    const next = acquire(0, 10, 1, 1_000, START_MS + 1_000);
    expect(next).toMatchObject({ granted: true, inUse: 1 });
    const renewed = renew(first.id!, 1_000, START_MS + 1_000);
    expect(renewed).toMatchObject({ granted: false, inUse: 1, expiresAt: START_MS + 1_000 });
  });

  test('renewed in time live on, and those of others do not', () => {
    const { acquire, renew, release } = newLeases();
    const [kept, lost] = [5, 4].map((cost) => acquire(0, 10, cost, 1_000, START_MS).id!);
    expect(renew(kept, 5_000, START_MS + 999)).toMatchObject({
      ...{ granted: true, inUse: 9, limit: 10, expiresAt: START_MS + 5_999 },
    });
    expect(acquire(0, 10, 5, 1_000, START_MS + 1_000)).toMatchObject({ granted: true, inUse: 10 });
    expect([release(lost, START_MS + 1_000), release(kept, START_MS + 1_000)]).toEqual([0, 5]);
    // A second release returns nothing.
    expect(release(kept, START_MS + 1_000)).toBe(0);
  });

  test('stay when the limit is lowered', () => {
    const { acquire, renew } = newLeases();
    const { id } = acquire(0, 10, 8, 1_000, START_MS);
    expect(acquire(0, 3, 1, 1_000, START_MS)).toMatchObject({ granted: false, inUse: 8, limit: 3 });
    expect(renew(id!, 1_000, START_MS)).toMatchObject({ granted: true, inUse: 8, limit: 10 });
  });

  test('of one identity end all at once, and no hold beside them', () => {
    const { table, acquire, renew, release, endAll } = newLeases();
    const ids = [5, 0, 4].map((cost) => acquire(0, 10, cost, 1_000, START_MS).id!);
    const other = acquire(1, 10, 3, 1_000, START_MS).id!;
    const reservation = {
      ...{
        isLease: false,
        identity: IDENTITIES[0],
        namespace: [1, 2],
        rule: RULE.fixed,
        window: 1,
      },
      ...{ durationMs: 60_000, limit: 10, amount: 2, expiresAt: START_MS + 1_000 },
    };
    const reserved = table.add(reservation, START_MS);
    expect(endAll(0, START_MS)).toBe(ids.length);
    expect(endAll(0, START_MS)).toBe(0);
    expect(endAll(2, START_MS)).toBe(0);
    expect(ids.map((id) => release(id, START_MS))).toEqual([0, 0, 0]);
    expect(renew(ids[0], 1_000, START_MS)).toMatchObject({ granted: false, inUse: 0 });
    expect(acquire(0, 10, 10, 1_000, START_MS)).toMatchObject({ granted: true, inUse: 10 });
    expect(table.isLive(reserved.record)).toBe(true);
    expect(release(other, START_MS)).toBe(3);
    expectConsistent(table);
  });

  test('are not found by the id of another kind, and an unknown id is no grant', () => {
    const { acquire, renew, release } = newLeases();
    const id = acquire(0, 10, 8, 1_000, START_MS).id!;
    for (const unknown of [
      { ...id, kind: HOLD_KIND.reservation },
      { ...id, record: id.record + 1 },
      { ...id, record: 2 ** 28 - 1 },
      { ...id, secret: [0, 0, 0] as const },
    ]) {
      expect(renew(unknown, 1_000, START_MS)).toEqual({
        ...{ granted: false, id: unknown, inUse: 0, limit: 0, expiresAt: 0 },
      });
      expect(release(unknown, START_MS)).toBeUndefined();
    }
    expect(acquire(0, 10, 3, 1_000, START_MS)).toMatchObject({ granted: false, inUse: 8 });
  });

  test('whose end is ten minutes ago are unknown', () => {
    const { acquire, renew, release } = newLeases();
    const id = acquire(0, 10, 8, 1_000, START_MS).id!;
    expect(release(id, START_MS)).toBe(8);
    expect(renew(id, 1_000, START_MS + ENDED_HOLD_MS - 1).limit).toBe(10);
    expect(renew(id, 1_000, START_MS + ENDED_HOLD_MS).limit).toBe(0);
    expect(release(id, START_MS + ENDED_HOLD_MS)).toBeUndefined();
  });
});
