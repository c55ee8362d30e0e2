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
 * `full` is an exact fraction with the denominator `limit`, the limit of the last counted check:
 * newest - current / limit, with 0 <= current < limit. `newest` is therefore the first ms at which
 * the bucket is full, and the counter expires then. `previous` equals `current`.
 *
 * Under another limit, as many tokens are missing as before: a check is judged by them, and they
 * come back at the rate of the last counted check until a check with the new limit is counted. That
 * conversion is exact, because the denominators cancel out. Where more is missing than the new
 * limit, tokens are counted in the bucket as it is: a token does not take longer to come back than
 * when it was used.
 *
 * A denial protects a counter until the bucket is full again, as it stood at the denial: the
 * `denied` word is that Unix time in whole seconds, unsigned: the year 2106 at the latest.
 */

import { AMOUNT_MAX } from '../../core/constants.ts';
import { type CheckParameters, NEVER } from '../../core/decision.ts';
import { RULE } from '../../core/window-rules.ts';
import { type Cells, copyCells, type Judge, newCells, type WindowRule } from './rule.ts';

const DENIED_MAX = 2 ** 32 - 1;

/** The cells after an allowed check, where its limit is not that of the last one. */
const scratch = newCells();

export const judgeGcra: Judge = (cells, nowMs, parameters, decision) => {
  const { limit, durationMs, cost, burst } = parameters;
  const { newest, current: slack } = cells;
  // Only a slot that is being written, read by `peek`, has no limit.
  const rate = cells.limit > 0 ? cells.limit : limit;
  const bucket = Math.min(burst, limit);
  const left = bucket - tokensMissing(newest - nowMs, slack, rate, durationMs);
  const allowed = cost === 0 || cost <= left;
  const remaining = allowed ? left - cost : left;
  decision.allowed = allowed;
  decision.remaining = remaining > 0 ? remaining : 0;
  decision.window = nowMs;
  let reset: number;
  if (cost === 0 || cost > bucket) reset = Math.max(newest, nowMs);
  else if (!allowed) reset = newest + ceilOfQuotient(cost - bucket, durationMs, slack, rate);
  else if (newest <= nowMs) reset = nowMs + ceilOfQuotient(cost, durationMs, 0, limit);
  else if (rate === limit) reset = newest + ceilOfQuotient(cost, durationMs, slack, limit);
  else {
    copyCells(cells, scratch);
    countGcra(scratch, nowMs, cost, parameters);
    reset = scratch.newest;
  }
  decision.reset = Math.min(reset, AMOUNT_MAX);
  decision.passesAt = allowed ? 0 : cost > bucket ? NEVER : decision.reset;
};

/** Tokens missing from a bucket that is full in `ms`, less `slack` / `limit` ms. */
function tokensMissing(ms: number, slack: number, limit: number, durationMs: number): number {
  return ms > 0 ? ceilOfQuotient(ms, limit, slack, durationMs) : 0;
}

/** How long so many tokens take to come back, in whole ms. */
export function refillMs(
  tokens: number,
  { limit, durationMs }: Pick<CheckParameters, 'limit' | 'durationMs'>,
): number {
  return Math.floor((tokens * durationMs) / limit);
}

/** Takes tokens from the bucket, or gives them back: a negative number. */
function take(cells: Cells, tokens: number, durationMs: number): void {
  fillAt(cells, cells.newest, tokens, durationMs, cells.limit);
}

/** Makes the bucket one that is full at `fromMs` + (a * b - `current`) / `limit`. */
function fillAt(cells: Cells, fromMs: number, a: number, b: number, limit: number): void {
  const slack = cells.current;
  const product = a * b;
  if (Math.abs(product) + slack + limit <= AMOUNT_MAX) {
    const ms = Math.ceil((product - slack) / limit);
    cells.newest = Math.min(fromMs + ms, AMOUNT_MAX);
    cells.current = ms * limit + slack - product;
  } else {
    const exact = BigInt(a) * BigInt(b) - BigInt(slack);
    const ms = ceilDivide(exact, BigInt(limit));
    cells.newest = Math.min(fromMs + Number(ms), AMOUNT_MAX);
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
  const leftMs = cells.newest - decidedMs;
  if (leftMs <= 0) {
    cells.newest = decidedMs;
    cells.current = 0;
    cells.limit = limit;
  } else if (cells.limit !== limit) {
    const missing = tokensMissing(leftMs, cells.current, cells.limit, durationMs);
    if (missing <= limit) fillAt(cells, decidedMs, leftMs, cells.limit, limit);
  }
  take(cells, cost, durationMs);
}

/** Gives tokens back to the bucket. @returns how many of them were missing */
export function refundGcra(cells: Cells, nowMs: number, durationMs: number, cost: number): number {
  const used = tokensMissing(cells.newest - nowMs, cells.current, cells.limit, durationMs);
  if (cost < used) {
    take(cells, -cost, durationMs);
    return cost;
  }
  if (used === 0) return 0;
  cells.newest = nowMs;
  cells.current = 0;
  cells.previous = 0;
  return used;
}

/** The `current` of a bucket under another limit: in units of 1 / limit ms, rounded down. */
export function slackUnder(limit: number, slack: number, lastLimit: number): number {
  if (slack === 0 || limit === lastLimit) return slack;
  return 0 - ceilOfQuotient(-slack, limit, 0, lastLimit);
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
    return refundGcra(cells, nowMs, durationMs, cost);
  },

  /**
   * Tokens that have refilled since the reservation are in the bucket already. Under another limit
   * by now the higher one counts, so that none is given back twice.
   */
  giveBack(cells, { window: reservedMs, durationMs, limit }, nowMs, tokens) {
    const elapsedMs = Math.max(0, nowMs - reservedMs);
    const rate = Math.max(limit, cells.limit);
    const refilled = -ceilOfQuotient(-elapsedMs, rate, 0, durationMs);
    return refilled >= tokens ? 0 : refundGcra(cells, nowMs, durationMs, tokens - refilled);
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
