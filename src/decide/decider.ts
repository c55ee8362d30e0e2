/**
 * One interface, two ways to decide a check: by the acceptor itself, in shared memory
 * (`in-place.ts`), or by the worker of its shard (`by-worker.ts`). The table and its rules are the
 * same, and so are the cases that test them.
 */

import { OUTCOME, type TableDecision } from '../counters/decision.ts';
import type { Identity } from '../counters/hash.ts';
import type { Terms } from '../counters/window.ts';
import type { HttpResponse } from '../http/uws.ts';
import { type AcceptorLane, COUNT, TALLY } from '../lanes.ts';
import type { Namespace } from '../namespaces/known.ts';

/** A check in order, by a key that may ask it, as it stands or as an override has it. */
export interface Check extends Terms {
  namespace: Namespace;
  /** Answer from the counter as it stands, deduct afterwards. */
  isAsync: boolean;
  /** The override that governs it, where its answer says so. */
  overrideId: string | undefined;
}

/** How a check is answered, in its turn or corked in a later one. */
export interface Asker {
  answer(res: HttpResponse, check: Check, decision: TableDecision): void;
  fail(res: HttpResponse, error: unknown): void;
}

export interface Decider {
  /**
   * @param id the hash of its namespace and identifier
   * @param startedMs when the whole request was there, by the monotonic clock
   * @param asker by whom it is answered later
   * @returns the decision, overwritten by the next one; undefined where the answer comes later
   */
  decide(
    check: Check,
    id: Identity,
    startedMs: number,
    res: HttpResponse,
    asker: Asker,
  ): TableDecision | undefined;
}

/**
 * Counts a decision that is an answer, each of its aspects once.
 * @param admitted whether its cost was
 * @param outcome one of OUTCOME
 */
export function tally(
  lane: AcceptorLane,
  { row }: Namespace,
  cost: number,
  admitted: boolean,
  outcome: number,
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
