/**
 * Prints nginx.conf for nginx 1.22 or later, or parts to add to an existing one. `auth_request`
 * allows a request on a 2xx and denies it on a 403, which `error_page` turns into a 429. If weir is
 * stopped or late, the location of the check handles the 502 or 504. Any other response of weir
 * makes the request itself a 500, which nginx logs and the protected location handles. Both cases
 * apply onError. A request head that weir rejects is always denied: with `onError: allow` a client
 * could otherwise bypass the limit.
 */

import { StartError } from '../../core/errors.ts';
import { gatewayQuery } from '../../policies/gateway-readers.ts';
import {
  GRPC_CONTENT_TYPE,
  GRPC_CONTENT_TYPE_PATTERN,
  GRPC_DENIED_MESSAGE,
  GRPC_DENIED_STATUS,
} from '../../policies/grpc.ts';
import type { Policy } from '../../policies/policy.ts';
import { quotaExceeded, reducedCapacity } from '../../policies/quota.ts';
import {
  authority,
  commonQuotaHeaders,
  DOT_SEGMENT,
  describeRoutes,
  identifyingHeaders,
  identifyingNames,
  indentLines,
  isWholeSite,
  listensEverywhere,
  protectsEveryPath,
  quotaHeaders,
  readsMethod,
  readsPath,
  requireHostName,
  SYSTEM_CA_FILE,
  skipHeaders,
} from './common.ts';
import {
  CONNECTIONS_MAX,
  type GatewaySetup,
  type Route,
  TIMEOUT_MS,
  type Upstream,
  type WeirAddress,
} from './setup.ts';

/** Header names for which nginx has a variable and which it does not drop. */
const PLAIN_NAME = /^[a-z0-9-]+$/i;
/** Matches the status of the check: empty without a check, 20x if weir allowed the request. */
const NOT_DENIED = '"^(20.)?$"';
/** weir does not respond to a request head with one of these characters. */
const CONTROL_CHARACTERS = '[\\x00-\\x08\\x0a-\\x1f]';

/** @throws StartError if a policy reads a header that nginx drops */
export function nginx(setup: GatewaySetup): string {
  const { routes, weir, listen, upstream } = setup;
  requirePlainNames(routes);
  if (upstream.isHttps) requireHostName('nginx', upstream);
  const application = applicationPass(upstream);
  const [{ policy }] = routes;
  const headers = identifyingHeadersOf(routes);
  const unprotected = [
    '# No namespace protects the other paths.',
    'location / {',
    `  ${application}`,
    '}',
    '',
  ];
  return `\
# For nginx 1.22 or later: ${describeRoutes(routes)}
# To try it: mkdir nginx && nginx -p nginx -c "$PWD/nginx.conf" -g 'daemon off;'

worker_processes auto;
worker_rlimit_nofile 16384;
pid nginx.pid;
error_log stderr;

events {
  # A request uses up to three connections: from the client, to weir and to the application.
  worker_connections 8192;
}

http {
  access_log off;
  client_body_temp_path client_body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
${indentLines('  ', weirUpstreamLines(weir))}

  upstream application {
    server ${authority(upstream)};
    keepalive 64;
    # Shorter than the 5 s after which Node.js closes an idle connection.
    keepalive_timeout 4s;
  }
${indentLines('  ', DENIAL_MAPS, DENIAL_LOCATION_MAP, [
  '',
  ...requestHostMaps(upstream.isHttps ?? false),
])}

  # Allow upgrades to WebSocket only: over another protocol a client could bypass weir.
  map $http_upgrade $upgrade {
    default "";
    "~*^websocket$" websocket;
  }
  map $upgrade $connection_header {
    default "";
    websocket upgrade;
  }

  server {
    listen ${authority(listen)}${listensEverywhere(listen) ? ' ipv6only=off' : ''};
    # Allow large cookies, but less than the 32 KiB that weir accepts.
    large_client_header_buffers 2 15k;${indentLines(
      '    ',
      isWholeSite(routes) ? [] : UNSAFE_PATH_RULE,
      controlCharacterRules(routes),
    )}
${indentLines('    ', responseHeaderLines(routes))}

    # Headers for the application; the location of the check has its own.
    proxy_http_version 1.1;
    proxy_set_header Upgrade $upgrade;
    proxy_set_header Connection $connection_header;${indentLines('    ', hostLines(upstream))}
    proxy_set_header X-Forwarded-For ${forwardedFor(policy)};
    proxy_set_header X-Forwarded-Proto $scheme;
    proxy_set_header X-Weir-Key "";${indentLines(
      '    ',
      countedHeaderLines(headers),
      upstream.isHttps ? ['', ...tlsLines(upstream)] : [],
    )}
${indentLines(
  '    ',
  protectsEveryPath(routes) ? [] : unprotected,
  ...routes.flatMap((route) => [
    [
      `location ${route.prefix} {`,
      ...[
        ...checkLines(route, routes),
        '# weir sent an unexpected response; the error log has its status.',
        `error_page 500 = ${route.policy.onError === 'allow' ? '@weir_allowed' : '$weir_denial'};`,
        application,
      ].map((line) => `  ${line}`),
      '}',
      '',
    ],
  ]),
  ...routes.map((route) => [...checkLocation(route, setup, false), '']),
  sharedLocations(routes, false),
  routes.some(({ policy }) => policy.onError === 'allow') ? ['', ...allowedLocation(upstream)] : [],
)}
  }
}
`;
}

/** @throws StartError if a policy reads a header that nginx drops */
export function nginxSnippet(setup: GatewaySetup): string {
  const { routes, weir } = setup;
  requirePlainNames(routes);
  const parts = routes.map((route) => {
    const { policy } = route;
    return [
      ...snippetPlace(route),
      '',
      ...controlCharacterRules([route]),
      ...countedHeaderLines(identifyingHeadersOf([route])),
      ...checkLines(route, routes),
      ...(policy.onError === 'deny'
        ? [
            '# weir sent an unexpected response; the error log has its status.',
            'error_page 500 = $weir_denial;',
          ]
        : []),
    ];
  });
  return `\
# For nginx 1.22 or later: ${describeRoutes(routes)}
# Add these parts to an existing configuration. Each part begins with the place where it goes.

# Part 1: in "http". A request also uses a connection to weir: allow more worker_connections.
${indentLines('', weirUpstreamLines(weir), ['', ...DENIAL_MAPS, ...DENIAL_LOCATION_MAP])}

# Part 2: in each "server" with paths to protect.
${indentLines(
  '',
  UNSAFE_PATH_RULE,
  ['', ...responseHeaderLines(routes), ...HEADERS_OF_HTTP],
  ...routes.map((route) => ['', ...checkLocation(route, setup, true)]),
  ['', ...sharedLocations(routes, true)],
)}
${parts.map((lines, i) => `\n# Part ${i + 3}: ${lines.join('\n')}\n`).join('')}`;
}

/** Comment lines that name the location of a part; the first continues a line. */
function snippetPlace({ prefix }: Route): string[] {
  const which =
    prefix === '/'
      ? 'in each "location" to protect, beside its proxy_pass.'
      : `in each "location" for paths that begin with ${prefix}, beside its proxy_pass.`;
  return [
    which,
    '# nginx inherits directives such as error_page and proxy_set_header from an outer block only',
    '# if a location has none with the same name: repeat those of outer blocks here.',
    '# If this location has add_header lines, repeat those of part 2 here. For a 429, repeat all',
    '# of them in @weir_denied too.',
    '# A location can have only one auth_request.',
  ];
}

function requirePlainNames(routes: readonly Route[]): void {
  const dropped = identifyingHeadersOf(routes).find((name) => !PLAIN_NAME.test(name));
  if (dropped === undefined) return;
  throw new StartError(
    `nginx accepts header names of letters, digits and "-" only; the policy looks at` +
      ` ${JSON.stringify(dropped)}`,
  );
}

function identifyingHeadersOf(routes: readonly Route[]): string[] {
  return [...new Set(routes.flatMap(({ policy }) => identifyingHeaders(policy)))];
}

function weirUpstreamLines(weir: WeirAddress): string[] {
  return [
    'upstream weir {',
    `  server ${weirServer(weir)} max_fails=0;`,
    '  # For each process. With fewer kept connections a flood connects again for each check.',
    `  keepalive ${CONNECTIONS_MAX};`,
    '  # Shorter than the 10 s after which weir closes an idle connection.',
    '  keepalive_timeout 5s;',
    '}',
  ];
}

const variableName = (header: string) => header.toLowerCase().replaceAll('-', '_');
/** The variable that holds a header of weir's response. */
const responseVariable = (header: string) => `$weir_${variableName(header)}`;

const DENIAL_MAPS = [
  '# For a denial; empty for other responses. Without RateLimit weir has not decided.',
  `map $weir_denied:${responseVariable('RateLimit')} $weir_denied_retry_after {`,
  '  default "";',
  '  "1:" 1;',
  `  "~^1:." ${responseVariable('Retry-After')};`,
  '}',
  'map $weir_denied $weir_denied_cache_control {',
  '  default "";',
  '  1 no-store;',
  '}',
  `map ${responseVariable('RateLimit')} $weir_denied_problem {`,
  `  default '${quotaExceeded()}';`,
  `  "" '${reducedCapacity()}';`,
  '}',
];

/** Chooses the location of a denial. Without a denial by weir, nginx itself denied the request. */
const DENIAL_LOCATION_MAP = [
  '# A gRPC client receives its status in headers.',
  'map $weir_status:$content_type $weir_denial {',
  '  default @weir_denied;',
  `  "~^[^2:][^:]*:${GRPC_CONTENT_TYPE_PATTERN.slice(1)}" @weir_denied_grpc;`,
  '}',
];

const UNSAFE_PATH_RULE = [
  '# nginx chooses a location by the path without dot segments, but forwards the path as received.',
  '# An application may take /login/../x for /login. Browsers and other clients do not send these.',
  `if ($request_uri ~* "^[^?]*(\\x5c|${DOT_SEGMENT})") { return 400; }`,
];

/** @param isHttps whether the application gets the host in X-Forwarded-Host, which may be absent */
function requestHostMaps(isHttps: boolean): string[] {
  const first = [
    '# Over HTTP/3 $http_host is empty. $host then has the name, but not the port.',
    'map $http_host $request_host {',
    '  default $http_host;',
  ];
  if (isHttps) return [...first, '  "" $host;', '}'];
  return [
    ...first,
    '  "" $host_or_upstream;',
    '}',
    '# A request of HTTP/1.0 may have neither; one of HTTP/1.1 must have a Host.',
    'map $host $host_or_upstream {',
    '  default $host;',
    '  "" $proxy_host;',
    '}',
  ];
}

/** The header Host of the application. */
function hostLines(upstream: Upstream): string[] {
  if (!upstream.isHttps) return ['proxy_set_header Host $request_host;'];
  return [
    `proxy_set_header Host ${authority(upstream, 443)};`,
    'proxy_set_header X-Forwarded-Host $request_host;',
  ];
}

/** TLS to the application. */
function tlsLines({ host }: Upstream): string[] {
  return [
    '# Verify the certificate of the application. For a private CA, name its file here.',
    'proxy_ssl_verify on;',
    `proxy_ssl_trusted_certificate ${SYSTEM_CA_FILE};`,
    'proxy_ssl_verify_depth 5;',
    'proxy_ssl_server_name on;',
    `proxy_ssl_name ${host};`,
  ];
}

function applicationPass({ isHttps, path }: Upstream): string {
  const url = `${isHttps ? 'https' : 'http'}://application`;
  return `proxy_pass ${url}${path === undefined ? '' : `${path}$request_uri`};`;
}

function countedHeaderLines(headers: readonly string[]): string[] {
  if (headers.length === 0) return [];
  return [
    '# Send the application the same value that weir counts.',
    ...headers.map((name) => `proxy_set_header ${name} $http_${variableName(name)};`),
  ];
}

/** Lines of a protected location, without those for an unexpected response of weir. */
function checkLines({ policy }: Route, routes: readonly Route[]): string[] {
  const names = quotaHeaders(policy);
  return [
    `auth_request ${checkUri(policy, routes)};`,
    ...[...names, 'Retry-After'].map((name) => {
      return `auth_request_set ${responseVariable(name)} $upstream_http_${variableName(name)};`;
    }),
    'auth_request_set $weir_status $status;',
    ...names.map((name) => `proxy_hide_header ${name};`),
    '# Does not apply to responses of the application.',
    'error_page 403 = $weir_denial;',
  ];
}

/** In the server, so that its own add_header lines apply to all responses too. */
function responseHeaderLines(routes: readonly Route[]): string[] {
  return [
    '# A location inherits these lines only if it has no add_header itself. So put yours here, for',
    '# example for HSTS or CORS, with "always": then a 429 has them too. nginx sends no header',
    '# with an empty value.',
    'set $weir_denied "";',
    ...weirHeaderLines(routes),
  ];
}

function weirHeaderLines(routes: readonly Route[]): string[] {
  return [
    'add_header Retry-After $weir_denied_retry_after always;',
    'add_header Cache-Control $weir_denied_cache_control always;',
    ...commonQuotaHeaders(routes).map((name) => {
      return `add_header ${name} ${responseVariable(name)} always;`;
    }),
  ];
}

const HEADERS_OF_HTTP = [
  '# If "http" has add_header lines and this server has none, repeat those here.',
];

/** The address inside nginx at which a request is checked. */
function checkUri({ namespace }: Policy, routes: readonly Route[]): string {
  return routes.length === 1 ? '/_weir' : `/_weir/${namespace}`;
}

/** The location that handles a failure of weir. */
function failureLocation({ onError }: Policy, routes: readonly Route[]): string {
  const isSame = routes.every(({ policy }) => policy.onError === onError);
  return isSame ? '@weir_failed' : `@weir_failed_${onError}`;
}

/** @param isSnippet whether the location is in a server with other settings */
function checkLocation({ policy }: Route, setup: GatewaySetup, isSnippet: boolean): string[] {
  const { routes, weir } = setup;
  const { namespace, onError } = policy;
  const target = `/v1/auth-request/${namespace}?${gatewayQuery('nginx')}`;
  return [
    `location = ${checkUri(policy, routes)} {`,
    ...[
      'internal;',
      ...(isSnippet ? ['auth_request off;', 'proxy_cache off;', 'proxy_http_version 1.1;'] : []),
      `proxy_pass http://weir${target};`,
      'proxy_method HEAD;',
      'proxy_pass_request_body off;',
      '# The check does not send the body: the protected location limits its size.',
      'client_max_body_size 0;',
      'proxy_set_header Content-Length "";',
      'proxy_set_header Connection "";',
      `# Send weir only the headers that the policy reads${cookiesComment(policy)}.`,
      'proxy_pass_request_headers off;',
      ...identityLines(policy),
      ...keyLines(weir),
      '# Long enough for responses that a flood delays on a busy machine.',
      `proxy_connect_timeout ${TIMEOUT_MS}ms;`,
      `proxy_send_timeout ${TIMEOUT_MS}ms;`,
      `proxy_read_timeout ${TIMEOUT_MS}ms;`,
      '# A response of weir names the namespace twice for each of up to 8 windows.',
      'proxy_buffer_size 12k;',
      '# weir may have counted a check that failed: do not repeat it.',
      'proxy_next_upstream off;',
      '# weir is stopped or late.',
      `error_page 502 504 = ${failureLocation(policy, routes)};`,
      ...(isSnippet && onError === 'allow' ? UNEXPECTED_RESPONSE_LINES : INVALID_KEY_LINES),
      '# weir rejected the request head. The client caused that, so onError does not apply.',
      'error_page 400 413 431 505 = @weir_invalid_head;',
    ].map((line) => `  ${line}`),
    '}',
  ];
}

const INVALID_KEY_LINES = [
  '# weir answers 401 to an invalid key; auth_request would return it to the client.',
  'proxy_intercept_errors on;',
  'error_page 401 = @weir_invalid_key;',
];

const UNEXPECTED_RESPONSE_LINES = [
  '# weir sent an unexpected response, such as 401 for an invalid key.',
  'proxy_intercept_errors on;',
  'error_page 401 404 429 500 503 = @weir_unexpected;',
];

const INVALID_KEY_LOCATION = ['', 'location @weir_invalid_key {', '  return 500;', '}'];

const UNEXPECTED_LOCATION = [
  '',
  'location @weir_unexpected {',
  '  # The access log gets a second line for the request, with the status 204.',
  '  log_subrequest on;',
  '  # onError: allow.',
  '  return 204;',
  '}',
];

const DENIED_LOCATION_START = `
location @weir_denied {
  # Without a check, or if weir allowed the request, nginx denied it, for example by "deny all".
`
  .trim()
  .split('\n');

/** The locations to which the checks of all policies are sent. */
function sharedLocations(routes: readonly Route[], isSnippet: boolean): string[] {
  const failures = new Map(
    routes.map(({ policy }) => [failureLocation(policy, routes), policy.onError]),
  );
  const usesUnexpectedLocation = isSnippet && [...failures.values()].includes('allow');
  const usesKeyLocation = !isSnippet || [...failures.values()].includes('deny');
  return [
    'location @weir_invalid_head {',
    '  return 403;',
    '}',
    ...[...failures].flatMap(([name, onError]) => [
      '',
      `location ${name} {`,
      `  # onError: ${onError}.`,
      `  return ${onError === 'allow' ? 204 : 403};`,
      '}',
    ]),
    ...(usesUnexpectedLocation ? UNEXPECTED_LOCATION : []),
    ...(usesKeyLocation ? INVALID_KEY_LOCATION : []),
    '',
    ...DENIED_LOCATION_START,
    `  if ($weir_status ~ ${NOT_DENIED}) { return 403; }`,
    '  set $weir_denied 1;',
    '  # Not by the end of the path.',
    '  types { }',
    '  default_type application/problem+json;',
    '  return 429 $weir_denied_problem;',
    '}',
    '',
    'location @weir_denied_grpc {',
    '  set $weir_denied 1;',
    '  types { }',
    `  default_type ${GRPC_CONTENT_TYPE};`,
    '  # 8 is RESOURCE_EXHAUSTED. The add_header lines of the server do not apply here.',
    `  add_header grpc-status ${GRPC_DENIED_STATUS};`,
    `  add_header grpc-message "${GRPC_DENIED_MESSAGE}";`,
    ...weirHeaderLines(routes).map((line) => `  ${line}`),
    '  return 200 "";',
    '}',
  ];
}

/** Forwards a request without a check: weir has sent an unexpected response. */
function allowedLocation(upstream: Upstream): string[] {
  return [
    'location @weir_allowed {',
    '  # weir did not fail: nginx itself did.',
    `  if ($weir_status ~ ${NOT_DENIED}) { return 500; }`,
    `  ${applicationPass(upstream)}`,
    '}',
  ];
}

/** Rejects control characters in the headers that the check sends to weir. */
function controlCharacterRules(routes: readonly Route[]): string[] {
  const skipped = routes.flatMap(({ policy }) => skipHeaders(policy));
  const names = [...new Set([...identifyingHeadersOf(routes), ...skipped])];
  const isForwarded = ({ policy }: Route) =>
    policy.trustedHops > 1 && policy.identify.includes('ip');
  if (routes.some(isForwarded)) names.push('x-forwarded-for');
  if (names.length === 0) return [];
  return [
    '# weir does not respond to a request head with control characters.',
    ...names.map(
      (name) => `if ($http_${variableName(name)} ~ "${CONTROL_CHARACTERS}") { return 400; }`,
    ),
  ];
}

/** The address of the connection; with proxies in front, appended to what they have set. */
function forwardedFor({ trustedHops }: Policy): string {
  return trustedHops === 1 ? '$remote_addr' : '$proxy_add_x_forwarded_for';
}

/** nginx cannot select a cookie: its variables ignore the case of a name and exclude dots. */
function cookiesComment(policy: Policy): string {
  return identifyingNames(policy, 'cookie').length > 0 ? ', and all cookies' : '';
}

/** Headers of the check that weir reads. */
function identityLines(policy: Policy): string[] {
  const names = new Set([...identifyingHeaders(policy), ...skipHeaders(policy)]);
  const headers = [...names].map((name) => `${name} $http_${variableName(name)}`);
  if (policy.identify.includes('ip')) headers.push(`X-Forwarded-For ${forwardedFor(policy)}`);
  if (readsMethod(policy)) headers.push('X-Forwarded-Method $request_method');
  if (readsPath(policy)) headers.push('X-Forwarded-Uri $request_uri');
  return headers.map((header) => `proxy_set_header ${header};`);
}

function keyLines(weir: WeirAddress): string[] {
  if (!weir.needsKey) return ['proxy_set_header X-Weir-Key "";'];
  return [
    '# Replace the variable by a key of weir with the permission limit; otherwise nginx does not',
    '# start. Allow only nginx to read this file.',
    'proxy_set_header X-Weir-Key "$key_of_weir";',
  ];
}

function weirServer(weir: WeirAddress): string {
  if ('socket' in weir) return `"unix:${weir.socket.replace(/["\\]/g, '\\$&')}"`;
  return `${weir.host}:${weir.port}`;
}
