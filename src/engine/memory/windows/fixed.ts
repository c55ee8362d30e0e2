/**
 * The fixed window, by which v1 is judged: what was used in a window counts in that window, and in
 * no other.
 *
 *   admit when used + cost <= limit; a cost of 0 always passes
 *   remaining = max(0, limit - used) after the decision, also on a refusal
 *   reset = the end of the window
 */

import { type Judge, usageIn, windowAt } from './window.ts';

export const judgeFixed: Judge = (cells, nowMs, { limit, durationMs, cost }, decision) => {
  const window = windowAt(cells, nowMs, durationMs);
  // `limit - used` is exact where `used + cost` need not be; it is negative after a lowered limit.
  const left = limit - usageIn(cells, window);
  const admitted = cost === 0 || cost <= left;
  const remaining = admitted ? left - cost : left;
  decision.allowed = admitted;
  decision.remaining = remaining > 0 ? remaining : 0;
  decision.reset = (window + 1) * durationMs;
  decision.window = window;
};
