/**
 * One interface, two ways to decide a check: by the acceptor itself, in shared memory
 * (`in-place.ts`), or by the worker of its shard (`by-worker.ts`). The table and its rules are the
 * same, and so are the cases that test them.
 */

import { OUTCOME, type TableDecision } from '../counters/decision.ts';
import type { Identity } from '../counters/hash.ts';
import type { HttpResponse } from '../http/uws.ts';
import { type AcceptorLane, COUNT, TALLY } from '../lanes.ts';
import type { Namespace } from '../namespaces/known.ts';

/** A check in order, by a key that may ask it, as it stands or as an override has it. */
export interface Check {
  namespace: Namespace;
  identifier: string;
  limit: number;
  durationMs: number;
  cost: number;
  /** Answer from the counter as it stands, deduct afterwards. */
  isAsync: boolean;
}

export interface Decider {
  /**
   * @param id the hash of its namespace and identifier
   * @param startedMs when the whole request was there, by the monotonic clock
   * @returns the decision, overwritten by the next one; undefined where the answer comes later
   */
  decide(
    check: Check,
    id: Identity,
    startedMs: number,
    res: HttpResponse,
  ): TableDecision | undefined;
}

/** Counts a decision that is an answer, each of its aspects once. */
export function tally(
  lane: AcceptorLane,
  { row }: Namespace,
  cost: number,
  { admitted, outcome }: TableDecision,
): void {
  row[admitted ? TALLY.admitted : TALLY.refused]++;
  row[admitted ? TALLY.tokensAdmitted : TALLY.tokensRefused] += cost;
  tallyOutcome(lane, outcome);
}

/** Counts what a decision did to the table, whoever heard of it. */
export function tallyOutcome(lane: AcceptorLane, outcome: number): void {
  if (outcome === OUTCOME.evicted) lane.count(COUNT.liveEvictions);
  else if (outcome === OUTCOME.full) lane.count(COUNT.fullTable);
}
