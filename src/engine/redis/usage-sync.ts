/**
 * Reports to Redis what it does not know of the counters of a shard worker: usage of asynchronous
 * checks, usage from the time when Redis was down, and leases that are returned without a recall.
 * Such counters are marked as dirty in their table, so that a message that is lost, and the death
 * of the worker, only delay it. Usage that is much of what is left does not wait for its turn: see
 * `LeaseTable.decideAsync`. After a loss of memory of Redis it reports all counters.
 *
 * A table may have millions of counters. So it is visited by groups, some in a turn of the loop,
 * and nothing is kept for a counter.
 */

import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Identity } from '../../core/hash.ts';
import { newIdentity } from '../../core/hash.ts';
import { WORKER_STAT, type WorkerStats } from '../../shared-memory/stats.ts';
import { groupOf, type Lock, type Slot } from '../table/layout.ts';
import { durationOfKey, endMs, expiryMs, isGcraKey } from '../windows/registry.ts';
import { dropLease, mustReport, newLeaseState } from './counter/lease-state.ts';
import type { EngineState } from './engine-state.ts';
import type { LeaseClient } from './lease-client.ts';
import type { LeaseTable } from './lease-table.ts';
import { NO_WINDOW } from './scripts/protocol.ts';

/** Counters that are reported at the same time: some calls, which do not delay those of checks. */
const COUNTERS_AT_ONCE = 128;
/** Groups of slots that are visited before other work has its turn: about 1 ms. */
const GROUPS_PER_TURN = 16;

/** When leases end that are to be returned then, monotonic ms. It may be earlier than they do. */
interface LeaseEnds {
  readonly ofGroups: Float64Array;
  firstMs: number;
}

type GroupFilter = (table: LeaseTable, group: number) => boolean;
type GroupVisitor = (table: LeaseTable, group: number) => Promise<void> | void;
type SlotVisitor = (table: LeaseTable, slot: Slot, lock: Lock) => void;

interface CounterName {
  identity: Identity;
  key: number;
}

interface UsageSyncOptions {
  tables: readonly LeaseTable[];
  tableOf: (identity: Identity) => LeaseTable;
  client: Pick<LeaseClient, 'sync'>;
  state: EngineState;
  stats: WorkerStats;
  nowMs: () => number;
  /** Reports GCRA tokens that were allowed without Redis. @returns whether it has got them */
  syncGcra: (identity: Identity, key: number) => Promise<boolean>;
  /** Reports a bucket to a Redis that has lost it. @returns whether it has got it */
  reportGcra: (identity: Identity, key: number) => Promise<boolean>;
  /** Whether the bucket of an identity can be called. */
  isUp: (identity: Identity) => boolean;
}

export class UsageSync {
  readonly #options: UsageSyncOptions;
  readonly #state = newLeaseState();
  #isRunning = false;
  /** At first 0: leases of the run before may have ended. */
  readonly #ends: ReadonlyMap<LeaseTable, LeaseEnds>;

  constructor(options: UsageSyncOptions) {
    this.#options = options;
    const { tables } = options;
    this.#ends = new Map(
      tables.map((table) => [table, { ofGroups: new Float64Array(table.groups), firstMs: 0 }]),
    );
  }

  /**
   * Takes the leases for sliding windows whose window has ended, and reports all usage that Redis
   * does not know.
   * @returns whether it has got everything
   */
  async run(): Promise<boolean> {
    const { client, syncGcra, isUp } = this.#options;
    if (this.#isRunning) return false;
    this.#isRunning = true;
    try {
      await this.#takeEndedLeases();
      return await this.#reportGroups(
        (table, group) => table.hasDirtySlots(group),
        (table, group, into) => {
          table.forEachDirtySlotOf(group, (slot) => into.push(nameOf(table, slot)));
        },
        ({ identity, key }) => {
          if (!isUp(identity)) return Promise.resolve(false);
          return isGcraKey(key) ? syncGcra(identity, key) : client.sync(identity, key);
        },
      );
    } finally {
      this.#isRunning = false;
    }
  }

  /** Counters with a window or bucket that still counts, and leases with unspent tokens. */
  async countLive(): Promise<{ counters: number; leases: number; tokens: number }> {
    const { state, nowMs } = this.#options;
    const now = nowMs();
    const identity = newIdentity();
    const count = { counters: 0, leases: 0, tokens: 0 };
    await this.#scan((table, slot) => {
      const { h3 } = table.readIdentity(slot, identity);
      const key = table.readKey(slot);
      const redisMs = state.redisMs(h3, now);
      if (isGcraKey(key)) {
        if (table.readGcra(slot).newest > redisMs) count.counters++;
        return;
      }
      table.read(slot, this.#state);
      const { window, lease, deadlineMs } = this.#state;
      if (endMs(key, window) > redisMs) count.counters++;
      if (lease === 0 || deadlineMs <= now) return;
      count.leases++;
      count.tokens += lease;
    });
    return count;
  }

  /** When the last usage stops to count, ms by the clock of Redis; 0 if there is none. */
  async usageEndMs(): Promise<number> {
    let lastMs = 0;
    await this.#scan((table, slot) => {
      const key = table.readKey(slot);
      if (isGcraKey(key)) {
        lastMs = Math.max(lastMs, Math.ceil(table.readGcra(slot).newest));
        return;
      }
      table.read(slot, this.#state);
      const { window } = this.#state;
      // A sliding window counts in the next one, too.
      if (window !== NO_WINDOW) lastMs = Math.max(lastMs, expiryMs(key, window));
    });
    return lastMs;
  }

  /** How many counters have usage that Redis does not know. */
  countUnreported(): number {
    let count = 0;
    for (const table of this.#options.tables) table.forEachDirtySlot(() => count++);
    return count;
  }

  /**
   * Takes all leases away, and forgets what denies checks without Redis. The next
   * `run` reports that: until then the tokens of the leases stay deducted.
   */
  takeAllLeases(): Promise<void> {
    return this.#scan((table, slot, lock) => this.#takeLease(table, slot, lock));
  }

  /** Has what is left of a lease returned when its window has ended. */
  returnAtEnd(identity: Identity, deadlineMs: number): void {
    const table = this.#options.tableOf(identity);
    this.#noteEnd(table, groupOf(table.lockFor(identity)), deadlineMs);
  }

  /**
   * Makes the slots those of a new run: no message is under way. It visits all of them in one turn,
   * before anything else may happen.
   * @returns the buckets with counters that Redis may know
   */
  adoptSlots(): Set<number> {
    const { tables, state, stats } = this.#options;
    const buckets = new Set<number>();
    const identity = newIdentity();
    const adopt: SlotVisitor = (table, slot, lock) => {
      const bucket = state.bucketOf(table.readIdentity(slot, identity));
      if (isGcraKey(table.readKey(slot))) {
        buckets.add(bucket);
        return;
      }
      table.read(slot, this.#state);
      if (this.#state.window !== NO_WINDOW) buckets.add(bucket);
      if (!this.#state.isPinned) return;
      this.#state.isPinned = false;
      table.write(slot, this.#state);
      table.setDirty(lock, slot, true);
    };
    for (const table of tables) {
      for (let group = 0; group < table.groups; group++) {
        table.forEachSlotOf(group, (slot, lock) => adopt(table, slot, lock));
        stats.heartbeat();
      }
    }
    return buckets;
  }

  /** Reports all counters of a bucket. @returns whether Redis has got every one */
  report(bucket: number): Promise<boolean> {
    const { state, nowMs, client, reportGcra } = this.#options;
    const now = nowMs();
    return this.#reportGroups(
      isUsed,
      (table, group, into) => {
        table.forEachSlotOf(group, (slot) => {
          const counter = nameOf(table, slot);
          if (state.bucketOf(counter.identity) !== bucket) return;
          const redisMs = state.redisMs(counter.identity.h3, now);
          if (isGcraKey(counter.key)) {
            if (table.readGcra(slot).newest > redisMs) into.push(counter);
            return;
          }
          table.read(slot, this.#state);
          if (mustReport(this.#state, durationOfKey(counter.key), redisMs)) into.push(counter);
        });
      },
      ({ identity, key }) => {
        return isGcraKey(key) ? reportGcra(identity, key) : client.sync(identity, key);
      },
    );
  }

  /**
   * Reports counters, COUNTERS_AT_ONCE at a time: a list of all would not fit in the heap.
   * @param select adds those of a group that are to be reported
   * @returns whether all of them were reported
   */
  async #reportGroups(
    filter: GroupFilter,
    select: (table: LeaseTable, group: number, into: CounterName[]) => void,
    report: (counter: CounterName) => Promise<boolean>,
  ): Promise<boolean> {
    let isComplete = true;
    const counters: CounterName[] = [];
    const reportNext = async () => {
      const done = await Promise.all(counters.splice(0, COUNTERS_AT_ONCE).map(report));
      if (done.includes(false)) isComplete = false;
    };
    await this.#forEachGroup(filter, async (table, group) => {
      select(table, group, counters);
      while (counters.length >= COUNTERS_AT_ONCE) await reportNext();
    });
    await reportNext();
    return isComplete;
  }

  /** Takes away the leases for sliding windows whose deadline has passed. */
  async #takeEndedLeases(): Promise<void> {
    const now = this.#options.nowMs();
    for (const [table, ends] of this.#ends) {
      if (ends.firstMs > now) continue;
      ends.firstMs = Number.POSITIVE_INFINITY;
      const { ofGroups } = ends;
      await this.#forEachGroupOf(
        table,
        (_, group) => {
          if (ofGroups[group] <= now) return true;
          ends.firstMs = Math.min(ends.firstMs, ofGroups[group]);
          return false;
        },
        (_, group) => {
          ofGroups[group] = Number.POSITIVE_INFINITY;
          table.forEachSlotOf(group, (slot, lock) => {
            const endMs = table.readSlidingLeaseEnd(slot);
            if (endMs <= now) this.#takeLease(table, slot, lock);
            else this.#noteEnd(table, group, endMs);
          });
        },
      );
    }
  }

  #noteEnd(table: LeaseTable, group: number, endMs: number): void {
    const ends = this.#ends.get(table);
    if (ends === undefined) throw new Error(`shard ${table.shard} has another worker`);
    ends.ofGroups[group] = Math.min(ends.ofGroups[group], endMs);
    ends.firstMs = Math.min(ends.firstMs, endMs);
  }

  /** Visits all slots. */
  #scan(visit: SlotVisitor): Promise<void> {
    return this.#forEachGroup(isUsed, (table, group) => {
      table.forEachSlotOf(group, (slot, lock) => visit(table, slot, lock));
    });
  }

  async #forEachGroup(filter: GroupFilter, visit: GroupVisitor): Promise<void> {
    for (const table of this.#options.tables) await this.#forEachGroupOf(table, filter, visit);
  }

  /** Visits groups, some of them in a turn of the loop. */
  async #forEachGroupOf(
    table: LeaseTable,
    filter: GroupFilter,
    visit: GroupVisitor,
  ): Promise<void> {
    let visited = 0;
    for (let group = 0; group < table.groups; group++) {
      if (!filter(table, group)) continue;
      await visit(table, group);
      if (++visited % GROUPS_PER_TURN === 0) await nextTurn();
    }
  }

  #takeLease(table: LeaseTable, slot: Slot, lock: Lock): void {
    if (isGcraKey(table.readKey(slot))) return;
    const state = this.#state;
    table.read(slot, state);
    if (state.lease === 0 && state.boundUntilMs === 0) return;
    const lease = dropLease(state);
    table.write(slot, state);
    if (lease === 0) return;
    table.setDirty(lock, slot, true);
    this.#options.stats.add(WORKER_STAT.leasesReturned, 1);
    this.#options.stats.add(WORKER_STAT.returnedTokens, lease);
  }
}

function isUsed(table: LeaseTable, group: number): boolean {
  return !table.isUnused(group);
}

function nameOf(table: LeaseTable, slot: Slot): CounterName {
  return { identity: table.readIdentity(slot, newIdentity()), key: table.readKey(slot) };
}
