/**
 * The holds of one shard beside its counters. A reservation is a check and a record: both are made,
 * changed and ended under the lock of the counter's group and then that of the shard's holds, so no
 * thread sees one without the other. `reservation-batch.ts` makes those of several checks, and
 * decides where there is no room for a record.
 *
 * The record is changed before the counter. A shard worker that dies between the two leaves tokens
 * counted that an expired reservation would have returned, until their window ends. A late commit
 * of that reservation counts its cost beside them.
 */

import type { Check } from '../../core/check.ts';
import { type CheckParameters, OUTCOME, type TableDecision } from '../../core/decision.ts';
import type { Identity } from '../../core/hash.ts';
import { NO_BURST, type RuleNumber } from '../../core/window-rules.ts';
import type { Commit, EndedHold, HoldPolicies, Reservation } from '../hold-engine.ts';
import { HOLD_KIND, type HoldId } from '../hold-id.ts';
import type { HoldTable } from '../holds/hold-table.ts';
import { HOLD_FLAG, HOLD_STATE, NONE, RECORD, RECORD_DOUBLE } from '../holds/layout.ts';
import { ruleOf } from '../windows/registry.ts';
import type { CounterTable } from './table.ts';

export class ShardHolds {
  readonly #counters: CounterTable;
  readonly #holds: HoldTable;
  readonly #policies: HoldPolicies;

  constructor(counters: CounterTable, holds: HoldTable, policies: HoldPolicies) {
    this.#counters = counters;
    this.#holds = holds;
    this.#policies = policies;
  }

  /**
   * Decides one check, and records it if it is allowed.
   * @returns false: there is no room for its record, and nothing is done
   */
  reserve(
    check: Check,
    nowMs: number,
    ttlMs: number,
    decision: TableDecision,
    into: Reservation,
  ): boolean {
    const groupMs = this.#lock(check.identity, nowMs);
    try {
      const now = this.#holds.advanceTime(nowMs);
      return this.#reserve(check, groupMs, now, ttlMs, decision, into);
    } finally {
      this.#unlock();
    }
  }

  /**
   * Applies the actual cost of a reservation, if it has not ended before.
   * @returns what it counts now; undefined if there is no such reservation
   */
  settle(id: HoldId, cost: number, nowMs: number): Commit | undefined {
    const holds = this.#holds;
    if (id.record > holds.memory.capacity) return undefined;
    const groupMs = this.#lock(holds.identityOf(id.record), nowMs);
    try {
      const now = this.#advanceTime(groupMs);
      const record = holds.find(id, now);
      return record === NONE ? undefined : this.#settle(record, cost, now);
    } finally {
      this.#unlock();
    }
  }

  /**
   * Ends a live hold of an identity, without a cost.
   * @returns undefined if the identity has no live hold with this handle
   */
  endByHandle(identity: Identity, handle: string, nowMs: number): EndedHold | undefined {
    const holds = this.#holds;
    const groupMs = this.#lock(identity, nowMs);
    try {
      const now = this.#advanceTime(groupMs);
      const record = holds.findLive(identity, handle, now);
      if (record === NONE) return undefined;
      if (!holds.isLease(record)) {
        return { kind: HOLD_KIND.reservation, released: this.#settle(record, 0, now).released };
      }
      holds.end(record, HOLD_STATE.ended, now);
      const released = holds.memory.double(record, RECORD_DOUBLE.amount);
      return { kind: HOLD_KIND.lease, released };
    } finally {
      this.#unlock();
    }
  }

  /**
   * When the next hold expires: Unix time, ms. Read without the lock: while another thread changes
   * the queue, it may be the expiry of another hold.
   */
  get nextExpiryMs(): number {
    return this.#holds.queue.firstMs;
  }

  /**
   * Ends holds that have expired.
   * @param max how many at most
   * @returns how many
   */
  expire(nowMs: number, max: number): number {
    const holds = this.#holds;
    const { queue } = holds;
    let ended = 0;
    // Read without the lock: another thread may end the hold, or change its expiry, at any moment.
    for (let tries = 0; tries < max && queue.firstMs <= nowMs; tries++) {
      const record = queue.first;
      if (record === NONE) break;
      const identity = holds.identityOf(record);
      const groupMs = this.#lock(identity, nowMs);
      try {
        const now = this.#advanceTime(groupMs);
        if (queue.first !== record || queue.firstMs > now) continue;
        // Else the record has got another hold meanwhile, whose counter may be in another group.
        if (!holds.hasIdentity(record, identity)) continue;
        this.#expire(record, now);
        ended++;
      } finally {
        this.#unlock();
      }
    }
    return ended;
  }

  /**
   * Has the reservations of an identity return nothing: their counters are being removed. A late
   * commit may still return tokens of those that have expired. The caller holds the lock of the
   * group.
   * @param durationMs undefined: those of all durations
   * @param rule undefined: those of all rules
   */
  voidLocked(
    identity: Identity,
    durationMs: number | undefined,
    rule: RuleNumber | undefined,
  ): void {
    const holds = this.#holds;
    holds.lock();
    try {
      for (const record of holds.recordsOf(holds.findCounter(identity))) {
        if (holds.isLease(record)) continue;
        const { durationMs: ownDurationMs, rule: ownRule } = this.#termsOf(record);
        if (durationMs !== undefined && durationMs !== ownDurationMs) continue;
        if (rule !== undefined && ruleOf(rule).counterRule !== ruleOf(ownRule).counterRule)
          continue;
        holds.advanceTime(0);
        holds.setFlag(record, HOLD_FLAG.voided);
      }
    } finally {
      holds.unlock();
    }
  }

  /** @param groupMs the time of the counter, which may be ahead of that of the holds */
  #reserve(
    check: Check,
    groupMs: number,
    nowMs: number,
    ttlMs: number,
    decision: TableDecision,
    into: Reservation,
  ): boolean {
    if (this.#holds.room === 0) return false;
    const { identity, namespace, rule, durationMs, limit, cost } = check;
    const [tag] = namespace.hashState;
    this.#counters.decideLocked(identity, tag, groupMs, check, decision);
    into.allowed = decision.allowed;
    into.id = undefined;
    into.expiresAt = 0;
    if (!decision.allowed) return true;
    into.expiresAt = nowMs + ttlMs;
    const hold = {
      isLease: false,
      identity,
      namespace: namespace.hashState,
      rule,
      durationMs,
      window: decision.window,
      limit,
      // The policy for a full table of counters has allowed it without counting it.
      amount: decision.outcome === OUTCOME.full ? 0 : cost,
      expiresAt: into.expiresAt,
    };
    into.id = this.#holds.add(hold, nowMs);
    return true;
  }

  #settle(record: number, cost: number, nowMs: number): Commit {
    const holds = this.#holds;
    const { memory } = holds;
    if (holds.isLive(record) && memory.double(record, RECORD_DOUBLE.expiresAt) <= nowMs) {
      this.#expire(record, nowMs);
    }
    const state = memory.word(record, RECORD.state);
    if (state !== HOLD_STATE.ended) {
      const charged = memory.double(record, RECORD_DOUBLE.charged);
      if (state === HOLD_STATE.live) holds.end(record, HOLD_STATE.ended, nowMs);
      else {
        memory.setWord(record, RECORD.state, HOLD_STATE.ended);
        holds.setFlag(record, HOLD_FLAG.late);
      }
      const released = cost < charged ? this.#giveBack(record, charged - cost, nowMs) : 0;
      const excess = cost > charged ? this.#charge(record, cost - charged, nowMs) : 0;
      memory.setDouble(record, RECORD_DOUBLE.charged, charged - released + excess);
      memory.setDouble(record, RECORD_DOUBLE.released, released);
    }
    return {
      charged: memory.double(record, RECORD_DOUBLE.charged),
      released: memory.double(record, RECORD_DOUBLE.released),
      isLate: holds.hasFlag(record, HOLD_FLAG.late),
    };
  }

  /** Ends a hold by its expiry. */
  #expire(record: number, nowMs: number): void {
    const holds = this.#holds;
    const { memory } = holds;
    holds.end(record, HOLD_STATE.expired, nowMs);
    if (holds.isLease(record) || this.#policies.onExpiry === 'charge') return;
    const charged = memory.double(record, RECORD_DOUBLE.charged);
    // Cut off after the tokens are returned, a late commit must not return them again.
    memory.setDouble(record, RECORD_DOUBLE.charged, 0);
    const released = this.#giveBack(record, charged, nowMs);
    memory.setDouble(record, RECORD_DOUBLE.charged, charged - released);
  }

  /** @returns how many of the tokens were returned to their window */
  #giveBack(record: number, tokens: number, nowMs: number): number {
    const holds = this.#holds;
    if (holds.hasFlag(record, HOLD_FLAG.voided)) return 0;
    const { rule, ...terms } = this.#termsOf(record);
    const window = holds.memory.double(record, RECORD_DOUBLE.window);
    const reserved = { ...terms, window };
    const identity = holds.identityOf(record);
    return this.#counters.giveBackLocked(identity, rule, reserved, nowMs, tokens);
  }

  /** Counts tokens beyond those of a reservation. @returns how many; 0 if they are not counted */
  #charge(record: number, tokens: number, nowMs: number): number {
    const holds = this.#holds;
    const tag = holds.memory.word(record, RECORD.namespace);
    const parameters = { ...this.#termsOf(record), cost: tokens, burst: NO_BURST };
    const identity = holds.identityOf(record);
    return this.#counters.chargeLocked(identity, tag, nowMs, parameters) ? tokens : 0;
  }

  #termsOf(record: number): Pick<CheckParameters, 'rule' | 'durationMs' | 'limit'> {
    const { memory } = this.#holds;
    return {
      rule: this.#holds.ruleOf(record),
      durationMs: memory.double(record, RECORD_DOUBLE.durationMs),
      limit: memory.double(record, RECORD_DOUBLE.limit),
    };
  }

  /**
   * Takes the lock of the group of an identity and that of the shard's holds.
   * @returns the time of the group
   */
  #lock(identity: Identity, nowMs: number): number {
    const groupMs = this.#counters.lock(identity, nowMs);
    try {
      this.#holds.lock();
    } catch (error) {
      this.#counters.unlock();
      throw error;
    }
    return groupMs;
  }

  /** Neither the time of the group runs back nor that of the holds. @returns the later one */
  #advanceTime(groupMs: number): number {
    return this.#counters.advanceTimeLocked(this.#holds.advanceTime(groupMs));
  }

  #unlock(): void {
    this.#holds.unlock();
    this.#counters.unlock();
  }
}
