/**
 * A counter's two window cells, as pure functions: no storage, no clock and no thread in here; the
 * table brings those. Windows are aligned to the epoch, window = floor(now / duration), so that
 * machines agree. Cells only move forward.
 *
 * There are two ways to judge the cells, `fixed.ts` and `sliding.ts`, behind one interface. What
 * was admitted is counted in the same way in both, so that both see the same use.
 *
 * All amounts are integers up to 2^53-1. Nothing is ever added before it is known to fit.
 */

import { AMOUNT_MAX } from '../../../core/constants.ts';
import type { CheckParameters, Decision } from '../../../core/decision.ts';

/** A counter's ring of two window cells, read out: the newest window and the one before it. */
export interface Cells {
  /** Number of the newest window that was counted; NO_WINDOW when none was. */
  newest: number;
  /** Tokens used in the newest window, and in the one before it. */
  current: number;
  previous: number;
}

export const NO_WINDOW = -2;
/** Decides by the cells as they are, in `windowAt`; to count what was admitted is `count`. */
export type Judge = (
  cells: Cells,
  nowMs: number,
  terms: CheckParameters,
  decision: Decision,
) => void;

/** A thread whose clock is behind the counter's newest window decides in that window. */
export function windowAt({ newest }: Cells, nowMs: number, durationMs: number): number {
  return Math.max(Math.floor(nowMs / durationMs), newest);
}

/** Tokens used in a window that is not before the newest. */
export function usageIn({ newest, current }: Cells, window: number): number {
  return window === newest ? current : 0;
}

/** Tokens used in the window before such a one. */
export function usageBefore({ newest, current, previous }: Cells, window: number): number {
  if (window === newest) return previous;
  return window === newest + 1 ? current : 0;
}

/** Moves the cells to a window that is not before their newest. */
export function moveToWindow(cells: Cells, window: number): void {
  if (window === cells.newest) return;
  cells.previous = usageBefore(cells, window);
  cells.current = 0;
  cells.newest = window;
}

/**
 * Counts a cost that was admitted in a window, and moves the cells there if need be.
 * @returns false when that window is past, and with it whatever it could have mattered to
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

/** Use may go beyond its limit, but stays an exact number. */
function addSaturating(used: number, cost: number): number {
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
