/**
 * The concurrency leases of one shard. A lease is a record, and nothing else: what an identity has
 * in use is the sum of its live leases. Each call takes the lock of the shard's holds, and decides
 * expiry under it. A lease beyond the horizon is decided again when the disk has a later one:
 * nothing is changed before, and no lock is held meanwhile.
 */

import type { FullTablePolicy } from '../../core/decision.ts';
import type { Identity } from '../../core/hash.ts';
import { RULE } from '../../core/window-rules.ts';
import type { Lease, LeaseRequest } from '../hold-engine.ts';
import type { HoldId } from '../hold-id.ts';
import { NO_WINDOW } from '../windows/rule.ts';
import type { HoldTable } from './hold-table.ts';
import { HOLD_STATE, NONE, RECORD, RECORD_DOUBLE } from './layout.ts';
import type { LeaseHorizon } from './lease-horizon.ts';

/** `full`: by the policy for a full table. `beyond`: it needs a later horizon. */
type AcquireOutcome = 'decided' | 'full' | 'beyond';

export class Leases {
  readonly #table: HoldTable;
  readonly #fullTablePolicy: FullTablePolicy;
  readonly #horizon: LeaseHorizon | undefined;

  /**
   * @param fullTablePolicy decides a lease for which there is no record
   * @param horizon undefined if leases may be forgotten in a crash
   */
  constructor(table: HoldTable, fullTablePolicy: FullTablePolicy, horizon?: LeaseHorizon) {
    this.#table = table;
    this.#fullTablePolicy = fullTablePolicy;
    this.#horizon = horizon;
  }

  /**
   * @returns whether the policy for a full table decided
   * @throws ApiError (503) if the horizon must move, and the disk fails
   */
  acquire(request: LeaseRequest, nowMs: number, into: Lease): boolean {
    const table = this.#table;
    for (;;) {
      let outcome: AcquireOutcome;
      table.lock();
      try {
        outcome = this.#acquireLocked(request, table.advanceTime(nowMs), into);
      } finally {
        table.unlock();
      }
      if (outcome !== 'beyond') return outcome === 'full';
      this.#horizon!.extend(into.expiresAt);
    }
  }

  /** @throws ApiError (503) if the horizon must move, and the disk fails */
  renew(id: HoldId, ttlMs: number, nowMs: number, into: Lease): void {
    const table = this.#table;
    for (;;) {
      let isBeyond: boolean;
      table.lock();
      try {
        isBeyond = !this.#renewLocked(id, ttlMs, table.advanceTime(nowMs), into);
      } finally {
        table.unlock();
      }
      if (!isBeyond) return;
      this.#horizon!.extend(into.expiresAt);
    }
  }

  /** @returns the tokens that were in use, 0 if it had ended; undefined for an unknown lease */
  release(id: HoldId, nowMs: number): number | undefined {
    const table = this.#table;
    const { memory } = table;
    table.lock();
    try {
      const now = table.advanceTime(nowMs);
      const record = table.find(id, now);
      if (record === NONE) return undefined;
      table.endExpiredLeases(memory.word(record, RECORD.counter), now);
      if (!table.isLive(record)) return 0;
      table.end(record, HOLD_STATE.ended, now);
      return memory.double(record, RECORD_DOUBLE.amount);
    } finally {
      table.unlock();
    }
  }

  /** Ends all live leases of an identity. @returns how many */
  endAll(identity: Identity, nowMs: number): number {
    const table = this.#table;
    table.lock();
    try {
      const now = table.advanceTime(nowMs);
      let ended = 0;
      for (const record of table.liveOf(table.findCounter(identity))) {
        if (!table.isLease(record)) continue;
        table.end(record, HOLD_STATE.ended, now);
        ended++;
      }
      return ended;
    } finally {
      table.unlock();
    }
  }

  /** @returns false if it needs a later horizon */
  #renewLocked(id: HoldId, ttlMs: number, nowMs: number, into: Lease): boolean {
    const table = this.#table;
    const { memory } = table;
    const record = table.find(id, nowMs);
    into.id = id;
    into.granted = false;
    into.inUse = 0;
    into.limit = 0;
    into.expiresAt = 0;
    if (record === NONE) return true;
    const counter = memory.word(record, RECORD.counter);
    table.endExpiredLeases(counter, nowMs);
    into.granted = table.isLive(record);
    if (into.granted) {
      into.expiresAt = nowMs + ttlMs;
      if (this.#isBeyondHorizon(into.expiresAt)) return false;
      table.extend(record, into.expiresAt);
    }
    into.inUse = table.inUse(counter);
    into.limit = memory.double(record, RECORD_DOUBLE.limit);
    into.expiresAt = memory.double(record, RECORD_DOUBLE.expiresAt);
    return true;
  }

  #acquireLocked(request: LeaseRequest, nowMs: number, into: Lease): AcquireOutcome {
    const table = this.#table;
    const { identity, limit, cost } = request;
    const counter = table.findCounter(identity);
    into.id = undefined;
    into.limit = limit;
    into.expiresAt = 0;
    table.endExpiredLeases(counter, nowMs);
    into.inUse = table.inUse(counter);
    into.granted = cost <= limit - into.inUse && nowMs >= (this.#horizon?.waitUntilMs ?? 0);
    if (!into.granted) return 'decided';
    if (table.room === 0) {
      into.granted = this.#fullTablePolicy === 'allow';
      return 'full';
    }
    into.expiresAt = nowMs + request.ttlMs;
    if (this.#isBeyondHorizon(into.expiresAt)) return 'beyond';
    into.inUse += cost;
    const hold = {
      isLease: true,
      identity,
      namespace: request.namespace.hashState,
      rule: RULE.fixed,
      durationMs: 0,
      window: NO_WINDOW,
      limit,
      amount: cost,
      expiresAt: into.expiresAt,
    };
    into.id = table.add(hold, nowMs);
    return 'decided';
  }

  #isBeyondHorizon(expiresAt: number): boolean {
    return this.#horizon !== undefined && !this.#horizon.covers(expiresAt);
  }
}
