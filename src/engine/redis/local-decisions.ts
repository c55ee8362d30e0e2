/**
 * Decisions while Redis is down: a machine applies the limit to what it has allowed itself and to
 * what it knows of the others, or its share of the limit to what it has allowed itself. A lease
 * serves its checks as before. Called under the lock of the slot's group. What is counted here is
 * reported when Redis is back.
 */

import { AMOUNT_MAX } from '../../core/constants.ts';
import type { CheckParameters, Decision } from '../../core/decision.ts';
import { carriesOver, hasWindows, NO_BURST, RULE } from '../../core/window-rules.ts';
import { NO_SLOT, type Slot, tagAt } from '../table/layout.ts';
import { countGcra, judgeGcra, refundGcra, slackUnder } from '../windows/gcra.ts';
import { judge } from '../windows/registry.ts';
import { clearCells, newCells } from '../windows/rule.ts';
import type { EngineState } from './engine-state.ts';
import {
  deadlineAt,
  type LeaseViews,
  lastLimitAt,
  leaseAt,
  lentLimitAt,
  othersAt,
  previousKnownUsageAt,
  previousUsageAt,
  reservedAt,
  SUMMARY_COVERS_SLIDING,
  summaryAt,
  totalAt,
} from './lease-layout.ts';
import {
  addUnreported,
  moveSlotToWindow,
  noteLimit,
  readBucket,
  readPreviousSpent,
  readSpent,
  readWindow,
  writeBucket,
} from './lease-slot.ts';

export class LocalDecisions {
  readonly #memory: LeaseViews;
  readonly #state: EngineState;
  readonly #cells = newCells();
  readonly #parameters: CheckParameters = {
    limit: 0,
    durationMs: 0,
    cost: 0,
    rule: RULE.fixed,
    burst: NO_BURST,
  };

  /** @param memory its words and doubles are looked up for each access */
  constructor(memory: LeaseViews, state: EngineState) {
    this.#memory = memory;
    this.#state = state;
  }

  /**
   * Decides a check, and counts nothing.
   * @param slot NO_SLOT: nothing is used
   * @param tag hash 3 of its identity
   * @returns whether it is to be counted
   */
  decide(
    slot: Slot,
    tag: number,
    nowMs: number,
    check: CheckParameters,
    machines: number,
    decision: Decision,
  ): boolean {
    const redisMs = this.#state.redisMs(tag, nowMs);
    const own = this.#shareOf(check, machines);
    if (!hasWindows(check.rule)) {
      this.#readBucket(slot, machines);
      judgeGcra(this.#cells, redisMs, own, decision);
    } else {
      const isLeased = slot !== NO_SLOT && this.#isLeased(slot, nowMs, check);
      this.#judgeWindow(slot, redisMs, own, machines <= 1, decision);
      decision.allowed ||= isLeased;
      if (decision.allowed) decision.passesAt = 0;
    }
    return decision.allowed && check.cost !== 0;
  }

  /** Counts a check that was allowed, in the slot that it now has. */
  count(
    slot: Slot,
    nowMs: number,
    check: CheckParameters,
    machines: number,
    { window }: Decision,
  ): void {
    const { words, doubles, details } = this.#memory;
    const { cost } = check;
    if (!hasWindows(check.rule)) {
      this.#readBucket(slot, machines);
      countGcra(this.#cells, window, cost, this.#shareOf(check, machines));
      this.#writeBucket(slot, check.limit);
      details[reservedAt(slot)] = Math.min(details[reservedAt(slot)] + cost, AMOUNT_MAX);
      return;
    }
    if (readWindow(words, slot) < window) moveSlotToWindow(this.#memory, slot, window);
    if (this.#isLeased(slot, nowMs, check)) doubles[leaseAt(slot)] -= cost;
    else addUnreported(this.#memory, slot, cost);
    noteLimit(this.#memory, slot, check.limit);
  }

  /** Takes back a check that was counted. */
  refund(
    slot: Slot,
    nowMs: number,
    check: CheckParameters,
    machines: number,
    { window }: Pick<Decision, 'window'>,
  ): void {
    const { words, details } = this.#memory;
    const { cost } = check;
    if (!hasWindows(check.rule)) {
      this.#readBucket(slot, machines);
      const redisMs = this.#state.redisMs(words[tagAt(slot)], nowMs);
      refundGcra(this.#cells, redisMs, check.durationMs, cost);
      this.#writeBucket(slot, details[lastLimitAt(slot)]);
      details[reservedAt(slot)] = Math.max(0, details[reservedAt(slot)] - cost);
      return;
    }
    const newest = readWindow(words, slot);
    if (window === newest) addUnreported(this.#memory, slot, -cost);
    else if (window === newest - 1) details[totalAt(slot, window & 1)] -= cost;
  }

  /** Whether Redis has deducted the tokens of a check for this machine. */
  #isLeased(slot: Slot, nowMs: number, { cost, limit, rule }: CheckParameters): boolean {
    const { words, doubles, details } = this.#memory;
    const covers = (words[summaryAt(slot)] & SUMMARY_COVERS_SLIDING) !== 0;
    if (carriesOver(rule) && !covers && details[previousUsageAt(slot)] !== 0) return false;
    return (
      cost <= doubles[leaseAt(slot)] &&
      limit >= doubles[lentLimitAt(slot)] &&
      nowMs < doubles[deadlineAt(slot)]
    );
  }

  #judgeWindow(
    slot: Slot,
    redisMs: number,
    check: CheckParameters,
    countsOthers: boolean,
    decision: Decision,
  ): void {
    const cells = this.#cells;
    clearCells(cells);
    if (slot !== NO_SLOT) {
      const { words, details } = this.#memory;
      cells.newest = readWindow(words, slot);
      cells.current = readSpent(this.#memory, slot);
      cells.previous = readPreviousSpent(this.#memory, slot);
      if (countsOthers) {
        cells.current += Math.max(0, details[othersAt(slot)]);
        cells.previous = Math.max(cells.previous, details[previousKnownUsageAt(slot)]);
      }
    }
    judge(cells, redisMs, check, decision);
  }

  /** The check with this machine's share of its limit and burst. */
  #shareOf(check: CheckParameters, machines: number): CheckParameters {
    if (machines <= 1) return check;
    const own = this.#parameters;
    const { burst } = check;
    own.limit = divide(check.limit, machines);
    own.durationMs = check.durationMs;
    own.cost = check.cost;
    own.rule = check.rule;
    own.burst = burst === NO_BURST ? NO_BURST : divide(burst, machines);
    return own;
  }

  /** Reads a bucket as this machine's share, of which as much is used as of the whole. */
  #readBucket(slot: Slot, machines: number): void {
    const cells = this.#cells;
    clearCells(cells);
    if (slot === NO_SLOT) return;
    const { newest, current, limit } = readBucket(this.#memory, slot);
    // A bucket that was never used.
    if (newest === 0) return;
    cells.newest = newest;
    cells.limit = divide(limit, machines);
    cells.current = slackUnder(cells.limit, current, limit);
    cells.previous = cells.current;
  }

  /** @param limit of all machines, of which the cells have this machine's share */
  #writeBucket(slot: Slot, limit: number): void {
    const { newest, current, limit: own } = this.#cells;
    writeBucket(this.#memory, slot, { newest, current: slackUnder(limit, current, own), limit });
  }
}

/** The share of a machine: rounded down, but at least 1 of a limit that is not 0. */
function divide(amount: number, machines: number): number {
  return amount === 0 ? 0 : Math.max(1, Math.floor(amount / machines));
}
