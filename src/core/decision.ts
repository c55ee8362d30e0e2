/** The parameters of a check, and the decision of a counter table. */

import type { RuleNumber } from './window-rules.ts';

/**
 * The effect of a decision on the table. `doubted` and `shared`: none, and the denial may be false,
 * because tokens of machines that did not answer count as used, or because the machines that share
 * a sliding window pause between their requests for its tokens.
 */
export const OUTCOME = {
  decided: 0,
  evicted: 1,
  full: 2,
  doubted: 3,
  shared: 4,
  uncounted: 5,
} as const;

/** The decision for a check that needs a new counter when the table is full. */
export const FULL_TABLE_POLICIES = ['deny', 'allow'] as const;
export type FullTablePolicy = (typeof FULL_TABLE_POLICIES)[number];

export interface TableDecision extends Decision {
  /**
   * OUTCOME.evicted: a live counter was evicted. OUTCOME.full: no slot, nothing was counted.
   * OUTCOME.uncounted: it was allowed without Redis, and nothing was counted.
   */
  outcome: number;
}

/** Why a check is allowed or denied. A denial for `limit_reached` ends at a known time. */
export const DECISION_CAUSES = [
  'within_limit',
  'limit_reached',
  'cost_above_limit',
  'table_full',
] as const;
export type DecisionCause = (typeof DECISION_CAUSES)[number];

export function newDecision(): TableDecision {
  const outcome = OUTCOME.decided;
  return { allowed: false, remaining: 0, reset: 0, window: 0, passesAt: 0, outcome };
}

/** The result of a deduction. `evicted`: it was applied, and evicted a live counter. */
export const DEDUCTION_OUTCOME = { applied: 0, evicted: 1, windowEnded: 2, full: 3 } as const;

export interface CheckParameters {
  limit: number;
  durationMs: number;
  /** Tokens. A cost of 0 is always allowed, and changes nothing. */
  cost: number;
  /** The window rule of the check. */
  rule: RuleNumber;
  /** Tokens allowed at once, at most the limit; NO_BURST is the limit. Only GCRA uses it. */
  burst: number;
}

/** `passesAt` of a check that can never pass: its cost is above its limit or burst. */
export const NEVER = Number.POSITIVE_INFINITY;

export interface Decision {
  allowed: boolean;
  /** Tokens left after the decision. */
  remaining: number;
  /** Unix time in ms: the end of the window, or for GCRA the time that its rule defines. */
  reset: number;
  /** The window number in which the cost counts; for GCRA the time of the decision, Unix ms. */
  window: number;
  /**
   * Of a denial: the first ms at which the check would pass if no other is counted, Unix time; or
   * NEVER. Else 0.
   */
  passesAt: number;
}
