/**
 * The fixed window, the default of v1: tokens count in the window in which they were used, and in
 * no other.
 *
 *   allow when used + cost <= limit; a cost of 0 always passes
 *   remaining = max(0, limit - used) after the decision, also after a denial
 *   reset = the end of the window
 */

import { NEVER } from '../../core/decision.ts';
import type { Judge, WindowRule } from './rule.ts';
import { protectNewest, usageIn, windowAt, windowEndMs, windowRuleBase } from './window.ts';

export const judgeFixed: Judge = (cells, nowMs, { limit, durationMs, cost }, decision) => {
  const window = windowAt(cells, nowMs, durationMs);
  // `limit - used` is exact where `used + cost` need not be. It is negative after a lowered limit.
  const left = limit - usageIn(cells, window);
  const allowed = cost === 0 || cost <= left;
  const remaining = allowed ? left - cost : left;
  decision.allowed = allowed;
  decision.remaining = remaining > 0 ? remaining : 0;
  decision.reset = windowEndMs(window, durationMs);
  decision.window = window;
  // The next window begins without usage.
  decision.passesAt = allowed ? 0 : cost > limit ? NEVER : decision.reset;
};

export const fixed: WindowRule = {
  ...windowRuleBase,
  judge: judgeFixed,
  protect: protectNewest,
  tokensUsed: ({ used }) => used,
};
