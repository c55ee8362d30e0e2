/**
 * The sliding window, the default of v2: tokens used in the window before count by the share of it
 * that a window of full length, ending now, still covers.
 *
 *   carried   = floor(used before * (reset - now) / duration)
 *   effective = used + carried + cost
 *   allow when effective <= limit; a cost of 0 always passes
 *   remaining = max(0, limit - effective) when allowed, 0 when denied
 *   reset = the end of the current window
 */

import { AMOUNT_MAX } from '../../core/constants.ts';
import { type CheckParameters, NEVER } from '../../core/decision.ts';
import { ceilOfQuotient } from './gcra.ts';
import type { Judge, WindowRule } from './rule.ts';
import {
  protectCarriedOver,
  removeUsage,
  usageBefore,
  usageIn,
  windowAt,
  windowEndMs,
  windowRuleBase,
} from './window.ts';

export const judgeSliding: Judge = (cells, nowMs, parameters, decision) => {
  const { limit, durationMs, cost } = parameters;
  const window = windowAt(cells, nowMs, durationMs);
  const reset = windowEndMs(window, durationMs);
  const before = usageBefore(cells, window);
  const carried = carriedOver(before, reset - nowMs, durationMs);
  // Where the difference is not exact, it is far below 0.
  const used = usageIn(cells, window);
  const left = limit - used - carried;
  const allowed = cost === 0 || cost <= left;
  const remaining = allowed ? left - cost : 0;
  decision.allowed = allowed;
  decision.remaining = remaining > 0 ? remaining : 0;
  decision.reset = reset;
  decision.window = window;
  decision.passesAt = allowed ? 0 : slidingPassesAt(used, before, parameters, reset);
};

/**
 * @param used tokens used in the window that ends at `reset`
 * @param before tokens used in the window before it
 * @returns the first ms at which a denied check passes if nothing is counted until then; the
 * beginning of the window if it passes there already; or NEVER
 */
export function slidingPassesAt(
  used: number,
  before: number,
  { limit, durationMs, cost }: CheckParameters,
  reset: number,
): number {
  if (cost > limit) return NEVER;
  const left = limit - used - cost;
  // In this window as soon as less is carried over, or else in the next, which carries `used`.
  if (left < 0) return reset + durationMs - carriedMs(used, limit - cost, durationMs);
  return reset - (before > left ? carriedMs(before, left, durationMs) : durationMs);
}

/**
 * The tokens of the window before that still count, rounded down.
 * @param left until the end of the window; a clock behind the window counts as its beginning
 * @param duration in the same unit
 */
export function carriedOver(before: number, left: number, duration: number): number {
  if (before <= 0) return 0;
  return share(before, Math.min(Math.max(0, left), duration), duration);
}

/**
 * @returns floor(amount * part / whole), exact for integers with 0 <= part <= whole. A product that
 * is an exact double, p, gives a quotient that is rounded by less than its distance to the next
 * integer above: that is 1 / whole at least, and half of a last place is at most p / whole / 2^53.
 */
export function share(amount: number, part: number, whole: number): number {
  const product = amount * part;
  if (product <= AMOUNT_MAX) return Math.floor(product / whole);
  return Number((BigInt(amount) * BigInt(part)) / BigInt(whole));
}

/**
 * @param before tokens used in the window before, more than `left`
 * @returns how long before the end of a window at most `left` of them are carried over
 */
function carriedMs(before: number, left: number, durationMs: number): number {
  return ceilOfQuotient(left + 1, durationMs, 0, before) - 1;
}

export const sliding: WindowRule = {
  ...windowRuleBase,
  judge: judgeSliding,
  protect: protectCarriedOver,

  giveBack(cells, { window, durationMs }, nowMs, tokens) {
    return removeUsage(cells, window, nowMs, durationMs, tokens);
  },

  tokensUsed({ used, usedBefore, endMs }, durationMs, nowMs) {
    return used + carriedOver(usedBefore, endMs - nowMs, durationMs);
  },
};
