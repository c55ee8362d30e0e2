/**
 * The counter that the fixed and the sliding window share: a counter with two window cells, which
 * both count in the same way. Windows are aligned to the epoch, window = floor(now / duration), so
 * that machines agree. Cells only move forward.
 *
 *   newest     the number of the newest window that was counted
 *   current    tokens used in that window
 *   previous   tokens used in the window before it
 *
 * A denial protects a counter in one window: bit (window & 1) of the `denied` word.
 */

import { AMOUNT_MAX } from '../../core/constants.ts';
import type { CheckParameters } from '../../core/decision.ts';
import { RULE } from '../../core/window-rules.ts';
import { type Cells, NO_WINDOW, type WindowRule } from './rule.ts';

/** The number of the window at a time. */
export function windowOf(nowMs: number, durationMs: number): number {
  return Math.floor(nowMs / durationMs);
}

export function windowEndMs(window: number, durationMs: number): number {
  return (window + 1) * durationMs;
}

/** Whether a window ends at a time. */
export function isWindowEnd(ms: number, durationMs: number): boolean {
  return ms % durationMs === 0;
}

/** The window that ends at `endMs`. */
export function windowEndingAt(endMs: number, durationMs: number): number {
  return endMs / durationMs - 1;
}

/** A thread whose clock is behind the counter's newest window decides in that window. */
export function windowAt({ newest }: Cells, nowMs: number, durationMs: number): number {
  return Math.max(windowOf(nowMs, durationMs), newest);
}

/** Tokens used in a window that is not before the newest. */
export function usageIn({ newest, current }: Cells, window: number): number {
  return window === newest ? current : 0;
}

/** Tokens used in the window before such a window. */
export function usageBefore({ newest, current, previous }: Cells, window: number): number {
  if (window === newest) return previous;
  return window === newest + 1 ? current : 0;
}

/** Moves the cells to a window that is not before their newest. */
function moveToWindow(cells: Cells, window: number): void {
  if (window === cells.newest) return;
  cells.previous = usageBefore(cells, window);
  cells.current = 0;
  cells.newest = window;
}

/**
 * Counts tokens in a window, and moves the cells to it if it is newer.
 * @returns false: the window is older than both cells, and its tokens do not matter
 */
export function addUsage(cells: Cells, window: number, cost: number): boolean {
  const { newest } = cells;
  if (window < newest - 1) return false;
  if (window === newest - 1) cells.previous = addSaturating(cells.previous, cost);
  else {
    moveToWindow(cells, window);
    cells.current = addSaturating(cells.current, cost);
  }
  return true;
}

/** Deferred deductions may exceed the limit; the sum stays an exact number. */
function addSaturating(used: number, cost: number): number {
  return Math.min(used + cost, AMOUNT_MAX);
}

/** @returns when the window after the newest ends, ms */
export function windowExpiryMs(newest: number, durationMs: number): number {
  return windowEndMs(newest + 1, durationMs);
}

/** Whether a window is active. A clock behind it counts as inside it. */
export function isCurrent(window: number, durationMs: number, nowMs: number): boolean {
  return windowEndMs(window, durationMs) > nowMs;
}

export function countInWindow(
  cells: Cells,
  window: number,
  cost: number,
  { limit }: CheckParameters,
): void {
  addUsage(cells, window, cost);
  // A store to a double field costs more than the comparison: 1 ns of a check.
  if (cells.limit !== limit) cells.limit = limit;
}

/** All of a window rule but how it judges, and what it carries over to the next window. */
export const windowRuleBase: Omit<WindowRule, 'judge' | 'protect' | 'tokensUsed'> = {
  counterRule: RULE.fixed,
  storesNewestLast: true,
  count: countInWindow,

  deduct(cells, window, nowMs, { limit, durationMs, cost }) {
    // For a window that has ended no counter is inserted, which might evict another.
    const isTooLate =
      cells.newest === NO_WINDOW
        ? !isCurrent(window, durationMs, nowMs)
        : windowExpiryMs(window, durationMs) <= nowMs;
    // A peek of a slot that was being replaced may have decided in a window of another counter.
    const counted = Math.min(window, windowAt(cells, nowMs, durationMs));
    if (isTooLate || !addUsage(cells, counted, cost)) return false;
    cells.limit = limit;
    return true;
  },

  refund(cells, window, nowMs, durationMs, cost) {
    if (window !== cells.newest || !isCurrent(window, durationMs, nowMs)) return 0;
    const refunded = Math.min(cost, cells.current);
    cells.current -= refunded;
    return refunded;
  },

  giveBack(cells, { window, durationMs }, nowMs, tokens) {
    return windowRuleBase.refund(cells, window, nowMs, durationMs, tokens);
  },

  deniedWord: (_cells, window, before) => before | (1 << (window & 1)),
  expiryMs: windowExpiryMs,
  endMs: windowEndMs,

  isProtected(newest, durationMs, denied, nowMs) {
    return isCurrent(newest, durationMs, nowMs) && (denied & (1 << (newest & 1))) !== 0;
  },

  /** 0 when the window has ended: which rule decides next, and what it carries over, is unknown. */
  usedShare({ newest, current, limit }, durationMs, nowMs) {
    return isCurrent(newest, durationMs, nowMs) ? current / limit : 0;
  },

  usage(cells, durationMs, nowMs) {
    const window = windowAt(cells, nowMs, durationMs);
    return {
      window,
      used: usageIn(cells, window),
      usedBefore: usageBefore(cells, window),
      endMs: windowEndMs(window, durationMs),
    };
  },

  view({ newest, current, previous }, durationMs) {
    return { windowStart: newest * durationMs, current, previous };
  },
};

/**
 * Removes tokens from a window while it counts: until the end of the window after it.
 * @returns how many
 */
export function removeUsage(
  cells: Cells,
  window: number,
  nowMs: number,
  durationMs: number,
  tokens: number,
): number {
  if (!isCurrent(window + 1, durationMs, nowMs)) return 0;
  const cell = window === cells.newest ? 'current' : 'previous';
  if (cell === 'previous' && window !== cells.newest - 1) return 0;
  const removed = Math.min(tokens, cells[cell]);
  cells[cell] -= removed;
  return removed;
}

/** A denial in the newest window protects what was used in it. */
export function protectNewest({ newest }: Cells, window: number): boolean {
  return window <= newest;
}

/** A denial in a later window protects what is carried over into it, where there is any. */
export function protectCarriedOver(cells: Cells, window: number): boolean {
  if (window > cells.newest && usageBefore(cells, window) === 0) return false;
  moveToWindow(cells, Math.max(window, cells.newest));
  return true;
}
