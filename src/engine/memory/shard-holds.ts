/**
 * The holds of one shard beside its counters. A reservation is a check and a record: both are made
 * (`reservation-batch.ts`), changed and ended under the lock of the counter's group and then that
 * of the shard's holds, so no thread sees one without the other.
 *
 * The record is changed before the counter. A shard worker that dies between the two leaves tokens
 * counted that an expired reservation would have returned, until their window ends. A late commit
 * of that reservation counts its cost beside them.
 */

import type { CheckParameters } from '../../core/decision.ts';
import type { Identity } from '../../core/hash.ts';
import { NO_BURST, type RuleNumber } from '../../core/window-rules.ts';
import type { Commit, EndedHold, HoldPolicies } from '../hold-engine.ts';
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
   * Applies the actual cost of a reservation, if it has not ended before.
   * @returns what it counts now; undefined if there is no such reservation
   */
  settle(id: HoldId, cost: number, nowMs: number): Commit | undefined {
    const holds = this.#holds;
    if (id.record > holds.memory.capacity) return undefined;
    return this.#underLocks(holds.identityOf(id.record), nowMs, (now) => {
      const record = holds.find(id, now);
      return record === NONE ? undefined : this.#settle(record, cost, now);
    });
  }

  /**
   * Ends a live hold of an identity, without a cost.
   * @returns undefined if the identity has no live hold with this handle
   */
  endByHandle(identity: Identity, handle: string, nowMs: number): EndedHold | undefined {
    const holds = this.#holds;
    return this.#underLocks(identity, nowMs, (now) => {
      const record = holds.findLive(identity, handle, now);
      if (record === NONE) return undefined;
      if (!holds.isLease(record)) {
        return { kind: HOLD_KIND.reservation, released: this.#settle(record, 0, now).released };
      }
      holds.end(record, HOLD_STATE.ended, now);
      const released = holds.memory.double(record, RECORD_DOUBLE.amount);
      return { kind: HOLD_KIND.lease, released };
    });
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
      this.#underLocks(identity, nowMs, (now) => {
        if (queue.first !== record || queue.firstMs > now) return;
        // Else the record has got another hold meanwhile, whose counter may be in another group.
        if (!holds.hasIdentity(record, identity)) return;
        this.#expire(record, now);
        ended++;
      });
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

  /** Calls `act` under the lock of the group of an identity and that of the shard's holds. */
  #underLocks<T>(identity: Identity, nowMs: number, act: (nowMs: number) => T): T {
    const counters = this.#counters;
    const holds = this.#holds;
    const groupMs = counters.lock(identity, nowMs);
    try {
      holds.lock();
      try {
        // Neither the time of the group runs back nor that of the holds: the later one counts.
        const now = holds.advanceTime(groupMs);
        return act(counters.advanceTimeLocked(now));
      } finally {
        holds.unlock();
      }
    } finally {
      counters.unlock();
    }
  }
}
