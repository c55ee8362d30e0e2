/**
 * Reports to Redis what it does not know of the counters of a shard worker: usage of asynchronous
 * checks, usage from the time when Redis was down, and leases that are returned without a recall.
 * Such counters are marked as dirty in their table, so that a message that is lost, and the death
 * of the worker, only delay it. Usage that is much of what is left does not wait for its turn: see
 * `LeaseTable.decideAsync`. After a loss of memory of Redis it reports all counters.
 */

import type { Identity } from '../../core/hash.ts';
import { newIdentity } from '../../core/hash.ts';
import { RULE } from '../../core/window-rules.ts';
import { WORKER_STAT, type WorkerStats } from '../../shared-memory/stats.ts';
import type { Lock, Slot } from '../table/layout.ts';
import { durationOfKey, endMs, expiryMs, ruleOfKey } from '../windows/registry.ts';
import { dropLease, mustReport, newLeaseState } from './counter/lease-state.ts';
import type { EngineState } from './engine-state.ts';
import { type LeaseClient, nameOfCounter } from './lease-client.ts';
import type { LeaseTable } from './lease-table.ts';
import { NO_WINDOW } from './scripts/protocol.ts';
import { DEADLINE_STEP_MS } from './scripts/protocol-constants.ts';

/** Counters that are reported at the same time: some calls, which do not delay those of checks. */
const COUNTERS_AT_ONCE = 128;
/** Groups of slots that are visited before other work has its turn: about 1 ms. */
const GROUPS_PER_TURN = 16;

interface CounterName {
  identity: Identity;
  key: number;
}

interface UsageSyncOptions {
  tables: readonly LeaseTable[];
  tableOf: (identity: Identity) => LeaseTable;
  client: LeaseClient;
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
  /** Counters whose leases are returned when their window ends, by step of their deadline. */
  readonly #ending = new Map<number, Map<string, CounterName>>();

  constructor(options: UsageSyncOptions) {
    this.#options = options;
  }

  /** Reports all usage that Redis does not know. @returns whether it has got everything */
  async run(): Promise<boolean> {
    const { tables, client, syncGcra, isUp } = this.#options;
    if (this.#isRunning) return false;
    this.#isRunning = true;
    let isComplete = true;
    try {
      for (const table of tables) {
        const dirty: CounterName[] = [];
        table.forEachDirtySlot((slot) => dirty.push(nameOf(table, slot)));
        const isDone = await inParts(dirty, ({ identity, key }) => {
          if (!isUp(identity)) return Promise.resolve(false);
          return isGcra(key) ? syncGcra(identity, key) : client.sync(identity, key);
        });
        if (!isDone) isComplete = false;
      }
    } finally {
      this.#isRunning = false;
    }
    return isComplete;
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
      if (isGcra(key)) {
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
      if (isGcra(key)) {
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
  returnAtEnd(identity: Identity, key: number, deadlineMs: number): void {
    const step = Math.ceil(deadlineMs / DEADLINE_STEP_MS);
    let ending = this.#ending.get(step);
    if (ending === undefined) {
      ending = new Map();
      this.#ending.set(step, ending);
    }
    ending.set(nameOfCounter(identity, key), { identity, key });
  }

  /** Takes the leases away whose deadline has passed. The next `run` reports them to Redis. */
  takeEndedLeases(): void {
    const { tableOf, nowMs } = this.#options;
    const now = nowMs();
    for (const [step, ending] of this.#ending) {
      if (step * DEADLINE_STEP_MS > now) continue;
      this.#ending.delete(step);
      for (const { identity, key } of ending.values()) {
        const table = tableOf(identity);
        table.withSlot(identity, key, (slot, lock) => {
          table.read(slot, this.#state);
          const { lease, deadlineMs } = this.#state;
          if (now >= deadlineMs) this.#takeLease(table, slot, lock);
          else if (lease > 0) this.returnAtEnd(identity, key, deadlineMs);
        });
      }
    }
  }

  /**
   * Makes the slots those of a new run: no message is under way.
   * @returns the buckets with counters that Redis may know
   */
  adoptSlots(): Set<number> {
    const { tables, state } = this.#options;
    const buckets = new Set<number>();
    for (const table of tables) {
      table.forEachSlot((slot, lock) => {
        const { identity, key } = nameOf(table, slot);
        if (isGcra(key)) {
          buckets.add(state.bucketOf(identity));
          return;
        }
        table.read(slot, this.#state);
        if (this.#state.window !== NO_WINDOW) buckets.add(state.bucketOf(identity));
        if (!this.#state.isPinned) return;
        this.#state.isPinned = false;
        table.write(slot, this.#state);
        table.setDirty(lock, slot, true);
      });
    }
    return buckets;
  }

  /** Reports all counters of a bucket. @returns whether Redis has got every one */
  async report(bucket: number): Promise<boolean> {
    const { state, nowMs, client, reportGcra } = this.#options;
    const counters: CounterName[] = [];
    const now = nowMs();
    await this.#scan((table, slot) => {
      const counter = nameOf(table, slot);
      if (state.bucketOf(counter.identity) !== bucket) return;
      const redisMs = state.redisMs(counter.identity.h3, now);
      if (isGcra(counter.key)) {
        if (table.readGcra(slot).newest > redisMs) counters.push(counter);
        return;
      }
      table.read(slot, this.#state);
      if (mustReport(this.#state, durationOfKey(counter.key), redisMs)) counters.push(counter);
    });
    return inParts(counters, ({ identity, key }) => {
      return isGcra(key) ? reportGcra(identity, key) : client.sync(identity, key);
    });
  }

  /** Visits all slots, some groups in a turn of the loop. */
  async #scan(visit: (table: LeaseTable, slot: Slot, lock: Lock) => void): Promise<void> {
    let visited = 0;
    for (const table of this.#options.tables) {
      for (let group = 0; group < table.groups; group++) {
        if (table.isUnused(group)) continue;
        table.forEachSlotOf(group, (slot, lock) => visit(table, slot, lock));
        if (++visited % GROUPS_PER_TURN === 0)
          await new Promise((resolve) => setImmediate(resolve));
      }
    }
  }

  #takeLease(table: LeaseTable, slot: Slot, lock: Lock): void {
    if (isGcra(table.readKey(slot))) return;
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

function isGcra(key: number): boolean {
  return ruleOfKey(key).counterRule === RULE.gcra;
}

function nameOf(table: LeaseTable, slot: Slot): CounterName {
  return { identity: table.readIdentity(slot, newIdentity()), key: table.readKey(slot) };
}

/** @returns whether all of them were done */
async function inParts(
  counters: readonly CounterName[],
  report: (counter: CounterName) => Promise<boolean>,
): Promise<boolean> {
  let isComplete = true;
  for (let from = 0; from < counters.length; from += COUNTERS_AT_ONCE) {
    const done = await Promise.all(counters.slice(from, from + COUNTERS_AT_ONCE).map(report));
    if (done.includes(false)) isComplete = false;
  }
  return isComplete;
}
