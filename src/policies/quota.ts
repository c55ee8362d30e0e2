/**
 * Formats quotas for the client of a gateway: the headers `RateLimit-Policy` and `RateLimit` of
 * draft-ietf-httpapi-ratelimit-headers-11 (lists of strings with parameters in seconds), the older
 * `X-RateLimit-*`, and for a denied request `Retry-After` and a problem document (RFC 9457).
 */

import { NEVER } from '../core/decision.ts';
import type { Problem } from './problem.ts';

/** The state after a check of one window of a policy, or of the override that replaces it. */
export interface Quota {
  /** ASCII without quotes and backslashes. */
  name: string;
  limit: number;
  durationMs: number;
  remaining: number;
  /** Unix time in ms. */
  reset: number;
  /** Of a denial: when the check would pass, Unix time in ms; or NEVER. */
  passesAt: number;
  /** Whether this window allowed the check. */
  isAllowed: boolean;
}

/** All quotas after a check. */
export interface QuotaState {
  /** At least one. */
  quotas: readonly Quota[];
  nowMs: number;
  /** Whether the quotas are those of the policy and not of an override. */
  isFromPolicy: boolean;
}

/** The largest integer of a structured field. */
const INTEGER_MAX = 999_999_999_999_999;

const clampInteger = (value: number) => Math.min(value, INTEGER_MAX);
/** Rounded up, so that a client does not retry too early. */
const toSeconds = (ms: number) => Math.max(0, Math.ceil(ms / 1_000));

const UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1_000],
] as const;

/** The name of one of several windows, for example `login-1m`. */
export function windowName(namespace: string, durationMs: number): string {
  const [unit, ms] = UNITS.find(([, ms]) => durationMs % ms === 0) ?? ['ms', 1];
  return `${namespace}-${durationMs / ms}${unit}`;
}

/** `"login";q=100;w=60` */
export function policyItem(name: string, limit: number, durationMs: number): string {
  return `"${name}";q=${clampInteger(limit)};w=${toSeconds(durationMs)}`;
}

/**
 * `"login";r=99;t=30`, one item for each window. `t` is the time until the window resets, or until
 * a denied check would pass; a check that can never pass has none.
 */
export function quotaItems({ quotas, nowMs }: QuotaState): string {
  const items = quotas.map(({ name, remaining, reset, passesAt, isAllowed }) => {
    const item = `"${name}";r=${clampInteger(remaining)}`;
    const untilMs = isAllowed ? reset : passesAt;
    return untilMs === NEVER ? item : `${item};t=${toSeconds(untilMs - nowMs)}`;
  });
  return items.join(', ');
}

/** The quota that denies longest; if none denies, the one with the fewest tokens. */
export function tightestQuota(quotas: readonly Quota[]): Quota {
  return quotas.reduce((tightest, quota) => {
    if (tightest.isAllowed !== quota.isAllowed) return quota.isAllowed ? tightest : quota;
    if (!quota.isAllowed) return quota.passesAt > tightest.passesAt ? quota : tightest;
    return quota.remaining < tightest.remaining ? quota : tightest;
  });
}

/** The headers of one quota, with the reset as Unix time in seconds. */
export function legacyHeaders({ limit, remaining, reset }: Quota): [string, string][] {
  return [
    ['X-RateLimit-Limit', String(limit)],
    ['X-RateLimit-Remaining', String(remaining)],
    ['X-RateLimit-Reset', String(toSeconds(reset))],
  ];
}

/**
 * @returns whole seconds until the request would pass, at least 1; undefined if it never will
 */
export function retryAfter({ quotas, nowMs }: QuotaState): number | undefined {
  const { passesAt } = tightestQuota(quotas);
  return passesAt === NEVER ? undefined : Math.max(1, toSeconds(passesAt - nowMs));
}

const PROBLEMS = 'https://iana.org/assignments/http-problem-types#';

/**
 * @param state undefined for a body without details
 * @param reason replaces the time after which to retry
 */
export function quotaExceeded(state?: QuotaState, reason?: string): string {
  const exceeded = {
    type: `${PROBLEMS}quota-exceeded`,
    title: 'Request cannot be satisfied as assigned quota has been exceeded',
  };
  if (state === undefined) return problem(exceeded);
  const violated = state.quotas.filter(({ isAllowed }) => !isAllowed).map(({ name }) => name);
  const seconds = retryAfter(state);
  const retry = seconds === undefined ? neverPasses(state) : `retry after ${seconds} s`;
  const detail = reason ?? retry;
  return problem({ ...exceeded, detail, 'violated-policies': violated });
}

/** A limit of 0 is a block; otherwise the request costs more tokens than its limit or burst. */
function neverPasses({ quotas }: QuotaState): string {
  const { limit } = tightestQuota(quotas);
  if (limit === 0) return 'all requests are denied: the limit is 0';
  return 'this request can never pass: its cost is above the limit or the burst';
}

/** For a check that failed under a policy whose `onError` is deny. */
export function reducedCapacity(): string {
  return problem({
    type: `${PROBLEMS}temporary-reduced-capacity`,
    title: 'Request cannot be satisfied due to temporary server capacity constraints',
    detail: 'requests cannot be counted at the moment',
  });
}

function problem({ type, title, ...rest }: Omit<Problem, 'status'>): string {
  const body: Problem = { type, title, status: 429, ...rest };
  return JSON.stringify(body);
}
