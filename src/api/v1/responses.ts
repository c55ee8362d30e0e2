/**
 * The schemas of the responses of v1, by operation. They document the API, and tests compare
 * responses with them. The code uses their types only.
 */

import Type, { type Static, type TSchema } from 'typebox';
import { GRANULARITIES } from '../../analytics/granularity.ts';
import { TEXT_BYTES } from '../../analytics/sketch.ts';
import { ALGORITHMS } from '../../core/algorithm-fields.ts';
import {
  AMOUNT_MAX,
  AUDIT_NAMESPACES_MAX,
  AUDIT_PERMISSIONS_MAX,
  EXPLAINED_OVERRIDES_MAX,
} from '../../core/constants.ts';
import { DECISION_CAUSES } from '../../core/decision.ts';
import { FIGURES, type FigureName } from '../../core/figures.ts';
import { OTHER_NAMESPACE } from '../../core/namespace.ts';
import { field } from '../../core/schema.ts';
import { DEFAULT_RULE } from '../../core/window-rules.ts';
import { PRECEDENCE_RULES } from '../../overrides/precedence.ts';
import { GATEWAYS } from '../../policies/gateways.ts';
import { AUDIT_ACTIONS, AUDIT_SOURCES } from '../../registry/store/schema.ts';
import {
  amount,
  flagged,
  idText,
  limitFields,
  listOf,
  named,
  nextCursor,
  overrideEnd,
  overrideUsage,
  REMAINING,
  RESET,
  total,
  unixMs,
} from '../common/responses.ts';
import { TERM_SOURCES } from './explain-terms.ts';

const namespaceId = (description: string) => idText('rlns', description);
const namespaceName = (description: string) => named(description);
const keyId = (description: string) => idText('key', description);

const overrideId = idText('rlor', 'Id of the override. It stays the same while its values change.');
/** The values of an override. */
const overrideValues = {
  identifier: named('Identifier, pattern or CIDR block of the override.'),
  cidr: Type.Optional(
    flagged('`true` if `identifier` is a CIDR block. Absent for identifiers and patterns.'),
  ),
  limit: amount('Tokens that may be used in one window.'),
  duration: amount('Length of the window in milliseconds.'),
  async: flagged('Whether the checks to which the override applies are asynchronous.'),
  expires: overrideEnd,
};
const override = Type.Object({ id: overrideId, ...overrideValues, usage: overrideUsage });
/** An override in the form that an import accepts. */
const exportedOverride = Type.Object({
  namespaceName: Type.Optional(
    namespaceName('Name of the namespace, or a pattern of names. Absent if `namespaceId` is set.'),
  ),
  namespaceId: Type.Optional(
    namespaceId('Id of the namespace. Only for a namespace whose name contains `*`.'),
  ),
  ...overrideValues,
  usage: overrideUsage,
});

const empty = Type.Object({}, { description: 'An empty object.' });

const usage = Type.Object({
  used: amount('Tokens that are used, as this algorithm counts them.'),
  remaining: amount('Tokens that are left, by the limit of the last allowed check.'),
  reset: unixMs('End of the window, or the time at which the bucket of `gcra` is full again'),
});
const [fixed, sliding, gcra] = ALGORITHMS;
const counter = Type.Object({
  duration: amount('Length of the window in milliseconds.'),
  limit: amount('Limit of the last allowed check.'),
  windowStart: Type.Optional(
    amount(
      'Start of the newest window in which a check was counted, or denied because of tokens that ' +
        'are carried over, in Unix milliseconds. The counter is kept until the window after it ' +
        'ends. Only for windows.',
    ),
  ),
  current: Type.Optional(amount('Tokens used in that window. Only for windows.')),
  previous: Type.Optional(amount('Tokens used in the window before it. Only for windows.')),
  fullAt: Type.Optional(unixMs('Time at which the bucket is full again. Only for `gcra`')),
  algorithms: Type.Object(
    {
      [fixed]: Type.Optional(usage),
      [sliding]: Type.Optional(usage),
      [gcra]: Type.Optional(usage),
    },
    { description: 'The state by each algorithm that shares the counter.' },
  ),
});

const matchedOverride = {
  id: overrideId,
  namespace: named('Name of the namespace of the override, or its pattern of names.'),
  ...overrideValues,
};
const from = Type.Enum([...TERM_SOURCES], {
  description: 'Where the value comes from. `counter`: from the last check that it counted.',
});
const term = <S extends TSchema>(value: S, description: string) => {
  return Type.Object({ value: field(value, 'The value.'), from }, { description });
};
const number = () => Type.Integer({ minimum: 0, maximum: AMOUNT_MAX });
const decisionCause = Type.Enum([...DECISION_CAUSES], {
  description: 'Reason of the decision in this window.',
});
const passesAt = Type.Optional(
  amount(
    'Earliest time at which the check would pass if no other check is counted, in Unix ' +
      'milliseconds. Only if the cause is `limit_reached`.',
  ),
);
const explainedWindow = Type.Object({
  success: flagged('Whether this window allows the check.'),
  left: amount('Tokens that are left before the check.'),
  remaining: amount(REMAINING),
  reset: amount(RESET),
  cause: decisionCause,
  passesAt,
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

const policyWindow = Type.Object({
  limit: amount('Tokens that may be used in one window.'),
  duration: amount('Length of the window in milliseconds.'),
  algorithm: Type.Optional(
    Type.Enum([...ALGORITHMS], { description: `Window rule. Default: \`${DEFAULT_RULE}\`.` }),
  ),
  burst: Type.Optional(amount('Tokens that may be used at once. Only with `gcra`.')),
});
const policy = Type.Object({
  namespace: named('Name of the namespace.'),
  gateway: Type.Union([Type.Enum([...GATEWAYS]), Type.Array(Type.Enum([...GATEWAYS]))], {
    description: 'Gateway whose headers weir trusts, or an array if there are several.',
  }),
  windows: listOf(policyWindow, 'All of them must allow a request.'),
  cost: amount('Tokens of a request.'),
  identify: listOf(Type.String(), 'Parts of the identifier.'),
  trustedHops: amount('Number of trusted proxies in a chain.'),
  ipv6Prefix: amount('Bits of an IPv6 address that identify a client.'),
  skip: Type.Optional(
    listOf(Type.String(), 'Requests that are allowed without a check: `preflight`, and paths.'),
  ),
  missing: Type.Enum(['share', 'allow', 'deny'], {
    description: 'Decision for a request without a part of its identifier.',
  }),
  onError: Type.Enum(['allow', 'deny'], { description: 'Decision if weir fails.' }),
  shadow: flagged('Whether the policy decides and counts, but denies no request.'),
  legacyHeaders: flagged('Whether responses also have the headers `X-RateLimit-*`.'),
});

const auditTarget = Type.Object(
  {
    keyId: Type.Optional(keyId('Id of a key.')),
    name: Type.Optional(named('Name of a key.')),
    overrideId: Type.Optional(idText('rlor', 'Id of an override.')),
    namespace: Type.Optional(
      named('Namespace of an override or a policy, or a pattern of namespaces.'),
    ),
    namespaceId: Type.Optional(namespaceId('Id of a namespace. Absent for a pattern.')),
    identifier: Type.Optional(named('Identifier, pattern or CIDR block of an override.')),
    cidr: Type.Optional(flagged('`true` if `identifier` is a CIDR block.')),
    namespaces: Type.Optional(
      listOf(
        Type.String(),
        `Namespaces of an import, or of overrides that ended: the first ${AUDIT_NAMESPACES_MAX}.`,
      ),
    ),
    namespaceCount: Type.Optional(amount('Number of these namespaces.')),
  },
  { description: 'What was changed, with its name at that time.' },
);
const auditValues = (description: string) => {
  const overrideFields = {
    limit: Type.Optional(overrideValues.limit),
    duration: Type.Optional(overrideValues.duration),
    async: Type.Optional(overrideValues.async),
  };
  const keyFields = {
    permissions: Type.Optional(
      listOf(Type.String(), `Permissions of a key: the first ${AUDIT_PERMISSIONS_MAX}.`),
    ),
    permissionCount: Type.Optional(amount('Number of the permissions of a key.')),
    expires: Type.Optional(
      Type.Union([Type.Integer(), Type.Null()], {
        description:
          'Time from which a key is rejected, or `null`. Time at which an override ends, absent ' +
          'without an end. In Unix milliseconds.',
      }),
    ),
  };
  const namespaceFields = {
    overrideCount: Type.Optional(
      amount('Number of the overrides of a deleted namespace, or of many that ended at a time.'),
    ),
  };
  const note = 'A policy has the fields that `ratelimits.listPolicies` returns.';
  return Type.Object(
    { ...overrideFields, ...keyFields, ...namespaceFields },
    { additionalProperties: true, description: `${description} ${note}` },
  );
};
const auditEntry = Type.Object({
  id: amount('Number of the entry. A newer entry has a higher number.'),
  at: unixMs('Time of the change'),
  action: Type.Enum([...AUDIT_ACTIONS], { description: 'What was changed, and how.' }),
  keyId: Type.Union([Type.String(), Type.Null()], {
    description: 'Id of the API key that made the change. `null` if none did.',
  }),
  by: Type.Optional(
    Type.Enum([...AUDIT_SOURCES], {
      description: 'Source of the change. Only if `keyId` is `null`.',
    }),
  ),
  target: auditTarget,
  before: Type.Optional(auditValues('Values before the change. Absent for a new target.')),
  after: Type.Optional(auditValues('Values after the change. Absent for a removed target.')),
  counts: Type.Optional(
    Type.Object(
      {
        created: amount('Number of new overrides.'),
        updated: amount('Number of overrides whose values changed.'),
        unchanged: amount('Number of overrides that already had these values.'),
      },
      { description: 'Counts of an import, which has no `before` and `after`.' },
    ),
  ),
});

/** It may exceed the largest amount. */
const count = (description: string) => Type.Integer({ minimum: 0, description });
/** A double, as the counts of which it consists. */
const sum = (what: string) => {
  return count(`${what} Exact up to 2^53; a larger sum is rounded with each addition.`);
};
const figures = Object.fromEntries(
  FIGURES.map(({ name, description }) => [name, sum(description)]),
) as Record<FigureName, ReturnType<typeof sum>>;
const range = (unit: string) => ({
  start: unixMs(`Begin of the range, rounded down to ${unit}`),
  end: unixMs(`End of the range, rounded up to ${unit}`),
});
const analyticsNamespace = Type.Object(
  {
    id: Type.Optional(namespaceId('Id of the namespace.')),
    name: namespaceName('Name of the namespace.'),
  },
  { description: 'The namespace.' },
);
const listedIdentifier = (what: string) =>
  Type.Object({
    identifier: named('The identifier.'),
    cutOff: Type.Optional(
      flagged(`\`true\` if only the first ${TEXT_BYTES} bytes of the identifier are known.`),
    ),
    count: count(`Number of ${what}, at most.`),
    error: count('The true number is between `count` minus `error` and `count`.'),
  });

export const RESPONSES_V1 = {
  'ratelimits.limit': Type.Object({
    success: flagged('Whether the check is allowed.'),
    ...limitFields,
  }),
  'ratelimits.refund': Type.Object({ refunded: amount('Tokens that were returned.') }),
  'ratelimits.reset': Type.Object({ cleared: amount('Number of counters that were cleared.') }),
  'ratelimits.inspect': Type.Object({
    namespace: named('Name of the namespace.'),
    identifier: named('The identifier of the request.'),
    counters: listOf(counter, 'The counters of the identifier.'),
  }),
  'ratelimits.explain': Type.Object({
    namespace: named('Name of the namespace.'),
    identifier: named('The identifier of the request.'),
    at: unixMs('Time of the counters and of the prediction'),
    success: Type.Optional(
      flagged('Whether the next check would be allowed. Absent if the cause is `no_limit`.'),
    ),
    cause: Type.Enum([...DECISION_CAUSES, 'no_limit'], {
      description:
        'Reason of the decision. `no_limit`: nothing sets a limit, and there is no counter, or ' +
        'more than one, to take it from.',
    }),
    passesAt,
    reason: named('The cause as a sentence.'),
    isExact: flagged(
      'Whether a check with these terms, at the time `at`, gets this decision. `false` if other ' +
        'machines share the counters: they may use tokens.',
    ),
    override: Type.Optional(
      Type.Object(matchedOverride, {
        description: 'The override that applies. Absent if none matches.',
      }),
    ),
    otherOverrides: listOf(
      Type.Object({
        ...matchedOverride,
        rule: Type.Enum([...PRECEDENCE_RULES], {
          description: 'Rule by which `override` takes precedence.',
        }),
        reason: named('The rule in words.'),
      }),
      'Overrides that match and do not apply, in the order of their precedence: the first ' +
        `${EXPLAINED_OVERRIDES_MAX}.`,
    ),
    matchingOverrides: amount('Number of overrides that match.'),
    policy: Type.Optional(
      Type.Object(
        {
          gateway: policy.properties.gateway,
          shadow: policy.properties.shadow,
          skip: policy.properties.skip,
        },
        { description: 'The policy by which the check is decided. Absent for a check of the API.' },
      ),
    ),
    windows: listOf(
      explainedWindow,
      'The decision in each window. A policy can have several, which must all allow the check. ' +
        'If nothing sets a limit, each window is that of a counter.',
    ),
    counters: listOf(
      counter,
      'The counters of the identifier, as `ratelimits.inspect` shows them.',
    ),
  }),
  'ratelimits.setOverride': Type.Object({ overrideId }),
  'ratelimits.getOverride': override,
  'ratelimits.listOverrides': Type.Object({
    overrides: listOf(override, 'The overrides, in the order of their creation.'),
    cursor: nextCursor,
    total,
  }),
  'ratelimits.deleteOverride': empty,
  'ratelimits.exportOverrides': Type.Object({
    overrides: listOf(exportedOverride, 'The overrides, in the format of an import.'),
    cursor: nextCursor,
    total,
  }),
  'ratelimits.importOverrides': Type.Object({
    created: amount('Number of new overrides.'),
    updated: amount('Number of overrides whose values changed.'),
    unchanged: amount('Number of overrides that already had these values.'),
    dryRun: flagged('The `dryRun` of the request.'),
  }),
  'ratelimits.listNamespaces': Type.Object({
    namespaces: listOf(
      Type.Object({
        id: namespaceId('Id of the namespace.'),
        name: namespaceName('Name of the namespace.'),
      }),
      'The namespaces that the key may read, in the order of their creation.',
    ),
    cursor: nextCursor,
    total,
  }),
  'ratelimits.deleteNamespace': Type.Object({
    overrides: amount('Number of overrides that were deleted with the namespace.'),
  }),
  'ratelimits.listPolicies': Type.Object({
    policies: listOf(policy, 'Policies of namespaces that the key may read.'),
    gateway: Type.Object(
      {
        url: Type.Optional(named('URL of the port for gateways. Absent if there is none.')),
        socket: Type.Optional(named('Path of the Unix socket for gateways. Absent without one.')),
      },
      { description: 'Where gateways send checks without a key.' },
    ),
    cursor: nextCursor,
    total,
  }),
  'keys.create': Type.Object({
    keyId: keyId('Id of the key.'),
    key: idText('weir', 'The key. Only this response shows it.'),
  }),
  'keys.list': Type.Object({
    keys: listOf(
      Type.Object({
        keyId: keyId('Id of the key.'),
        name: named('Name of the key.'),
        permissions: listOf(Type.String(), 'What the key permits.'),
        createdAt: unixMs('Time of its creation'),
        expires: Type.Optional(
          unixMs('Only for a key that expires: time from which it is rejected'),
        ),
      }),
      'The keys, in the order of their creation.',
    ),
    cursor: nextCursor,
    total,
  }),
  'keys.revoke': empty,
  'audit.list': Type.Object({
    entries: listOf(auditEntry, 'The entries, the newest first.'),
    cursor: nextCursor,
    total,
  }),
  'analytics.getNamespaces': Type.Object({
    ...range('an hour'),
    namespaces: listOf(
      Type.Object({
        id: Type.Optional(
          namespaceId(`Id of the namespace. Absent for \`${OTHER_NAMESPACE}\`, which are others.`),
        ),
        name: namespaceName('Name of the namespace.'),
        ...figures,
      }),
      'The namespaces with checks in the range that the key may read, the busiest first.',
    ),
    cursor: nextCursor,
    total,
  }),
  'analytics.getTimeline': Type.Object({
    namespace: analyticsNamespace,
    granularity: Type.Enum([...GRANULARITIES], { description: 'What a point is.' }),
    ...range('the granularity'),
    points: listOf(
      Type.Object({ time: unixMs('Begin of the minute or hour'), ...figures }),
      'The minutes or hours with checks, in order. Those without checks are left out.',
    ),
  }),
  'analytics.getIdentifiers': Type.Object({
    namespace: analyticsNamespace,
    ...range('an hour'),
    complete: flagged('`false` if some checks were not counted by identifier, to bound memory.'),
    denied: listOf(
      listedIdentifier('denied checks'),
      'The identifiers that were denied most often, the first most.',
    ),
    spent: listOf(
      listedIdentifier('tokens of allowed checks'),
      'The identifiers that used most tokens, the first most.',
    ),
    cursor: Type.Optional(
      named('The `cursor` of the next page of both lists. It is absent on their last page.'),
    ),
  }),
} as const;

/** The body of the 200 response of an operation. */
export type ResponseV1<Name extends keyof typeof RESPONSES_V1> = Static<
  (typeof RESPONSES_V1)[Name]
>;
