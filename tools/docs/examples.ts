/**
 * The examples of the API documentation: requests and the responses to them, by operation. A test
 * sends each request to a running server, and compares the response with the one here except for
 * ids, times and addresses.
 */

import { ERROR_PAGES_PATH, EXAMPLE_BASE_URL } from '../../src/api/common/paths.ts';
import { CREATE_NAMESPACE } from '../../src/auth/permissions.ts';
import { NO_FIGURES } from '../../src/core/figures.ts';
import type { ApiOperation } from './operations.ts';

export interface Example {
  summary: string;
  /** The body of a POST, or the query of a GET. */
  request: unknown;
  status: 200 | 400 | 404 | 409;
  response: unknown;
}

export const REQUEST_ID = 'req_732be5619067ac98cad7fd0a_0';
export const DOCS_URL = EXAMPLE_BASE_URL + ERROR_PAGES_PATH;
const NAMESPACE_ID = 'rlns_0c6a4e7a1d4f4b6f0a3a9b52';
const OVERRIDE_ID = 'rlor_790becb6effb09af04b82f13';
/** The end of an override: 2100-01-01. */
const END = 4_102_444_800_000;
const KEY_ID = 'key_23d70cfe6912bd5c8cab0f36';
const RESET = 1795179600000;
const HOUR_MS = 3_600_000;
const FIGURES = { ...NO_FIGURES, allowed: 1, denied: 1, tokensAllowed: 100, tokensDenied: 1 };

function errorV1(status: 400 | 404 | 409, code: string, message: string) {
  const error = { code, docs: DOCS_URL + code, message, requestId: REQUEST_ID };
  return { status, response: { error } } as const;
}

const badRequestV1 = (message: string) => errorV1(400, 'BAD_REQUEST', message);
const notFoundV1 = (message: string) => errorV1(404, 'NOT_FOUND', message);

function badRequestV2(location: string, message: string, fix: string) {
  const errors = [{ location, message, fix }];
  const type = `${DOCS_URL}BAD_REQUEST`;
  const error = { title: 'Bad Request', detail: message, status: 400, type, errors };
  return { status: 400, response: { meta: { requestId: REQUEST_ID }, error } } as const;
}

function notFoundV2(detail: string) {
  const error = { title: 'Not Found', detail, status: 404, type: `${DOCS_URL}NOT_FOUND` };
  return { status: 404, response: { meta: { requestId: REQUEST_ID }, error } } as const;
}

const ok = (response: unknown) => ({ status: 200, response }) as const;
const okV2 = (data: unknown) => ok({ meta: { requestId: REQUEST_ID }, data });

const NO_NAMESPACE_ID = 'rlns_000000000000000000000000';
const NO_SUCH_ID = `there is no namespace with the id "${NO_NAMESPACE_ID}"`;
const NAMESPACE_REQUIRED = badRequestV1('"namespaceId" or "namespaceName" is required');
const IDENTIFIER_REQUIRED = badRequestV1('"identifier" is required: a text of 0 to 512 characters');
const PAGE_TOO_LARGE = (maximum: number) =>
  badRequestV1(`"limit" must be an integer from 1 to ${maximum}; got ${maximum + 1}`);

export const EXAMPLES: Readonly<Record<ApiOperation, Readonly<Record<string, Example>>>> = {
  'ratelimits.limit': {
    allowed: {
      summary: 'Allowed',
      request: { identifier: 'user_1', limit: 10, duration: 60_000 },
      ...ok({ success: true, limit: 10, remaining: 9, reset: RESET }),
    },
    denied: {
      summary: 'Denied: no tokens are left',
      request: { namespace: 'email.send', identifier: 'user_2', limit: 10, duration: 60_000 },
      ...ok({ success: false, limit: 10, remaining: 0, reset: RESET }),
    },
    gcra: {
      summary: 'A rate with a burst',
      request: {
        identifier: 'user_3',
        limit: 100,
        duration: 60_000,
        algorithm: 'gcra',
        burst: 20,
      },
      ...ok({ success: true, limit: 100, remaining: 19, reset: 1795179540600 }),
    },
    cost: {
      summary: 'Several tokens, deducted after the response',
      request: { identifier: 'user_4', limit: 1_000, duration: 3_600_000, cost: 25, async: true },
      ...ok({ success: true, limit: 1_000, remaining: 975, reset: RESET }),
    },
    invalid: {
      summary: 'A duration in seconds instead of milliseconds',
      request: { identifier: 'user_1', limit: 10, duration: 60 },
      ...badRequestV1(
        '"duration" must be an integer number of milliseconds from 1000 to 3155760000000; got 60',
      ),
    },
    mayNotCreate: {
      summary: 'The namespace is new, and the key may not create it',
      request: { namespace: 'new', identifier: 'user_1', limit: 10, duration: 60_000 },
      ...notFoundV1(
        `there is no namespace "new", and the API key lacks the permission ` +
          `"${CREATE_NAMESPACE}" to create it`,
      ),
    },
  },
  'ratelimit.limit': {
    allowed: {
      summary: 'Allowed',
      request: { namespace: 'api', identifier: 'user_1', limit: 10, duration: 60_000 },
      ...okV2({ limit: 10, remaining: 9, reset: RESET, success: true }),
    },
    denied: {
      summary: 'Denied: no tokens are left',
      request: { namespace: 'api', identifier: 'user_2', limit: 10, duration: 60_000 },
      ...okV2({ limit: 10, remaining: 0, reset: RESET, success: false, passesAt: RESET + 1 }),
    },
    overridden: {
      summary: 'An override applies',
      request: { namespace: 'api', identifier: 'user_3', limit: 10, duration: 60_000, cost: 5 },
      ...okV2({
        limit: 100,
        remaining: 95,
        reset: RESET,
        success: true,
        overrideId: OVERRIDE_ID,
      }),
    },
    invalid: {
      summary: 'A field that v2 does not have',
      request: {
        namespace: 'api',
        identifier: 'user_1',
        limit: 10,
        duration: 60_000,
        async: true,
      },
      ...badRequestV2(
        'body.async',
        '"async" is not a field of the body',
        'remove it; the fields are namespace, identifier, limit, duration, cost, algorithm, burst',
      ),
    },
    unknownNamespace: {
      summary: 'No namespace has this id',
      request: { namespace: NO_NAMESPACE_ID, identifier: 'user_1', limit: 10, duration: 60_000 },
      ...notFoundV2(NO_SUCH_ID),
    },
  },
  'ratelimit.multiLimit': {
    allowed: {
      summary: 'All checks are allowed, and counted',
      request: [
        { namespace: 'api', identifier: 'user_4', limit: 10, duration: 60_000 },
        { namespace: 'api', identifier: 'org_1', limit: 1_000, duration: 3_600_000, cost: 2 },
      ],
      ...okV2({
        passed: true,
        limits: [
          {
            namespace: 'api',
            identifier: 'user_4',
            limit: 10,
            remaining: 9,
            reset: RESET,
            passed: true,
          },
          {
            namespace: 'api',
            identifier: 'org_1',
            limit: 1_000,
            remaining: 998,
            reset: RESET,
            passed: true,
          },
        ],
      }),
    },
    denied: {
      summary: 'One check is denied, so none is counted',
      request: [
        { namespace: 'api', identifier: 'user_5', limit: 10, duration: 60_000 },
        { namespace: 'api', identifier: 'org_2', limit: 1_000, duration: 3_600_000 },
      ],
      ...okV2({
        passed: false,
        limits: [
          {
            namespace: 'api',
            identifier: 'user_5',
            limit: 10,
            remaining: 10,
            reset: RESET,
            passed: true,
          },
          {
            namespace: 'api',
            identifier: 'org_2',
            limit: 1_000,
            remaining: 0,
            reset: RESET,
            passed: false,
            passesAt: RESET + 1,
          },
        ],
      }),
    },
    invalid: {
      summary: 'The second check is invalid',
      request: [
        { namespace: 'api', identifier: 'user_1', limit: 10, duration: 60_000 },
        { namespace: 'api', identifier: 'org_1', limit: 0, duration: 3_600_000 },
      ],
      ...badRequestV2(
        'body[1].limit',
        '[1]: "limit" must be an integer from 1 to 9007199254740991; got 0',
        'give an integer from 1 to 9007199254740991',
      ),
    },
    unknownNamespace: {
      summary: 'No namespace has the id of the first check',
      request: [{ namespace: NO_NAMESPACE_ID, identifier: 'user_1', limit: 10, duration: 60_000 }],
      ...notFoundV2(`[0]: ${NO_SUCH_ID}`),
    },
  },
  'ratelimits.refund': {
    refunded: {
      summary: 'A token is returned',
      request: { identifier: 'user_5', duration: 60_000, reset: RESET, cost: 1 },
      ...ok({ refunded: 1 }),
    },
    tooLate: {
      summary: 'The window is over: nothing is returned',
      request: { identifier: 'user_6', duration: 60_000, reset: 1795000020000, cost: 1 },
      ...ok({ refunded: 0 }),
    },
    invalid: {
      summary: 'A reset that is no end of a window',
      request: { identifier: 'user_5', duration: 60_000, reset: 1795179600001, cost: 1 },
      ...badRequestV1(
        '"reset" must be the "reset" in the response to a check with this duration, a multiple ' +
          'of it; got 1795179600001 for 60000 ms',
      ),
    },
    unknownNamespace: {
      summary: 'No namespace has this id',
      request: {
        namespace: NO_NAMESPACE_ID,
        identifier: 'user_5',
        duration: 60_000,
        reset: RESET,
        cost: 1,
      },
      ...notFoundV1(NO_SUCH_ID),
    },
  },
  'ratelimits.reset': {
    cleared: {
      summary: 'A counter is cleared',
      request: { identifier: 'user_7' },
      ...ok({ cleared: 1 }),
    },
    nothing: {
      summary: 'The identifier has no counter with this duration',
      request: { namespace: 'email.send', identifier: 'user_8', duration: 1_000 },
      ...ok({ cleared: 0 }),
    },
    unknownNamespace: {
      summary: 'No namespace has this id',
      request: { namespace: NO_NAMESPACE_ID, identifier: 'user_1' },
      ...notFoundV1(NO_SUCH_ID),
    },
    invalid: {
      summary: 'The identifier is missing',
      request: { duration: 60_000 },
      ...IDENTIFIER_REQUIRED,
    },
  },
  'ratelimits.inspect': {
    counters: {
      summary: 'A counter of windows and a bucket',
      request: { identifier: 'user_9' },
      ...ok({
        namespace: 'default',
        identifier: 'user_9',
        counters: [
          {
            duration: 600_000,
            limit: 20,
            fullAt: 1795179570000,
            algorithms: { gcra: { used: 1, remaining: 19, reset: 1795179570000 } },
          },
          {
            duration: 3_600_000,
            limit: 10,
            windowStart: 1795176000000,
            current: 3,
            previous: 0,
            algorithms: {
              fixed: { used: 3, remaining: 7, reset: RESET },
              sliding: { used: 3, remaining: 7, reset: RESET },
            },
          },
        ],
      }),
    },
    unknownNamespace: {
      summary: 'The namespace does not exist',
      request: { namespace: 'nowhere', identifier: 'user_1' },
      ...notFoundV1('there is no namespace "nowhere"'),
    },
    invalid: {
      summary: 'The identifier is missing',
      request: {},
      ...IDENTIFIER_REQUIRED,
    },
  },
  'ratelimits.explain': {
    denied: {
      summary: 'An override denies the check',
      request: { namespace: 'email.send', identifier: 'user_10' },
      ...ok({
        namespace: 'email.send',
        identifier: 'user_10',
        at: 1795179540600,
        success: false,
        cause: 'limit_reached',
        passesAt: RESET + 1,
        reason:
          'The check is denied: the sliding window of 60000 ms has 0 of 5 tokens left, and the ' +
          'cost is 1. It can pass at 2026-11-20T13:00:00.001Z, if no other is counted.',
        isExact: true,
        override: {
          id: OVERRIDE_ID,
          namespace: 'email.send',
          identifier: 'user_*',
          limit: 5,
          duration: 60_000,
          async: false,
        },
        otherOverrides: [
          {
            id: OVERRIDE_ID,
            namespace: 'email.*',
            identifier: 'user_10',
            limit: 50,
            duration: 60_000,
            async: false,
            rule: 'exact_namespace',
            reason: 'an exact namespace takes precedence over a pattern',
          },
        ],
        matchingOverrides: 2,
        windows: [
          {
            success: false,
            left: 0,
            remaining: 0,
            reset: RESET,
            cause: 'limit_reached',
            passesAt: RESET + 1,
            terms: {
              limit: { value: 5, from: 'override' },
              duration: { value: 60_000, from: 'override' },
              algorithm: { value: 'sliding', from: 'default' },
              async: { value: false, from: 'default' },
              cost: { value: 1, from: 'default' },
            },
          },
        ],
        counters: [
          {
            duration: 60_000,
            limit: 5,
            windowStart: 1795179540000,
            current: 5,
            previous: 0,
            algorithms: {
              fixed: { used: 5, remaining: 0, reset: RESET },
              sliding: { used: 5, remaining: 0, reset: RESET },
            },
          },
        ],
      }),
    },
    noLimit: {
      summary: 'Nothing sets a limit',
      request: { namespace: 'email.send', identifier: 'order_1' },
      ...ok({
        namespace: 'email.send',
        identifier: 'order_1',
        at: 1795179540600,
        cause: 'no_limit',
        reason:
          'No decision is predicted: the request has no limit and duration, and no override or ' +
          'policy sets them.',
        isExact: true,
        otherOverrides: [],
        matchingOverrides: 0,
        windows: [],
        counters: [],
      }),
    },
    unknownNamespace: {
      summary: 'The namespace does not exist',
      request: { namespace: 'nowhere', identifier: 'user_1' },
      ...notFoundV1('there is no namespace "nowhere"'),
    },
    invalid: {
      summary: 'A limit without a duration',
      request: { identifier: 'user_1', limit: 10 },
      ...badRequestV1(
        '"duration" is required with "limit": a check has both; got only "limit" = 10',
      ),
    },
  },
  'ratelimits.setOverride': {
    pattern: {
      summary: 'Another limit for all identifiers that begin with vip_',
      request: {
        namespaceName: 'email.send',
        identifier: 'vip_*',
        limit: 100,
        duration: 60_000,
      },
      ...ok({ overrideId: OVERRIDE_ID }),
    },
    block: {
      summary: 'Another limit for all addresses of a CIDR block',
      request: {
        namespaceName: 'email.send',
        identifier: '203.0.113.0/24',
        cidr: true,
        limit: 100,
        duration: 60_000,
      },
      ...ok({ overrideId: OVERRIDE_ID }),
    },
    ended: {
      summary: 'An end that is in the past',
      request: {
        namespaceName: 'email.send',
        identifier: 'vip_*',
        limit: 100,
        duration: 60_000,
        expires: 1_700_000_000_000,
      },
      ...badRequestV1(
        '"expires" must be a Unix time in ms, in the future; got 1700000000000, which is ' +
          '2023-11-14T22:13:20Z',
      ),
    },
    invalid: {
      summary: 'A limit of 0, which only v2 sets',
      request: { namespaceName: 'email.send', identifier: 'vip_*', limit: 0, duration: 60_000 },
      ...badRequestV1('"limit" must be an integer from 1 to 9007199254740991; got 0'),
    },
    noNamespace: {
      summary: 'Neither namespaceId nor namespaceName',
      request: { identifier: 'vip_*', limit: 100, duration: 60_000 },
      ...NAMESPACE_REQUIRED,
    },
    unknownNamespace: {
      summary: 'No namespace has this id',
      request: {
        namespaceId: NO_NAMESPACE_ID,
        identifier: 'vip_*',
        limit: 100,
        duration: 60_000,
      },
      ...notFoundV1(NO_SUCH_ID),
    },
  },
  'ratelimits.getOverride': {
    found: {
      summary: 'An override of a pattern',
      request: { namespaceName: 'mail', identifier: 'vip_*' },
      ...ok({
        id: OVERRIDE_ID,
        identifier: 'vip_*',
        limit: 100,
        duration: 60_000,
        async: false,
      }),
    },
    noNamespace: {
      summary: 'Neither namespaceId nor namespaceName',
      request: { identifier: 'vip_*' },
      ...NAMESPACE_REQUIRED,
    },
    unknown: {
      summary: 'The override does not exist',
      request: { namespaceName: 'mail', identifier: 'nobody' },
      ...notFoundV1('there is no override of "nobody" in that namespace'),
    },
  },
  'ratelimits.listOverrides': {
    page: {
      summary: 'The first page of one override, of two',
      request: { namespaceName: 'push', limit: 1 },
      ...ok({
        overrides: [
          { id: OVERRIDE_ID, identifier: 'vip_*', limit: 100, duration: 60_000, async: false },
        ],
        cursor: '1',
        total: 2,
      }),
    },
    invalid: {
      summary: 'A page that is too large',
      request: { namespaceName: 'push', limit: 101 },
      ...PAGE_TOO_LARGE(100),
    },
    unknownNamespace: {
      summary: 'The namespace does not exist',
      request: { namespaceName: 'nowhere' },
      ...notFoundV1('there is no namespace "nowhere"'),
    },
  },
  'ratelimits.deleteOverride': {
    deleted: {
      summary: 'Deleted',
      request: { namespaceName: 'sms', identifier: 'vip_*' },
      ...ok({}),
    },
    noNamespace: {
      summary: 'Neither namespaceId nor namespaceName',
      request: { identifier: 'vip_*' },
      ...NAMESPACE_REQUIRED,
    },
    unknown: {
      summary: 'The override does not exist',
      request: { namespaceName: 'sms', identifier: 'nobody' },
      ...notFoundV1('there is no override of "nobody" in that namespace'),
    },
  },
  'ratelimits.exportOverrides': {
    page: {
      summary: 'The only page',
      request: {},
      ...ok({
        overrides: [
          {
            namespaceName: 'email.send',
            identifier: 'vip_*',
            limit: 100,
            duration: 60_000,
            async: false,
          },
        ],
        total: 1,
      }),
    },
    invalid: {
      summary: 'A page that is too large',
      request: { limit: 1_001 },
      ...PAGE_TOO_LARGE(1_000),
    },
  },
  'ratelimits.importOverrides': {
    imported: {
      summary: 'Two new overrides',
      request: {
        overrides: [
          { namespaceName: 'api', identifier: 'vip_*', limit: 100, duration: 60_000 },
          { namespaceName: 'api', identifier: 'abuser', limit: 0, duration: 60_000 },
        ],
      },
      ...ok({ created: 2, updated: 0, unchanged: 0, dryRun: false }),
    },
    dryRun: {
      summary: 'Only validate and count',
      request: {
        overrides: [{ namespaceName: 'api', identifier: 'vip_*', limit: 200, duration: 60_000 }],
        dryRun: true,
      },
      ...ok({ created: 0, updated: 1, unchanged: 0, dryRun: true }),
    },
    invalid: {
      summary: 'The first override is invalid',
      request: { overrides: [{ namespaceName: 'api', identifier: 'vip_*', limit: 100 }] },
      ...badRequestV1(
        'overrides[0]: "duration" is required: an integer number of milliseconds from 1000 to ' +
          '3155760000000',
      ),
    },
    unknownNamespace: {
      summary: 'No namespace has this id',
      request: {
        overrides: [
          { namespaceId: NO_NAMESPACE_ID, identifier: 'vip_*', limit: 1, duration: 60_000 },
        ],
      },
      ...notFoundV1(`overrides[0]: ${NO_SUCH_ID}`),
    },
  },
  'ratelimit.setOverride': {
    exact: {
      summary: 'A limit of 0 denies every check',
      request: { namespace: 'api', identifier: 'abuser', limit: 0, duration: 60_000 },
      ...okV2({ overrideId: OVERRIDE_ID }),
    },
    ending: {
      summary: 'A higher limit until a time',
      request: {
        namespace: 'api',
        identifier: 'acme',
        limit: 1_000,
        duration: 60_000,
        expires: END,
      },
      ...okV2({ overrideId: OVERRIDE_ID }),
    },
    invalid: {
      summary: 'A duration that is too short',
      request: { namespace: 'api', identifier: 'abuser', limit: 0, duration: 999 },
      ...badRequestV2(
        'body.duration',
        '"duration" must be an integer number of milliseconds from 1000 to 3155760000000; got 999',
        'give an integer number of milliseconds from 1000 to 3155760000000',
      ),
    },
    unknownNamespace: {
      summary: 'No namespace has this id',
      request: { namespace: NO_NAMESPACE_ID, identifier: 'abuser', limit: 0, duration: 60_000 },
      ...notFoundV2(NO_SUCH_ID),
    },
  },
  'ratelimit.getOverride': {
    found: {
      summary: 'An override of a pattern',
      request: { namespace: 'mail', identifier: 'vip_*' },
      ...okV2({ overrideId: OVERRIDE_ID, identifier: 'vip_*', limit: 100, duration: 60_000 }),
    },
    invalid: {
      summary: 'The identifier is missing',
      request: { namespace: 'mail' },
      ...badRequestV2(
        'body.identifier',
        '"identifier" is required: a text of 1 to 512 characters',
        'give a text of 1 to 512 characters',
      ),
    },
    unknown: {
      summary: 'The override does not exist',
      request: { namespace: 'mail', identifier: 'nobody' },
      ...notFoundV2('there is no override of "nobody" in that namespace'),
    },
  },
  'ratelimit.listOverrides': {
    page: {
      summary: 'The first page of one override, of two',
      request: { namespace: 'push', limit: 1 },
      ...ok({
        meta: { requestId: REQUEST_ID },
        data: [{ overrideId: OVERRIDE_ID, identifier: 'vip_*', limit: 100, duration: 60_000 }],
        pagination: { hasMore: true, cursor: '1' },
      }),
    },
    invalid: {
      summary: 'A page that is too large',
      request: { namespace: 'push', limit: 101 },
      ...badRequestV2(
        'body.limit',
        '"limit" must be an integer from 1 to 100; got 101',
        'give an integer from 1 to 100',
      ),
    },
    unknownNamespace: {
      summary: 'The namespace does not exist',
      request: { namespace: 'nowhere' },
      ...notFoundV2('there is no namespace "nowhere"'),
    },
  },
  'ratelimit.deleteOverride': {
    deleted: {
      summary: 'Deleted',
      request: { namespace: 'sms', identifier: 'vip_*' },
      ...okV2({}),
    },
    invalid: {
      summary: 'The namespace is empty',
      request: { namespace: '', identifier: 'vip_*' },
      ...badRequestV2(
        'body.namespace',
        '"namespace" must be a text of 1 to 512 characters; got ""',
        'give a text of 1 to 512 characters',
      ),
    },
    unknown: {
      summary: 'The override does not exist',
      request: { namespace: 'sms', identifier: 'nobody' },
      ...notFoundV2('there is no override of "nobody" in that namespace'),
    },
  },
  'ratelimits.listNamespaces': {
    page: {
      summary: 'The first page of one namespace, of two',
      request: { limit: 1 },
      ...ok({ namespaces: [{ id: NAMESPACE_ID, name: 'login' }], cursor: '1', total: 2 }),
    },
    invalid: {
      summary: 'A cursor that no page had',
      request: { cursor: 'next' },
      ...badRequestV1('"cursor" must be the cursor of the previous page; got "next"'),
    },
  },
  'ratelimits.deleteNamespace': {
    deleted: {
      summary: 'Deleted',
      request: { namespaceName: 'old' },
      ...ok({ overrides: 1 }),
    },
    noNamespace: {
      summary: 'Neither namespaceId nor namespaceName',
      request: {},
      ...NAMESPACE_REQUIRED,
    },
    unknown: {
      summary: 'The namespace does not exist',
      request: { namespaceName: 'nowhere' },
      ...notFoundV1('there is no namespace "nowhere"'),
    },
    policy: {
      summary: 'The namespace has a policy',
      request: { namespaceName: 'login' },
      ...errorV1(
        409,
        'CONFLICT',
        'the configuration file has the policy of the namespace "login": remove it first',
      ),
    },
  },
  'ratelimits.listPolicies': {
    page: {
      summary: 'One policy, and a port for gateways',
      request: {},
      ...ok({
        policies: [
          {
            cost: 1,
            trustedHops: 1,
            ipv6Prefix: 64,
            missing: 'share',
            onError: 'allow',
            shadow: false,
            legacyHeaders: false,
            gateway: ['nginx', 'caddy', 'envoy'],
            namespace: 'login',
            windows: [{ limit: 100, duration: 60_000 }],
            identify: ['ip'],
          },
        ],
        gateway: { url: 'http://127.0.0.1:7072' },
        total: 1,
      }),
    },
    invalid: {
      summary: 'A page that is too large',
      request: { limit: 101 },
      ...PAGE_TOO_LARGE(100),
    },
  },
  'keys.create': {
    created: {
      summary: 'A key for checks that does not expire',
      request: {
        name: 'web server',
        permissions: ['ratelimit.*.limit', 'ratelimit.*.create_namespace'],
      },
      ...ok({ keyId: KEY_ID, key: 'weir_5uHO4mJ0o9p3kq1nV2xT7cY8dWzR6bLfA0sE4gQhUiM' }),
    },
    invalid: {
      summary: 'An expiry in the past',
      request: { name: 'web server', permissions: ['ratelimit.*.limit'], expires: 1_700_000_000 },
      ...badRequestV1(
        '"expires" must be a Unix time in ms, in the future; got 1700000000, which is ' +
          '1970-01-20T16:13:20Z',
      ),
    },
    unknownNamespace: {
      summary: 'A permission in a namespace that does not exist',
      request: { name: 'web server', permissions: [`ratelimit.${NO_NAMESPACE_ID}.limit`] },
      ...notFoundV1(NO_SUCH_ID),
    },
  },
  'keys.list': {
    page: {
      summary: 'The first page of two keys, of three',
      request: { limit: 2 },
      ...ok({
        keys: [
          {
            keyId: 'key_5c1d2b7e9f30a4468d1e0b77',
            name: 'configured root key',
            permissions: ['*'],
            createdAt: 1795179540600,
          },
          {
            keyId: KEY_ID,
            name: 'web server',
            permissions: ['ratelimit.*.limit'],
            createdAt: 1795179540600,
            expires: 4102444800000,
          },
        ],
        cursor: '1',
        total: 3,
      }),
    },
    invalid: {
      summary: 'A page that is too large',
      request: { limit: 101 },
      ...PAGE_TOO_LARGE(100),
    },
  },
  'keys.revoke': {
    revoked: {
      summary: 'Revoked',
      request: { keyId: KEY_ID },
      ...ok({}),
    },
    invalid: {
      summary: 'The id is missing',
      request: {},
      ...badRequestV1('"keyId" is required: a text of 1 to 512 characters'),
    },
    unknown: {
      summary: 'No key has this id',
      request: { keyId: 'key_000000000000000000000000' },
      ...notFoundV1('there is no key with that id'),
    },
    configured: {
      summary: 'The key of WEIR_ROOT_KEY cannot be revoked',
      request: { keyId: 'key_5c1d2b7e9f30a4468d1e0b77' },
      ...errorV1(
        409,
        'CONFLICT',
        'key_5c1d2b7e9f30a4468d1e0b77 is the key of WEIR_ROOT_KEY: remove the setting and restart',
      ),
    },
  },
  'audit.list': {
    page: {
      summary: 'The newest change',
      request: { limit: 1 },
      ...ok({
        entries: [
          {
            id: 5,
            at: 1795179540600,
            action: 'override.update',
            keyId: KEY_ID,
            target: {
              overrideId: OVERRIDE_ID,
              namespace: 'api',
              namespaceId: NAMESPACE_ID,
              identifier: 'user_*',
            },
            before: { limit: 100, duration: 60_000, async: false },
            after: { limit: 200, duration: 60_000, async: false },
          },
        ],
        cursor: '5',
        total: 5,
      }),
    },
    invalid: {
      summary: 'A page that is too large',
      request: { limit: 101 },
      ...PAGE_TOO_LARGE(100),
    },
  },
  'analytics.getNamespaces': {
    day: {
      summary: 'The current hour and 23 hours before it',
      request: {},
      ...ok({
        start: RESET - 24 * HOUR_MS,
        end: RESET,
        namespaces: [{ id: NAMESPACE_ID, name: 'login', ...FIGURES }],
        total: 1,
      }),
    },
    invalid: {
      summary: 'A range that ends before it begins',
      request: { start: RESET, end: RESET - HOUR_MS },
      ...badRequestV1(`"start" must be before "end"; got ${RESET} and ${RESET - HOUR_MS}`),
    },
  },
  'analytics.getTimeline': {
    hour: {
      summary: 'An hour of minutes',
      request: { namespaceName: 'login' },
      ...ok({
        namespace: { id: NAMESPACE_ID, name: 'login' },
        granularity: 'minute',
        start: RESET - HOUR_MS,
        end: RESET,
        points: [{ time: RESET - 60_000, ...FIGURES }],
      }),
    },
    invalid: { summary: 'Without a namespace', request: {}, ...NAMESPACE_REQUIRED },
    unknown: {
      summary: 'An unknown namespace',
      request: { namespaceId: NO_NAMESPACE_ID },
      ...notFoundV1(NO_SUCH_ID),
    },
  },
  'analytics.getIdentifiers': {
    hour: {
      summary: 'The current hour',
      request: { namespaceName: 'login' },
      ...ok({
        namespace: { id: NAMESPACE_ID, name: 'login' },
        start: RESET - HOUR_MS,
        end: RESET,
        complete: true,
        denied: [{ identifier: '203.0.113.2', count: 1, error: 0 }],
        spent: [{ identifier: '203.0.113.2', count: 100, error: 0 }],
      }),
    },
    invalid: { summary: 'Without a namespace', request: {}, ...NAMESPACE_REQUIRED },
    unknown: {
      summary: 'An unknown namespace',
      request: { namespaceId: NO_NAMESPACE_ID },
      ...notFoundV1(NO_SUCH_ID),
    },
  },
};
