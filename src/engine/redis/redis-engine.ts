/**
 * The engine of an acceptor whose machine shares its counters with others through Redis. A check is
 * decided in the lease table of its shard, in the turn of its request, where a lease or what is
 * known of the counter suffices. Any other check waits for its shard worker, which gets tokens from
 * Redis: see `token-queue.ts`. Lists of checks are in `batches.ts`.
 *
 * A check is counted once, except one that a worker was replying to when it died. A correction
 * that is not done in time fails with a 503, which says whether it may have been done.
 */

import type { MessagePort } from 'node:worker_threads';
import type { Check } from '../../core/check.ts';
import { CHECK_DEADLINE_MS } from '../../core/constants.ts';
import { type Decision, newDecision } from '../../core/decision.ts';
import { ApiError } from '../../core/errors.ts';
import type { Identity } from '../../core/hash.ts';
import type { Namespace } from '../../core/namespace.ts';
import { hasWindows, RULE, type RuleNumber } from '../../core/window-rules.ts';
import { ACCEPTOR_STAT } from '../../shared-memory/stats.ts';
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
import type { HoldEngine, HoldPolicies } from '../hold-engine.ts';
import type { RequestEngine } from '../request-engine.ts';
import { counterState, type InspectedCounter, inspectCells } from '../windows/counter-state.ts';
import { explainCounters } from '../windows/prediction.ts';
import { counterKey, isExpired } from '../windows/registry.ts';
import { Batches } from './batches.ts';
import { ENTRY_KIND } from './entry-kinds.ts';
import { VERDICT } from './lease-table.ts';
import type { CounterAction, ResultOf, WorkerResponse } from './port-messages.ts';
import { RedisHolds } from './redis-holds.ts';
import { RedisRequests } from './redis-requests.ts';
import type { StoredCounter } from './scripts/protocol.ts';
import type { RequestCall } from './scripts/requests.ts';
import { TokenQueue, type TokenQueueParts } from './token-queue.ts';
import { WorkerRequests } from './worker-requests.ts';

const ALL_COUNTERS: CounterSelector = { durationsMs: undefined, rule: undefined };

export class RedisEngine implements Engine {
  readonly holds: HoldEngine;
  readonly requests: RequestEngine;
  readonly #parts: TokenQueueParts;
  readonly #usesLeases: boolean;
  readonly #queue: TokenQueue;
  readonly #batches: Batches;
  readonly #workerRequests: WorkerRequests;
  /** Overwritten by each decision, as the interface says. */
  readonly #decision = newDecision();

  /** @param usesLeases whether checks are decided from leases; else each is a round trip */
  constructor(parts: TokenQueueParts, usesLeases: boolean, holdPolicies: HoldPolicies) {
    this.#parts = parts;
    this.#usesLeases = usesLeases;
    this.#queue = new TokenQueue(parts);
    const { queues, state, stats, clock } = parts;
    const workerRequests = new WorkerRequests(queues.producers.length);
    this.#workerRequests = workerRequests;
    const shared = { engine: this, requests: workerRequests };
    this.holds = new RedisHolds({ ...shared, state, stats, policies: holdPolicies });
    const send = async (call: RequestCall) => {
      const worker = queues.workerFor(call.request.key);
      return (await workerRequests.send(worker, { kind: 'request', call })).answer;
    };
    this.requests = new RedisRequests(this, send, clock);
    this.#batches = new Batches(this.#queue, usesLeases, (check) => this.#refundGcra(check));
  }

  connectWorker(worker: number, port: MessagePort): void {
    this.#queue.pending.connectWorker(worker, port, (message) => {
      this.#workerRequests.receive(message as WorkerResponse);
    });
    this.#workerRequests.connect(worker, port);
  }

  decide<C>(
    check: Check,
    startedMs: number,
    context: C,
    completion: Completion<C>,
  ): Decision | undefined {
    const { identity, isAsync, cost } = check;
    const decision = this.#decision;
    const table = this.#queue.tableOf(identity);
    let verdict: number = VERDICT.needsTokens;
    if (isAsync && cost !== 0) verdict = table.decideAsync(identity, startedMs, check, decision);
    else if (this.#usesLeases) verdict = table.decide(identity, startedMs, check, decision);
    if (verdict === VERDICT.decided) {
      if (!decision.allowed) this.#queue.countOutcome(decision.outcome);
      return decision;
    }
    if (verdict === VERDICT.needsTokens) {
      return this.#decideLater(check, startedMs, context, completion);
    }
    const isReport = verdict === VERDICT.decidedReport;
    this.#queue.request(isReport ? ENTRY_KIND.report : ENTRY_KIND.prefetch, check);
    return decision;
  }

  decideBatch<C>(
    checks: readonly Check[],
    startedMs: number,
    context: C,
    completion: BatchCompletion<C>,
  ): BatchDecision | undefined {
    return this.#batches.decideBatch(checks, startedMs, context, completion);
  }

  decideEach<C>(
    checks: readonly Check[],
    startedMs: number,
    context: C,
    completion: BatchCompletion<C>,
    countsDenied: boolean,
  ): BatchDecision | undefined {
    return this.#batches.decideEach(checks, startedMs, context, completion, countsDenied);
  }

  async refund(
    identity: Identity,
    rule: RuleNumber,
    durationMs: number,
    window: number,
    cost: number,
    confirm: () => void,
  ): Promise<number> {
    const { stats } = this.#parts;
    const action = { kind: 'refund', identity, rule, durationMs, window, cost } as const;
    const { refunded } = await this.#afterQueuedChecks(confirm, action);
    stats.increment(ACCEPTOR_STAT.refunds);
    stats.add(ACCEPTOR_STAT.refundedTokens, refunded);
    return refunded;
  }

  async reset(identity: Identity, selector: CounterSelector, confirm: () => void): Promise<number> {
    const action = { kind: 'reset', identity, selector } as const;
    const { cleared } = await this.#afterQueuedChecks(confirm, action);
    this.#parts.stats.add(ACCEPTOR_STAT.countersReset, cleared);
    return cleared;
  }

  async inspect(
    identity: Identity,
    selector: CounterSelector,
    confirm: () => void,
  ): Promise<CounterState[]> {
    const { counters, nowMs } = await this.#readCounters(identity, selector, confirm);
    return counters
      .toSorted((a, b) => a.durationMs - b.durationMs)
      .map((counter) => counterState(counter, nowMs));
  }

  /** Redis has a slot for every counter, so the prediction asks for none. */
  async explain(
    _namespace: Namespace,
    identity: Identity,
    checksOf: ChecksOf,
    confirm: () => void,
  ): Promise<CounterExplanation> {
    const { counters, nowMs } = await this.#readCounters(identity, ALL_COUNTERS, confirm);
    return { ...explainCounters(counters, nowMs, checksOf, () => {}), isExact: false };
  }

  #decideLater<C>(
    check: Check,
    startedMs: number,
    context: C,
    completion: Completion<C>,
  ): Decision | undefined {
    const { isAsync, cost, rule } = check;
    // The bucket of a GCRA check is in Redis alone: an asynchronous one waits too.
    const isNew = isAsync && cost !== 0 && hasWindows(rule);
    const kind = isNew ? ENTRY_KIND.asyncNew : ENTRY_KIND.tokens;
    if (this.#queue.enqueue(kind, check, startedMs, context, completion)) return undefined;
    this.#queue.decideWithoutRedis(check, startedMs, this.#decision);
    return this.#decision;
  }

  /** The live counters of an identity in Redis, at the time of Redis. */
  async #readCounters(
    identity: Identity,
    selector: CounterSelector,
    confirm: () => void,
  ): Promise<{ counters: InspectedCounter[]; nowMs: number }> {
    const action = { kind: 'inspect', identity, selector } as const;
    const { counters, nowMs } = await this.#afterQueuedChecks(confirm, action);
    const live = counters.filter((counter) => !isExpired(keyOf(counter), counter.newest, nowMs));
    return { counters: live.map((counter) => inspectStored(counter, nowMs)), nowMs };
  }

  /** Has a worker act, after the checks that are in the queues to it. */
  async #afterQueuedChecks<Action extends CounterAction>(
    confirm: () => void,
    action: Action,
  ): Promise<ResultOf<Action['kind']>> {
    const { queues } = this.#parts;
    const { h0, h1, h2, h3 } = action.identity;
    const identity = { h0, h1, h2, h3 };
    const waiting = queues.wait(identity);
    if (waiting !== undefined) {
      const isDone = await waiting;
      confirm();
      if (!isDone) {
        const message =
          `a shard worker did not finish earlier checks within ${CHECK_DEADLINE_MS} ms;` +
          ' nothing was changed';
        throw new ApiError('SERVICE_UNAVAILABLE', message);
      }
    }
    return this.#workerRequests.send(queues.workerFor(identity), { ...action, identity });
  }

  /** Returns the tokens of a GCRA check whose batch is denied. If it fails, they stay counted. */
  #refundGcra({ identity, rule, durationMs, cost }: Check): void {
    const action = { kind: 'refund', identity, rule, durationMs, window: 0, cost } as const;
    const worker = this.#parts.queues.workerFor(identity);
    this.#workerRequests.send(worker, action).catch(() => {});
  }
}

function keyOf({ isGcra, durationMs }: StoredCounter): number {
  return counterKey(isGcra ? RULE.gcra : RULE.fixed, durationMs);
}

function inspectStored(counter: StoredCounter, nowMs: number): InspectedCounter {
  const { isGcra, durationMs, limit, newest, current, previous } = counter;
  const cells = { newest, current, previous, limit };
  return inspectCells(isGcra ? RULE.gcra : RULE.fixed, durationMs, cells, nowMs);
}
