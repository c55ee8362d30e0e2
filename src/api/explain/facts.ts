/**
 * What POST /v1/ratelimits.explain asks the main thread: all overrides that match an identifier,
 * and the policy of its namespace. The acceptor has validated the request and its permissions.
 */

import { EXPLAINED_OVERRIDES_MAX } from '../../core/constants.ts';
import type { OverrideMatches } from '../../overrides/sets.ts';
import { identifierLike } from '../../policies/identifiable.ts';
import type { Policy } from '../../policies/policy.ts';
import type { OperationHandler } from '../common/operation-context.ts';

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
}

const NO_MATCHES: OverrideMatches = { winner: undefined, losers: [], count: 0 };

export const explainFacts: OperationHandler<ExplainFacts> = ({ overrides, gateways }, input) => {
  const { namespace, key, identifier: given, mayUsePolicy } = input as ExplainQuestion;
  const policy = mayUsePolicy
    ? gateways.policies().find((policy) => policy.namespace === namespace)
    : undefined;
  const identifier = policy === undefined ? given : identifierLike(policy, given);
  if (identifier === undefined) return { overrides: NO_MATCHES, ...(policy && { policy }) };
  const matches = overrides.match(namespace, identifier, EXPLAINED_OVERRIDES_MAX, key);
  return { overrides: matches, identifier, ...(policy && { policy }) };
};
