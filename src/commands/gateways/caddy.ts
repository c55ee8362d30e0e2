/**
 * Prints a Caddyfile for Caddy 2.6 or later. It spells out the directive `forward_auth`: a 200
 * allows, a 429 goes to the client unchanged, and any other response is an error, like no response.
 * Caddy logs the error, and `handle_errors` applies `onError`. Errors of the application reach
 * `handle_errors` too; a variable that only an allowed request has tells them apart.
 */

import type { Policy } from '../../policies/policy.ts';
import { reducedCapacity } from '../../policies/quota.ts';
import {
  dropsUnderscores,
  identifyingHeaders,
  identifyingNames,
  indentLines,
  quotaHeaders,
} from './common.ts';
import { CONNECTIONS_MAX, type GatewaySetup, TIMEOUT_MS, type WeirAddress } from './setup.ts';

/** Secret or long headers of the client. weir receives one only if the policy reads it. */
const REMOVED_HEADERS = ['Authorization', 'Cookie', 'Accept*', 'Sec-*', 'User-Agent', 'Referer'];

export function caddy({ policy, weir, listenPort, upstream }: GatewaySetup): string {
  const application = `${upstream.host}:${upstream.port}`;
  const onFailure = failureLines(policy, application);
  const forwarding = applicationProxyLines(application, [
    ...removedQuotaHeaderLines(policy),
    ...trustedProxyLines(policy),
  ]);
  return `\
# For Caddy 2.6 or later: checks each request with the policy ${policy.namespace} of weir.
# To try it: caddy run --config <this file> --adapter caddyfile
{
	admin off
	# Plain HTTP. To serve HTTPS, remove this line and replace the port below by a host name.
	auto_https off
	servers {
		# weir accepts request heads of up to 32 KiB.
		max_header_size 24KB
	}
	# Caddy logs errors that handle_errors handles, such as failures of weir, at this level only.
	log weir {
		include http.log.error
		level DEBUG
	}
}

:${listenPort} {
	# Only weir reads this header: remove a client's.
	request_header -X-Weir-Key
	# Allow upgrades to WebSocket only: over another protocol a client could bypass weir.
	@websocket header_regexp Upgrade (?i)^websocket$
	@otherwise not header_regexp Upgrade (?i)^websocket$
	request_header @websocket Upgrade websocket
	request_header @otherwise -Upgrade${indentLines('\t', joinRepeatedHeaders(policy))}

	@connect method CONNECT
	# Caddy would send any other request target to weir instead of the path of the policy.
	@target not expression \`{http.request.uri}.startsWith("/") || {http.request.uri} == "*"\`

	route {
		respond @connect 405
		respond @target 400
		${checkLines(policy, weir).join('\n\t\t')}${indentLines('\t\t', forwarding)}
	}

	handle_errors {
		# weir is stopped, late, or sent an unexpected response. An error of the application is
		# not matched: it occurs only after weir has allowed the request.${indentLines('\t\t', onFailure)}
	}
}
`;
}

const KEEPALIVE_LINES = [
  '# Shorter than the 10 s after which weir closes an idle connection.',
  'keepalive 5s',
  `keepalive_idle_conns_per_host ${CONNECTIONS_MAX}`,
  '# A flood queues for these connections; the timeouts above exclude that wait.',
  `max_conns_per_host ${CONNECTIONS_MAX}`,
];

/** Checks with weir, and repeats a check that Caddy has sent to the application by mistake. */
function checkLines(policy: Policy, weir: WeirAddress): string[] {
  const retry = reverseProxyLines(policy, weir, ['keepalive off'], INVALID_RESPONSE_LINES);
  return reverseProxyLines(policy, weir, KEEPALIVE_LINES, [
    '# Under load Caddy 2.6 and many later versions may use a connection to the application',
    '# for a check. Repeat the check on a new connection, which is always to weir.',
    'handle_response {',
    ...retry.map((line) => `\t${line}`),
    '}',
  ]);
}

const INVALID_RESPONSE_LINES = [
  '# Responses without a decision: Caddy logs an error.',
  '@key status 401 403',
  'handle_response @key {',
  '\terror "weir answered that the key is invalid or lacks the permission limit" 502',
  '}',
  'handle_response {',
  '\terror "weir answered neither 200 nor 429: is there a policy for this namespace?" 502',
  '}',
];

/**
 * @param connections lines that configure connections to weir
 * @param otherwise lines that handle responses without a decision
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
      "# Every response of weir has the policy's name in this header.",
      '@allowed {',
      '\tstatus 200',
      `\theader RateLimit-Policy \`"${policy.namespace}*\``,
      '}',
      'handle_response @allowed {',
      '\tvars weir allowed',
      '\tcopy_response_headers {',
      `\t\tinclude ${quotaHeaders(policy).join(' ')}`,
      '\t}',
      '}',
      "# The client receives weir's response, with Retry-After.",
      '@denied {',
      '\tstatus 429',
      `\theader RateLimit-Policy \`"${policy.namespace}*\``,
      '}',
      'handle_response @denied {',
      '\tcopy_response',
      '}',
      '# weir rejected the request head. The client caused that, so onError does not apply.',
      '@invalid_head status 400 413 431 505',
      'handle_response @invalid_head {',
      '\trespond 431',
      '}',
      ...otherwise,
    ].map((line) => `\t${line}`),
    '}',
  ];
}

/** Matches the error of Caddy if weir responds and closes while Caddy is still sending the head. */
const CONNECTION_RESET_EXPRESSION =
  '`{http.error.message}.matches("(write|read).*(broken pipe|connection reset)")`';

function failureLines(policy: Policy, application: string): string[] {
  if (policy.onError === 'allow') {
    return [
      '@weir_failed {',
      '\tnot vars weir allowed',
      `\tnot expression ${CONNECTION_RESET_EXPRESSION}`,
      '}',
      '# weir rejected the request head, as above, and closed the connection early.',
      '@closed_early {',
      '\tnot vars weir allowed',
      `\texpression ${CONNECTION_RESET_EXPRESSION}`,
      '}',
      'respond @closed_early 431',
      '# onError: allow. The request is allowed without a check.',
      ...applicationProxyLines(`@weir_failed ${application}`, trustedProxyLines(policy)),
    ];
  }
  return [
    '@weir_failed not vars weir allowed',
    '# onError: deny.',
    'header @weir_failed Retry-After 1',
    'header @weir_failed Cache-Control no-store',
    'header @weir_failed Content-Type application/problem+json',
    `respond @weir_failed \`${reducedCapacity()}\` 429`,
  ];
}

/** Header names that Caddy accepts in a matcher and in a placeholder. */
const PLAIN_NAME = /^[a-z0-9][a-z0-9_-]*$/i;

/** weir joins repeated headers; an application may read only one of them. */
function joinRepeatedHeaders(policy: Policy): string[] {
  const names = identifyingNames(policy, 'header').filter((name) => PLAIN_NAME.test(name));
  const lines = names.flatMap((name, i) => [
    '# Send the application the same value that weir counts, in one line.',
    `@identity${i} header ${name} *`,
    `request_header @identity${i} ${name} {http.request.header.${name}}`,
  ]);
  if (!dropsUnderscores(policy)) return lines;
  return [
    ...lines,
    '# Some applications read X_Api_Key as X-Api-Key, which weir would not have counted.',
    'request_header -*_*',
  ];
}

const ALL_TRUSTED = 'trusted_proxies 0.0.0.0/0 ::/0';

function applicationProxyLines(to: string, settings: string[]): string[] {
  if (settings.length === 0) return [`reverse_proxy ${to}`];
  return [`reverse_proxy ${to} {`, ...settings.map((line) => `\t${line}`), '}'];
}

/** The application may send the same headers for limits of its own. */
function removedQuotaHeaderLines(policy: Policy): string[] {
  return [
    '# The quota headers of weir replace those of the application.',
    ...quotaHeaders(policy).map((name) => `header_down -${name}`),
  ];
}

/** Lets the application see what the proxies in front have set. */
function trustedProxyLines({ trustedHops }: Policy): string[] {
  return trustedHops === 1 ? [] : [ALL_TRUSTED];
}

/** Headers of the check: those of the client, and those that Caddy itself sets. */
function identityLines(policy: Policy): string[] {
  const { identify, trustedHops } = policy;
  const lines: string[] = [];
  if (identify.includes('method')) {
    lines.push('header_up X-Forwarded-Method {http.request.method}');
  }
  if (identify.includes('path')) lines.push('header_up X-Forwarded-Uri {http.request.uri}');
  if (trustedHops > 1) {
    lines.push(
      `# The client is number ${trustedHops} from the right in X-Forwarded-For: keep what the`,
    );
    lines.push('# proxies in front have set, and append the address of the connection.');
    lines.push(ALL_TRUSTED);
  }
  const identifying = identifyingHeaders(policy);
  const removed = REMOVED_HEADERS.filter((name) => {
    const [prefix] = name.toLowerCase().split('*');
    const matches = (header: string) =>
      name.endsWith('*') ? header.startsWith(prefix) : header === prefix;
    return !identifying.some(matches);
  });
  return [...lines, ...removed.map((name) => `header_up -${name}`)];
}

function keyLines(weir: WeirAddress): string[] {
  if (!weir.needsKey) return [];
  return [
    '# From the environment of Caddy: a key of weir with the permission limit.',
    'header_up X-Weir-Key {env.WEIR_KEY}',
  ];
}

function weirUpstream(weir: WeirAddress): string {
  if ('socket' in weir) return `"unix/${weir.socket.replace(/["\\]/g, '\\$&')}"`;
  return `${weir.host}:${weir.port}`;
}
