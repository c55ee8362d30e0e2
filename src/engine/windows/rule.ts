/**
 * The interface of a window rule to the table: pure functions of a counter's stored cells. No
 * storage, no clock and no thread; the table brings those. `registry.ts` lists the rules.
 *
 * All amounts are integers up to 2^53-1. No amount is added before it is known to fit.
 */

import type { CheckParameters, Decision } from '../../core/decision.ts';
import type { RuleNumber } from '../../core/window-rules.ts';

/** The stored numbers of a counter. `window.ts` and `gcra.ts` say what they mean to their rules. */
export interface Cells {
  /** NO_WINDOW in a counter that was never used. */
  newest: number;
  current: number;
  previous: number;
  /** The limit under which the last tokens were counted. */
  limit: number;
}

/** The value of `newest` before any use. It lies in the past for every rule. */
export const NO_WINDOW = -2;

export function newCells(): Cells {
  return { newest: NO_WINDOW, current: 0, previous: 0, limit: 0 };
}

/** Makes the cells those of a counter that was never used. */
export function clearCells(cells: Cells): void {
  cells.newest = NO_WINDOW;
  cells.current = 0;
  cells.previous = 0;
  cells.limit = 0;
}

export function copyCells(from: Cells, into: Cells): void {
  into.newest = from.newest;
  into.current = from.current;
  into.previous = from.previous;
  into.limit = from.limit;
}

/** When and under which terms tokens were reserved. */
export interface ReservedTokens {
  /** That of the decision. */
  window: number;
  durationMs: number;
  limit: number;
}

/** Decides from the cells, and leaves them as they are. */
export type Judge = (
  cells: Cells,
  nowMs: number,
  parameters: CheckParameters,
  decision: Decision,
) => void;

/** The tokens of a counter that still count. */
export interface CounterUsage {
  /** The window that is active; for GCRA the time, ms. */
  window: number;
  /** Tokens used in that window; for GCRA the tokens that are missing from the bucket. */
  used: number;
  /** Tokens used in the window before. */
  usedBefore: number;
  /** When the active window ends, or the bucket is full again: Unix time, ms. */
  endMs: number;
}

export interface WindowRule {
  /** Rules with the same number here share counters; it is part of a counter's identity. */
  readonly counterRule: RuleNumber;
  /**
   * The order of stores that a thread which dies between two of them may cut off. True: the cells
   * and then `newest`. False: the cells are 0 until `newest` and the limit are stored.
   */
  readonly storesNewestLast: boolean;
  readonly judge: Judge;
  /**
   * Counts tokens of an allowed check.
   * @param window that of its decision
   */
  count(cells: Cells, window: number, cost: number, parameters: CheckParameters): void;
  /**
   * Counts an allowed check some time after its decision.
   * @param window that of its decision
   * @returns false: the tokens do not matter any more, and the cells are not to be stored
   */
  deduct(cells: Cells, window: number, nowMs: number, parameters: CheckParameters): boolean;
  /**
   * Gives tokens back.
   * @param window that of the decision; a rule without windows ignores it
   * @returns how many; 0: the cells are unchanged
   */
  refund(cells: Cells, window: number, nowMs: number, durationMs: number, cost: number): number;
  /**
   * Gives tokens of a reservation back, to the window that they came from.
   * @returns how many; 0: the cells are unchanged
   */
  giveBack(cells: Cells, reservation: ReservedTokens, nowMs: number, tokens: number): number;
  /**
   * Prepares the cells for the denial of a check, which protects the counter from eviction.
   * @param window that of the denial
   * @returns false: the counter holds nothing to protect, the cells are unchanged
   */
  protect(cells: Cells, window: number): boolean;
  /** The new value of a slot's `denied` word after a denial, from its old one. */
  deniedWord(cells: Cells, window: number, before: number): number;
  /** When a counter does not matter any more, and its slot is free: Unix time, ms. */
  expiryMs(newest: number, durationMs: number): number;
  /** When the newest window ends, or the bucket is full again: Unix time, ms. */
  endMs(newest: number, durationMs: number): number;
  /** Whether a denial still protects the counter from eviction. */
  isProtected(newest: number, durationMs: number, denied: number, nowMs: number): boolean;
  /** The share of the limit that eviction would lose. */
  usedShare(cells: Cells, durationMs: number, nowMs: number): number;
  usage(cells: Cells, durationMs: number, nowMs: number): CounterUsage;
  /** The tokens that a check by this rule sees as used. @param usage of the counter at `nowMs` */
  tokensUsed(usage: CounterUsage, durationMs: number, nowMs: number): number;
  /** The cells as clients are shown them: times are Unix times in ms. */
  view(cells: Cells, durationMs: number): CellsView;
}

export type CellsView =
  | { windowStart: number; current: number; previous: number }
  | { fullAt: number };
