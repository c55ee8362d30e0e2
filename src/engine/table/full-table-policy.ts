/**
 * The decision for a check that is within its limit, when its new counter finds no slot: deny, or
 * allow without counting.
 */

import type { FullTablePolicy, TableDecision } from '../../core/decision.ts';

/**
 * @param earliestEndMs when the first window in the buckets of the counter ends
 * @returns whether the check is allowed
 */
export function applyFullTablePolicy(
  fullTablePolicy: FullTablePolicy,
  earliestEndMs: number,
  decision: TableDecision,
): boolean {
  if (fullTablePolicy === 'allow') return true;
  decision.allowed = false;
  decision.remaining = 0;
  decision.reset = earliestEndMs;
  decision.passesAt = earliestEndMs;
  return false;
}
