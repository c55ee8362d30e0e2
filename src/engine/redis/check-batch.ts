/**
 * Several checks of one request, of which some wait for the shard worker, in the order in which
 * each is judged. They are done when every one has its decision.
 *
 * Allowed checks of an all-or-nothing batch hold tokens until all are done: reserved in the lease
 * table, or counted there without Redis. A GCRA check is counted in Redis at once.
 */

import { type Check, copyCheck } from '../../core/check.ts';
import { NEVER, newDecision, OUTCOME, type TableDecision } from '../../core/decision.ts';
import { hasWindows } from '../../core/window-rules.ts';
import type { BatchCompletion, BatchDecision } from '../engine.ts';
import { refillMs } from '../windows/gcra.ts';
import { counterKey } from '../windows/registry.ts';

/** What a check holds. */
export const HOLDS = { nothing: 0, reserved: 1, local: 2 } as const;

export class BatchItem {
  readonly batch: CheckBatch;
  readonly number: number;
  readonly check: Check;
  readonly decision: TableDecision = newDecision();
  /** One of HOLDS. */
  holds: number = HOLDS.nothing;
  /** Whether it was decided without Redis. */
  isWithoutRedis = false;
  #isCountedLocally = false;

  constructor(batch: CheckBatch, number: number, check: Check) {
    this.batch = batch;
    this.number = number;
    this.check = copyCheck(check);
  }

  /** @param isCounted whether its cost is counted in the lease table */
  setWithoutRedis(isCounted: boolean): void {
    this.isWithoutRedis = true;
    this.#isCountedLocally = isCounted;
  }

  /** Takes its decision, of Redis or without Redis. */
  setDecision(decision: TableDecision): void {
    Object.assign(this.decision, decision);
    const { allowed, outcome } = decision;
    if (!allowed || this.check.cost === 0 || outcome === OUTCOME.full) return;
    if (!this.isWithoutRedis) this.holds = HOLDS.reserved;
    else if (this.#isCountedLocally) this.holds = HOLDS.local;
  }
}

export class CheckBatch {
  readonly startedMs: number;
  readonly items: readonly BatchItem[];
  /** Checks without a decision. */
  pendingCount = 0;
  /** Why a check failed, where one has. */
  failure: { error: unknown } | undefined;
  readonly #context: unknown;
  readonly #completion: BatchCompletion<unknown>;

  constructor(
    checks: readonly Check[],
    startedMs: number,
    context: unknown,
    completion: BatchCompletion<unknown>,
  ) {
    this.items = checks.map((check, number) => new BatchItem(this, number, check));
    this.startedMs = startedMs;
    this.#context = context;
    this.#completion = completion;
  }

  decision(): BatchDecision {
    const decisions = this.items.map(({ decision }) => decision);
    return { allowed: decisions.every(({ allowed }) => allowed), decisions };
  }

  complete(): void {
    if (this.failure !== undefined) this.#completion.fail(this.#context, this.failure.error);
    else {
      const checks = this.items.map(({ check }) => check);
      this.#completion.complete(this.#context, this.startedMs, checks, this.decision());
    }
  }
}

/** Whether two checks count in the same counter. */
export function isSameCounter(a: Check, b: Check): boolean {
  const { h0, h1, h2, h3 } = a.identity;
  const { identity } = b;
  if (h3 !== identity.h3 || h0 !== identity.h0) return false;
  if (h1 !== identity.h1 || h2 !== identity.h2) return false;
  return counterKey(a.rule, a.durationMs) === counterKey(b.rule, b.durationMs);
}

/** The tokens of the allowed checks up to `end` that count in the counter of `check`. */
export function allowedTokens(
  checks: readonly Check[],
  decisions: readonly TableDecision[],
  check: Check,
  end: number,
): number {
  let tokens = 0;
  for (let number = 0; number < end; number++) {
    if (!decisions[number].allowed) continue;
    if (isSameCounter(checks[number], check)) tokens += checks[number].cost;
  }
  return tokens;
}

/**
 * Makes the decisions on allowed checks what they were before the batch, whose tokens are returned.
 * The decision on a denied check stays: it is judged after the checks before it, and never passes
 * if its cost and theirs are above the limit together.
 */
export function restoreUnchanged(
  checks: readonly Check[],
  decisions: readonly TableDecision[],
): void {
  for (const [number, check] of checks.entries()) {
    const decision = decisions[number];
    const { rule, limit, burst, cost } = check;
    const tokens = allowedTokens(checks, decisions, check, number + 1);
    if (!decision.allowed) {
      if (tokens > 0 && tokens + cost > Math.min(burst, limit)) decision.passesAt = NEVER;
      continue;
    }
    decision.remaining += tokens;
    if (!hasWindows(rule)) decision.reset -= refillMs(tokens, check);
  }
}
