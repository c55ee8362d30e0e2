/**
 * How a slot stores the end of a pause: monotonic ms modulo 2^24, and 0 for no pause. So few bits
 * are enough because a pause is short, and over before the same number means another time.
 */

import { PAUSE_MAX_MS } from '../scripts/protocol-constants.ts';

export const PAUSE_BITS = 24;
const PAUSE_MASK = 2 ** PAUSE_BITS - 1;

/** A pause until then. */
export function pauseUntil(untilMs: number): number {
  return Math.ceil(untilMs) & PAUSE_MASK || 1;
}

/** For how long a pause still lasts; 0: there is none, or it is over. */
export function pauseLeftMs(pause: number, nowMs: number): number {
  if (pause === 0) return 0;
  const leftMs = (pause - Math.floor(nowMs)) & PAUSE_MASK;
  return leftMs <= PAUSE_MAX_MS + 1 ? leftMs : 0;
}
