/**
 * What POST /v1/ratelimits.explain asks the main thread: all overrides that match an identifier,
 * and the policy of its namespace. The acceptor has validated the request and its permissions.
 */

import { EXPLAINED_OVERRIDES_MAX } from '../../core/constants.ts';
import type { OverrideMatches } from '../../overrides/sets.ts';
import type { Policy } from '../../policies/policy.ts';
import type { OperationHandler } from '../common/operation-context.ts';

export interface ExplainQuestion {
  /** The name of the namespace. */
  namespace: string;
  identifier: string;
}

/** One version of the overrides and the policies. */
export interface ExplainFacts {
  overrides: OverrideMatches;
  /** The active policy of the namespace. */
  policy?: Policy;
}

export const explainFacts: OperationHandler<ExplainFacts> = ({ overrides, gateways }, input) => {
  const { namespace, identifier } = input as ExplainQuestion;
  const policy = gateways.policies().find((policy) => policy.namespace === namespace);
  const matches = overrides.match(namespace, identifier, EXPLAINED_OVERRIDES_MAX);
  return { overrides: matches, ...(policy && { policy }) };
};
