/**
 * What a gateway's client is told of its quotas: `RateLimit-Policy` and `RateLimit` as
 * draft-ietf-httpapi-ratelimit-headers-11 has them, lists of strings with parameters in seconds,
 * the older `X-RateLimit-*`, and, on a refusal, when to come back and a problem by RFC 9457. Pure.
 */

/** One window of a policy, or the override in its place, as a check has left it. */
export interface Quota {
  /** ASCII without quotes and backslashes. */
  name: string;
  limit: number;
  durationMs: number;
  remaining: number;
  /** Unix time in ms. */
  reset: number;
  /** Whether it had room for the check. */
  isAllowed: boolean;
}

/** What a check has left. */
export interface QuotaState {
  /** Of each window, one at least. */
  quotas: readonly Quota[];
  nowMs: number;
  /** Whether they are the policy's own, and not of an override. */
  isFromPolicy: boolean;
}

/** The largest integer of a structured field. */
const INTEGER_MAX = 999_999_999_999_999;

const clampInteger = (value: number) => Math.min(value, INTEGER_MAX);
/** Never earlier than it is. */
const toSeconds = (ms: number) => Math.max(0, Math.ceil(ms / 1_000));

const UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1_000],
] as const;

/** What one of several windows is called: `login-1m`. */
export function windowName(namespace: string, durationMs: number): string {
  const [unit, ms] = UNITS.find(([, ms]) => durationMs % ms === 0) ?? ['ms', 1];
  return `${namespace}-${durationMs / ms}${unit}`;
}

/** `"login";q=100;w=60` */
export function policyItem(name: string, limit: number, durationMs: number): string {
  return `"${name}";q=${clampInteger(limit)};w=${toSeconds(durationMs)}`;
}

/** `"login";r=99;t=30`, one for each window. */
export function quotaItems({ quotas, nowMs }: QuotaState): string {
  const items = quotas.map(({ name, remaining, reset }) => {
    return `"${name}";r=${clampInteger(remaining)};t=${toSeconds(reset - nowMs)}`;
  });
  return items.join(', ');
}

/** The one that leaves least: one that refuses, for the longest; else with the fewest tokens. */
export function tightestQuota(quotas: readonly Quota[]): Quota {
  return quotas.reduce((tight, quota) => {
    if (tight.isAllowed !== quota.isAllowed) return quota.isAllowed ? tight : quota;
    if (!quota.isAllowed) return quota.reset > tight.reset ? quota : tight;
    return quota.remaining < tight.remaining ? quota : tight;
  });
}

/** Of the tightest: limit, remaining, and Unix time in seconds. */
export function legacyHeaders({ limit, remaining, reset }: Quota): [string, string][] {
  return [
    ['X-RateLimit-Limit', String(limit)],
    ['X-RateLimit-Remaining', String(remaining)],
    ['X-RateLimit-Reset', String(toSeconds(reset))],
  ];
}

/** Whole seconds until all that refuse have begun anew, 1 at least. */
export function retryAfter({ quotas, nowMs }: QuotaState): number {
  return Math.max(1, toSeconds(tightestQuota(quotas).reset - nowMs));
}

interface Problem {
  type: string;
  title: string;
  detail?: string;
  'violated-policies'?: string[];
}

const PROBLEMS = 'https://iana.org/assignments/http-problem-types#';

/**
 * @param state undefined where it is said elsewhere
 * @param reason of whom there is more to say than when to come back
 */
export function quotaExceeded(state?: QuotaState, reason?: string): string {
  const exceeded: Problem = {
    type: `${PROBLEMS}quota-exceeded`,
    title: 'Request cannot be satisfied as assigned quota has been exceeded',
  };
  if (state === undefined) return problem(exceeded);
  const violated = state.quotas.filter(({ isAllowed }) => !isAllowed).map(({ name }) => name);
  const detail = reason ?? `come back in ${retryAfter(state)} s`;
  return problem({ ...exceeded, detail, 'violated-policies': violated });
}

/** Where weir has failed, under a policy that denies then. */
export function reducedCapacity(): string {
  return problem({
    type: `${PROBLEMS}temporary-reduced-capacity`,
    title: 'Request cannot be satisfied due to temporary server capacity constraints',
    detail: 'requests cannot be counted just now',
  });
}

function problem({ type, title, ...rest }: Problem): string {
  return JSON.stringify({ type, title, status: 429, ...rest });
}
