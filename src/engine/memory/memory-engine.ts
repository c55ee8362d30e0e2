/**
 * Decides each check in shared memory, on the acceptor that received it, in the turn of its
 * request.
 *
 * An asynchronous check is decided by its counter as it is; a shard worker makes its deduction
 * later. While there is no room for another deduction, it is decided like any other check. So the
 * tokens allowed beyond a limit are at most those of the deductions that the queues hold.
 */

import type { MessagePort } from 'node:worker_threads';
import type { Check } from '../../core/check.ts';
import { CHECK_DEADLINE_MS, MULTI_LIMIT_MAX } from '../../core/constants.ts';
import {
  DEDUCTION_OUTCOME,
  type Decision,
  newDecision,
  OUTCOME,
  type TableDecision,
} from '../../core/decision.ts';
import { ApiError } from '../../core/errors.ts';
import type { Identity } from '../../core/hash.ts';
import type { Namespace } from '../../core/namespace.ts';
import { hasWindows, RULE, type RuleNumber } from '../../core/window-rules.ts';
import type { Clock } from '../../shared-memory/clock.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../../shared-memory/stats.ts';
import type {
  BatchCompletion,
  BatchDecision,
  ChecksOf,
  Completion,
  CounterExplanation,
  CounterSelector,
  CounterState,
  Engine,
} from '../engine.ts';
import type { WorkQueues } from '../queue/work-queues.ts';
import type { RequestEngine } from '../request-engine.ts';
import type { RequestTable } from '../requests/request-table.ts';
import { shardOf } from '../table/shard.ts';
import { counterState } from '../windows/counter-state.ts';
import type { Counters } from './counters.ts';
import { ENTRY_KIND } from './entry-kinds.ts';
import type { MemoryHolds } from './memory-holds.ts';

/** The queues as this engine uses them. */
type DeferredWork = Pick<WorkQueues, 'hasRoom' | 'enqueue' | 'wait'>;

export class MemoryEngine implements Engine {
  readonly holds: MemoryHolds;
  readonly requests: RequestEngine;
  protected readonly counters: Counters;
  protected readonly clock: Clock;
  protected readonly stats: AcceptorStats;
  readonly #queues: DeferredWork;
  /** Overwritten by each decision, as the interface says. */
  readonly #decision = newDecision();
  readonly #batch: BatchDecision;
  readonly #eachDecisions = Array.from({ length: MULTI_LIMIT_MAX }, newDecision);
  readonly #each: BatchDecision = { allowed: false, decisions: this.#eachDecisions };

  /** @param requests by shard */
  constructor(
    counters: Counters,
    holds: MemoryHolds,
    requests: readonly RequestTable[],
    queues: DeferredWork,
    clock: Clock,
    stats: AcceptorStats,
  ) {
    this.counters = counters;
    this.holds = holds;
    this.#queues = queues;
    this.clock = clock;
    this.stats = stats;
    this.requests = {
      decide: (check, startedMs) => this.decideInPlace(check, clock.wallMs(startedMs)),
      answer: (request, startedMs, decide) => {
        return requests[shardOf(request.key)].answer(request, clock.wallMs(startedMs), () => {
          const answer = decide();
          if (answer instanceof Promise) throw new Error('this engine decides in the same turn');
          return answer;
        });
      },
    };
    const { batch } = counters;
    const decisions = Array.from({ length: MULTI_LIMIT_MAX }, (_, n) => batch.decision(n));
    this.#batch = { allowed: false, decisions };
  }

  decide<C>(
    check: Check,
    startedMs: number,
    _context: C,
    _completion: Completion<C>,
  ): Decision | undefined {
    const nowMs = this.clock.wallMs(startedMs);
    return check.isAsync && check.cost !== 0 && this.#canDefer(check.identity)
      ? this.#decideDeferred(check, nowMs)
      : this.decideInPlace(check, nowMs);
  }

  decideBatch<C>(
    checks: readonly Check[],
    startedMs: number,
    _context: C,
    _completion: BatchCompletion<C>,
  ): BatchDecision | undefined {
    const { batch } = this.counters;
    const result = this.#batch;
    batch.begin();
    for (const check of checks) {
      batch.add(check.identity, check.namespace.hashState[0], check);
    }
    result.allowed = batch.decide(this.clock.wallMs(startedMs));
    for (let number = 0; number < checks.length; number++) {
      this.countOutcome(batch.decision(number).outcome);
    }
    return result;
  }

  decideEach<C>(
    checks: readonly Check[],
    startedMs: number,
    _context: C,
    _completion: BatchCompletion<C>,
    countsDenied: boolean,
  ): BatchDecision | undefined {
    const nowMs = this.clock.wallMs(startedMs);
    const result = this.#each;
    result.allowed = true;
    for (let number = 0; number < checks.length; number++) {
      const check = checks[number];
      const decision = this.decideInPlace(check, nowMs);
      if (!decision.allowed) {
        result.allowed = false;
        if (countsDenied && decision.outcome !== OUTCOME.full) {
          this.#countDenied(check, nowMs, decision);
        }
      }
      Object.assign(this.#eachDecisions[number], decision);
    }
    return result;
  }

  refund(
    identity: Identity,
    rule: RuleNumber,
    durationMs: number,
    window: number,
    cost: number,
    confirm: () => void,
  ): number | Promise<number> {
    return this.#afterDeferredWork(identity, confirm, () => {
      const nowMs = this.clock.nowMs();
      const refunded = this.counters
        .tableOf(identity)
        .refund(identity, rule, durationMs, window, cost, nowMs);
      this.stats.increment(ACCEPTOR_STAT.refunds);
      this.stats.add(ACCEPTOR_STAT.refundedTokens, refunded);
      return refunded;
    });
  }

  reset(
    identity: Identity,
    { durationsMs, rule }: CounterSelector,
    confirm: () => void,
  ): number | Promise<number> {
    return this.#afterDeferredWork(identity, confirm, () => {
      const nowMs = this.clock.nowMs();
      let cleared = 0;
      for (const durationMs of durationsMs ?? [undefined]) {
        const table = this.counters.tableOf(identity);
        cleared += table.reset(identity, nowMs, durationMs, rule, () => {
          this.holds.voidLocked(identity, durationMs, rule);
        });
      }
      this.stats.add(ACCEPTOR_STAT.countersReset, cleared);
      return cleared;
    });
  }

  inspect(
    identity: Identity,
    { durationsMs, rule }: CounterSelector,
    confirm: () => void,
  ): CounterState[] | Promise<CounterState[]> {
    return this.#afterDeferredWork(identity, confirm, () => {
      const nowMs = this.clock.nowMs();
      return (durationsMs ?? [undefined])
        .flatMap((durationMs) =>
          this.counters.tableOf(identity).inspect(identity, nowMs, durationMs, rule),
        )
        .toSorted((a, b) => a.durationMs - b.durationMs)
        .map((counter) => counterState(counter, nowMs));
    });
  }

  explain(
    { hashState }: Namespace,
    identity: Identity,
    checksOf: ChecksOf,
    confirm: () => void,
  ): CounterExplanation | Promise<CounterExplanation> {
    return this.#afterDeferredWork(identity, confirm, () => {
      const table = this.counters.tableOf(identity);
      return table.explain(identity, hashState[0], this.clock.nowMs(), checksOf);
    });
  }

  connectWorker(_worker: number, port: MessagePort): void {
    port.close();
  }

  /** Decides a check by its counter, and counts it there. */
  protected decideInPlace(check: Check, nowMs: number): TableDecision {
    const { identity, namespace } = check;
    const decision = this.#decision;
    const tag = namespace.hashState[0];
    this.counters.tableOf(identity).decide(identity, tag, nowMs, check, true, decision);
    this.countOutcome(decision.outcome);
    return decision;
  }

  /** Counts what a decision did to the table. @param outcome one of OUTCOME */
  protected countOutcome(outcome: number): void {
    if (outcome === OUTCOME.evicted) this.stats.increment(ACCEPTOR_STAT.liveEvictions);
    else if (outcome === OUTCOME.full) this.stats.increment(ACCEPTOR_STAT.fullTableDecisions);
  }

  #canDefer(id: Identity): boolean {
    if (this.#queues.hasRoom(id)) return true;
    this.stats.increment(ACCEPTOR_STAT.queueFull);
    return false;
  }

  #decideDeferred(check: Check, nowMs: number): Decision {
    const { identity, namespace, cost } = check;
    const tag = namespace.hashState[0];
    const decision = this.#decision;
    const table = this.counters.tableOf(identity);
    if (!table.peek(identity, nowMs, check, decision)) {
      table.decide(identity, tag, nowMs, check, false, decision);
    }
    this.countOutcome(decision.outcome);
    if (decision.allowed && decision.outcome !== OUTCOME.full) {
      this.#queues.enqueue(ENTRY_KIND.deduction, identity, tag, check, decision.window);
      this.stats.increment(ACCEPTOR_STAT.deductions);
      this.stats.add(ACCEPTOR_STAT.deductedTokens, cost);
    }
    return decision;
  }

  /** Adds the cost of a denied check to its counter. */
  #countDenied(check: Check, nowMs: number, decision: TableDecision): void {
    const { identity, namespace, limit, durationMs, rule } = check;
    if (limit === 0) return;
    const isBucket = !hasWindows(rule);
    // A bucket stays empty for about a duration at most, whatever its client asks for.
    if (isBucket && decision.reset - nowMs >= durationMs) return;
    const cost = isBucket ? Math.min(check.cost, limit) : check.cost;
    const tag = namespace.hashState[0];
    const table = this.counters.tableOf(identity);
    const counted = { limit, durationMs, cost, rule, burst: check.burst };
    const outcome = table.deduct(identity, tag, nowMs, decision.window, counted);
    if (outcome === DEDUCTION_OUTCOME.full) this.countOutcome(OUTCOME.full);
    else if (outcome === DEDUCTION_OUTCOME.evicted) this.countOutcome(OUTCOME.evicted);
    if (outcome !== DEDUCTION_OUTCOME.applied && outcome !== DEDUCTION_OUTCOME.evicted) return;
    if (rule === RULE.fixed) return;
    // Denied again, by now, with the times of a counter that holds more.
    table.decide(identity, tag, nowMs, check, true, decision);
    decision.remaining = 0;
  }

  #afterDeferredWork<T>(id: Identity, confirm: () => void, act: () => T): T | Promise<T> {
    const waiting = this.#queues.wait(id);
    if (waiting === undefined) return act();
    return waiting.then((isDone) => {
      confirm();
      if (isDone) return act();
      const message =
        `a shard worker did not finish earlier checks within ${CHECK_DEADLINE_MS} ms;` +
        ' nothing was changed';
      throw new ApiError('SERVICE_UNAVAILABLE', message);
    });
  }
}
