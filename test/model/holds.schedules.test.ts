/**
 * Explores schedules of two threads on the holds of one shard and its counters, with the real code.
 * `shard-holds.test.ts` has a worker that dies at any store.
 */

import { expect, test, vi } from 'vitest';
import { LEASE_HORIZON_STEP_MS } from '../../src/core/constants.ts';
import { newDecision } from '../../src/core/decision.ts';
import { RULE, type RuleNumber } from '../../src/core/window-rules.ts';
import type { Commit } from '../../src/engine/hold-engine.ts';
import type { HoldId } from '../../src/engine/hold-id.ts';
import { HoldTable } from '../../src/engine/holds/hold-table.ts';
import { allocateHolds, allocateHorizon } from '../../src/engine/holds/layout.ts';
import { LeaseHorizon } from '../../src/engine/holds/lease-horizon.ts';
import { Leases } from '../../src/engine/holds/leases.ts';
import { ReservationBatch } from '../../src/engine/memory/reservation-batch.ts';
import { ShardHolds } from '../../src/engine/memory/shard-holds.ts';
import { CounterTable } from '../../src/engine/memory/table.ts';
import { allocateTable } from '../../src/engine/table/table-memory.ts';
import { checkOf } from '../support/engines.ts';
import { type GuaranteeName, recordMeasurement, trialCount } from '../support/guarantees.ts';
import { expectConsistent, oneShardBatch } from '../support/hold-tables.ts';
import { NOW_MS, testIdentity } from './counter-model.ts';
import { explore, type FinalState, type MemoryView, type ThreadContext } from './explorer.ts';

vi.setConfig({ testTimeout: 600_000 });

const X = testIdentity(1);
const DURATION_MS = 60_000;
const LIMIT = 100;
const TTL_MS = 1_000;
const EXPIRED_MS = NOW_MS + TTL_MS;
const WORKER = 1_000;
/** Tokens of X that no reservation has, and those of the two reservations and the lease. */
const PLAIN = 3;
const [FIRST, SECOND, LEASED] = [40, 20, 7];

interface ShardThread {
  counters: CounterTable;
  table: HoldTable;
  holds: ShardHolds;
  leases: Leases;
}

function attach(
  [counterView, holdView]: Pick<MemoryView, 'buffer' | 'words' | 'doubles'>[],
  owner: number,
): ShardThread {
  const counters = new CounterTable(counterView.buffer, 0, owner, 'deny', () => {});
  const table = new HoldTable(holdView.buffer, 0, owner, () => {});
  const viewsOf = ({ words, doubles }: Pick<MemoryView, 'words' | 'doubles'>) => {
    return { words, doubles };
  };
  Object.assign(counters, viewsOf(counterView));
  Object.assign(table.memory, viewsOf(holdView));
  const holds = new ShardHolds(counters, table, { whenFull: 'deny', onExpiry: 'release' });
  return { counters, table, holds, leases: new Leases(table, 'deny') };
}

/** Two reservations of X, the first of which expires at EXPIRED_MS, and a lease that does. */
function prepare(rule: RuleNumber) {
  const buffers = [allocateTable(0, 1), allocateHolds(0, 16, 1)];
  const views = buffers.map((buffer) => {
    return { buffer, words: new Int32Array(buffer), doubles: new Float64Array(buffer) };
  });
  const { counters, table, leases } = attach(views, 1);
  const { batch, tables } = oneShardBatch(counters, table);
  const reservations = new ReservationBatch(batch, tables, 'deny');
  const check = checkOf('x', { identity: X, rule, durationMs: DURATION_MS, limit: LIMIT });
  const decision = newDecision();
  counters.decide(X, 1, NOW_MS, { ...check, cost: PLAIN }, true, decision);
  const reserve = (cost: number, ttlMs: number) => {
    reservations.decide([{ ...check, cost }], NOW_MS, ttlMs);
    return reservations.id!;
  };
  const first = reserve(FIRST, TTL_MS);
  const second = reserve(SECOND, 10 * TTL_MS);
  const lease = { granted: false, id: undefined, inUse: 0, limit: 0, expiresAt: 0 };
  const { namespace } = check;
  const request = { namespace, identity: X, limit: LIMIT, cost: LEASED, ttlMs: TTL_MS };
  leases.acquire(request, NOW_MS, lease);
  const memories = buffers.map((buffer) => ({ buffer, waits: 'polled' as const }));
  return { memories, first, second, lease: lease.id! as HoldId };
}

type Action = (thread: ShardThread, ids: ReturnType<typeof prepare>) => unknown;

/** Explores every order of two actions under some rules. All end, and the holds are consistent. */
function schedules(
  name: string,
  actions: readonly [Action, Action],
  expectEnding: (results: unknown[], used: number, shard: ShardThread) => void,
  promise: GuaranteeName = 'P1',
  rules: readonly RuleNumber[] = [RULE.fixed, RULE.sliding],
): void {
  test(name, () => {
    let [states, endings] = [0, 0];
    for (const rule of rules) {
      const prepared = prepare(rule);
      const threads = actions.map((action, index) => ({
        run: ({ memories }: ThreadContext) => {
          return action(attach(memories, index === 0 ? WORKER : 2), prepared);
        },
      }));
      const explored = explore({ memories: prepared.memories, threads }, (ending: FinalState) => {
        expect(ending.stuck).toEqual([]);
        const shard = attach(ending.memories, 3);
        expectConsistent(shard.table);
        const [counter] = shard.counters.inspect(X, EXPIRED_MS);
        expectEnding(ending.results, counter?.used ?? 0, shard);
      });
      states += explored.states;
      endings += explored.endings;
    }
    expect(endings).toBeGreaterThan(2);
    recordMeasurement(promise, name, `${states} states, ${endings} endings`, '0 broken');
  });
}

const expire: Action = ({ holds }) => holds.expire(EXPIRED_MS, 256);
const commit = (which: 'first' | 'second', cost: number, nowMs: number): Action => {
  return ({ holds }, ids) => holds.settle(ids[which], cost, nowMs);
};
const reset: Action = ({ counters, holds }) => {
  return counters.reset(X, EXPIRED_MS, undefined, undefined, () => {
    holds.voidLocked(X, undefined, undefined);
  });
};

const CHECK = checkOf('x', { identity: X, durationMs: DURATION_MS, limit: LIMIT });
/** More than half of what is left of the limit. */
const MORE = 30;
const reserve: Action = ({ holds }) => {
  const reservation = { allowed: false, decisions: [], id: undefined, expiresAt: 0 };
  holds.reserve({ ...CHECK, cost: MORE }, NOW_MS, TTL_MS, newDecision(), reservation);
  return reservation.allowed;
};
const check: Action = ({ counters }) => {
  const decision = newDecision();
  counters.decide(X, 1, NOW_MS, { ...CHECK, cost: MORE }, true, decision);
  return decision.allowed;
};
const acquire: Action = ({ leases }) => {
  const lease = { granted: false, id: undefined, inUse: 0, limit: 0, expiresAt: 0 };
  const { namespace, identity } = CHECK;
  const request = { namespace, identity, limit: LIMIT, cost: LIMIT / 2, ttlMs: TTL_MS };
  leases.acquire(request, NOW_MS, lease);
  return lease.granted;
};

schedules(
  'of two reservations that need the same tokens one is made',
  [reserve, reserve],
  (results, used, { table }) => {
    expect(results.toSorted()).toEqual([false, true]);
    expect(used).toBe(PLAIN + FIRST + SECOND + MORE);
    expect([...table.liveOf(table.findCounter(X))]).toHaveLength(4);
  },
  'P1',
  [RULE.fixed],
);

schedules(
  'of a reservation and a check that need the same tokens one is allowed',
  [reserve, check],
  (results, used) => {
    expect(results.toSorted()).toEqual([false, true]);
    expect(used).toBe(PLAIN + FIRST + SECOND + MORE);
  },
  'P1',
  [RULE.fixed],
);

schedules(
  'of two acquires that need the same tokens one is granted',
  [acquire, acquire],
  (results, _, { table }) => {
    expect(results.toSorted()).toEqual([false, true]);
    expect(table.inUse(table.findCounter(X))).toBe(LEASED + LIMIT / 2);
  },
  'P1',
  [RULE.fixed],
);

schedules(
  'a commit at the expiry of its reservation is applied once, late or not',
  [expire, commit('first', 10, EXPIRED_MS - 1)],
  ([ended, committed], used) => {
    const { isLate } = committed as Commit;
    expect(committed).toEqual({ charged: 10, released: isLate ? 0 : FIRST - 10, isLate });
    // The worker counts the lease, and the reservation where it has ended that itself.
    expect(isLate ? [1, 2] : [1]).toContain(ended);
    expect(used).toBe(PLAIN + SECOND + 10);
  },
);

schedules(
  'of two commits of a reservation one is applied, and both get its answer',
  [commit('second', 5, NOW_MS), commit('second', SECOND + 9, NOW_MS)],
  ([one, other], used) => {
    expect(one).toEqual(other);
    const { charged } = one as Commit;
    expect([5, SECOND + 9]).toContain(charged);
    expect(used).toBe(PLAIN + FIRST + charged);
  },
);

schedules(
  'commits of two reservations are both applied',
  [commit('first', 5, NOW_MS), commit('second', SECOND + 9, NOW_MS)],
  (_, used) => expect(used).toBe(PLAIN + 5 + SECOND + 9),
);

schedules(
  'a reset and an expiry return nothing beside each other',
  [expire, reset],
  ([ended], used, { holds }) => {
    expect(ended).toBe(2);
    expect(used).toBe(0);
    expect(holds.expire(EXPIRED_MS, 256)).toBe(0);
  },
);

schedules(
  'a commit before a reset is removed by it, and one after it counts its excess alone',
  [commit('second', SECOND + 9, NOW_MS), reset],
  (_, used) => expect([0, 9]).toContain(used),
);

schedules(
  'a lease that is renewed at its expiry has ended or lives on, as its answer says',
  [
    expire,
    ({ leases }, { lease }) => {
      const into = { granted: false, id: undefined, inUse: 0, limit: 0, expiresAt: 0 };
      leases.renew(lease, TTL_MS, EXPIRED_MS - 1, into);
      return { ...into };
    },
  ],
  ([, renewed], used, { table }) => {
    const { granted, inUse } = renewed as { granted: boolean; inUse: number };
    expect(inUse).toBe(granted ? LEASED : 0);
    expect(table.inUse(table.findCounter(X))).toBe(inUse);
    expect(used).toBe(PLAIN + SECOND);
  },
  'P2',
  [RULE.fixed],
);

test('no lease outlives the horizon on the disk, whatever acceptor moves it', () => {
  const { memories: shard, lease: id } = prepare(RULE.fixed);
  const memories = [...shard, { buffer: allocateHorizon(), waits: 'polled' as const }];
  const data = { memory: memories[2].buffer, directory: '', waitUntilMs: 0 };
  const renew = (owner: number, ttlMs: number) => ({
    run: ({ memories: views, recordEvent }: ThreadContext) => {
      const { table } = attach(views, owner);
      const heartbeats = { heartbeat: () => {}, setWaitingForDisk: () => {} };
      const write = (_: string, ms: number) => recordEvent(`stored ${ms}`);
      const horizon = new LeaseHorizon(data, owner, heartbeats, write);
      const { words, doubles } = views[2];
      Object.assign(horizon, { words, doubles });
      const lease = { granted: false, id: undefined, inUse: 0, limit: 0, expiresAt: 0 };
      new Leases(table, 'deny', horizon).renew(id, ttlMs, NOW_MS, lease);
      recordEvent(`granted ${lease.expiresAt}`);
      return lease.granted;
    },
  });
  // The second one needs a later horizon than the first.
  const threads = [renew(1, TTL_MS), renew(2, TTL_MS + 2 * LEASE_HORIZON_STEP_MS)];
  const writes = new Set<number>();
  const preemptions = trialCount(3, Number.POSITIVE_INFINITY);
  const scenario = { memories, threads, preemptions };
  const { states, endings } = explore(scenario, ({ events, results, stuck }) => {
    expect([results, stuck]).toEqual([[true, true], []]);
    let storedMs = 0;
    for (const event of events) {
      const [what, text] = event.split(' ');
      const ms = Number(text);
      if (what === 'granted') expect(ms).toBeLessThanOrEqual(storedMs);
      else {
        expect(ms).toBeGreaterThan(storedMs);
        storedMs = ms;
      }
    }
    writes.add(events.filter((event) => event.startsWith('stored')).length);
  });
  expect(writes).toEqual(new Set([1, 2]));
  const name = 'two acceptors move the lease horizon';
  recordMeasurement('P1', name, `${states} states, ${endings} endings`, '0 broken');
});
