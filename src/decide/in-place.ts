/**
 * Decides in the request's own turn, in the shard's shared memory: no hop, nothing pending.
 *
 * An `async: true` check is judged by its counter as it stands; its deduction goes to the shard's
 * worker over the ring. Where the ring is full it is decided like any other, so that more than the
 * limit is admitted by no more than the rings hold: RING_ENTRIES of each acceptor.
 */

import type { Counters } from '../counters/counters.ts';
import { OUTCOME, type TableDecision } from '../counters/decision.ts';
import type { Identity } from '../counters/hash.ts';
import { type AcceptorLane, COUNT } from '../lanes.ts';
import type { Handoff } from '../shards/handoff.ts';
import { KIND } from '../shards/layout.ts';
import { shardOf, workerOf } from '../shards/shard.ts';
import type { Clock } from '../time.ts';
import { type Check, type Decider, tally } from './decider.ts';

export class InPlace implements Decider {
  readonly #counters: Counters;
  readonly #handoffs: readonly Handoff[];
  readonly #clock: Clock;
  readonly #lane: AcceptorLane;

  /** @param handoffs one for each shard worker */
  constructor(counters: Counters, handoffs: readonly Handoff[], clock: Clock, lane: AcceptorLane) {
    this.#counters = counters;
    this.#handoffs = handoffs;
    this.#clock = clock;
    this.#lane = lane;
  }

  decide(check: Check, id: Identity, startedMs: number): TableDecision {
    const { namespace, cost } = check;
    const tag = namespace.state[0];
    const nowMs = this.#clock.wallMs(startedMs);
    const handoff = check.isAsync && cost !== 0 ? this.#handoffFor(id) : undefined;
    const decision =
      handoff === undefined
        ? this.#counters.decide(id, tag, nowMs, check)
        : this.#counters.look(id, tag, nowMs, check);
    tally(this.#lane, namespace, cost, decision.admitted, decision.outcome);
    if (handoff !== undefined && decision.admitted && decision.outcome !== OUTCOME.full) {
      handoff.put(KIND.deduction, id, tag, decision.window, check);
      handoff.ring();
      this.#lane.count(COUNT.deductions);
      this.#lane.add(COUNT.deductedTokens, cost);
    }
    return decision;
  }

  #handoffFor(id: Identity): Handoff | undefined {
    const handoff = this.#handoffs[workerOf(shardOf(id), this.#handoffs.length)];
    if (handoff.hasRoom()) return handoff;
    this.#lane.count(COUNT.ringFull);
    return undefined;
  }
}
