/**
 * Executes the entries from one acceptor in a shard worker. Each entry is claimed, executed and
 * finished before the next, so a worker that dies leaves at most one claimed entry.
 */

import { DEDUCTION_OUTCOME, newDecision } from '../../../core/decision.ts';
import type { Identity } from '../../../core/hash.ts';
import type { Clock } from '../../../shared-memory/clock.ts';
import { WORKER_STAT, type WorkerStats } from '../../../shared-memory/stats.ts';
import type { CheckQueueConsumer, QueueEntry } from '../../queue/check-queue-consumer.ts';
import { ENTRY_KIND } from '../entry-kinds.ts';
import type { CounterTable } from '../table.ts';

export class EntryProcessor {
  readonly #queue: CheckQueueConsumer;
  readonly #tableOf: (id: Identity) => CounterTable;
  readonly #clock: Clock;
  readonly #stats: WorkerStats;
  readonly #process = (entry: QueueEntry) => this.#processEntry(entry);
  readonly #decision = newDecision();
  #nowMs = 0;

  constructor(
    queue: CheckQueueConsumer,
    tableOf: (id: Identity) => CounterTable,
    clock: Clock,
    stats: WorkerStats,
  ) {
    this.#queue = queue;
    this.#tableOf = tableOf;
    this.#clock = clock;
    this.#stats = stats;
  }

  hasEntries(): boolean {
    return this.#queue.hasNew();
  }

  /** Does at most `maxCount` entries, at one reading of the clock. @returns how many */
  processEntries(maxCount: number): number {
    if (!this.#queue.hasNew()) return 0;
    this.#nowMs = this.#clock.nowMs();
    const done = this.#queue.readNew(maxCount, this.#process);
    this.#queue.flush();
    return done;
  }

  #processEntry(entry: QueueEntry): void {
    if (!this.#queue.claim(entry.number)) return;
    if (entry.kind === ENTRY_KIND.deduction) this.#deduct(entry);
    else if (entry.kind === ENTRY_KIND.check) this.#decide(entry);
    else throw this.#queue.entryError(entry.number, `the unknown kind ${entry.kind}`);
  }

  #deduct({ number, identity, namespaceTag, parameters }: QueueEntry): void {
    const { cost, burst: window } = parameters;
    const table = this.#tableOf(identity);
    const outcome = table.deduct(identity, namespaceTag, this.#nowMs, window, parameters);
    if (outcome === DEDUCTION_OUTCOME.windowEnded) {
      this.#stats.add(WORKER_STAT.deductionsWindowEnded, 1);
      this.#stats.add(WORKER_STAT.deductionTokensWindowEnded, cost);
    } else if (outcome === DEDUCTION_OUTCOME.full) {
      this.#stats.add(WORKER_STAT.deductionsFull, 1);
      this.#stats.add(WORKER_STAT.deductionTokensFull, cost);
    } else {
      this.#stats.add(WORKER_STAT.deductionsApplied, 1);
      this.#stats.add(WORKER_STAT.deductionTokensApplied, cost);
      if (outcome === DEDUCTION_OUTCOME.evicted) this.#stats.add(WORKER_STAT.liveEvictions, 1);
    }
    this.#queue.finish(number);
  }

  #decide({ number, identity, namespaceTag, parameters }: QueueEntry): void {
    const decision = this.#decision;
    const table = this.#tableOf(identity);
    table.decide(identity, namespaceTag, this.#nowMs, parameters, true, decision);
    this.#stats.add(WORKER_STAT.decisions, 1);
    this.#queue.reply(number, decision);
  }
}
