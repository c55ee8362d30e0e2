/**
 * What POST /v1/ratelimits.explain asks the main thread: all overrides that match an identifier,
 * the policy of its namespace, and what was recently decided. The acceptor has validated the
 * request and its permissions, except for `read_analytics`: a key without it gets an answer without
 * recent decisions.
 */

import { GRANULARITY_MS } from '../../analytics/granularity.ts';
import { EXPLAINED_OVERRIDES_MAX, RECENT_TOGETHER_MS } from '../../core/constants.ts';
import type { OverrideMatches } from '../../overrides/sets.ts';
import { identifierLike } from '../../policies/identifiable.ts';
import type { Policy } from '../../policies/policy.ts';
import type { RecentFilter } from '../../recent-decisions/reader.ts';
import type {
  OperationContext,
  OperationHandler,
  RecentDecisionQueries,
} from '../common/operation-context.ts';
import { type ShownDecision, shownDecision } from '../common/recent-decisions.ts';

export interface ExplainQuestion {
  /** The name of the namespace. */
  namespace: string;
  /** See `namespaceKey`. */
  key: string;
  identifier: string;
  /** Whether the request may mean the check of a gateway. */
  mayUsePolicy: boolean;
}

/** One version of the overrides and the policies. */
export interface ExplainFacts {
  overrides: OverrideMatches;
  /** The active policy of the namespace, if it decides about the check. */
  policy?: Policy;
  /**
   * The identifier of the check: that of the request, unless a policy has another one for it.
   * Undefined if no request of the policy can have it. Then no override matches.
   */
  identifier?: string;
  /** Absent with WEIR_RECENT_DECISIONS=off, and for a key that may not read them. */
  recent?: RecentFacts;
  /** Absent where analytics do not know it, and for a key that may not read them. */
  deniedThisHour?: DeniedCount;
}

export interface RecentFacts {
  /** Unix ms: the begin of the time that the records cover. */
  since: number;
  /** The last recorded decision. */
  last?: ShownDecision;
  lastDenied?: ShownDecision;
  /** Denials of the namespace without a record, where `lastDenied` is absent. */
  leftOut?: number;
  /**
   * The last checks whose terms the next check has, one of each duration and rule, the newest
   * first. Applications that check several windows make all checks within RECENT_TOGETHER_MS.
   */
  checks: DecidedCheck[];
}

export type DecidedCheck = ShownDecision &
  Required<Pick<ShownDecision, 'limit' | 'duration' | 'algorithm'>>;

/** Denials of an identifier in the clock hour: the true number is at most `error` lower. */
export interface DeniedCount {
  /** Unix ms. */
  start: number;
  count: number;
  error: number;
}

const NO_MATCHES: OverrideMatches = { winner: undefined, losers: [], count: 0 };

export const explainFacts: OperationHandler<ExplainFacts> = (context, input) => {
  const question = input as ExplainQuestion;
  const { namespace, key, identifier: given, mayUsePolicy } = question;
  const { overrides, gateways } = context;
  const policy = mayUsePolicy
    ? gateways.policies().find((policy) => policy.namespace === namespace)
    : undefined;
  const identifier = policy === undefined ? given : identifierLike(policy, given);
  if (identifier === undefined) return { overrides: NO_MATCHES, ...(policy && { policy }) };
  const matches = overrides.match(namespace, identifier, EXPLAINED_OVERRIDES_MAX, key);
  return {
    ...{ overrides: matches, identifier, ...(policy && { policy }) },
    ...historyOf(context, question, identifier, matches.winner !== undefined),
  };
};

function historyOf(
  context: OperationContext,
  { namespace, key }: ExplainQuestion,
  identifier: string,
  isOverridden: boolean,
): Pick<ExplainFacts, 'recent' | 'deniedThisHour'> {
  const { registry, permissions, recentDecisions } = context;
  const id = registry.namespaceByName(namespace)?.id;
  if (!permissions.may('read_analytics', id)) return {};
  const deniedThisHour = deniedCount(context, key, identifier);
  const recent =
    recentDecisions && recentFacts(recentDecisions, namespace, key, identifier, isOverridden);
  return { ...(recent && { recent }), ...(deniedThisHour && { deniedThisHour }) };
}

function deniedCount(
  { analytics, nowMs }: OperationContext,
  key: string,
  identifier: string,
): DeniedCount | undefined {
  const hour = Math.floor(nowMs() / GRANULARITY_MS.hour);
  const denied = analytics?.deniedOf(key, identifier, hour);
  return denied && { start: hour * GRANULARITY_MS.hour, ...denied };
}

/** @param isOverridden whether an override sets the limit now */
function recentFacts(
  recent: RecentDecisionQueries,
  namespace: string,
  key: string,
  identifier: string,
  isOverridden: boolean,
): RecentFacts {
  const identity = recent.identityOf(key, identifier);
  const firstOf = (filter: RecentFilter): ShownDecision | undefined => {
    for (const decision of recent.decisions(filter)) return shownDecision(decision, namespace);
    return undefined;
  };
  const last = firstOf({ identity });
  const lastDenied = last && firstOf({ identity, isAllowed: false });
  const leftOut = lastDenied === undefined ? leftOutOf(recent, key) : 0;
  const denials = { ...(lastDenied && { lastDenied }), ...(leftOut > 0 && { leftOut }) };
  if (last === undefined) return { since: recent.sinceMs, checks: [], ...denials };
  const checks = new Map<string, DecidedCheck>();
  const startMs = last.time - RECENT_TOGETHER_MS;
  for (const decision of recent.decisions({ identity, startMs })) {
    const check = shownDecision(decision, namespace);
    const { duration, algorithm, source, cost } = check;
    // Its override, block or policy does not apply any more, so the next check has other terms.
    const hasEnded = source === 'policy' || (source !== 'request' && !isOverridden);
    // A check without a cost only asks.
    if (duration === undefined || hasEnded || cost === 0) continue;
    const window = `${duration} ${algorithm}`;
    if (!checks.has(window)) checks.set(window, check as DecidedCheck);
  }
  return {
    ...{ since: recent.sinceMs, checks: [...checks.values()], last },
    ...denials,
  };
}

/** Denials of a namespace that have no record. @param key see `namespaceKey` */
function leftOutOf(recent: RecentDecisionQueries, key: string): number {
  const denials = recent.find({ isNamespace: (one) => one === key, isAllowed: false });
  let sum = 0;
  for (const { leftOut } of denials) sum += leftOut;
  return sum;
}
