/**
 * POST /v1/ratelimits.explain: which override applies to an identifier, what its counters hold, and
 * what its next check would get. Failures are ApiErrors, in the order 400, 403, 404.
 */

import Type from 'typebox';
import type { Key } from '../../auth/keyring.ts';
import { algorithmFields, requireValidBurst } from '../../core/algorithm-fields.ts';
import {
  AMOUNT_MAX,
  DURATION_MAX_MS,
  DURATION_MIN_MS,
  IDENTIFIER_MAX_CHARACTERS,
  NAMESPACE_MAX_CHARACTERS,
} from '../../core/constants.ts';
import { formatValue } from '../../core/describe.ts';
import { ApiError } from '../../core/errors.ts';
import type { Namespace } from '../../core/namespace.ts';
import {
  createValidator,
  field,
  integer,
  JSON_OBJECT,
  milliseconds,
  text,
} from '../../core/schema.ts';
import { DEFAULT_RULE } from '../../core/window-rules.ts';
import type { CounterExplanation } from '../../engine/engine.ts';
import type { OverrideMatch } from '../../overrides/sets.ts';
import type { Policy } from '../../policies/policy.ts';
import { DEFAULT_NAMESPACE } from '../common/check-request.ts';
import type { NamespaceFinder } from '../common/namespace-finder.ts';
import { namespaceNotFound } from '../common/namespace-reference.ts';
import { cidrField, endField } from '../common/overrides.ts';
import {
  type CounterOperationV1,
  readBody,
  type UnknownFieldListener,
} from '../common/unknown-fields.ts';
import { showCounters } from './corrections.ts';
import type { ExplainFacts } from './explain-facts.ts';
import { verdictOf } from './explain-reason.ts';
import type { CheckTerms, RequestedTerms } from './explain-terms.ts';
import type { ResponseV1 } from './responses.ts';

export const explainValidator = createValidator(
  Type.Object(
    {
      namespace: Type.Optional(
        field(
          text(1, NAMESPACE_MAX_CHARACTERS),
          'Name or id of the namespace. A text that begins with `rlns_` is an id.',
          DEFAULT_NAMESPACE,
        ),
      ),
      identifier: field(text(0, IDENTIFIER_MAX_CHARACTERS), 'The `identifier` of the checks.'),
      limit: Type.Optional(
        field(
          integer(1, AMOUNT_MAX),
          'The `limit` of the check, with `duration`. Without both, those of the override or of ' +
            'the policy of the namespace are used.',
        ),
      ),
      duration: Type.Optional(
        field(
          milliseconds(DURATION_MIN_MS, DURATION_MAX_MS),
          'The `duration` of the check, in milliseconds, with `limit`.',
        ),
      ),
      cost: Type.Optional(
        field(
          integer(0, AMOUNT_MAX),
          'Tokens that the check uses. Default: the cost of the policy, or 1 without one.',
        ),
      ),
      ...algorithmFields(DEFAULT_RULE),
    },
    JSON_OBJECT,
  ),
);

export interface ExplainRequest extends RequestedTerms {
  namespace: Namespace;
  identifier: string;
}

/** @param bytes the complete body */
export function readExplain(
  namespaces: NamespaceFinder,
  key: Key,
  bytes: ArrayBuffer | Uint8Array,
  onUnknownFields: UnknownFieldListener<CounterOperationV1>,
): ExplainRequest {
  const body = readBody(explainValidator, bytes, 'ratelimits.explain', key, onUnknownFields);
  const { namespace: name = DEFAULT_NAMESPACE, identifier, cost } = body;
  const { limit, duration, algorithm, burst } = body;
  if ((limit === undefined) !== (duration === undefined)) throw incomplete(limit, duration);
  // Without a limit, any burst is valid: that of an override lowers it.
  requireValidBurst({ ...body, limit: limit ?? AMOUNT_MAX });
  namespaces.requirePermission(key, 'read_namespace', name);
  namespaces.requirePermission(key, 'read_override', name);
  const namespace = namespaces.find(key, 'read_namespace', name);
  if (namespace === undefined) throw namespaceNotFound({ name, field: 'namespace' });
  return { namespace, identifier, limit, duration, algorithm, burst, cost };
}

function incomplete(limit: number | undefined, duration: number | undefined): ApiError {
  const [present, missing] = limit === undefined ? ['duration', 'limit'] : ['limit', 'duration'];
  const rule = `"${missing}" is required with "${present}": a check has both`;
  const fix = `give "${missing}", or leave both out`;
  const message = `${rule}; got only "${present}" = ${limit ?? duration}`;
  return new ApiError('BAD_REQUEST', message, { location: `body.${missing}`, fix });
}

const NOT_CHECKED = 'Requests that the policy skips get no check:';
const SHADOWED = 'The policy is in shadow mode, so the gateway allows the request.';

/** The body of the 200. */
export function explainResult(
  request: ExplainRequest,
  facts: ExplainFacts,
  terms: readonly CheckTerms[],
  explanation: CounterExplanation,
): ResponseV1<'ratelimits.explain'> {
  const { winner, losers, count } = facts.overrides;
  const { policy, identifier } = facts;
  const { allowed, counters, predictions, nowMs, isExact } = explanation;
  const { reason, ...verdict } = verdictOf(terms, explanation);
  const isShadowed = policy?.shadow === true && !allowed;
  return {
    namespace: request.namespace.name,
    identifier: identifier ?? request.identifier,
    at: nowMs,
    ...(verdict.cause !== 'no_limit' && { success: allowed }),
    ...verdict,
    reason: [
      ...identifierNote(request, facts),
      reason,
      ...(isShadowed ? [SHADOWED] : []),
      ...(policy?.skip === undefined ? [] : [`${NOT_CHECKED} ${policy.skip.join(', ')}.`]),
    ].join(' '),
    isExact,
    ...(winner && { override: shownOverride(winner) }),
    otherOverrides: losers.map(({ reason, ...override }) => {
      return { ...shownOverride(override), rule: reason.rule, reason: reason.text };
    }),
    matchingOverrides: count,
    ...(policy && { policy: shownPolicy(policy) }),
    windows: terms.map((window, number) => {
      const { allowed: success, passesAt, ...rest } = predictions[number];
      const decision = { success, ...rest };
      return { ...decision, ...(passesAt !== undefined && { passesAt }), terms: window };
    }),
    counters: showCounters(counters),
  };
}

/** A sentence if the requests of a policy do not have the identifier of this request. */
function identifierNote(request: ExplainRequest, { policy, identifier }: ExplainFacts): string[] {
  if (policy === undefined || identifier === request.identifier) return [];
  const given = formatValue(request.identifier);
  if (identifier !== undefined) {
    return [`The policy identifies the client ${given} by ${formatValue(identifier)}.`];
  }
  const parts = policy.identify.join(' and ');
  return [`No request has the identifier ${given}: the policy identifies clients by ${parts}.`];
}

function shownOverride(override: OverrideMatch) {
  const { id, namespace, identifier, limit, durationMs, isAsync } = override;
  const selector = { identifier, ...cidrField(override) };
  const values = { limit, duration: durationMs, async: isAsync, ...endField(override) };
  return { id, namespace, ...selector, ...values };
}

function shownPolicy({ gateway, shadow, skip }: Policy) {
  return { gateway, shadow, ...(skip && { skip }) };
}
