/**
 * The introduction of the API documentation: what all operations have in common, and the rules that
 * a JSON Schema cannot express. Markdown with headings, paragraphs, lists and inline code only.
 */

import { DEFAULT_NAMESPACE } from '../../src/api/common/check-request.ts';
import { numberText } from '../../src/api/texts/number-text.ts';
import {
  AMOUNT_MAX,
  BODY_MAX_BYTES,
  BUFFERED_BODY_BYTES_MAX,
  IMPORT_VALUES_MAX,
  INFIX_OVERRIDES_MAX,
  LONG_REQUESTS_MAX,
  MIDDLE_MAX_CHARACTERS,
  MULTI_LIMIT_VALUES_MAX,
  NAMESPACE_ID_PREFIX,
  OVERRIDE_IDENTIFIER_MIN_CHARACTERS,
  PAGE_MAX,
  PENDING_BYTES_MAX,
  PENDING_CHANGES_MAX,
  PENDING_OPERATION_BYTES_MAX,
  REQUEST_HEAD_MAX_BYTES,
  TURN_CONNECTIONS_MAX,
  TURN_REQUESTS_PER_CONNECTION,
  V2_PAGE_DEFAULT,
  WILDCARDS_PER_TEXT_MAX,
} from '../../src/core/constants.ts';
import { RESPONSE_ESTIMATES } from './overload.ts';
import { bytesText } from './quantities.ts';

export const API_SUMMARY = 'Rate limit checks, overrides, analytics, API keys and the audit log.';

const SECTIONS: readonly [heading: string, ...paragraphs: string[]][] = [
  [
    'Versions',
    'v1 and v2 are two versions of one API. They share counters, overrides, keys and ' +
      'permissions, so an application can migrate from one to the other at run time.',
    "The rate limit operations are those of Unkey's API. Its public clients work unchanged: they " +
      'need the base URL of weir and a key of weir. Tests run these clients:',
    '- v1: `@unkey/ratelimit` 0.5.5, `@unkey/api` 0.38.0, and `unkey.py` 0.9.0.\n' +
      '- v2: `@unkey/ratelimit` 2.1.4, `@unkey/api` 2.5.1, and `unkey.py` 3.2.2.',
    'weir adds the fields `algorithm` and `burst` to checks, `requestId` to those of v1, `cidr`, ' +
      '`concurrency` and `expires` to overrides, and these operations to v1: reservations and ' +
      'leases, refund, reset, inspect, explain, export, import, the lists of namespaces and ' +
      'policies, keys, the audit log, analytics and gateway checks. The response to all other ' +
      "operations of Unkey's API is a 404.",
  ],
  [
    'Differences between v1 and v2',
    '- Without `algorithm`, a check of v1 has a fixed window, and a check of v2 a sliding ' +
      'window.\n' +
      `- In a check of v1 \`namespace\` is a name, by default \`${DEFAULT_NAMESPACE}\`. In v2 it ` +
      'is required, and is a name or an id.\n' +
      '- A check of v1 accepts an empty identifier, and durations of up to 100 years. A check of ' +
      'v2 accepts durations of up to 30 days.\n' +
      '- Only v1 has the field `async`, in checks and in overrides. Only responses of v2 name ' +
      'the override that applied.\n' +
      '- In v1 the identifier of an override has at least ' +
      `${OVERRIDE_IDENTIFIER_MIN_CHARACTERS} characters, and its limit is at least 1. v2 accepts ` +
      'one character, and the limit 0, which denies every check with a cost.\n' +
      '- v1 reads overrides by GET with a query. All operations of v2 are a POST with a body.\n' +
      `- By default a page of a list has up to ${PAGE_MAX} items in v1, and up to ` +
      `${V2_PAGE_DEFAULT} in v2.\n` +
      '- v1 ignores unknown fields, counts these requests, and logs each field of a key once. v2 ' +
      'rejects unknown fields.\n' +
      '- The bodies of errors differ. A missing or malformed header `Authorization` is a 401 in ' +
      'v1 and a 400 in v2.',
  ],
  [
    'Keys and permissions',
    'Every operation except the documentation requires the header `Authorization: Bearer <key>`. ' +
      'Gateway checks have the key in the header `X-Weir-Key` instead. On the listener for ' +
      'gateways they need no key. The case of `Bearer` does not matter.',
    'Each operation lists permissions, one of which is sufficient. If it lists others as also ' +
      'required, one of these is required too. The permission `*` grants ' +
      'all. In a permission, `<namespaceId>` is the id of the namespace that the request names. ' +
      'A request for a pattern of namespaces requires a permission for all: `ratelimit.*.…`.',
  ],
  [
    'Requests',
    'A body is JSON in UTF-8. The header `Content-Type` must be `application/json` or absent. ' +
      'Each operation states the maximum size of its body. Two operations accept bodies over ' +
      `${bytesText(BODY_MAX_BYTES)}, and bound the number of JSON values in them. ` +
      '`ratelimit.multiLimit` accepts ' +
      `${numberText(MULTI_LIMIT_VALUES_MAX)} values, \`ratelimits.importOverrides\` accepts ` +
      `${numberText(IMPORT_VALUES_MAX)}.`,
    'A request with any other method than the documented one gets a 405. Its header `Allow` ' +
      'names the accepted method. The pages of the documentation also accept HEAD. Repeated ' +
      'slashes in a path count as one.',
  ],
  [
    'Connections',
    'Send the header `Content-Length`, and reuse connections. weir closes a connection that has ' +
      'been idle for 8 to 12 s. Responses that leave the connection open have the header ' +
      '`Keep-Alive: timeout=7`, so that clients close first. Decisions on gateway checks do not ' +
      'have it: the printed configurations close idle connections after 5 s.',
    'weir closes the connection after the response to a request with a chunked body, to a POST ' +
      'without a body, and to a request with `Connection: close`. While the server stops, every ' +
      'response closes its connection. A body that stops arriving closes the connection without ' +
      'a response: there is no 408.',
    'Do not pipeline operations other than checks: a second request before the response closes ' +
      'the connection. weir may also close a connection on which many checks arrive at once. ' +
      'If it does, checks without a response were not counted, unless the client did not read ' +
      `responses while it sent. Up to ${TURN_REQUESTS_PER_CONNECTION} at once are safe while at ` +
      `most ${TURN_CONNECTIONS_MAX} connections are open and no override patterns make checks ` +
      'slow.',
  ],
  [
    'Rules that the schemas do not express',
    '- Text must be well-formed Unicode. The JSON escape of a lone surrogate, as in `"\\ud800"`, ' +
      'is a 400 in every documented field. In `meta` and in unknown fields it is accepted.\n' +
      '- The length of a text is its number of Unicode code points.\n' +
      `- Numbers are doubles: \`1.0\` and \`1e3\` are integers. Negative zero, fractions and ` +
      `numbers over ${AMOUNT_MAX} are a 400.\n` +
      '- A field with the value `null` is invalid; leave the field out. Of duplicate fields the ' +
      'last one counts.\n' +
      '- `burst` is at most `limit`.\n' +
      `- The name of a namespace does not begin with \`${NAMESPACE_ID_PREFIX}\`.\n` +
      `- A pattern has at most ${WILDCARDS_PER_TEXT_MAX} wildcards \`*\`.\n` +
      `- A namespace has at most ${INFIX_OVERRIDES_MAX} overrides whose identifier has text ` +
      'between two wildcards, and all namespace patterns together have as many. At most ' +
      `${INFIX_OVERRIDES_MAX} namespace patterns have such text. \`*text*\` with up to ` +
      `${MIDDLE_MAX_CHARACTERS} characters is not counted.\n` +
      '- A query is percent-encoded UTF-8, and `+` is a space. A query that is not UTF-8 is a 400.',
  ],
  [
    'Errors',
    'v1 and v2 have different error bodies. Each contains the URL of a page of this server about ' +
      'the error. The page needs no key, and `WEIR_PUBLIC_URL` sets its origin. The header ' +
      '`X-Request-Id` and the body have the id of the request.',
    'weir validates a request in this order: path (404), method (405), key (401), content type ' +
      '(415), size of the body (413), body or query (400), permission (403), named objects (404).',
    'Only gateway checks have the status 429. A denied check of the API is a 200.',
    'A request that would exceed the maximum number of keys, overrides or namespaces gets a 400.',
    'A 503 has the header `Retry-After`. Nothing was counted or changed, unless its message says ' +
      'that a check may have been counted. These are its causes:',
    '- The store cannot write a change. Checks continue.\n' +
      `- Too many operations wait: more than ${bytesText(PENDING_OPERATION_BYTES_MAX)} of one ` +
      `acceptor, or ${numberText(PENDING_CHANGES_MAX)} changes or ` +
      `${bytesText(PENDING_BYTES_MAX)} of all acceptors. For an acceptor, an operation counts as ` +
      `its body and an estimate of its response: ${RESPONSE_ESTIMATES}.\n` +
      `- The bodies on one acceptor that are incomplete or wait exceed ` +
      `${bytesText(BUFFERED_BODY_BYTES_MAX)}.\n` +
      `- ${LONG_REQUESTS_MAX} lists of checks are being decided for a long time on one acceptor, ` +
      'or a namespace of such a list was deleted meanwhile.\n' +
      '- A refund, a reset, an inspection or an explanation waited 2 s for earlier asynchronous ' +
      'checks.\n' +
      '- With `WEIR_DECIDE=worker`, a shard worker failed during a check. This check may have ' +
      'been counted.\n' +
      '- The maximum number of connections is open. A new connection gets the 503 in the format ' +
      'of v1 before its first request.',
    'uWebSockets.js itself answers invalid HTTP with a 400, a head over ' +
      `${bytesText(REQUEST_HEAD_MAX_BYTES)} or 100 headers ` +
      'with a 431. It answers other versions than HTTP/1.1, and targets that do not begin with ' +
      '`/`, with a 505 that names HTTP/1.0. The response is short HTML, and the connection is ' +
      'closed.',
  ],
  [
    'Other ports',
    'Health and metrics are on the admin port, which this document does not describe: `/livez`, ' +
      '`/readyz` and `/metrics`.',
  ],
];

export const API_DESCRIPTION = SECTIONS.map(([heading, ...paragraphs]) =>
  [`## ${heading}`, ...paragraphs].join('\n\n'),
).join('\n\n');
