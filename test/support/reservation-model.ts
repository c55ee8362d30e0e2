/**
 * A naive model of reservations: all windows of a counter, and for GCRA the exact time at which a
 * bucket is full, beside a list of records. A counter has one limit under GCRA.
 */

import { ENDED_HOLD_MS } from '../../src/core/constants.ts';
import { RULE, type RuleNumber } from '../../src/core/window-rules.ts';
import type { Commit, ExpiredHoldPolicy } from '../../src/engine/hold-engine.ts';

/** What a counter counts, for whom, and under which limit. */
export interface ModelTerms {
  identifier: string;
  rule: RuleNumber;
  durationMs: number;
  limit: number;
}

export interface ModelReservation extends ModelTerms {
  amount: number;
  decidedMs: number;
  expiresAt: number;
  state: 'live' | 'expired' | 'ended';
  endedAt: number;
  charged: number;
  released: number;
  isLate: boolean;
  isVoided: boolean;
}

interface ModelCounter {
  /** Tokens by window. */
  used: Map<number, number>;
  /** When the bucket is full: Unix time in ms, times the limit. */
  full: number;
  /** Tokens charged beyond the limit, which no check would have got. */
  excess: number;
}

export class ReservationModel {
  /** Each has one id. */
  readonly lists: ModelReservation[][] = [];
  readonly #policy: ExpiredHoldPolicy;
  /** How many expiries each call of `expire` has found, and how many calls have come late. */
  readonly seen: Record<string, number>;
  #counters = new Map<string, ModelCounter>();

  constructor(policy: ExpiredHoldPolicy, seen: Record<string, number>) {
    this.#policy = policy;
    this.seen = seen;
  }

  /** Tokens that count now, those of reservations too; for GCRA those missing from the bucket. */
  used(terms: ModelTerms, now: number): number {
    const { rule, durationMs, limit } = terms;
    const { used, full } = this.#counterOf(terms);
    if (rule === RULE.gcra) return Math.max(0, Math.ceil((full - now * limit) / durationMs));
    const window = Math.floor(now / durationMs);
    const current = used.get(window) ?? 0;
    if (rule === RULE.fixed) return current;
    const leftMs = (window + 1) * durationMs - now;
    return current + Math.floor(((used.get(window - 1) ?? 0) * leftMs) / durationMs);
  }

  excess(terms: ModelTerms): number {
    return this.#counterOf(terms).excess;
  }

  /** @returns whether it is allowed */
  check(terms: ModelTerms, cost: number, now: number): boolean {
    const isAllowed = cost === 0 || this.used(terms, now) + cost <= terms.limit;
    if (isAllowed) this.#count(terms, cost, now);
    return isAllowed;
  }

  /** All or none. @param nows by check @returns whether all are allowed */
  reserve(
    checks: readonly (ModelTerms & { cost: number })[],
    nows: readonly number[],
    expiresAt: number,
  ): boolean {
    const before = structuredClone(this.#counters);
    const isAllowed = checks.every((check, n) => this.check(check, check.cost, nows[n]));
    if (checks.length > 1) this.#saw(isAllowed ? 'lists' : 'deniedLists');
    if (!isAllowed) {
      this.#counters = before;
      return false;
    }
    const list = checks.map(({ cost, identifier, rule, durationMs, limit }, n) => ({
      ...{ identifier, rule, durationMs, limit, amount: cost, decidedMs: nows[n], expiresAt },
      ...{ state: 'live' as const, endedAt: 0 },
      ...{ charged: cost, released: 0, isLate: false, isVoided: false },
    }));
    this.lists.push(list);
    return true;
  }

  /** @returns undefined: it ended too long ago */
  commit(
    list: readonly ModelReservation[],
    costs: readonly number[],
    nows: readonly number[],
  ): Commit | undefined {
    const sum = { charged: 0, released: 0, isLate: false };
    for (const [n, reservation] of list.entries()) {
      const commit = this.#commit(reservation, costs[n] ?? 0, nows[n]);
      if (commit === undefined && n === 0) return undefined;
      sum.charged += commit?.charged ?? 0;
      sum.released += commit?.released ?? 0;
      sum.isLate ||= commit?.isLate ?? false;
    }
    return sum;
  }

  /** @returns undefined: it ended too long ago */
  #commit(reservation: ModelReservation, cost: number, now: number): Commit | undefined {
    if (reservation.state !== 'live' && reservation.endedAt + ENDED_HOLD_MS <= now) {
      this.#saw('forgotten');
      return undefined;
    }
    this.expire(reservation, now);
    if (reservation.state === 'ended') this.#saw('repeated');
    else {
      const { charged } = reservation;
      reservation.isLate = reservation.state === 'expired';
      if (reservation.state === 'live') reservation.endedAt = now;
      reservation.state = 'ended';
      const excess = Math.max(0, cost - charged);
      reservation.released = this.#giveBack(reservation, Math.max(0, charged - cost), now);
      reservation.charged = charged - reservation.released + excess;
      this.#count(reservation, excess, now);
      this.#counterOf(reservation).excess += excess;
      this.#saw(reservation.isLate ? 'late' : 'committed');
      if (excess > 0) this.#saw('excess');
      if (reservation.released > 0) this.#saw('released');
    }
    const { charged, released, isLate } = reservation;
    return { charged, released, isLate };
  }

  /** Ends a reservation if it is live and has expired. @returns whether it was */
  expire(reservation: ModelReservation, now: number): boolean {
    if (reservation.state !== 'live' || reservation.expiresAt > now) return false;
    Object.assign(reservation, { state: 'expired', endedAt: now });
    this.#saw('expired');
    if (this.#policy === 'release') {
      reservation.charged -= this.#giveBack(reservation, reservation.charged, now);
    }
    return true;
  }

  reset(identifier: string): void {
    for (const key of this.#counters.keys()) {
      if (key.startsWith(`${identifier} `)) this.#counters.delete(key);
    }
    for (const reservation of this.lists.flat()) {
      if (reservation.identifier !== identifier || reservation.state === 'ended') continue;
      reservation.isVoided = true;
      this.#saw('voided');
    }
  }

  #counterOf({ identifier, rule, durationMs }: ModelTerms): ModelCounter {
    const key = `${identifier} ${rule === RULE.gcra} ${durationMs}`;
    const found = this.#counters.get(key);
    if (found !== undefined) return found;
    const counter = { used: new Map<number, number>(), full: 0, excess: 0 };
    this.#counters.set(key, counter);
    return counter;
  }

  #count(terms: ModelTerms, cost: number, now: number): void {
    if (cost === 0) return;
    const counter = this.#counterOf(terms);
    const { rule, durationMs, limit } = terms;
    if (rule === RULE.gcra) counter.full = Math.max(counter.full, now * limit) + cost * durationMs;
    else this.#add(counter, Math.floor(now / durationMs), cost);
  }

  #add({ used }: ModelCounter, window: number, cost: number): void {
    used.set(window, (used.get(window) ?? 0) + cost);
  }

  /** Each rule on its own. @returns how many were returned */
  #giveBack(reservation: ModelReservation, tokens: number, now: number): number {
    if (reservation.isVoided || tokens === 0) return 0;
    const { rule, durationMs, limit, decidedMs } = reservation;
    const counter = this.#counterOf(reservation);
    if (rule === RULE.gcra) {
      const refilled = Math.floor(((now - decidedMs) * limit) / durationMs);
      const missing = this.used(reservation, now);
      const returned = Math.min(Math.max(0, tokens - refilled), missing);
      if (returned === missing) counter.full = Math.min(counter.full, now * limit);
      else counter.full -= returned * durationMs;
      return returned;
    }
    const window = Math.floor(decidedMs / durationMs);
    // Its tokens count until the end of the window, and in a sliding window until that of the next.
    const lastWindow = rule === RULE.fixed ? window : window + 1;
    if (Math.floor(now / durationMs) > lastWindow) {
      this.#saw('windowEnded');
      return 0;
    }
    const returned = Math.min(tokens, counter.used.get(window) ?? 0);
    this.#add(counter, window, -returned);
    return returned;
  }

  #saw(what: string): void {
    this.seen[what] = (this.seen[what] ?? 0) + 1;
  }
}
