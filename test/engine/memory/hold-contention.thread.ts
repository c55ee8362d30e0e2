/**
 * One of several threads that use the holds of one shard at once; the first of them ends those that
 * have expired, as the worker does. All of them advance one shared clock. The thread counts the
 * tokens that must be left in the counters; `hold-contention.test.ts` compares them.
 */

import { parentPort, workerData } from 'node:worker_threads';
import { SHARDS } from '../../../src/core/constants.ts';
import { newDecision } from '../../../src/core/decision.ts';
import type { Identity, NamespaceState } from '../../../src/core/hash.ts';
import { NO_BURST, RULE } from '../../../src/core/window-rules.ts';
import type { Lease } from '../../../src/engine/hold-engine.ts';
import type { HoldId } from '../../../src/engine/hold-id.ts';
import { HoldTable } from '../../../src/engine/holds/hold-table.ts';
import { Leases } from '../../../src/engine/holds/leases.ts';
import { Batch } from '../../../src/engine/memory/batch.ts';
import { ReservationBatch } from '../../../src/engine/memory/reservation-batch.ts';
import { ShardHolds } from '../../../src/engine/memory/shard-holds.ts';
import { CounterTable } from '../../../src/engine/memory/table.ts';
import { seededRandom } from '../../support/seeded-random.ts';

export interface HoldContentionTask {
  /** The owner of its locks, and the seed of its calls. */
  owner: number;
  isWorker: boolean;
  threads: number;
  minCalls: number;
  counters: SharedArrayBuffer;
  holds: SharedArrayBuffer;
  /** Two int32: ms since START_MS, and how many threads are ready, and then have ended. */
  shared: SharedArrayBuffer;
}

export interface HoldTally {
  /** By identity: the costs of checks and commits. */
  consumed: number[];
  commits: number;
  lateCommits: number;
  expired: number;
  /** Commits of reservations that had ended, and whose record another hold had got. */
  unknown: number;
  leases: number;
  violations: string[];
}

export const START_MS = 1_700_000_000_000;
/** No window ends during the test. */
export const LEDGER_MS = 100_000_000_000;
/** Half of the identities reach their limit soon. */
export function limitOf(number: number): number {
  return number % 2 === 0 ? 60 : 1_000_000_000;
}
export const LEASE_LIMIT = 9;
export const IDENTITIES: Identity[] = Array.from({ length: 6 }, (_, number) => {
  return { h0: number, h1: (number << 29) | 0, h2: 77 * number, h3: 1 + number };
});

// The test imports the names above on its main thread, where no task runs.
if (parentPort !== null) runTask(workerData as HoldContentionTask);

function runTask({ owner, isWorker, threads, minCalls, ...task }: HoldContentionTask): void {
  const counters = new CounterTable(task.counters, 0, owner, 'deny', () => {});
  const table = new HoldTable(task.holds, 0, owner, () => {});
  const holds = new ShardHolds(counters, table, { whenFull: 'deny', onExpiry: 'release' });
  const leases = new Leases(table, 'deny');
  const ofShards = <T>(own: T) => Array.from({ length: SHARDS }, () => own);
  const batch = new Batch(ofShards(counters), 'deny');
  const reservations = new ReservationBatch(batch, ofShards(table), 'deny');
  const shared = new Int32Array(task.shared);
  const tally: HoldTally = {
    consumed: IDENTITIES.map(() => 0),
    ...{ commits: 0, lateCommits: 0, expired: 0, unknown: 0, leases: 0, violations: [] },
  };
  const wrong = (what: string) => {
    if (tally.violations.length < 10) tally.violations.push(`thread ${owner}: ${what}`);
  };
  const next = seededRandom(owner);
  const nowMs = () => START_MS + Atomics.load(shared, 0) - (next(16) === 0 ? next(30) : 0);
  const decision = newDecision();
  const namespace = { hashState: new Int32Array(4) as unknown as NamespaceState };
  const lease: Lease = { granted: false, id: undefined, inUse: 0, limit: 0, expiresAt: 0 };
  const reserved: { id: HoldId; number: number; amount: number }[] = [];
  const leased: HoldId[] = [];
  const termsOf = (number: number, cost: number) => {
    const limit = limitOf(number);
    return { limit, durationMs: LEDGER_MS, cost, rule: RULE.fixed, burst: NO_BURST };
  };

  const check = (number: number) => {
    const cost = next(16) === 0 ? 1 : 0;
    counters.decide(IDENTITIES[number], 1, nowMs(), termsOf(number, cost), true, decision);
    if (decision.allowed) tally.consumed[number] += cost;
  };
  const reserve = (number: number) => {
    const amount = 1 + next(9);
    const terms = { ...termsOf(number, amount), identity: IDENTITIES[number], namespace };
    // Of a check it uses the terms, the identity and the namespace.
    reservations.decide([terms as never], nowMs(), 1 + next(60));
    const { id } = reservations;
    if (id !== undefined) reserved.push({ id, number, amount });
  };
  const commit = () => {
    const [{ id, number, amount }] = reserved.splice(next(reserved.length), 1);
    const cost = next(8) === 0 ? 1 : 0;
    const answer = holds.settle(id, cost, nowMs());
    if (answer === undefined) {
      tally.unknown++;
      return;
    }
    tally.commits++;
    if (answer.isLate) tally.lateCommits++;
    tally.consumed[number] += cost;
    if (answer.charged !== cost) wrong(`charged ${answer.charged} for ${cost}`);
    const released = answer.isLate ? 0 : amount - cost;
    if (answer.released !== released) wrong(`released ${answer.released} of ${amount} - ${cost}`);
    const again = holds.settle(id, 5, nowMs());
    if (again !== undefined && JSON.stringify(again) !== JSON.stringify(answer)) {
      wrong(`${JSON.stringify(again)} after ${JSON.stringify(answer)}`);
    }
  };
  const acquire = (number: number) => {
    const request = { namespace, identity: IDENTITIES[number], limit: LEASE_LIMIT, cost: 2 };
    leases.acquire({ ...request, ttlMs: 1 + next(60) }, nowMs(), lease);
    if (!lease.granted) return;
    tally.leases++;
    if (lease.inUse > LEASE_LIMIT) wrong(`${lease.inUse} in use`);
    leased.push(lease.id!);
  };
  const endLease = () => {
    const [id] = leased.splice(next(leased.length), 1);
    if (next(2) === 0) leases.renew(id, 1 + next(60), nowMs(), lease);
    const released = leases.release(id, nowMs());
    if (released !== undefined && released !== 0 && released !== 2) wrong(`released ${released}`);
  };

  Atomics.add(shared, 1, 1);
  while (Atomics.load(shared, 1) < threads) Atomics.wait(shared, 1, Atomics.load(shared, 1), 1);
  // Threads that have ended are counted after those that are ready.
  while (isWorker && Atomics.load(shared, 1) < 2 * threads - 1) {
    tally.expired += holds.expire(nowMs(), 1 + next(8));
  }
  for (let calls = 0; !isWorker && calls < minCalls; calls++) {
    if (next(20) === 0) Atomics.add(shared, 0, 1);
    const number = next(IDENTITIES.length);
    const kind = next(5);
    if (kind === 0) check(number);
    else if (kind === 1) reserve(number);
    else if (kind === 2 && reserved.length > 0) commit();
    else if (kind === 3) acquire(number);
    else if (kind === 4 && leased.length > 0) endLease();
  }
  Atomics.add(shared, 1, 1);
  parentPort!.postMessage(tally);
}
