/**
 * Caddy 2.6 and later. What `forward_auth` is short for, written out, so that a 200 admits, a 429
 * is passed on as it is, and any other answer is an error like none at all: it is logged, and
 * `handle_errors` ends it as the policy says. Errors of the application come there too, and are
 * told apart by a variable that only an admission sets.
 */

import type { Policy } from '../../policies/policy.ts';
import { reducedCapacity } from '../../policies/quota.ts';
import { dropsUnderscores, identifyingHeaders, identifyingNames, quotaHeaders } from './common.ts';
import { CONNECTIONS_MAX, type GatewaySetup, TIMEOUT_MS, type WeirAddress } from './setup.ts';

/** Secrets of the client, and what is long: not for weir, unless its policy looks at one. */
const REMOVED_HEADERS = ['Authorization', 'Cookie', 'Accept*', 'Sec-*', 'User-Agent', 'Referer'];

export function caddy({ policy, weir, listenPort, upstream }: GatewaySetup): string {
  const application = `${upstream.host}:${upstream.port}`;
  const failing = failureLines(policy, application);
  const forwarding = applicationProxyLines(application, [
    ...removedQuotaHeaderLines(policy),
    ...trustedProxyLines(policy),
  ]);
  return `\
# Caddy 2.6 or later, which asks weir about each request by the policy of ${policy.namespace}.
# To try it: caddy run --config <this file> --adapter caddyfile
{
	admin off
	# Plain HTTP. Leave this out, and put a host name in place of the port, to serve HTTPS.
	auto_https off
	servers {
		# Weir reads heads of 32 KiB.
		max_header_size 24KB
	}
	# What handle_errors has dealt with is said at this level only: that weir failed, and how.
	log weir {
		include http.log.error
		level DEBUG
	}
}

:${listenPort} {
	# A client has no say in what is for weir.
	request_header -X-Weir-Key
	# To WebSocket only: by another protocol a client could ask past weir.
	@websocket header_regexp Upgrade (?i)^websocket$
	@otherwise not header_regexp Upgrade (?i)^websocket$
	request_header @websocket Upgrade websocket
	request_header @otherwise -Upgrade${block(1, joinRepeatedHeaders(policy))}

	@connect method CONNECT
	# Of any other target Caddy would ask weir as it came, and not for the policy.
	@target not expression \`{http.request.uri}.startsWith("/") || {http.request.uri} == "*"\`

	route {
		respond @connect 405
		respond @target 400
		${checkLines(policy, weir).join('\n\t\t')}${block(2, forwarding)}
	}

	handle_errors {
		# Weir is not there, or too slow, or did not say what it should. An error of the
		# application is none of these: it comes when weir has admitted.${block(2, failing)}
	}
}
`;
}

const KEEPALIVE_LINES = [
  '# Shorter than the 10 s after which weir closes a connection that is not used.',
  'keepalive 5s',
  `keepalive_idle_conns_per_host ${CONNECTIONS_MAX}`,
  "# A flood waits for one of these connections, and that time does not count as weir's.",
  `max_conns_per_host ${CONNECTIONS_MAX}`,
];

/** What asks weir, and asks once more where it was the application that has answered. */
function checkLines(policy: Policy, weir: WeirAddress): string[] {
  const again = reverseProxyLines(policy, weir, ['keepalive off'], INVALID_RESPONSE_LINES);
  return reverseProxyLines(policy, weir, KEEPALIVE_LINES, [
    '# A busy Caddy (2.6, and many later) may take a connection to the application for one to',
    '# weir. A connection that is made for this request alone is one to weir.',
    'handle_response {',
    ...again.map((line) => `\t${line}`),
    '}',
  ]);
}

const INVALID_RESPONSE_LINES = [
  '# Answers that weir should not give: logged as errors.',
  '@key status 401 403',
  'handle_response @key {',
  '\terror "weir answered that it does not take this key" 502',
  '}',
  'handle_response {',
  '\terror "weir answered neither yes nor no, as for a policy that is not there" 502',
  '}',
];

/**
 * @param connections how they are kept
 * @param otherwise what becomes of answers that are no decision
 */
function reverseProxyLines(
  policy: Policy,
  weir: WeirAddress,
  connections: string[],
  otherwise: string[],
): string[] {
  return [
    `reverse_proxy ${weirUpstream(weir)} {`,
    ...[
      'method GET',
      `rewrite /v1/check/${policy.namespace}?`,
      ...identityLines(policy),
      ...keyLines(weir),
      'transport http {',
      '\tversions 1.1',
      `\tdial_timeout ${TIMEOUT_MS}ms`,
      `\tresponse_header_timeout ${TIMEOUT_MS}ms`,
      ...connections.map((line) => `\t${line}`),
      '\tcompression off',
      '}',
      "# Weir's answers have the policy's name here, and no other is one.",
      '@admitted {',
      '\tstatus 200',
      `\theader RateLimit-Policy \`"${policy.namespace}*\``,
      '}',
      'handle_response @admitted {',
      '\tvars weir admitted',
      '\t# For the client.',
      '\tcopy_response_headers {',
      `\t\tinclude ${quotaHeaders(policy).join(' ')}`,
      '\t}',
      '}',
      "# Weir's own answer, with Retry-After.",
      '@refused {',
      '\tstatus 429',
      `\theader RateLimit-Policy \`"${policy.namespace}*\``,
      '}',
      'handle_response @refused {',
      '\tcopy_response',
      '}',
      "# A head that weir does not take is the client's own doing, and lets nobody in.",
      '@head status 400 413 431 505',
      'handle_response @head {',
      '\trespond 431',
      '}',
      ...otherwise,
    ].map((line) => `\t${line}`),
    '}',
  ];
}

/** What Caddy says where it was still sending a head when weir had answered and closed. */
const CONNECTION_RESET_EXPRESSION =
  '`{http.error.message}.matches("(write|read).*(broken pipe|connection reset)")`';

function failureLines(policy: Policy, application: string): string[] {
  if (policy.onError === 'allow') {
    return [
      '@unanswered {',
      '\tnot vars weir admitted',
      `\tnot expression ${CONNECTION_RESET_EXPRESSION}`,
      '}',
      '# Weir has cut off a head that it does not take, as above.',
      '@cut {',
      '\tnot vars weir admitted',
      `\texpression ${CONNECTION_RESET_EXPRESSION}`,
      '}',
      'respond @cut 431',
      '# The request goes on, without a limit.',
      ...applicationProxyLines(`@unanswered ${application}`, trustedProxyLines(policy)),
    ];
  }
  return [
    '@unanswered not vars weir admitted',
    '# The request is refused.',
    'header @unanswered Retry-After 1',
    'header @unanswered Cache-Control no-store',
    'header @unanswered Content-Type application/problem+json',
    `respond @unanswered \`${reducedCapacity()}\` 429`,
  ];
}

/** Lines of their own, behind the one before. */
function block(indent: number, ...lines: string[][]): string {
  return lines
    .flat()
    .map((line) => `\n${'\t'.repeat(indent)}${line}`)
    .join('');
}

/** What a matcher and a placeholder of Caddy take for the name of a header. */
const PLAIN_NAME = /^[a-z0-9][a-z0-9_-]*$/i;

/** Weir joins several lines of one name, of which an application may look at one. */
function joinRepeatedHeaders(policy: Policy): string[] {
  const names = identifyingNames(policy, 'header').filter((name) => PLAIN_NAME.test(name));
  const lines = names.flatMap((name, i) => [
    '# The application gets the very one by which weir counts, in one line.',
    `@by${i} header ${name} *`,
    `request_header @by${i} ${name} {http.request.header.${name}}`,
  ]);
  if (!dropsUnderscores(policy)) return lines;
  return [
    ...lines,
    '# Some applications take X_Api_Key for X-Api-Key, which weir would not have seen.',
    'request_header -*_*',
  ];
}

const ALL_TRUSTED = 'trusted_proxies 0.0.0.0/0 ::/0';

function applicationProxyLines(to: string, settings: string[]): string[] {
  if (settings.length === 0) return [`reverse_proxy ${to}`];
  return [`reverse_proxy ${to} {`, ...settings.map((line) => `\t${line}`), '}'];
}

/** The application may say how much is left of something else, by the same headers. */
function removedQuotaHeaderLines(policy: Policy): string[] {
  return [
    '# What weir says takes the place of what the application does.',
    ...quotaHeaders(policy).map((name) => `header_down -${name}`),
  ];
}

/** What the application is told of proxies before this one, which is all that they have said. */
function trustedProxyLines({ trustedHops }: Policy): string[] {
  return trustedHops === 1 ? [] : [ALL_TRUSTED];
}

/** What weir is told of the caller: headers as they came, and what Caddy itself says. */
function identityLines(policy: Policy): string[] {
  const { identify, trustedHops } = policy;
  const lines: string[] = [];
  if (identify.includes('method')) {
    lines.push('header_up X-Forwarded-Method {http.request.method}');
  }
  if (identify.includes('path')) lines.push('header_up X-Forwarded-Uri {http.request.uri}');
  if (trustedHops > 1) {
    lines.push(`# The caller is ${trustedHops} from the right in X-Forwarded-For: what proxies`);
    lines.push('# before this one have said is kept, and who is connected is added.');
    lines.push(ALL_TRUSTED);
  }
  const looksAt = identifyingHeaders(policy);
  const left = REMOVED_HEADERS.filter((name) => {
    const [start] = name.toLowerCase().split('*');
    const isOne = (header: string) =>
      name.endsWith('*') ? header.startsWith(start) : header === start;
    return !looksAt.some(isOne);
  });
  return [...lines, ...left.map((name) => `header_up -${name}`)];
}

function keyLines(weir: WeirAddress): string[] {
  if (!weir.needsKey) return [];
  return [
    '# From the environment of Caddy: a key of weir that may limit.',
    'header_up X-Weir-Key {env.WEIR_KEY}',
  ];
}

function weirUpstream(weir: WeirAddress): string {
  if ('socket' in weir) return `"unix/${weir.socket.replace(/["\\]/g, '\\$&')}"`;
  return `${weir.host}:${weir.port}`;
}
