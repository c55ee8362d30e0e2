/**
 * Decides lists of checks: all or nothing, or each for itself. Where the lease tables suffice, a
 * list is decided in the turn of its request. Else the other checks are sent to their workers at
 * the same time.
 *
 * An all-or-nothing batch reserves what the leases have, and has its workers reserve the rest. When
 * all checks are allowed, the reservations are committed; else they become leases again, and GCRA
 * checks are refunded. No lock is held meanwhile: other checks do not see tokens of a batch that is
 * denied later, for WEIR_REDIS_TIMEOUT_MS at most. A batch in which a check is denied in place
 * reserves nothing: of the other checks it reads what remains.
 */

import type { Check } from '../../core/check.ts';
import { MULTI_LIMIT_MAX } from '../../core/constants.ts';
import {
  type Decision,
  NEVER,
  newDecision,
  OUTCOME,
  type TableDecision,
} from '../../core/decision.ts';
import { carriesOver, hasWindows, RULE } from '../../core/window-rules.ts';
import type { BatchCompletion, BatchDecision, Completion } from '../engine.ts';
import { counterKey, passesAtInWindow } from '../windows/registry.ts';
import { windowEndingAt } from '../windows/window.ts';
import {
  allowedTokens,
  type BatchItem,
  CheckBatch,
  HOLDS,
  isSameCounter,
  restoreUnchanged,
} from './check-batch.ts';
import { ENTRY_KIND } from './entry-kinds.ts';
import { VERDICT } from './lease-table.ts';
import type { TokenQueue } from './token-queue.ts';

export class Batches {
  readonly #queue: TokenQueue;
  readonly #usesLeases: boolean;
  readonly #refundGcra: (check: Check) => void;
  /** By the number of a check: its decision, and 1 where the lease table does not suffice. */
  readonly #decisions = Array.from({ length: MULTI_LIMIT_MAX }, newDecision);
  readonly #isMissing = new Uint8Array(MULTI_LIMIT_MAX);
  readonly #result: BatchDecision = { allowed: false, decisions: this.#decisions };
  readonly #reserveCompletion: ItemCompletion;
  readonly #readCompletion: ItemCompletion;
  readonly #eachCompletion: ItemCompletion;
  readonly #eachCountedCompletion: ItemCompletion;

  /**
   * @param usesLeases whether checks are decided from leases
   * @param refundGcra returns the tokens of an allowed GCRA check to Redis
   */
  constructor(queue: TokenQueue, usesLeases: boolean, refundGcra: (check: Check) => void) {
    this.#queue = queue;
    this.#usesLeases = usesLeases;
    this.#refundGcra = refundGcra;
    const commitOrReturn = ({ items, failure }: CheckBatch) => {
      this.#commitOrReturn(items, failure !== undefined);
    };
    const take = (item: BatchItem, decision: TableDecision) => item.setDecision(decision);
    this.#reserveCompletion = new ItemCompletion(take, commitOrReturn);
    this.#readCompletion = new ItemCompletion(judgeUnreserved);
    this.#eachCompletion = new ItemCompletion(take);
    this.#eachCountedCompletion = new ItemCompletion((item, decision) => {
      item.setDecision(decision);
      this.#countDenied(item);
    });
  }

  decideBatch<C>(
    checks: readonly Check[],
    startedMs: number,
    context: C,
    completion: BatchCompletion<C>,
  ): BatchDecision | undefined {
    const decisions = this.#decisions;
    let missing = 0;
    let isDenied = false;
    for (let number = 0; number < checks.length; number++) {
      const decision = decisions[number];
      const isMissing = !this.#canReserve(checks, number, missing, startedMs, decision);
      this.#isMissing[number] = isMissing ? 1 : 0;
      if (isMissing) missing++;
      else if (!decision.allowed) isDenied = true;
    }
    if (missing === 0) {
      for (let number = 0; number < checks.length; number++) {
        const holds = decisions[number].allowed ? HOLDS.reserved : HOLDS.nothing;
        this.#release(checks[number], decisions[number], holds, !isDenied);
      }
      if (isDenied) restoreUnchanged(checks, decisions);
      this.#result.allowed = !isDenied;
      return this.#result;
    }
    const batch = new CheckBatch(
      checks,
      startedMs,
      context,
      completion as BatchCompletion<unknown>,
    );
    for (const item of batch.items) {
      if (this.#isMissing[item.number] === 0) item.setDecision(decisions[item.number]);
    }
    if (isDenied) {
      this.#commitOrReturn(batch.items, true);
      this.#readMissing(batch);
    } else {
      for (const item of batch.items) {
        if (this.#isMissing[item.number] === 0) continue;
        this.#request(item, ENTRY_KIND.reserve, item.check, this.#reserveCompletion);
      }
    }
    if (batch.pendingCount > 0) return undefined;
    if (!isDenied) this.#commitOrReturn(batch.items, false);
    return batch.decision();
  }

  decideEach<C>(
    checks: readonly Check[],
    startedMs: number,
    context: C,
    completion: BatchCompletion<C>,
    countsDenied: boolean,
  ): BatchDecision | undefined {
    const decisions = this.#decisions;
    let missing = 0;
    let isAllowed = true;
    for (let number = 0; number < checks.length; number++) {
      const decision = decisions[number];
      const isMissing = !this.#canDecide(
        checks,
        number,
        missing,
        startedMs,
        decision,
        countsDenied,
      );
      this.#isMissing[number] = isMissing ? 1 : 0;
      if (isMissing) missing++;
      else if (!decision.allowed) isAllowed = false;
    }
    if (missing === 0) {
      this.#result.allowed = isAllowed;
      return this.#result;
    }
    const batch = new CheckBatch(
      checks,
      startedMs,
      context,
      completion as BatchCompletion<unknown>,
    );
    const kind = countsDenied ? ENTRY_KIND.countedTokens : ENTRY_KIND.tokens;
    const itemCompletion = countsDenied ? this.#eachCountedCompletion : this.#eachCompletion;
    for (const item of batch.items) {
      if (this.#isMissing[item.number] === 0) item.setDecision(decisions[item.number]);
      else this.#request(item, kind, item.check, itemCompletion);
    }
    return batch.pendingCount > 0 ? undefined : batch.decision();
  }

  /** Decides a check of a batch, and reserves its tokens. @returns false: Redis has to */
  #canReserve(
    checks: readonly Check[],
    number: number,
    missing: number,
    startedMs: number,
    decision: TableDecision,
  ): boolean {
    const check = checks[number];
    if (!this.#usesLeases || this.#followsMissing(checks, number, missing)) return false;
    const verdict = this.#queue
      .tableOf(check.identity)
      .reserve(check.identity, startedMs, check, decision);
    if (verdict === VERDICT.decidedPrefetch) this.#queue.request(ENTRY_KIND.prefetch, check);
    else if (verdict === VERDICT.decided) this.#queue.countOutcome(decision.outcome);
    return verdict === VERDICT.decided || verdict === VERDICT.decidedPrefetch;
  }

  /** Decides a check for itself. @returns false: Redis has to */
  #canDecide(
    checks: readonly Check[],
    number: number,
    missing: number,
    startedMs: number,
    decision: TableDecision,
    countsDenied: boolean,
  ): boolean {
    const check = checks[number];
    const { identity } = check;
    if (!this.#usesLeases || this.#followsMissing(checks, number, missing)) return false;
    const table = this.#queue.tableOf(identity);
    const verdict = table.decide(identity, startedMs, check, decision);
    if (verdict === VERDICT.decidedPrefetch) this.#queue.request(ENTRY_KIND.prefetch, check);
    else if (verdict !== VERDICT.decided) return false;
    this.#queue.countOutcome(decision.outcome);
    if (decision.allowed || !countsDenied || check.limit === 0) return true;
    if (!table.countDenied(identity, startedMs, check)) return false;
    if (check.rule !== RULE.fixed) decision.remaining = 0;
    return true;
  }

  /** Whether a check of the same counter before it waits for Redis, which has to decide first. */
  #followsMissing(checks: readonly Check[], number: number, missing: number): boolean {
    if (missing === 0) return false;
    for (let earlier = 0; earlier < number; earlier++) {
      if (this.#isMissing[earlier] === 0) continue;
      if (isSameCounter(checks[earlier], checks[number])) return true;
    }
    return false;
  }

  /** Has a check decided by its worker, or without Redis where it cannot wait. */
  #request(item: BatchItem, kind: number, check: Check, completion: ItemCompletion): void {
    const { batch } = item;
    if (this.#queue.enqueue(kind, check, batch.startedMs, item, completion)) {
      batch.pendingCount++;
      return;
    }
    const decision = newDecision();
    item.setWithoutRedis(this.#queue.decideWithoutRedis(check, batch.startedMs, decision));
    completion.take(item, decision);
  }

  /** The batch is denied: reads what remains of counters that the lease tables did not show. */
  #readMissing({ items, startedMs }: CheckBatch): void {
    for (const item of items) {
      if (this.#isMissing[item.number] === 0) continue;
      const { identity } = item.check;
      const check = { ...item.check, cost: 0 };
      const decision = newDecision();
      const verdict = this.#usesLeases
        ? this.#queue.tableOf(identity).decide(identity, startedMs, check, decision)
        : VERDICT.needsTokens;
      if (verdict === VERDICT.decided) judgeUnreserved(item, decision);
      else this.#request(item, ENTRY_KIND.tokens, check, this.#readCompletion);
    }
  }

  /** Counts the cost of a denied check, unless its worker has counted it. */
  #countDenied({ check, decision, isWithoutRedis, batch }: BatchItem): void {
    if (decision.allowed || check.limit === 0 || decision.outcome === OUTCOME.full) return;
    if (isWithoutRedis) {
      const table = this.#queue.tableOf(check.identity);
      if (!table.countDenied(check.identity, batch.startedMs, check)) return;
    }
    if (check.rule !== RULE.fixed) decision.remaining = 0;
  }

  /** Commits what the checks of a batch hold, if all are allowed; else returns it. */
  #commitOrReturn(items: readonly BatchItem[], isDenied: boolean): void {
    const isCommitted = !isDenied && items.every(({ decision }) => decision.allowed);
    for (const item of items) {
      this.#release(item.check, item.decision, item.holds, isCommitted);
      item.holds = HOLDS.nothing;
    }
    if (isCommitted) return;
    const checks = items.map(({ check }) => check);
    const decisions = items.map(({ decision }) => decision);
    restoreUnchanged(checks, decisions);
  }

  /** @param holds one of HOLDS. @param isCommitted whether the tokens are counted, or returned */
  #release(check: Check, decision: TableDecision, holds: number, isCommitted: boolean): void {
    const { identity, rule, durationMs, cost } = check;
    if (holds === HOLDS.nothing || cost === 0) return;
    const table = this.#queue.tableOf(identity);
    const key = counterKey(rule, durationMs);
    const window = hasWindows(rule) ? windowEndingAt(decision.reset, durationMs) : decision.window;
    if (holds === HOLDS.local) {
      if (!isCommitted) this.#queue.refundWithoutRedis(check, { window });
    } else if (!hasWindows(rule)) {
      if (!isCommitted) this.#refundGcra(check);
    } else if (isCommitted) table.commit(identity, key, window, cost);
    else table.abort(identity, key, window, cost);
  }
}

/** Takes the decisions of the checks that wait, and completes their batch after the last one. */
class ItemCompletion implements Completion<BatchItem> {
  readonly take: (item: BatchItem, decision: TableDecision) => void;
  readonly #onDone: (batch: CheckBatch) => void;

  /** @param onDone called when all checks of the batch are done */
  constructor(
    take: (item: BatchItem, decision: TableDecision) => void,
    onDone: (batch: CheckBatch) => void = () => {},
  ) {
    this.take = take;
    this.#onDone = onDone;
  }

  complete(item: BatchItem, _startedMs: number, _check: Check, decision: Decision): void {
    this.take(item, { outcome: OUTCOME.decided, ...decision });
    this.#finish(item.batch);
  }

  fail({ batch }: BatchItem, error: unknown): void {
    batch.failure ??= { error };
    this.#finish(batch);
  }

  #finish(batch: CheckBatch): void {
    batch.pendingCount--;
    if (batch.pendingCount > 0) return;
    this.#onDone(batch);
    batch.complete();
  }
}

/** Judges a check that reserves nothing by what remains of its counter, under its own limit. */
function judgeUnreserved(item: BatchItem, { remaining, reset, window }: TableDecision): void {
  const { check, decision, number } = item;
  const { items } = item.batch;
  const checks = items.map(({ check }) => check);
  const decisions = items.map(({ decision }) => decision);
  const left = remaining - allowedTokens(checks, decisions, check, number);
  decision.allowed = check.cost === 0 || check.cost <= left;
  const leftOfDenied = carriesOver(check.rule) ? 0 : Math.max(0, left);
  decision.remaining = decision.allowed ? remaining : leftOfDenied;
  decision.reset = reset;
  decision.window = window;
  decision.passesAt = decision.allowed ? 0 : latestPass(check, left, reset);
  decision.outcome = OUTCOME.decided;
}

/**
 * When a denied check passes at the latest, if no other is counted.
 * @param left tokens that remain; how many of the others are carried over is unknown, so none are
 */
function latestPass(check: Check, left: number, reset: number): number {
  const { rule, limit, burst, cost } = check;
  if (hasWindows(rule)) return passesAtInWindow(limit - left, 0, check, reset);
  return cost > Math.min(burst, limit) ? NEVER : reset;
}
