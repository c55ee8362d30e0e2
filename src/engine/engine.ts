/**
 * One interface, two ways to decide a check: by the acceptor itself, in shared memory
 * (`in-place.ts`), or by the worker of its shard (`by-worker.ts`). The table and its rules are the
 * same, and so are the cases that test them.
 */

import type { Check } from '../core/check.ts';
import { OUTCOME, type TableDecision } from '../core/decision.ts';
import type { Identity } from '../core/hash.ts';
import type { Namespace } from '../core/namespace.ts';
import { ACCEPTOR_STAT, type AcceptorStats, NAMESPACE_STAT } from '../shared-memory/stats.ts';

/** How a check is answered, in its turn or corked in a later one. */
export interface Completion<R> {
  complete(res: R, check: Check, decision: TableDecision): void;
  fail(res: R, error: unknown): void;
}

export interface Engine<R> {
  /**
   * @param id the hash of its namespace and identifier
   * @param startedMs when the whole request was there, by the monotonic clock
   * @param completion by whom it is answered later
   * @returns the decision, overwritten by the next one; undefined where the answer comes later
   */
  decide(
    check: Check,
    id: Identity,
    startedMs: number,
    res: R,
    completion: Completion<R>,
  ): TableDecision | undefined;
}

/**
 * Counts a decision that is an answer, each of its aspects once.
 * @param allowed whether its cost was
 * @param outcome one of OUTCOME
 */
export function countDecision(
  stats: AcceptorStats,
  { decisionCounts }: Namespace,
  cost: number,
  allowed: boolean,
  outcome: number,
): void {
  decisionCounts[allowed ? NAMESPACE_STAT.allowed : NAMESPACE_STAT.denied]++;
  decisionCounts[allowed ? NAMESPACE_STAT.tokensAllowed : NAMESPACE_STAT.tokensDenied] += cost;
  countOutcome(stats, outcome);
}

/** Counts what a decision did to the table, whoever heard of it. */
export function countOutcome(stats: AcceptorStats, outcome: number): void {
  if (outcome === OUTCOME.evicted) stats.increment(ACCEPTOR_STAT.liveEvictions);
  else if (outcome === OUTCOME.full) stats.increment(ACCEPTOR_STAT.fullTableDecisions);
}
