/** The decisions of Redis about checks, as clients get them. */

import {
  type CheckParameters,
  NEVER,
  OUTCOME,
  type TableDecision,
} from '../../../core/decision.ts';
import { carriesOver } from '../../../core/window-rules.ts';
import { passesAtInWindow } from '../../windows/registry.ts';
import { carriedOver } from '../../windows/sliding.ts';
import { windowEndMs, windowOf } from '../../windows/window.ts';
import { type CounterAnswer, SERVED } from '../scripts/protocol.ts';
import { SHARED_LEASE_MS } from '../scripts/protocol-constants.ts';
import type { LeaseState } from './lease-state.ts';

/** A decision without its window, which the acceptor does not need. */
export type CheckDecision = Omit<TableDecision, 'window'>;

/**
 * The decision of a check, after its cost was counted.
 * @param served one of SERVED
 * @param countsDenied whether its cost was counted although it is denied. Then a fixed window shows
 *   what was left before.
 */
export function decisionOf(
  state: LeaseState,
  answer: CounterAnswer,
  check: Readonly<CheckParameters>,
  served: number,
  countsDenied: boolean,
): CheckDecision {
  const { limit, durationMs, rule, cost } = check;
  const allowed = served === SERVED.allowed;
  const isSliding = carriesOver(rule);
  const carried = isSliding
    ? carriedOver(answer.previousUsage, answer.leftUs, durationMs * 1_000)
    : 0;
  const used = state.othersDeducted + state.spent + state.reserved;
  const before = !allowed && countsDenied ? used - cost : used;
  const reset = windowEndMs(state.window, durationMs);
  return {
    allowed,
    remaining: !allowed && isSliding ? 0 : Math.max(0, limit - before - carried),
    reset,
    passesAt: allowed ? 0 : passesAtOfDenied(used, answer, check, reset, served),
    outcome: outcomeOf(answer, served),
  };
}

/** A denial by a Redis whose clock has not reached the window of the machine. */
export function fencedDecision(check: Readonly<CheckParameters>, redisMs: number): CheckDecision {
  const { cost, limit, durationMs, rule } = check;
  const reset = windowEndMs(windowOf(redisMs, durationMs), durationMs);
  // A sliding window needs the one before it, too.
  const endMs = carriesOver(rule) ? reset + durationMs : reset;
  const passesAt = cost > limit ? NEVER : endMs;
  return { allowed: false, remaining: 0, reset, passesAt, outcome: OUTCOME.decided };
}

function outcomeOf({ wasWrittenOff }: CounterAnswer, served: number): number {
  if (served !== SERVED.allowed && wasWrittenOff) return OUTCOME.doubted;
  return served === SERVED.shared ? OUTCOME.shared : OUTCOME.decided;
}

/** Not before the decision: tokens that Redis saw as used may have been returned since. */
function passesAtOfDenied(
  used: number,
  { previousUsage, leftUs }: CounterAnswer,
  check: Readonly<CheckParameters>,
  reset: number,
  served: number,
): number {
  // By the clock of Redis.
  const decidedMs = reset - Math.floor(leftUs / 1_000);
  const passesAt = Math.max(decidedMs, passesAtInWindow(used, previousUsage, check, reset));
  // Other machines use what they hold by then, or return it.
  return served === SERVED.shared ? Math.min(passesAt, decidedMs + SHARED_LEASE_MS) : passesAt;
}
