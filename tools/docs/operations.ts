/**
 * The documentation of each operation of the API: its text, its permissions and its schemas. Paths,
 * methods and body limits are those of `src/api/common/operations.ts`.
 */

import type { TSchema } from 'typebox';
import Type from 'typebox';
import type { CounterOperationName, OperationName } from '../../src/api/common/operations.ts';
import * as analytics from '../../src/api/v1/analytics.ts';
import { listValidator as listAudit } from '../../src/api/v1/audit.ts';
import { countersValidator, refundValidator } from '../../src/api/v1/corrections.ts';
import { explainValidator } from '../../src/api/v1/explain.ts';
import {
  createKeyValidator,
  listKeysValidator,
  revokeKeyValidator,
} from '../../src/api/v1/keys.ts';
import { limitValidator as limitV1 } from '../../src/api/v1/limit.ts';
import * as namespaces from '../../src/api/v1/namespaces.ts';
import * as overridesV1 from '../../src/api/v1/overrides.ts';
import { listValidator as listPolicies } from '../../src/api/v1/policies.ts';
import { RESPONSES_V1 } from '../../src/api/v1/responses.ts';
import { itemValidator, limitValidator as limitV2 } from '../../src/api/v2/limit.ts';
import * as overridesV2 from '../../src/api/v2/overrides.ts';
import { RESPONSES_V2 } from '../../src/api/v2/responses.ts';
import {
  CREATE_NAMESPACE,
  type GLOBAL_PERMISSIONS,
  type NamespaceAction,
} from '../../src/auth/permissions.ts';
import {
  ANALYTICS_IDENTIFIERS_MAX,
  AUDIT_ENTRIES_MAX,
  CHECK_QUEUE_ENTRIES,
  EXACT_OVERRIDES_MAX,
  KEYS_MAX,
  MULTI_LIMIT_MAX,
  NAMESPACES_MAX,
  REMOVED_OVERRIDES_MAX,
  WILDCARD_OVERRIDES_MAX,
} from '../../src/core/constants.ts';
import {
  describePermissions,
  requireGcraForBurst,
  requireLimitWithDuration,
  requireNamespace,
  requireResetUnlessGcra,
} from './request-rules.ts';
import { numberText } from './schema-text.ts';

export type ApiOperation = OperationName | CounterOperationName;

/** The groups of operations, in the order of the documentation. */
export const TAGS = {
  Checks:
    'A check decides whether an identifier may use tokens now. The response to a denied check is ' +
    'a 200 too: read `success` or `passed`.',
  'Refund, reset, inspect, explain':
    'These operations correct, show and explain counters. weir adds them to v1.',
  Overrides:
    'An override gives an identifier, or all identifiers that match a pattern, another limit and ' +
    'duration than those of the check.',
  'Namespaces and policies':
    'The namespaces and policies of a server. weir adds these operations to v1.',
  Keys: 'API keys. weir adds these operations to v1.',
  'Audit log': 'The changes to keys, namespaces, overrides and policies. weir adds it to v1.',
  Analytics:
    'Figures of namespaces by minute and by hour, and their busiest identifiers. weir adds these ' +
    'operations to v1.',
  'Gateway checks':
    'A gateway sends a check for each request of its clients. A policy in the configuration file ' +
    'says how a client is identified, and sets its limits.',
  Documentation: 'The server has its own documentation, which needs no key.',
} as const;
export type Tag = keyof typeof TAGS;

export interface OperationDocs {
  tag: Tag;
  summary: string;
  /** Paragraphs. */
  description: readonly string[];
  /** One of these is sufficient. */
  permissions: readonly string[];
  /** One of these is required too. */
  alsoRequires?: readonly string[];
  /** The body of a POST, or the query of a GET. */
  request: TSchema;
  response: TSchema;
  /** The message of a 403, unless it names all permissions. */
  forbidden?: string;
  /** Beside those of every operation: when it answers 404 or 409. */
  notFound?: string;
  conflict?: string;
}

const inNamespace = (action: NamespaceAction) => [
  `ratelimit.*.${action}`,
  `ratelimit.<namespaceId>.${action}`,
];
const everywhere = (action: NamespaceAction) => [`ratelimit.*.${action}`];
const global = (permission: (typeof GLOBAL_PERMISSIONS)[number]) => [permission];

const CREATES_NAMESPACE =
  `A new name creates a namespace. The key then needs the permission \`${CREATE_NAMESPACE}\`. A ` +
  `server has at most ${numberText(NAMESPACES_MAX)} namespaces.`;
const GCRA =
  'With `gcra` a counter is a bucket of `burst` tokens. Used tokens come back one by one, ' +
  '`limit` of them in each `duration`. A check whose cost is above the burst is always denied. ' +
  '`gcra` has counters of its own; `fixed` and `sliding` share theirs. An override replaces ' +
  '`limit` and `duration`. If the burst is above the limit of the override, it is lowered to ' +
  'that limit.';
const FULL_TABLE =
  'If a new counter finds no free slot and can evict no other counter, `WEIR_ON_FULL` decides. ' +
  '`deny` denies the check, with `remaining: 0`; its `reset` is the earliest end of a window in ' +
  'the slots for this counter. `allow` allows the check and does not count it.';
const AFTER_ASYNC =
  'The operation waits until all earlier asynchronous checks are deducted. If that takes longer ' +
  'than 2 s, the response is a 503, and nothing is changed.';
const OVERRIDDEN_DURATION =
  'Give the `duration` that the request of the check had, also if an override replaced it. If an ' +
  'override is set or deleted after the check, the operation may select another counter.';
const SETS_OVERRIDE =
  'Creates an override, or replaces its values under the same id. The response is sent when the ' +
  'override is durable and applies to the next check on every connection.';
const APPLIES =
  'Each identifier that matches a pattern has its own counter. The algorithm and the cost stay ' +
  'those of the check. An override replaces all windows of a policy by one window, which has the ' +
  'algorithm and the burst of the first one.';
const OVERRIDE_PRECEDENCE = [
  '1. an exact namespace, before a pattern',
  '2. more literal characters in the namespace',
  '3. a longer literal prefix of the namespace',
  '4. the smaller text of the namespace, by code points',
  '',
  'If the namespaces are the same, an exact identifier precedes a CIDR block, and a block ' +
    'precedes a pattern. Of two blocks the longer one applies. Patterns of identifiers follow ' +
    'the rules 2 to 4.',
].join('\n');
const CHECK_NOT_FOUND =
  'The namespace does not exist, and the key lacks the permission to create it.';
const ENDS =
  'An override with `expires` ends by itself at that time. Checks then have the next override ' +
  'that matches, or their own limit. A set replaces all values: without `expires`, the override ' +
  'has no end any more. An override that is set after its end is a new one, with another id.';
const OVERRIDE_NOT_FOUND = 'The namespace or the override does not exist.';
const LACKS = 'the API key lacks the permission';
const LACKS_READ = `${LACKS} "ratelimit.*.read_namespace"`;
/** @param item the first item whose namespace the key may not use */
const lacksForItem = (item: string, action: NamespaceAction) => {
  const quoted = inNamespace(action).map((permission) => `"${permission}"`);
  return `${item}: ${LACKS} ${quoted.join(' or ')}`;
};
const PAGES = 'Pages are in the order of creation.';

const importSchema = overridesV1.importValidator.schema;

const ANALYTICS_OF_THIS_MACHINE =
  'The figures are those of this weir; with several machines, add them up.';

export const OPERATION_DOCS: Readonly<Record<ApiOperation, OperationDocs>> = {
  'ratelimits.limit': {
    tag: 'Checks',
    summary: 'Check a limit (v1)',
    description: [
      'Decides whether the identifier may use `cost` tokens, and counts them if it may. A ' +
        'denial is a 200 with `success: false`, and uses no tokens.',
      'Unless `algorithm` names another rule, windows are fixed and aligned to the Unix epoch. ' +
        '`reset` is then a multiple of `duration`. There is one counter for each namespace, ' +
        'identifier and duration, so the usage stays if the limit changes.',
      GCRA,
      'With `async` a window may allow more than its limit, because deductions follow the ' +
        'responses, usually within 2 ms. The excess is at most the checks that wait for their ' +
        `deduction: ${CHECK_QUEUE_ENTRIES} for each acceptor. Further checks are decided ` +
        'synchronously. With `WEIR_DECIDE=worker` the field has no effect.',
      FULL_TABLE,
      CREATES_NAMESPACE,
    ],
    permissions: inNamespace('limit'),
    request: requireGcraForBurst(limitV1.schema),
    response: RESPONSES_V1['ratelimits.limit'],
    notFound: CHECK_NOT_FOUND,
  },
  'ratelimit.limit': {
    tag: 'Checks',
    summary: 'Check a limit (v2)',
    description: [
      'Decides whether the identifier may use `cost` tokens, and counts them if it may. A ' +
        'denial is a 200 with `success: false`, and uses no tokens.',
      'Unless `algorithm` names another rule, the window slides. The usage of the previous ' +
        'window then counts in part: by the share of that window that lies within the last ' +
        '`duration`. A check is allowed if `usage + floor(previous usage * share) + cost` is at ' +
        'most `limit`. `reset` is the end of the current window.',
      'The counters are those of v1, so both versions count the same usage.',
      GCRA,
      FULL_TABLE,
      'Unknown fields are rejected.',
      CREATES_NAMESPACE,
    ],
    permissions: inNamespace('limit'),
    request: requireGcraForBurst(limitV2.schema),
    response: RESPONSES_V2['ratelimit.limit'],
    notFound: CHECK_NOT_FOUND,
  },
  'ratelimit.multiLimit': {
    tag: 'Checks',
    summary: 'Check several limits at once',
    description: [
      `Decides 1 to ${MULTI_LIMIT_MAX} checks as one batch. If all checks are allowed, all are ` +
        'counted. If one is denied, none is counted. Checks are decided in their order. A check ' +
        'sees the tokens that earlier checks of the batch use on the same counter.',
      '`passed` of a check is the decision on this check alone. If the batch is denied, ' +
        '`remaining` of a check that passed is the value before the request.',
      'The fields of a check are those of `ratelimit.limit`. `async` of an override and ' +
        '`WEIR_DECIDE` have no effect on a batch.',
      CREATES_NAMESPACE,
    ],
    permissions: inNamespace('limit'),
    request: Type.Array(requireGcraForBurst(itemValidator.schema), {
      minItems: 1,
      maxItems: MULTI_LIMIT_MAX,
    }),
    forbidden: lacksForItem('[0]', 'limit'),
    response: RESPONSES_V2['ratelimit.multiLimit'],
    notFound: CHECK_NOT_FOUND,
  },
  'ratelimits.refund': {
    tag: 'Refund, reset, inspect, explain',
    summary: 'Return tokens of a check',
    description: [
      'Returns tokens of a check to its window. `reset` names the window: it is the `reset` in ' +
        'the response to the check. At most the usage of that window is returned, and nothing ' +
        'after its end.',
      'With `gcra` a refund needs no `reset`. It returns tokens to the bucket, by the limit of ' +
        'the last allowed check.',
      OVERRIDDEN_DURATION,
      AFTER_ASYNC,
    ],
    permissions: inNamespace('refund'),
    request: requireResetUnlessGcra(refundValidator.schema),
    response: RESPONSES_V1['ratelimits.refund'],
    notFound: 'No namespace has this id.',
  },
  'ratelimits.reset': {
    tag: 'Refund, reset, inspect, explain',
    summary: 'Clear the counters of an identifier',
    description: [
      'Clears the counters of an identifier: all of them, or those of one duration or ' +
        'algorithm.',
      OVERRIDDEN_DURATION,
      AFTER_ASYNC,
    ],
    permissions: inNamespace('reset'),
    request: countersValidator.schema,
    response: RESPONSES_V1['ratelimits.reset'],
    notFound: 'No namespace has this id.',
  },
  'ratelimits.inspect': {
    tag: 'Refund, reset, inspect, explain',
    summary: 'Show the counters of an identifier',
    description: [
      'Shows the counters of an identifier, and changes none of them. A counter of `fixed` and ' +
        '`sliding` has `windowStart`, `current` and `previous`. A counter of `gcra` has ' +
        '`fullAt`.',
      '`algorithms` has one entry for each algorithm that shares the counter. An entry has the ' +
        'usage by that algorithm, for the limit of the last allowed check.',
      AFTER_ASYNC,
    ],
    permissions: inNamespace('read_namespace'),
    request: countersValidator.schema,
    response: RESPONSES_V1['ratelimits.inspect'],
    notFound: 'The namespace does not exist.',
  },
  'ratelimits.explain': {
    tag: 'Refund, reset, inspect, explain',
    summary: 'Explain why a check is allowed or denied',
    description: [
      'Says which override applies to an identifier, what its counters hold, and what its next ' +
        'check would get. Nothing changes: no token is used, and no namespace is created.',
      'With `limit` and `duration` the check is one of the API. `algorithm` is then `sliding` ' +
        'unless the field is set; for a check of v1 without an algorithm, set `fixed`. An ' +
        'override that matches replaces `limit` and `duration`.',
      'Without `limit`, `duration`, `algorithm` and `burst`, the check is that of a gateway, if ' +
        'the namespace has a policy. `windows` then has an entry for each window of the policy, ' +
        'or one entry if an override matches.',
      'If nothing sets a limit, the application sends it with each check. A counter then stands ' +
        'for a check with its duration, and with the limit of the last check that it counted. ' +
        'These terms come from `counter`. If `algorithm` is set, only its counters are used. ' +
        'Otherwise a counter of windows is predicted as `fixed`: it does not say whether its ' +
        'checks slide. A counter does not have the burst of its checks either. If there are ' +
        'several counters, each window is predicted for itself. The cause is then `no_limit`, as ' +
        'without a counter.',
      '`rule` of another override is the first rule of precedence that distinguishes it from the ' +
        'one that applies. The rules are those of `ratelimits.setOverride`.',
      'A check at the time `at` gets this decision, unless another check or change comes first. ' +
        'With `WEIR_ENGINE=redis`, `isExact` is `false`. Tokens that other machines hold in ' +
        'leases, and do not return within 0.3 s, are then shown as used. `WEIR_ON_ENGINE_DOWN` ' +
        'is not taken into account.',
      AFTER_ASYNC,
    ],
    permissions: inNamespace('read_namespace'),
    alsoRequires: inNamespace('read_override'),
    request: requireLimitWithDuration(requireGcraForBurst(explainValidator.schema)),
    response: RESPONSES_V1['ratelimits.explain'],
    notFound: 'The namespace does not exist.',
  },
  'ratelimits.setOverride': {
    tag: 'Overrides',
    summary: 'Set an override (v1)',
    description: [
      SETS_OVERRIDE,
      APPLIES,
      ENDS,
      'If several overrides match, the first difference in this order decides:',
      OVERRIDE_PRECEDENCE,
      'A `namespaceName` that contains `*` is a pattern. A pattern needs the permission ' +
        '`ratelimit.*.set_override` and creates no namespace. It also matches namespaces that ' +
        'are created later. A check may create a namespace whose name contains `*`. For an ' +
        'override of such a namespace, send its id.',
      `A server has at most ${numberText(EXACT_OVERRIDES_MAX)} overrides without a wildcard and ` +
        `${numberText(WILDCARD_OVERRIDES_MAX)} with one or of a CIDR block. ${CREATES_NAMESPACE}`,
    ],
    permissions: inNamespace('set_override'),
    request: requireNamespace(overridesV1.setValidator.schema),
    response: RESPONSES_V1['ratelimits.setOverride'],
    notFound:
      'No namespace has this id, or the key lacks the permission to create a namespace with this ' +
      'name.',
  },
  'ratelimits.getOverride': {
    tag: 'Overrides',
    summary: 'Get an override (v1)',
    description: [
      'Returns the override with this identifier or pattern. The texts must be equal: `*` is ' +
        'no wildcard here.',
      '`namespaceId` or `namespaceName` is required.',
    ],
    permissions: inNamespace('read_override'),
    request: overridesV1.getValidator.schema,
    response: RESPONSES_V1['ratelimits.getOverride'],
    notFound: OVERRIDE_NOT_FOUND,
  },
  'ratelimits.listOverrides': {
    tag: 'Overrides',
    summary: 'List the overrides of a namespace (v1)',
    description: [
      `Lists the overrides of a namespace, or of a pattern of namespaces. ${PAGES} ` +
        `\`namespaceId\` ` +
        'or `namespaceName` is required.',
    ],
    permissions: inNamespace('read_override'),
    request: overridesV1.listValidator.schema,
    response: RESPONSES_V1['ratelimits.listOverrides'],
    notFound: 'The namespace does not exist.',
  },
  'ratelimits.deleteOverride': {
    tag: 'Overrides',
    summary: 'Delete an override (v1)',
    description: [
      'Deletes the override with this identifier or pattern. The response is sent when no check ' +
        'uses it any more.',
    ],
    permissions: inNamespace('delete_override'),
    request: requireNamespace(overridesV1.deleteValidator.schema),
    response: RESPONSES_V1['ratelimits.deleteOverride'],
    notFound: OVERRIDE_NOT_FOUND,
  },
  'ratelimits.exportOverrides': {
    tag: 'Overrides',
    summary: 'Export all overrides',
    description: [
      `Lists the overrides of all namespaces, in the format of an import. ${PAGES}`,
      'An override of a namespace whose name contains `*` has `namespaceId` instead of ' +
        '`namespaceName`.',
    ],
    permissions: everywhere('read_override'),
    request: overridesV1.exportValidator.schema,
    response: RESPONSES_V1['ratelimits.exportOverrides'],
  },
  'ratelimits.importOverrides': {
    tag: 'Overrides',
    summary: 'Import overrides',
    description: [
      'Sets many overrides, all or none. Each override has the fields of ' +
        '`ratelimits.setOverride`. An import also accepts identifiers of 1 or 2 characters and a ' +
        'limit of 0, as v2 does.',
      'An import deletes no override. The same import again changes and writes nothing.',
      'An `expires` that is not in the future rejects the import. So leave out the overrides of ' +
        'an older export that have ended.',
      CREATES_NAMESPACE,
    ],
    permissions: inNamespace('set_override'),
    request: {
      ...importSchema,
      properties: {
        ...importSchema.properties,
        overrides: {
          ...importSchema.properties.overrides,
          items: requireNamespace(overridesV1.itemValidator.schema),
        },
      },
    } as TSchema,
    forbidden: lacksForItem('overrides[0]', 'set_override'),
    response: RESPONSES_V1['ratelimits.importOverrides'],
    notFound:
      'A namespace does not exist. The request names it by an id, or the key lacks the ' +
      'permission to create it.',
  },
  'ratelimit.setOverride': {
    tag: 'Overrides',
    summary: 'Set an override (v2)',
    description: [
      SETS_OVERRIDE,
      'An override that v2 sets is synchronous. A limit of 0 denies every check with a cost.',
      APPLIES,
      ENDS,
      'The precedence, patterns and maximums are those of `ratelimits.setOverride`.',
      CREATES_NAMESPACE,
    ],
    permissions: inNamespace('set_override'),
    request: overridesV2.setValidator.schema,
    response: RESPONSES_V2['ratelimit.setOverride'],
    notFound:
      'No namespace has this id, or the key lacks the permission to create a namespace with this ' +
      'name.',
  },
  'ratelimit.getOverride': {
    tag: 'Overrides',
    summary: 'Get an override (v2)',
    description: [
      'Returns the override with this identifier or pattern. The texts must be equal: `*` is ' +
        'no wildcard here.',
    ],
    permissions: inNamespace('read_override'),
    request: overridesV2.getValidator.schema,
    response: RESPONSES_V2['ratelimit.getOverride'],
    notFound: OVERRIDE_NOT_FOUND,
  },
  'ratelimit.listOverrides': {
    tag: 'Overrides',
    summary: 'List the overrides of a namespace (v2)',
    description: [`Lists the overrides of a namespace, or of a pattern of namespaces. ${PAGES}`],
    permissions: inNamespace('read_override'),
    request: overridesV2.listValidator.schema,
    response: RESPONSES_V2['ratelimit.listOverrides'],
    notFound: 'The namespace does not exist.',
  },
  'ratelimit.deleteOverride': {
    tag: 'Overrides',
    summary: 'Delete an override (v2)',
    description: [
      'Deletes the override with this identifier or pattern. The response is sent when no check ' +
        'uses it any more.',
    ],
    permissions: inNamespace('delete_override'),
    request: overridesV2.deleteValidator.schema,
    response: RESPONSES_V2['ratelimit.deleteOverride'],
    notFound: OVERRIDE_NOT_FOUND,
  },
  'ratelimits.listNamespaces': {
    tag: 'Namespaces and policies',
    summary: 'List namespaces',
    description: [
      `Lists the namespaces that the key may read, with their ids. ${PAGES} This is the order in ` +
        'which weir has stored them. Of namespaces whose first checks arrive within the same ' +
        'milliseconds, any may be the first. The order stays the same from then on.',
      'A permission in one namespace is sufficient; other namespaces are then left out.',
    ],
    permissions: inNamespace('read_namespace'),
    request: namespaces.listValidator.schema,
    forbidden: LACKS_READ,
    response: RESPONSES_V1['ratelimits.listNamespaces'],
  },
  'ratelimits.deleteNamespace': {
    tag: 'Namespaces and policies',
    summary: 'Delete a namespace',
    description: [
      'Deletes a namespace with its overrides, its counters and its figures. This cannot be ' +
        'undone. The response is sent when the deletion is durable and no check that arrives ' +
        'later uses the namespace. Overrides of a pattern of namespaces stay.',
      `${numberText(REMOVED_OVERRIDES_MAX)} overrides or more are deleted before the namespace, ` +
        'in several transactions, each with an entry `overrides.delete` in the audit log. If ' +
        'weir ends or the request fails meanwhile, the namespace stays with the rest: repeat ' +
        'the request.',
      'A later check with the same name creates another namespace, if its key may. It has a new ' +
        'id, counters and figures that begin at 0, and no overrides of its own. Permissions for ' +
        'the old id stay in their keys, and grant nothing.',
      'A client that repeats a request must send the id: if another namespace has the name by ' +
        'then, a request with the name deletes that one. In the same way, a refund with the name ' +
        'returns tokens of the namespace that has the name now, also for a check of the deleted ' +
        'one in the same window.',
      'A namespace with a policy in the configuration file cannot be deleted, with a shared ' +
        'registry in that of any machine. The namespace `default` can.',
      'A check that was being decided when the namespace was deleted still gets its response. ' +
        'The memory of the counters is freed some seconds after the response. With ' +
        '`WEIR_ENGINE=redis` they stay in Redis until their windows end, and no check finds ' +
        'them. Each machine deletes its own figures.',
    ],
    permissions: inNamespace('delete_namespace'),
    request: requireNamespace(namespaces.deleteValidator.schema),
    response: RESPONSES_V1['ratelimits.deleteNamespace'],
    notFound: 'The namespace does not exist.',
    conflict: 'A configuration file has a policy for the namespace.',
  },
  'ratelimits.listPolicies': {
    tag: 'Namespaces and policies',
    summary: 'List the policies of gateways',
    description: [
      'Lists the active policies of namespaces that the key may read, and the address to which ' +
        'gateways send checks without a key. A permission in one namespace is sufficient; other ' +
        'policies are then left out.',
    ],
    permissions: inNamespace('read_namespace'),
    request: listPolicies.schema,
    forbidden: LACKS_READ,
    response: RESPONSES_V1['ratelimits.listPolicies'],
  },
  'keys.create': {
    tag: 'Keys',
    summary: 'Create a key',
    description: [
      'Creates an API key. Only this response shows the key, because the store has only its ' +
        'digest. The key of the request must have each permission of the new key. A server has ' +
        `at most ${KEYS_MAX} keys.`,
    ],
    permissions: global('keys.create'),
    request: describePermissions(createKeyValidator.schema),
    response: RESPONSES_V1['keys.create'],
    notFound: 'A permission names a namespace that does not exist.',
  },
  'keys.list': {
    tag: 'Keys',
    summary: 'List keys',
    description: [
      'Lists the ids, names and permissions of all keys, never the keys themselves. The key of ' +
        '`WEIR_ROOT_KEY` is the first one. The others are in the order of creation.',
    ],
    permissions: global('keys.read'),
    request: listKeysValidator.schema,
    response: RESPONSES_V1['keys.list'],
  },
  'keys.revoke': {
    tag: 'Keys',
    summary: 'Revoke a key',
    description: ['Removes a key. The response is sent when every thread rejects the key.'],
    permissions: global('keys.revoke'),
    request: revokeKeyValidator.schema,
    response: RESPONSES_V1['keys.revoke'],
    notFound: 'No key has this id.',
    conflict:
      'The key is that of `WEIR_ROOT_KEY`. Or it is the only key with the permission `*`, or the ' +
      'last of them to expire.',
  },
  'audit.list': {
    tag: 'Audit log',
    summary: 'List the audit log',
    description: [
      `Lists the newest ${numberText(AUDIT_ENTRIES_MAX)} changes to keys, namespaces, overrides ` +
        'and policies, the newest first. The fields of `target`, `before` and `after` depend on ' +
        '`action`.',
      'An entry is written in the same transaction as its change. A request that is rejected or ' +
        'changes nothing has no entry. An import has one entry, and so has the deletion of a ' +
        'namespace with its overrides. A namespace that a check creates has no entry; one that ' +
        '`setOverride` creates has one. The log on standard error has the ' +
        'same entries.',
    ],
    permissions: global('read_audit'),
    request: listAudit.schema,
    response: RESPONSES_V1['audit.list'],
  },
  'analytics.getNamespaces': {
    tag: 'Analytics',
    summary: 'Show what the namespaces use',
    description: [
      'Shows how many checks were allowed and denied in each namespace, and their tokens. ' +
        'Without parameters it covers the current hour and the 23 hours before it.',
      `${ANALYTICS_OF_THIS_MACHINE} A response includes every check that was answered ` +
        'before its request; checks of a new namespace appear when the namespace is stored, ' +
        'after some milliseconds. A gateway check that a policy decides by several windows ' +
        'counts once.',
    ],
    permissions: inNamespace('read_analytics'),
    forbidden: 'the API key lacks the permission "ratelimit.*.read_analytics"',
    request: analytics.namespacesValidator.schema,
    response: RESPONSES_V1['analytics.getNamespaces'],
  },
  'analytics.getTimeline': {
    tag: 'Analytics',
    summary: 'Show what a namespace uses over time',
    description: [
      'Shows the checks of a namespace and their tokens for each minute or hour. Minutes ' +
        'are kept for `WEIR_ANALYTICS_MINUTES`, hours for `WEIR_ANALYTICS_HOURS`.',
      `${ANALYTICS_OF_THIS_MACHINE} Checks at the end of a minute may be counted in the ` +
        'next one, or the other way round, if the main thread of weir is late.',
    ],
    permissions: inNamespace('read_analytics'),
    request: requireNamespace(analytics.timelineValidator.schema),
    response: RESPONSES_V1['analytics.getTimeline'],
    notFound: 'The namespace does not exist.',
  },
  'analytics.getIdentifiers': {
    tag: 'Analytics',
    summary: 'Show the busiest identifiers of a namespace',
    description: [
      'Lists the identifiers that were denied most often, and those that used most tokens, ' +
        'in whole hours. Without `start` it covers the current hour.',
      `weir keeps ${ANALYTICS_IDENTIFIERS_MAX} identifiers of each list at most. A page has the ` +
        'same positions of both lists.',
      'weir counts identifiers in a sketch of a fixed size, so counts may be too high: by ' +
        '`error` at most. An identifier is in the list if it had a larger share of the checks ' +
        `of its namespace than about 1 in 1 000. ${ANALYTICS_OF_THIS_MACHINE}`,
    ],
    permissions: inNamespace('read_analytics'),
    request: requireNamespace(analytics.identifiersValidator.schema),
    response: RESPONSES_V1['analytics.getIdentifiers'],
    notFound: 'The namespace does not exist.',
  },
};
