/** What a check asks of its counter, and what a counter table decides. */

import type { RuleNumber } from './window-rules.ts';

/** What became of a check, beside the decision itself. */
export const OUTCOME = { decided: 0, evicted: 1, full: 2 } as const;

export type FullTablePolicy = 'deny' | 'allow';

export interface TableDecision extends Decision {
  /** OUTCOME.evicted: a live counter made room. OUTCOME.full: no room, nothing was counted. */
  outcome: number;
}

export function newDecision(): TableDecision {
  return { allowed: false, remaining: 0, reset: 0, window: 0, outcome: OUTCOME.decided };
}

/** What became of a deduction. `evicted`: it was made, and a live counter made room for it. */
export const DEDUCTION_OUTCOME = { applied: 0, evicted: 1, windowEnded: 2, full: 3 } as const;

/** What a check asks of its counter. */
export interface CheckParameters {
  limit: number;
  durationMs: number;
  /** Tokens; 0 always passes, and changes nothing. */
  cost: number;
  /** The window rule that decides. */
  rule: RuleNumber;
  /** Tokens that may pass at once, at most the limit; NO_BURST: the limit. Only GCRA uses it. */
  burst: number;
}

export interface Decision {
  allowed: boolean;
  /** Tokens left after the decision. */
  remaining: number;
  /** Unix time in ms at which the window ends. */
  reset: number;
  /** The number of the window in which it was judged, and in which its cost counts. */
  window: number;
}
