/** Recent decisions in responses. */

import Type, { type Static } from 'typebox';
import { ALGORITHMS } from '../../core/algorithm-fields.ts';
import { ApiError } from '../../core/errors.ts';
import { NO_BURST, RULE, type RuleName } from '../../core/window-rules.ts';
import { LIMIT_SOURCES, type RecentDecision } from '../../recent-decisions/reader.ts';
import type { OperationContext, RecentDecisionQueries } from './operation-context.ts';
import {
  amount,
  flagged,
  idText,
  named,
  namespaceId,
  REMAINING,
  RESET,
  unixMs,
} from './responses.ts';

/** The schema of `shownDecision`. */
export function decisionFields() {
  return {
    time: unixMs('When it was decided'),
    until: unixMs(
      'When the last of `count` decisions was made: denials of an identifier within about a ' +
        'second, by the same limit, are one record',
    ),
    decision: Type.Enum(['allowed', 'denied'], { description: 'The decision.' }),
    count: amount('Number of decisions in this record.'),
    cost: amount('Tokens of the check or the lease: of the first decision.'),
    kind: Type.Optional(
      Type.Literal('lease', { description: 'A request for a lease. Absent for a check.' }),
    ),
    limit: Type.Optional(
      amount('The limit that applied. Absent for a gateway check without an identifier.'),
    ),
    duration: Type.Optional(amount('Length of the window in milliseconds. Absent for a lease.')),
    algorithm: Type.Optional(Type.Enum([...ALGORITHMS], { description: 'Window rule.' })),
    burst: Type.Optional(amount('Only with `gcra`, and if it is not the limit.')),
    remaining: Type.Optional(amount(REMAINING)),
    reset: Type.Optional(amount(RESET)),
    inUse: Type.Optional(amount('Of a lease: tokens of all live leases of the identifier.')),
    source: Type.Enum([...LIMIT_SOURCES], {
      description:
        "What set the limit. `request`: the request of the client, or Envoy's rules. `block`: " +
        'the identifier was blocked.',
    }),
    override: Type.Optional(idText('rlor', 'Id of the override that applied.')),
    policy: Type.Optional(named('Namespace of the gateway policy that made the check.')),
    shadow: Type.Optional(flagged('`true` if the denied request passed.')),
  };
}

/** The schema of the field `leftOut`. */
export function leftOutField() {
  return amount(
    'Denials of the same namespace on the same thread that have no record: those since the ' +
      'record of the namespace before, where it has none, and those up to the next one.',
  );
}

/** The schema of the namespace of a record. */
export function decisionNamespace() {
  return Type.Object(
    { id: namespaceId('Id of the namespace.'), name: named('Name of the namespace.') },
    { description: 'The namespace.' },
  );
}

const RULE_NAMES = Object.fromEntries(
  Object.entries(RULE).map(([name, number]) => [number, name]),
) as Record<number, RuleName>;

function ruleNameOf(rule: number): RuleName {
  return RULE_NAMES[rule];
}

/** @param name of the namespace */
export function shownDecision(decision: RecentDecision, name: string): ShownDecision {
  const { timeMs, untilMs, isAllowed, count, cost, window, lease, overrideId } = decision;
  return {
    ...{ time: timeMs, until: untilMs, decision: isAllowed ? 'allowed' : 'denied', count, cost },
    ...(window && {
      limit: window.limit,
      duration: window.durationMs,
      algorithm: ruleNameOf(window.rule),
      ...(window.burst !== NO_BURST && { burst: window.burst }),
      remaining: window.remaining,
      reset: window.reset,
    }),
    ...(lease && { kind: 'lease', limit: lease.limit, inUse: lease.inUse }),
    source: decision.source,
    ...(overrideId !== undefined && { override: overrideId }),
    ...(decision.isOfPolicy && { policy: name }),
    ...(decision.isShadow && { shadow: true }),
  };
}

function decisionSchema() {
  return Type.Object(decisionFields());
}
export type ShownDecision = Static<ReturnType<typeof decisionSchema>>;

/** @throws ApiError (503) */
export function requireRecentDecisions({
  recentDecisions,
}: OperationContext): RecentDecisionQueries {
  if (recentDecisions !== undefined) return recentDecisions;
  const message = 'there are no recent decisions: WEIR_RECENT_DECISIONS is off';
  throw new ApiError('SERVICE_UNAVAILABLE', message);
}
