/**
 * GCRA, a token bucket: `burst` tokens pass at once, `limit` per `duration` in the long run. A
 * token takes duration / limit ms to come back.
 *
 *   missing   = ceil((full - now) * limit / duration) tokens, where the bucket is full at `full`
 *   allow when cost <= min(burst, limit) - missing; a cost of 0 always passes, and counts nothing
 *   remaining = tokens that would pass after the decision
 *   reset = the first ms at which the bucket is full again; after a denial the first ms at which
 *           this cost would pass, if it is not above the burst
 *   window = the time of the decision, ms
 *
 * `full` is an exact fraction with the denominator `limit`: newest - current / limit, with
 * 0 <= current < limit. `newest` is therefore the first ms at which the bucket is full, and the
 * counter expires then. `previous` equals `current`. When the limit changes, `full` is rounded up
 * to the new denominator, by less than 1 / limit ms, so that no more is allowed than before.
 *
 * A denial protects a counter until the bucket is full again, as it stood at the denial: the
 * `denied` word is that Unix time in whole seconds, unsigned: the year 2106 at the latest.
 */

import { AMOUNT_MAX } from '../../../core/constants.ts';
import { type CheckParameters, NEVER } from '../../../core/decision.ts';
import { RULE } from '../../../core/window-rules.ts';
import type { Cells, Judge, WindowRule } from './rule.ts';

const DENIED_MAX = 2 ** 32 - 1;

export const judgeGcra: Judge = (cells, nowMs, { limit, durationMs, cost, burst }, decision) => {
  const { newest } = cells;
  const slack = slackUnder(cells, limit);
  const bucket = Math.min(burst, limit);
  const left = bucket - tokensMissing(newest - nowMs, slack, limit, durationMs);
  const allowed = cost === 0 || cost <= left;
  const remaining = allowed ? left - cost : left;
  decision.allowed = allowed;
  decision.remaining = remaining > 0 ? remaining : 0;
  decision.window = nowMs;
  let reset: number;
  if (cost === 0 || cost > bucket) reset = Math.max(newest, nowMs);
  else if (!allowed) reset = newest + ceilOfQuotient(cost - bucket, durationMs, slack, limit);
  else if (newest > nowMs) reset = newest + ceilOfQuotient(cost, durationMs, slack, limit);
  else reset = nowMs + ceilOfQuotient(cost, durationMs, 0, limit);
  decision.reset = Math.min(reset, AMOUNT_MAX);
  decision.passesAt = allowed ? 0 : cost > bucket ? NEVER : decision.reset;
};

/**
 * How much earlier than `newest` the bucket is full, in units of 1 / limit ms; converted from the
 * last limit, rounded down.
 */
function slackUnder({ current, limit: lastLimit }: Cells, limit: number): number {
  if (current === 0 || limit === lastLimit) return current;
  // Only a slot that is being written, read by `peek`, has no limit.
  if (lastLimit <= 0) return 0;
  return 0 - ceilOfQuotient(-current, limit, 0, lastLimit);
}

/** Tokens missing from a bucket that is full in `ms`, less `slack` / `limit` ms. */
function tokensMissing(ms: number, slack: number, limit: number, durationMs: number): number {
  return ms > 0 ? ceilOfQuotient(ms, limit, slack, durationMs) : 0;
}

/** Takes tokens from the bucket, or gives them back: a negative number. */
function take(cells: Cells, tokens: number, durationMs: number, limit: number): void {
  const { newest, current: slack } = cells;
  const spent = tokens * durationMs;
  if (Math.abs(spent) + 2 * limit <= AMOUNT_MAX) {
    const ms = Math.ceil((spent - slack) / limit);
    cells.newest = Math.min(newest + ms, AMOUNT_MAX);
    cells.current = ms * limit + slack - spent;
  } else {
    const exact = BigInt(tokens) * BigInt(durationMs) - BigInt(slack);
    const ms = ceilDivide(exact, BigInt(limit));
    cells.newest = Math.min(newest + Number(ms), AMOUNT_MAX);
    cells.current = Number(ms * BigInt(limit) - exact);
  }
  cells.previous = cells.current;
  cells.limit = limit;
}

export function countGcra(
  cells: Cells,
  decidedMs: number,
  cost: number,
  { limit, durationMs }: CheckParameters,
): void {
  if (cells.newest <= decidedMs) {
    cells.newest = decidedMs;
    cells.current = 0;
  } else cells.current = slackUnder(cells, limit);
  take(cells, cost, durationMs, limit);
}

/**
 * Gives tokens back to the bucket.
 * @param limit that of the check that took them: it says what a token is worth
 * @returns how many of them were missing
 */
export function refundGcra(
  cells: Cells,
  nowMs: number,
  cost: number,
  { limit, durationMs }: Pick<CheckParameters, 'limit' | 'durationMs'>,
): number {
  const slack = slackUnder(cells, limit);
  const used = tokensMissing(cells.newest - nowMs, slack, limit, durationMs);
  if (cost < used) {
    cells.current = slack;
    take(cells, -cost, durationMs, limit);
    return cost;
  }
  if (used === 0) return 0;
  cells.newest = nowMs;
  cells.current = 0;
  cells.previous = 0;
  return used;
}

export const gcra: WindowRule = {
  counterRule: RULE.gcra,
  storesNewestLast: false,
  judge: judgeGcra,
  count: countGcra,

  deduct(cells, decidedMs, nowMs, parameters) {
    countGcra(cells, decidedMs, parameters.cost, parameters);
    // False: the bucket is full again.
    return cells.newest > nowMs;
  },

  refund(cells, _window, nowMs, durationMs, cost) {
    return refundGcra(cells, nowMs, cost, { limit: cells.limit, durationMs });
  },

  protect: ({ newest }, nowMs) => newest > nowMs,
  deniedWord: ({ newest }) => Math.min(Math.ceil(newest / 1_000), DENIED_MAX) | 0,
  expiryMs: (newest) => newest,
  endMs: (newest) => newest,

  isProtected(newest, _durationMs, denied, nowMs) {
    return newest > nowMs && (denied >>> 0) * 1_000 > nowMs;
  },

  usedShare: ({ newest }, durationMs, nowMs) => Math.max(0, newest - nowMs) / durationMs,

  usage({ newest, current, limit }, durationMs, nowMs) {
    const missing = tokensMissing(newest - nowMs, current, limit, durationMs);
    const used = Math.min(missing, AMOUNT_MAX);
    return { window: nowMs, used, usedBefore: 0, endMs: Math.max(newest, nowMs) };
  },

  tokensUsed: ({ used }) => used,
  view: ({ newest }) => ({ fullAt: newest }),
};

/**
 * @returns ceil((a * b - c) / divisor), exact for integers with 0 <= c < 2^53 and 0 < divisor. A
 * dividend n that is an exact double gives a quotient that is rounded by less than its distance to
 * the next integer: that is 1 / divisor at least, and half of a last place is at most
 * n / divisor / 2^53. BigInt is for larger ones: 2^53 / duration tokens, 150 million in a minute.
 */
export function ceilOfQuotient(a: number, b: number, c: number, divisor: number): number {
  const product = a * b;
  if (Math.abs(product) + c <= AMOUNT_MAX) return Math.ceil((product - c) / divisor);
  return Number(ceilDivide(BigInt(a) * BigInt(b) - BigInt(c), BigInt(divisor)));
}

function ceilDivide(dividend: bigint, divisor: bigint): bigint {
  const quotient = dividend / divisor;
  return dividend % divisor > 0n ? quotient + 1n : quotient;
}
