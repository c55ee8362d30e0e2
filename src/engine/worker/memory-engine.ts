/**
 * Decides in the request's own turn, in the shard's shared memory: no hop, nothing pending.
 *
 * An `async: true` check is judged by its counter as it stands; its deduction goes to the shard's
 * worker over the ring. Where the ring is full it is decided like any other, so that more than the
 * limit is admitted by no more than the rings hold: RING_ENTRIES of each acceptor.
 */

import type { Check } from '../../core/check.ts';
import { OUTCOME, type TableDecision } from '../../core/decision.ts';
import type { Identity } from '../../core/hash.ts';
import type { Clock } from '../../shared-memory/clock.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../../shared-memory/stats.ts';
import { countDecision, type Engine } from '../engine.ts';
import type { Counters } from '../memory/counters.ts';
import { shardOf, workerOf } from '../memory/shard.ts';
import type { CheckQueueProducer } from './check-queue-producer.ts';
import { ENTRY_KIND } from './layout.ts';

export class MemoryEngine implements Engine<unknown> {
  readonly #counters: Counters;
  readonly #producers: readonly CheckQueueProducer[];
  readonly #clock: Clock;
  readonly #stats: AcceptorStats;

  /** @param producers one for each shard worker */
  constructor(
    counters: Counters,
    producers: readonly CheckQueueProducer[],
    clock: Clock,
    stats: AcceptorStats,
  ) {
    this.#counters = counters;
    this.#producers = producers;
    this.#clock = clock;
    this.#stats = stats;
  }

  decide(check: Check, id: Identity, startedMs: number): TableDecision {
    const { namespace, cost } = check;
    const tag = namespace.hashState[0];
    const nowMs = this.#clock.wallMs(startedMs);
    const handoff = check.isAsync && cost !== 0 ? this.#producerFor(id) : undefined;
    const decision =
      handoff === undefined
        ? this.#counters.decide(id, tag, nowMs, check)
        : this.#counters.peek(id, tag, nowMs, check);
    countDecision(this.#stats, namespace, cost, decision.allowed, decision.outcome);
    if (handoff !== undefined && decision.allowed && decision.outcome !== OUTCOME.full) {
      handoff.enqueue(ENTRY_KIND.deduction, id, tag, decision.window, check);
      handoff.wakeWorker();
      this.#stats.increment(ACCEPTOR_STAT.deductions);
      this.#stats.add(ACCEPTOR_STAT.deductedTokens, cost);
    }
    return decision;
  }

  #producerFor(id: Identity): CheckQueueProducer | undefined {
    const handoff = this.#producers[workerOf(shardOf(id), this.#producers.length)];
    if (handoff.hasRoom()) return handoff;
    this.#stats.increment(ACCEPTOR_STAT.queueFull);
    return undefined;
  }
}
