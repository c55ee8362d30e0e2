/**
 * The terms of the check that POST /v1/ratelimits.explain predicts, and where each of them comes
 * from. A request with a limit describes a check of the API. Without one, it means the check that a
 * gateway sends, if the namespace has a policy. An override replaces limit and duration of either.
 *
 * If the request, the policy and the overrides set no limit, the application sends it with each of
 * its checks. Then the check is the last one among the recent decisions. Without such a decision,
 * one check is predicted for each counter: with the duration of the counter, and with the limit
 * under which it last counted tokens. A counter holds no burst, and not whether its checks slide.
 */

import type { CheckParameters } from '../../core/decision.ts';
import { DEFAULT_RULE, NO_BURST, RULE, type RuleName } from '../../core/window-rules.ts';
import type { CounterState, ExplainedChecks } from '../../engine/engine.ts';
import type { OverrideMatch } from '../../overrides/sets.ts';
import type { Policy } from '../../policies/policy.ts';
import { DEFAULT_COST } from '../common/check-request.ts';
import type { DecidedCheck, ExplainFacts } from './facts.ts';

/** Where a term of a check comes from. */
export const TERM_SOURCES = [
  'request',
  'block',
  'override',
  'policy',
  'decision',
  'counter',
  'default',
] as const;
export type TermSource = (typeof TERM_SOURCES)[number];

export interface Term<T> {
  value: T;
  from: TermSource;
  /** Of `decision`: its time, Unix ms. */
  at?: number;
}

/** One window in which the check is decided. */
export interface CheckTerms {
  limit: Term<number>;
  duration: Term<number>;
  algorithm: Term<RuleName>;
  /** Only with `gcra`: never above the limit. */
  burst?: Term<number>;
  async: Term<boolean>;
  cost: Term<number>;
}

/** What a request may say of the check. */
export interface RequestedTerms {
  limit?: number | undefined;
  duration?: number | undefined;
  algorithm?: RuleName | undefined;
  burst?: number | undefined;
  cost?: number | undefined;
}

/** A window before an override is applied. */
interface OwnWindow {
  limit?: Term<number>;
  duration?: Term<number>;
  algorithm: Term<RuleName>;
  burst: Term<number> | undefined;
}

/** Whether a gateway would send the check: the request does not describe another one. */
export function mayUsePolicy({ limit, algorithm, burst }: RequestedTerms): boolean {
  return limit === undefined && algorithm === undefined && burst === undefined;
}

/**
 * @param counters of the identifier
 * @returns one window or several; none if nothing sets a limit, and no counter has one
 */
export function termsOf(
  request: RequestedTerms,
  facts: ExplainFacts,
  counters: readonly CounterState[],
): CheckTerms[] {
  const { policy } = facts;
  const { winner } = facts.overrides;
  const decisions = decisionsLike(request, facts);
  const [last] = decisions;
  const cost =
    given(request.cost) ??
    ofPolicy(policy?.cost) ??
    (last && ofDecision(last, last.cost)) ??
    byDefault(DEFAULT_COST);
  const windows = windowsOf(request, facts, decisions, counters);
  // An override replaces all windows of a policy by one, with the algorithm of the first.
  const decisive = winner === undefined ? windows : windows.slice(0, 1);
  return decisive.flatMap((window) => {
    const { limit, duration } = winner === undefined ? window : overrideLimits(winner);
    if (limit === undefined || duration === undefined) return [];
    const isAsync = winner?.isAsync === true;
    const async: Term<boolean> = isAsync ? { value: true, from: 'override' } : byDefault(false);
    const { algorithm } = window;
    const burst = algorithm.value === 'gcra' ? burstUnder(window.burst, limit) : undefined;
    return [{ limit, duration, algorithm, ...(burst && { burst }), async, cost }];
  });
}

/** Whether a limit is that of the last counted check, because nothing sets one. */
export function isFromCounter({ limit }: CheckTerms): boolean {
  return limit.from === 'counter';
}

/** The checks to predict. Of several counters, nobody knows which the next check uses. */
export function checksOf(terms: readonly CheckTerms[]): ExplainedChecks {
  return { checks: terms.map(parametersOf), isBatch: !terms.some(isFromCounter) };
}

/** The check as an engine decides it. */
function parametersOf({ limit, duration, algorithm, burst, cost }: CheckTerms): CheckParameters {
  return {
    limit: limit.value,
    durationMs: duration.value,
    cost: cost.value,
    rule: RULE[algorithm.value],
    burst: burst?.value ?? NO_BURST,
  };
}

function requestWindow({ limit, duration, algorithm, burst }: RequestedTerms): OwnWindow {
  return {
    ...(limit !== undefined && { limit: { value: limit, from: 'request' } }),
    ...(duration !== undefined && { duration: { value: duration, from: 'request' } }),
    algorithm: given(algorithm) ?? byDefault(DEFAULT_RULE),
    burst: given(burst),
  };
}

/** The recent decisions that say what the request leaves out. */
function decisionsLike(
  { limit, algorithm }: RequestedTerms,
  { policy, recent }: ExplainFacts,
): readonly DecidedCheck[] {
  if (limit !== undefined || policy !== undefined) return [];
  const { checks = [] } = recent ?? {};
  return checks.filter((check) => algorithm === undefined || check.algorithm === algorithm);
}

function windowsOf(
  request: RequestedTerms,
  { policy, overrides }: ExplainFacts,
  decisions: readonly DecidedCheck[],
  counters: readonly CounterState[],
): OwnWindow[] {
  if (policy !== undefined) return policyWindows(policy);
  if (decisions.length > 0) return decisions.map((check) => decisionWindow(request, check));
  const isSet = request.limit !== undefined || overrides.winner !== undefined;
  return isSet ? [requestWindow(request)] : counterWindows(request, counters);
}

function decisionWindow({ burst }: RequestedTerms, check: DecidedCheck): OwnWindow {
  return {
    limit: ofDecision(check, check.limit),
    duration: ofDecision(check, check.duration),
    algorithm: ofDecision<RuleName>(check, check.algorithm),
    burst: given(burst) ?? (check.burst === undefined ? undefined : ofDecision(check, check.burst)),
  };
}

/** A window for each counter that a check with the algorithm of the request uses. */
function counterWindows(
  { algorithm, burst }: RequestedTerms,
  counters: readonly CounterState[],
): OwnWindow[] {
  return counters.flatMap(({ durationMs, limit, usage }): OwnWindow[] => {
    // A counter in Redis has no limit if nothing was allowed since it was reset.
    if (limit === 0 || (algorithm !== undefined && usage[algorithm] === undefined)) return [];
    const own: Term<RuleName> =
      usage.gcra === undefined ? byDefault(DEFAULT_RULE) : ofCounter('gcra');
    return [
      {
        limit: ofCounter(limit),
        duration: ofCounter(durationMs),
        algorithm: given(algorithm) ?? own,
        burst: given(burst),
      },
    ];
  });
}

function policyWindows({ windows }: Policy): OwnWindow[] {
  return windows.map(({ limit, duration, algorithm, burst }) => ({
    limit: { value: limit, from: 'policy' },
    duration: { value: duration, from: 'policy' },
    algorithm: ofPolicy<RuleName>(algorithm) ?? byDefault(DEFAULT_RULE),
    burst: ofPolicy(burst),
  }));
}

function overrideLimits({
  limit,
  durationMs,
  isBlocking,
}: OverrideMatch): Pick<CheckTerms, 'limit' | 'duration'> {
  const from = isBlocking === true ? 'block' : 'override';
  return { limit: { value: limit, from }, duration: { value: durationMs, from } };
}

/** A burst above the limit of an override is lowered to that limit. */
function burstUnder(burst: Term<number> | undefined, limit: Term<number>): Term<number> {
  if (burst === undefined) return byDefault(limit.value);
  return burst.value > limit.value ? { value: limit.value, from: limit.from } : burst;
}

function given<T>(value: T | undefined): Term<T> | undefined {
  return value === undefined ? undefined : { value, from: 'request' };
}

function ofPolicy<T>(value: T | undefined): Term<T> | undefined {
  return value === undefined ? undefined : { value, from: 'policy' };
}

function ofDecision<T>({ until }: DecidedCheck, value: T): Term<T> {
  return { value, from: 'decision', at: until };
}

function ofCounter<T>(value: T): Term<T> {
  return { value, from: 'counter' };
}

function byDefault<T>(value: T): Term<T> {
  return { value, from: 'default' };
}
