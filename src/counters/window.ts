/**
 * The fixed window, as a pure function of (cells, now, limit, duration, cost). No storage, no clock
 * and no thread in here; the table brings those. The rules are those of the API:
 *
 *   window = floor(now / duration), aligned to the epoch, so that machines agree
 *   admit when used + cost <= limit, then used += cost; a refusal consumes nothing
 *   remaining = max(0, limit - used) after the decision, also on a refusal
 *   reset = the end of the window, ms; cost 0 always succeeds and changes nothing
 *
 * All amounts are integers up to 2^53-1. Nothing is ever added before it is known to fit.
 */

import { AMOUNT_MAX } from '../limits.ts';

/** A counter's ring of two window cells, read out: the newest window and the one before it. */
export interface Cells {
  /** Number of the newest window that was counted; NO_WINDOW when none was. */
  newest: number;
  /** Tokens used in the newest window, and in the one before it. */
  current: number;
  previous: number;
}

export const NO_WINDOW = -2;

export interface Decision {
  admitted: boolean;
  /** Tokens left in the window after the decision. */
  remaining: number;
  /** Unix time in ms at which the window ends. */
  reset: number;
}

/**
 * Decides, and when the cost was admitted moves `cells` to the window it was counted in. A thread
 * whose clock is behind the counter's newest window decides in that window: cells never move back.
 */
export function decideFixed(
  cells: Cells,
  nowMs: number,
  limit: number,
  durationMs: number,
  cost: number,
  decision: Decision,
): void {
  const window = Math.max(Math.floor(nowMs / durationMs), cells.newest);
  let used = window === cells.newest ? cells.current : 0;
  // `limit - used` is exact where `used + cost` need not be; it is negative after a lowered limit.
  const admitted = cost === 0 || cost <= limit - used;
  if (admitted && cost !== 0) {
    used += cost;
    if (window !== cells.newest) {
      cells.previous = window === cells.newest + 1 ? cells.current : 0;
      cells.newest = window;
    }
    cells.current = used;
  }
  decision.admitted = admitted;
  decision.remaining = used < limit ? limit - used : 0;
  decision.reset = (window + 1) * durationMs;
}

/**
 * Adds to `cells` a cost that was admitted in a window before, moving them there if need be.
 * @returns false when that window is past, and with it whatever it could have mattered to
 */
export function deduct(cells: Cells, window: number, cost: number): boolean {
  const { newest } = cells;
  if (window < newest - 1) return false;
  if (window > newest) {
    cells.previous = window === newest + 1 ? cells.current : 0;
    cells.newest = window;
    cells.current = cost;
  } else if (window === newest) cells.current = plus(cells.current, cost);
  else cells.previous = plus(cells.previous, cost);
  return true;
}

/** Use may go beyond its limit, but stays an exact number. */
function plus(used: number, cost: number): number {
  return Math.min(used + cost, AMOUNT_MAX);
}

/** A counter is expired when the window after its newest has ended. */
export function isExpired(newest: number, durationMs: number, nowMs: number): boolean {
  return (newest + 2) * durationMs <= nowMs;
}

/** Whether the newest window still runs. A clock behind the counter counts as inside it. */
export function isCurrent(newest: number, durationMs: number, nowMs: number): boolean {
  return (newest + 1) * durationMs > nowMs;
}
