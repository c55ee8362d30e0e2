/** The parameters of a check, and the decision of a counter table. */

import type { RuleNumber } from './window-rules.ts';

/** What happened to the table at a decision. */
export const OUTCOME = { decided: 0, evicted: 1, full: 2 } as const;

export type FullTablePolicy = 'deny' | 'allow';

export interface TableDecision extends Decision {
  /** OUTCOME.evicted: a live counter was evicted. OUTCOME.full: no slot, nothing was counted. */
  outcome: number;
}

export function newDecision(): TableDecision {
  return { allowed: false, remaining: 0, reset: 0, window: 0, outcome: OUTCOME.decided };
}

/** The result of a deduction. `evicted`: it was applied, and evicted a live counter. */
export const DEDUCTION_OUTCOME = { applied: 0, evicted: 1, windowEnded: 2, full: 3 } as const;

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
  /** When the window ends, or what the rule says otherwise: Unix time, ms. */
  reset: number;
  /** The number of the window of the decision, in which its cost counts; for GCRA its time, ms. */
  window: number;
}
