/**
 * POST /v1/ratelimits.explain: which override applies to an identifier, what its counters hold, and
 * what its next check would get. Failures are ApiErrors, in the order 400, 403, 404.
 */

import Type, { type TSchema } from 'typebox';
import type { Key } from '../../../auth/keyring.ts';
import { ALGORITHMS, algorithmFields, requireValidBurst } from '../../../core/algorithm-fields.ts';
import { AMOUNT_MAX, EXPLAINED_OVERRIDES_MAX } from '../../../core/constants.ts';
import { DECISION_CAUSES } from '../../../core/decision.ts';
import { formatValue } from '../../../core/describe.ts';
import { ApiError } from '../../../core/errors.ts';
import type { Namespace } from '../../../core/namespace.ts';
import { field, integer } from '../../../core/schema.ts';
import { DEFAULT_RULE } from '../../../core/window-rules.ts';
import type { CounterExplanation, CounterState } from '../../../engine/engine.ts';
import type { LiveHolds } from '../../../engine/hold-engine.ts';
import { PRECEDENCE_RULES } from '../../../overrides/precedence.ts';
import type { OverrideMatch } from '../../../overrides/sets.ts';
import type { Policy } from '../../../policies/policy.ts';
import { count } from '../../common/analytics.ts';
import { blockFields, shownBlock } from '../../common/blocks.ts';
import { DEFAULT_NAMESPACE } from '../../common/check-request.ts';
import { counterFields, counterList, durationField, shownCounters } from '../../common/counters.ts';
import { liveHoldsField, shownHolds } from '../../common/live-holds.ts';
import type { NamespaceFinder } from '../../common/namespace-finder.ts';
import { namespaceNotFound } from '../../common/namespace-reference.ts';
import { counterOperation, type Result } from '../../common/operation.ts';
import { overrideV1, shownV1 } from '../../common/override-fields.ts';
import { policyFields } from '../../common/policy-fields.ts';
import { decisionFields } from '../../common/recent-decisions.ts';
import {
  amount,
  flagged,
  listOf,
  named,
  REMAINING,
  RESET,
  unixMs,
} from '../../common/responses.ts';
import { readBody, type UnknownFieldListener } from '../../common/unknown-fields.ts';
import type { ExplainFacts, RecentFacts } from '../../explain/facts.ts';
import { verdictOf } from '../../explain/reason.ts';
import { type CheckTerms, type RequestedTerms, TERM_SOURCES } from '../../explain/terms.ts';

export function response() {
  const { id, ...overrideFields } = overrideV1();
  const override = {
    id,
    namespace: named('Name of the namespace of the override, or its pattern of names.'),
    ...overrideFields,
  };
  const { gateway, shadow, skip } = policyFields();
  return Type.Object({
    namespace: named('Name of the namespace.'),
    identifier: named('The identifier of the request.'),
    at: unixMs('Time of the counters and of the prediction'),
    success: Type.Optional(
      flagged('Whether the next check would be allowed. Absent if the cause is `no_limit`.'),
    ),
    cause: Type.Enum([...DECISION_CAUSES, 'blocked', 'no_limit'], {
      description:
        'Reason of the decision. `blocked`: the identifier is blocked. `no_limit`: nothing sets ' +
        'a limit, and there is no counter, or more than one, to take it from.',
    }),
    passesAt: passesAt(),
    reason: named('The cause as a sentence.'),
    isExact: flagged(
      'Whether a check with these terms, at the time `at`, gets this decision. `false` if other ' +
        'machines share the counters: they may use tokens.',
    ),
    block: Type.Optional(
      Type.Object(blockFields(), {
        description:
          'The block of the identifier, which denies its checks. No override applies until its ' +
          'end.',
      }),
    ),
    override: Type.Optional(
      Type.Object(override, { description: 'The override that applies. Absent if none does.' }),
    ),
    otherOverrides: listOf(
      Type.Object({
        ...override,
        rule: Type.Enum([...PRECEDENCE_RULES], {
          description: 'Rule by which `override`, or the block, takes precedence.',
        }),
        reason: named('The rule in words.'),
      }),
      'Overrides that match and do not apply, in the order of their precedence: the first ' +
        `${EXPLAINED_OVERRIDES_MAX}.`,
    ),
    matchingOverrides: amount('Number of overrides that match, without a block.'),
    policy: Type.Optional(
      Type.Object(
        { gateway, shadow, skip },
        { description: 'The policy by which the check is decided. Absent for a check of the API.' },
      ),
    ),
    windows: listOf(
      explainedWindow(),
      'The decision in each window. A policy can have several, which must all allow the check. ' +
        'If nothing sets a limit, each window is that of a counter.',
    ),
    recent: Type.Optional(
      Type.Object(
        {
          since: unixMs('Begin of the time that the recent decisions cover'),
          last: Type.Optional(
            Type.Object(decisionFields(), {
              description: 'The last recorded decision. Absent if there is none.',
            }),
          ),
          lastDenied: Type.Optional(
            Type.Object(decisionFields(), {
              description: 'The last recorded denial. Absent if there is none.',
            }),
          ),
          leftOut: Type.Optional(
            amount(
              'Denials of the namespace that have no record, because many came within a second. ' +
                'Some may be of the identifier. Only without `lastDenied`, and if there are any.',
            ),
          ),
        },
        {
          description:
            'What was decided recently about the identifier. Absent if the key may not read ' +
            'analytics of the namespace, and with `WEIR_RECENT_DECISIONS=off`.',
        },
      ),
    ),
    deniedThisHour: Type.Optional(
      Type.Object(
        {
          start: unixMs('Begin of the clock hour'),
          count: count('Number of denied checks and leases, at most.'),
          error: count('The true number is between `count` minus `error` and `count`.'),
        },
        {
          description:
            'How often the identifier was denied in this hour, on this machine. Absent if the ' +
            'analytics do not list the identifier, or the key may not read them.',
        },
      ),
    ),
    counters: counterList(
      'The counters of the identifier, as `ratelimits.inspect` shows them. A counter of windows ' +
        'has only the algorithm of its checks, where it is known.',
    ),
    holds: liveHoldsField(),
  });
}

function explainedWindow() {
  const number = () => Type.Integer({ minimum: 0, maximum: AMOUNT_MAX });
  return Type.Object({
    success: flagged('Whether this window allows the check.'),
    left: amount('Tokens that are left before the check.'),
    remaining: amount(REMAINING),
    reset: amount(RESET),
    cause: Type.Enum([...DECISION_CAUSES, 'blocked'], {
      description: 'Reason of the decision in this window.',
    }),
    passesAt: passesAt(),
    terms: Type.Object(
      {
        limit: term(number(), 'Tokens that may be used in one window.'),
        duration: term(number(), 'Length of the window in milliseconds.'),
        algorithm: term(Type.Enum([...ALGORITHMS]), 'Window rule.'),
        burst: Type.Optional(term(number(), 'Tokens that may be used at once. Only with `gcra`.')),
        async: term(Type.Boolean(), 'Whether the tokens are deducted after the response.'),
        cost: term(number(), 'Tokens of the check.'),
      },
      { description: 'The terms by which the check is decided.' },
    ),
  });
}

function term<S extends TSchema>(value: S, description: string) {
  const from = Type.Enum([...TERM_SOURCES], {
    description:
      'Where the value comes from. `decision`: from the last recorded check, at the time `at`. ' +
      '`counter`: from the last check that the counter counted.',
  });
  const at = Type.Optional(unixMs('Time of the recorded check'));
  return Type.Object({ value: field(value, 'The value.'), from, at }, { description });
}

function passesAt() {
  return Type.Optional(
    amount(
      'Earliest time at which the check would pass if no other check is counted, in Unix ' +
        'milliseconds: only if the cause is `limit_reached`. With `blocked` it is the end of the ' +
        'block.',
    ),
  );
}

export const explain = counterOperation({
  name: 'ratelimits.explain',
  version: 'v1',
  requires: { action: 'read_namespace', and: 'read_override', in: 'the namespace' },
  request: {
    ...counterFields,
    limit: Type.Optional(
      field(
        integer(1, AMOUNT_MAX),
        'The `limit` of the check, with `duration`. Without both, those of the override or of ' +
          'the policy of the namespace are used.',
      ),
    ),
    duration: Type.Optional(
      field(durationField(), 'The `duration` of the check, in milliseconds, with `limit`.'),
    ),
    cost: Type.Optional(
      field(
        integer(0, AMOUNT_MAX),
        'Tokens that the check uses. Default: the cost of the policy, or 1 without one.',
      ),
    ),
    ...algorithmFields(DEFAULT_RULE),
  },
});

export interface ExplainRequest extends RequestedTerms {
  namespace: Namespace;
  identifier: string;
}

/** @param bytes the complete body */
export function readExplain(
  namespaces: NamespaceFinder,
  key: Key,
  bytes: ArrayBuffer | Uint8Array,
  onUnknownFields: UnknownFieldListener<typeof explain.name>,
): ExplainRequest {
  const body = readBody(explain.validator, bytes, explain.name, key, onUnknownFields);
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
const SHADOW_RULE = 'The rule was in shadow mode, so the request passes.';
const SHADOWED = 'The policy is in shadow mode, so the gateway allows the request.';

/** The body of the 200. */
export function explainResult(
  request: ExplainRequest,
  facts: ExplainFacts,
  terms: readonly CheckTerms[],
  explanation: CounterExplanation,
  holds: LiveHolds,
): Result<typeof response> {
  const { winner, losers, count: matching } = facts.overrides;
  const { policy, identifier, recent, deniedThisHour } = facts;
  const block = winner?.isBlocking === true ? winner : undefined;
  const { allowed, counters, predictions, nowMs, isExact } = explanation;
  const { reason, ...verdict } = verdictOf(terms, explanation, facts);
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
      ...limitNotes(terms, counters),
      ...(isShadowed ? [SHADOWED] : []),
      ...(isRuleInShadow(terms, facts) && !allowed ? [SHADOW_RULE] : []),
      ...(policy?.skip === undefined ? [] : [`${NOT_CHECKED} ${policy.skip.join(', ')}.`]),
    ].join(' '),
    isExact,
    ...(block && { block: shownBlock(block) }),
    ...(winner && !block && { override: shownOverride(winner) }),
    otherOverrides: losers.map(({ precedence, ...override }) => {
      return { ...shownOverride(override), rule: precedence.rule, reason: precedence.text };
    }),
    matchingOverrides: matching - (block === undefined ? 0 : 1),
    ...(policy && { policy: shownPolicy(policy) }),
    windows: terms.map((window, number) => {
      const { allowed: success, ...predicted } = predictions[number];
      const isBlocked = block !== undefined && !success;
      const cause = isBlocked ? ('blocked' as const) : predicted.cause;
      const passesAt = isBlocked ? block.expiresMs : predicted.passesAt;
      const { left, remaining, reset } = predicted;
      const decision = { success, left, remaining, reset, cause };
      return { ...decision, ...(passesAt !== undefined && { passesAt }), terms: window };
    }),
    ...(recent && { recent: shownRecent(recent) }),
    ...(deniedThisHour && { deniedThisHour }),
    counters: countersInUse(counters, terms),
    holds: shownHolds(holds),
  };
}

/** Says that a limit may have changed since the last recorded check. */
function limitNotes(terms: readonly CheckTerms[], counters: readonly CounterState[]): string[] {
  return terms.flatMap(({ limit, duration, algorithm }) => {
    if (limit.from !== 'decision') return [];
    const counter = counters.find(({ durationMs, usage }) => {
      return durationMs === duration.value && usage[algorithm.value] !== undefined;
    });
    if (counter === undefined || counter.limit === 0 || counter.limit === limit.value) return [];
    return [`The last allowed check had the limit ${counter.limit}: it may have changed.`];
  });
}

/** Whether a rule of Envoy's service in shadow mode has denied the last check. */
function isRuleInShadow([first]: readonly CheckTerms[], { recent }: ExplainFacts): boolean {
  return first?.limit.from === 'decision' && recent?.checks.at(0)?.shadow === true;
}

function shownRecent({ since, last, lastDenied, leftOut }: RecentFacts) {
  const denials = { ...(lastDenied && { lastDenied }), ...(leftOut && { leftOut }) };
  return { since, ...(last && { last }), ...denials };
}

/** The counters without the algorithms that no check uses, where the terms say which one does. */
function countersInUse(counters: readonly CounterState[], terms: readonly CheckTerms[]) {
  return shownCounters(counters).map(({ algorithms, ...counter }) => {
    const used = terms
      .filter(({ duration, algorithm }) => {
        return duration.value === counter.duration && algorithm.from !== 'default';
      })
      .flatMap(({ algorithm: { value } }) => {
        return algorithms[value] === undefined ? [] : [[value, algorithms[value]] as const];
      });
    return { ...counter, algorithms: used.length === 0 ? algorithms : Object.fromEntries(used) };
  });
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
  const { id, ...fields } = shownV1(override);
  return { id, namespace: override.namespace, ...fields };
}

function shownPolicy({ gateway, shadow, skip }: Policy) {
  return { gateway, shadow, ...(skip && { skip }) };
}
