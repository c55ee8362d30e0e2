/** What a table answers: to a check, and to a deduction that comes behind one. */

import type { Decision } from './window.ts';

/** What became of a check, beside the decision itself. */
export const OUTCOME = { decided: 0, evicted: 1, full: 2 } as const;

export type OnFull = 'deny' | 'allow';

export interface TableDecision extends Decision {
  /** OUTCOME.evicted: a live counter made room. OUTCOME.full: no room, nothing was counted. */
  outcome: number;
}

export function newDecision(): TableDecision {
  return { admitted: false, remaining: 0, reset: 0, window: 0, outcome: OUTCOME.decided };
}

/** What became of a deduction. `evicted`: it was made, and a live counter made room for it. */
export const DEDUCTION = { applied: 0, evicted: 1, past: 2, noRoom: 3 } as const;
