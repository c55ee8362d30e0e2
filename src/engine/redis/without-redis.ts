/**
 * Decides checks that Redis did not decide in time, as WEIR_ON_ENGINE_DOWN says. Each of them is
 * counted in the statistics of the acceptor. A local decision counts the cost in the lease table,
 * and it is reported when Redis answers again.
 */

import type { Check } from '../../core/check.ts';
import { type FullTablePolicy, NEVER, OUTCOME, type TableDecision } from '../../core/decision.ts';
import { hasWindows } from '../../core/window-rules.ts';
import type { EngineDownPolicy, LocalShare } from '../../redis/settings.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../../shared-memory/stats.ts';
import { applyFullTablePolicy } from '../table/full-table-policy.ts';
import { windowEndMs, windowOf } from '../windows/window.ts';
import type { EngineState } from './engine-state.ts';
import { type LeaseTable, VERDICT } from './lease-table.ts';

interface WithoutRedisOptions {
  onEngineDown: EngineDownPolicy;
  localShare: LocalShare;
  fullTablePolicy: FullTablePolicy;
}

/** When to try a check again that was denied because Redis is down. */
const RETRY_MS = 1_000;

export class DecisionsWithoutRedis {
  readonly #options: WithoutRedisOptions;
  readonly #state: EngineState;
  readonly #stats: AcceptorStats;

  constructor(options: WithoutRedisOptions, state: EngineState, stats: AcceptorStats) {
    this.#options = options;
    this.#state = state;
    this.#stats = stats;
  }

  /**
   * @param nowMs by the monotonic clock
   * @returns whether the cost was counted in the table
   */
  decide(table: LeaseTable, check: Check, nowMs: number, decision: TableDecision): boolean {
    const { onEngineDown } = this.#options;
    decision.outcome = OUTCOME.decided;
    let isCounted = false;
    if (onEngineDown === 'local') isCounted = this.#decideLocally(table, check, nowMs, decision);
    else this.#decideAll(onEngineDown === 'allow', check, nowMs, decision);
    this.#count(decision);
    return isCounted;
  }

  /** Takes back a check that was counted in the table: another one of its batch was denied. */
  refund(table: LeaseTable, check: Check, decision: Pick<TableDecision, 'window'>): void {
    table.refundLocally(check.identity, check, this.#share(), decision);
  }

  /** Denies a check, whatever the setting says. A cost of 0 is allowed all the same. */
  deny(check: Check, nowMs: number, decision: TableDecision): void {
    decision.outcome = OUTCOME.decided;
    this.#decideAll(false, check, nowMs, decision);
    this.#count(decision);
  }

  #count({ allowed }: TableDecision): void {
    const { engineDownAllowed, engineDownDenied } = ACCEPTOR_STAT;
    this.#stats.increment(allowed ? engineDownAllowed : engineDownDenied);
  }

  #decideLocally(table: LeaseTable, check: Check, nowMs: number, decision: TableDecision): boolean {
    const { identity, namespace, cost } = check;
    const tag = namespace.hashState[0];
    const verdict = table.decideLocally(identity, tag, nowMs, check, this.#share(), decision);
    if (verdict !== VERDICT.full) return decision.allowed && cost !== 0;
    this.#decideAll(cost <= check.limit, check, nowMs, decision);
    if (cost === 0 || !decision.allowed) return false;
    decision.outcome = OUTCOME.full;
    applyFullTablePolicy(this.#options.fullTablePolicy, decision.reset, decision);
    this.#stats.increment(ACCEPTOR_STAT.fullTableDecisions);
    return false;
  }

  /** @returns by how many machines limits are divided */
  #share(): number {
    return this.#options.localShare === 'divided' ? this.#state.machineCount : 1;
  }

  /** Decides without a counter. A cost of 0 is always allowed. */
  #decideAll(isAllowed: boolean, check: Check, nowMs: number, decision: TableDecision): void {
    const { identity, rule, limit, burst, durationMs, cost } = check;
    const redisMs = this.#state.redisMs(identity.h3, nowMs);
    const window = windowOf(redisMs, durationMs);
    decision.allowed = isAllowed || cost === 0;
    if (isAllowed && cost !== 0) decision.outcome = OUTCOME.uncounted;
    decision.remaining = isAllowed ? Math.max(0, limit - cost) : 0;
    decision.window = hasWindows(rule) ? window : redisMs;
    decision.reset = hasWindows(rule) ? windowEndMs(window, durationMs) : redisMs;
    // Nobody knows when Redis is back.
    const passesAt = cost > Math.min(burst, limit) ? NEVER : redisMs + RETRY_MS;
    decision.passesAt = decision.allowed ? 0 : passesAt;
  }
}
