/**
 * Prints a Caddyfile for Caddy 2.6 or later, or parts to add to an existing one. It spells out the
 * directive `forward_auth`: a 200 allows, a 429 goes to the client unchanged, and any other
 * response is an error, like no response. Caddy logs the error, and `handle_errors` applies
 * `onError`. Errors of the application reach `handle_errors` too; a variable that only an allowed
 * request has tells them apart.
 */

import type { Policy } from '../../policies/policy.ts';
import { reducedCapacity } from '../../policies/quota.ts';
import {
  authority,
  bareHost,
  checkTarget,
  commonQuotaHeaders,
  DOT_SEGMENT,
  describeRoutes,
  dropsUnderscores,
  identifyingHeaders,
  identifyingNames,
  indentLines,
  isWholeSite,
  quotaHeaders,
  readsMethod,
  readsPath,
} from './common.ts';
import {
  CONNECTIONS_MAX,
  type GatewaySetup,
  type ListenAddress,
  type Route,
  TIMEOUT_MS,
  type Upstream,
  type WeirAddress,
} from './setup.ts';

/** Secret or long headers of the client. weir receives one only if the policy reads it. */
const REMOVED_HEADERS = ['Authorization', 'Cookie', 'Accept*', 'Sec-*', 'User-Agent', 'Referer'];

export function caddy(setup: GatewaySetup): string {
  const { routes, listen, upstream } = setup;
  const forwarding = applicationProxyLines(upstream, [
    '# The quota headers of weir replace those of the application.',
    ...removedQuotaHeaderLines(routes),
    ...trustedProxyLines(routes),
  ]);
  return `\
# For Caddy 2.6 or later: ${describeRoutes(routes)}
# To try it: caddy run --config <this file> --adapter caddyfile
{
	admin off
	# Plain HTTP. To serve HTTPS, remove this line and "bind", and replace the port by a host name.
	auto_https off
	servers {
		# weir accepts request heads of up to 32 KiB.
		max_header_size 24KB
	}${indentLines('\t', FAILURE_LOG)}
}

:${listen.port} {${indentLines(
    '\t',
    [`bind ${bindAddress(listen)}`, ''],
    requestRules(routes),
    isWholeSite(routes) ? [] : ['', ...UNSAFE_PATH_MATCHER],
  )}

	route {${indentLines(
    '\t\t',
    INVALID_REQUEST_RESPONSES,
    isWholeSite(routes) ? [] : ['respond @weir_unsafe_path 400'],
    checkRoutes(setup),
    forwarding,
  )}
	}

	handle_errors {${indentLines('\t\t', failureLines(setup, isWholeSite(routes)))}
	}
}
`;
}

export function caddySnippet(setup: GatewaySetup): string {
  const { routes } = setup;
  const allowsOnError = routes.some(({ policy }) => policy.onError === 'allow');
  return `\
# For Caddy 2.6 or later: ${describeRoutes(routes)}
# Add these parts to an existing Caddyfile. Each part begins with the place where it goes.

# Part 1: in the global options, which are the first block of the file.
${indentLines('', FAILURE_LOG).trimStart()}

# Part 2: before the first site.${
    allowsOnError
      ? `
# Replace its last reverse_proxy by what serves the protected paths.`
      : ''
  }
(weir) {${indentLines('\t', snippetRoutes(setup))}
}

(weir_paths) {${indentLines('\t', UNSAFE_PATH_MATCHER, UNSAFE_PATH_HANDLE)}
}

(weir_errors) {${indentLines('\t', failureLines(setup, false))}
}

# Part 3: in each site with paths to protect. Caddy runs "handle" before "route", which part 2 uses:
# if a "handle" or "route" serves the protected paths, put the first line at its start instead.
import weir
import weir_paths
handle_errors {
	route {
		import weir_errors
		# Here, behind the import: what the existing handle_errors of the site contains.
	}
}

# Part 4: in each reverse_proxy of protected paths, so that the quota headers of weir replace those
# of the application.
${removedQuotaHeaderLines(routes).join('\n')}
`;
}

/** Caddy takes 0.0.0.0 alone for all addresses of IPv6 too. */
function bindAddress({ host }: ListenAddress): string {
  return host === '0.0.0.0' ? `tcp4/${host}` : bareHost(host);
}

const FAILURE_LOG = [
  '# Caddy logs errors that handle_errors handles, such as failures of weir, at this level only.',
  'log weir {',
  '\tinclude http.log.error',
  '\tlevel DEBUG',
  '}',
];

/** Changes each request, and names the requests that Caddy must not send to weir. */
function requestRules(routes: readonly Route[]): string[] {
  return [
    "# Only weir reads this header: remove it from clients' requests.",
    'request_header -X-Weir-Key',
    '# Allow upgrades to WebSocket only: over another protocol a client could bypass weir.',
    '@weir_websocket header_regexp Upgrade (?i)^websocket$',
    '@weir_other_upgrade not header_regexp Upgrade (?i)^websocket$',
    'request_header @weir_websocket Upgrade websocket',
    'request_header @weir_other_upgrade -Upgrade',
    ...joinRepeatedHeaders(routes.map(({ policy }) => policy)),
    '',
    '@weir_connect method CONNECT',
    '# Caddy would send any other request target to weir instead of the path of the policy.',
    '@weir_target not expression `{http.request.uri}.startsWith("/") || {http.request.uri} == "*"`',
  ];
}

const UNSAFE_PATH_MATCHER = [
  '# Caddy compares the path without dot segments, but forwards the path as received. An',
  '# application may take /login/../x for /login. Browsers do not send such paths.',
  `@weir_unsafe_path expression \`{http.request.uri}.matches("(?i)^[^?]*${DOT_SEGMENT}")\``,
];

/** For a site of which some "handle" serves such a path: Caddy runs "rewrite" before all others. */
const UNSAFE_PATH_HANDLE = [
  'rewrite @weir_unsafe_path /weir_unsafe_path',
  'handle /weir_unsafe_path {',
  '\trespond 400',
  '}',
];

const INVALID_REQUEST_RESPONSES = ['respond @weir_connect 405', 'respond @weir_target 400'];

/** The checks of all policies, in a block that keeps their order. */
function checkRoutes({ routes, weir }: GatewaySetup): string[] {
  if (isWholeSite(routes)) return checkLines(routes[0].policy, weir);
  return routes.flatMap((route) => [
    ...openRoute(route, routes),
    ...[policyVariable(route), ...checkLines(route.policy, weir)].map(indented),
    '}',
  ]);
}

/** Like `checkRoutes`, but without effect on other requests of the site. */
function snippetRoutes({ routes, weir }: GatewaySetup): string[] {
  return routes.flatMap((route) => [
    ...openRoute(route, routes),
    ...[
      ...requestRules([route]),
      ...INVALID_REQUEST_RESPONSES,
      policyVariable(route),
      ...checkLines(route.policy, weir),
    ].map(indented),
    '}',
  ]);
}

const indented = (line: string) => (line === '' ? '' : `\t${line}`);

/** A variable of a request that is checked; the application may fail for others too. */
function policyVariable({ policy }: Route): string {
  return `vars weir_policy "${policy.namespace}"`;
}

/** The directive that selects the requests of a policy, and its matcher. */
function openRoute(route: Route, routes: readonly Route[]): string[] {
  const { policy, prefix } = route;
  const longer = routes.filter((other) => other !== route && other.prefix.startsWith(prefix));
  const conditions = [
    ...(prefix === '/' ? [] : [`path ${prefix}*`]),
    ...longer.map((other) => `not path ${other.prefix}*`),
  ];
  if (conditions.length === 0) return ['route {'];
  const name = routes.length === 1 ? '@weir' : `@weir_${policy.namespace}`;
  return [`${name} {`, ...conditions.map(indented), '}', `route ${name} {`];
}

const KEEPALIVE_LINES = [
  '# Shorter than the 10 s after which weir closes an idle connection.',
  'keepalive 5s',
  `keepalive_idle_conns_per_host ${CONNECTIONS_MAX}`,
  '# A flood queues for these connections; the timeouts above do not include it.',
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
      // With its own query it drops that of the client.
      `rewrite ${checkTarget(policy, 'caddy')}`,
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
      '# A gRPC client receives its status in headers.',
      '@denied_grpc {',
      '\tstatus 429',
      `\theader RateLimit-Policy \`"${policy.namespace}*\``,
      '\theader grpc-status *',
      '}',
      'handle_response @denied_grpc {',
      '\tcopy_response 200',
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

/**
 * The directives of handle_errors.
 * @param checksAll whether the site checks each request
 */
function failureLines(setup: GatewaySetup, checksAll: boolean): string[] {
  const { routes } = setup;
  return [
    '# weir is stopped, late, or sent an unexpected response. An error of the application is',
    '# not matched: it occurs only after weir has allowed the request.',
    ...allowLines(
      setup,
      routes.filter(({ policy }) => policy.onError === 'allow'),
      checksAll,
    ),
    ...denyLines(
      setup,
      routes.filter(({ policy }) => policy.onError === 'deny'),
      checksAll,
    ),
  ];
}

/** Conditions of a request that weir has not decided. */
function undecided(failed: readonly Route[], checksAll: boolean): string[] {
  const names = failed.map(({ policy }) => `"${policy.namespace}"`).join(' ');
  const condition = 'not vars weir allowed';
  return checksAll ? [condition] : [`vars weir_policy ${names}`, condition];
}

function allowLines(
  { upstream }: GatewaySetup,
  routes: readonly Route[],
  checksAll: boolean,
): string[] {
  if (routes.length === 0) return [];
  const conditions = undecided(routes, checksAll).map(indented);
  return [
    '@weir_failed {',
    ...conditions,
    `\tnot expression ${CONNECTION_RESET_EXPRESSION}`,
    '}',
    '# weir rejected the request head, as above, and closed the connection early.',
    '@weir_closed_early {',
    ...conditions,
    `\texpression ${CONNECTION_RESET_EXPRESSION}`,
    '}',
    'respond @weir_closed_early 431',
    '# onError: allow. The request is allowed without a check.',
    ...applicationProxyLines(upstream, trustedProxyLines(routes), '@weir_failed '),
  ];
}

function denyLines(setup: GatewaySetup, routes: readonly Route[], checksAll: boolean): string[] {
  if (routes.length === 0) return [];
  const conditions = undecided(routes, checksAll);
  const isOnly = setup.routes.length === routes.length;
  const name = isOnly ? '@weir_failed' : '@weir_failed_deny';
  return [
    ...(conditions.length === 1
      ? [`${name} ${conditions[0]}`]
      : [`${name} {`, ...conditions.map(indented), '}']),
    '# onError: deny.',
    `header ${name} Retry-After 1`,
    `header ${name} Cache-Control no-store`,
    `header ${name} Content-Type application/problem+json`,
    `respond ${name} \`${reducedCapacity()}\` 429`,
  ];
}

/** Header names that Caddy accepts in a matcher and in a placeholder. */
const PLAIN_NAME = /^[a-z0-9][a-z0-9_-]*$/i;

/** weir joins repeated headers; an application may read only one of them. */
function joinRepeatedHeaders(policies: readonly Policy[]): string[] {
  const all = policies.flatMap((policy) => identifyingNames(policy, 'header'));
  const names = all.filter((name, i) => {
    const isFirst = all.findIndex((other) => other.toLowerCase() === name.toLowerCase()) === i;
    return isFirst && PLAIN_NAME.test(name);
  });
  const lines = names.flatMap((name, i) => [
    '# Send the application the same value that weir counts, in one line.',
    `@weir_identity${i} header ${name} *`,
    `request_header @weir_identity${i} ${name} {http.request.header.${name}}`,
  ]);
  if (!dropsUnderscores(...policies)) return lines;
  return [
    ...lines,
    '# Some applications read X_Api_Key as X-Api-Key, which weir would not have counted.',
    'request_header -*_*',
  ];
}

const ALL_TRUSTED = 'trusted_proxies 0.0.0.0/0 ::/0';

/** @param matcher with a blank behind it */
function applicationProxyLines(
  upstream: Upstream,
  settings: readonly string[],
  matcher = '',
): string[] {
  const { isHttps, host, path } = upstream;
  const scheme = isHttps ? 'https://' : '';
  const lines = [
    ...settings,
    ...(isHttps ? [`header_up Host ${authority(upstream, 443)}`, ...tlsLines(bareHost(host))] : []),
  ];
  const proxy = `reverse_proxy ${matcher}${scheme}${authority(upstream)}`;
  return [
    ...(path === undefined ? [] : [`uri ${matcher}path_regexp ^ ${path}`]),
    ...(lines.length === 0 ? [proxy] : [`${proxy} {`, ...lines.map(indented), '}']),
  ];
}

/** TLS to the application, as a transport for HTTP/1.1: WebSocket needs it. */
function tlsLines(serverName: string): string[] {
  return [
    'transport http {',
    '\tversions 1.1',
    '\t# Caddy verifies the certificate. For a private CA: tls_trusted_ca_certs <file>',
    `\ttls_server_name ${serverName}`,
    '}',
  ];
}

/** The application may send the same headers for limits of its own. */
function removedQuotaHeaderLines(routes: readonly Route[]): string[] {
  return commonQuotaHeaders(routes).map((name) => `header_down -${name}`);
}

/** Lets the application see what the proxies in front have set. */
function trustedProxyLines([{ policy }]: readonly Route[]): string[] {
  return policy.trustedHops === 1 ? [] : [ALL_TRUSTED];
}

/** Headers of the check: those of the client, and those that Caddy itself sets. */
function identityLines(policy: Policy): string[] {
  const { trustedHops } = policy;
  const lines = [
    readsMethod(policy)
      ? 'header_up X-Forwarded-Method {http.request.method}'
      : 'header_up -X-Forwarded-Method',
    readsPath(policy)
      ? 'header_up X-Forwarded-Uri {http.request.uri}'
      : 'header_up -X-Forwarded-Uri',
  ];
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
