/**
 * Prints a complete bootstrap file of Envoy, or parts to add to an existing one. With one policy
 * for all paths the filter checks each request. Otherwise each policy has a filter, which is
 * disabled and which routes enable.
 */

import { isIP } from 'node:net';
import { GRPC_CONTENT_TYPE, GRPC_DENIED_MESSAGE, GRPC_DENIED_STATUS } from '../../policies/grpc.ts';
import type { Policy } from '../../policies/policy.ts';
import {
  authority,
  bareHost,
  checkPrefix,
  commonQuotaHeaders,
  denialHeaders,
  describeRoutes,
  dropsUnderscores,
  forwardedHeaders,
  indentLines,
  isWholeSite,
  listensEverywhere,
  protectsEveryPath,
  quotaHeaders,
  SYSTEM_CA_FILE,
} from './common.ts';
import {
  CONNECTIONS_MAX,
  type GatewaySetup,
  type ListenAddress,
  QUEUE_TIMEOUT_MS,
  type Route,
  TIMEOUT_MS,
  type Upstream,
  type WeirAddress,
} from './setup.ts';

export const FILTERS = 'type.googleapis.com/envoy.extensions.filters';
const TRANSPORT_SOCKETS = 'type.googleapis.com/envoy.extensions.transport_sockets';
export const UPSTREAMS = 'type.googleapis.com/envoy.extensions.upstreams';
/** More requests than weir can answer within the timeout: only the timeout fails a request. */
export const PENDING_REQUESTS_MAX = 100_000;

export function envoy(setup: GatewaySetup): string {
  const { routes, weir, listen, upstream } = setup;
  const [{ policy }] = routes;
  const policies = routes.map((route) => route.policy);
  const isWhole = isWholeSite(routes);
  const title = isWhole
    ? `Policy ${policy.namespace} of weir for Envoy 1.31 or later:`
    : `For Envoy 1.31 or later: ${describeRoutes(routes)}`;
  return bootstrap({
    comment: [`# ${title}`, '#   envoy -c <this file>'],
    listen,
    manager: addressLines(policy),
    afterUpgrades: [
      ...STREAMS,
      ...GRPC_DENIALS,
      ...(isWhole ? [] : NORMALIZED_PATH),
      ...(dropsUnderscores(...policies) ? UNDERSCORES : []),
    ],
    routeConfig: [
      "# Only weir reads this header: remove it from clients' requests.",
      'request_headers_to_remove:',
      '  - x-weir-key',
      ...(upstream.isHttps && policy.trustedHops === 1
        ? REMOVE_FORWARDED_HOST.map((line) => `  ${line}`)
        : []),
      ...removedHeaders(commonQuotaHeaders(routes)),
    ],
    routes: routeEntries(setup).flat(),
    virtualHost: [],
    filters: isWhole
      ? ['- name: envoy.filters.http.ext_authz', ...filterLines(policy, weir)]
      : routes.flatMap((route) => checkFilter(route, setup)),
    clusters: [...weirCluster(weir), ...applicationCluster(upstream)],
  });
}

/** The parts of a bootstrap file, as lines. */
interface BootstrapParts {
  comment: readonly string[];
  listen: ListenAddress;
  /** Fields of the HttpConnectionManager: before the upgrades that it allows, and after them. */
  manager: readonly string[];
  afterUpgrades: readonly string[];
  routeConfig: readonly string[];
  routes: readonly string[];
  /** After its routes. */
  virtualHost: readonly string[];
  /** Before the router. */
  filters: readonly string[];
  clusters: readonly string[];
}

export function bootstrap(parts: BootstrapParts): string {
  const { comment, listen, manager, afterUpgrades, routeConfig, routes, virtualHost, filters } =
    parts;
  const routeLines = indentLines(spaces(24), routes) + indentLines(spaces(22), virtualHost);
  return `${comment.join('\n')}
static_resources:
  listeners:
    - name: clients
      address:
        ${socketAddress(listen, listensEverywhere(listen) ? ', ipv4_compat: true' : '')}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": ${FILTERS}.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: clients${indentLines(spaces(16), manager)}
                # Allow upgrades to WebSocket only: another protocol could bypass weir.
                upgrade_configs:
                  - upgrade_type: websocket${indentLines(spaces(16), afterUpgrades)}
                route_config:${indentLines(spaces(18), routeConfig)}
                  virtual_hosts:
                    - name: application
                      domains: ["*"]
                      routes:${routeLines}
                http_filters:${indentLines(spaces(18), filters)}
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": ${FILTERS}.http.router.v3.Router
  clusters:${indentLines(spaces(4), parts.clusters)}
`;
}

export function envoySnippet(setup: GatewaySetup): string {
  const { routes, weir } = setup;
  const [{ policy }] = routes;
  const policies = routes.map((route) => route.policy);
  const parts = routes.map(({ policy, prefix }, i) => {
    const which = prefix === '/' ? '' : ` whose path begins with ${prefix}`;
    return [
      `# Part ${i + 4}: in each route to protect${which}.`,
      "# Only weir reads this header: remove it from clients' requests.",
      'request_headers_to_remove:',
      '  - x-weir-key',
      ...removedHeaders(quotaHeaders(policy)),
      ...enablingLines(policy),
    ].join('\n');
  });
  return `# For Envoy 1.31 or later: ${describeRoutes(routes)}
# Add these parts to an existing configuration. Each part begins with the place where it goes.
---
# Part 1: in the HttpConnectionManager.${indentLines(
    '',
    addressLines(policy),
    STREAMS,
    GRPC_DENIALS,
    isWholeSite(routes) ? [] : NORMALIZED_PATH,
    dropsUnderscores(...policies) ? UNDERSCORES : [],
  )}
---
# Part 2: in http_filters of the HttpConnectionManager, before the router.${indentLines(
    '',
    ...routes.map((route) => checkFilter(route, setup)),
  )}
---
# Part 3: in clusters.${indentLines('', weirCluster(weir))}
---
${parts.join('\n---\n')}
`;
}

export const spaces = (count: number) => ' '.repeat(count);

function addressLines({ trustedHops }: Policy): string[] {
  return [
    "# Append the address of the connection to the client's X-Forwarded-For.",
    'use_remote_address: true',
    '# Number of proxies in front of Envoy whose X-Forwarded-For is trusted.',
    `xff_num_trusted_hops: ${trustedHops - 1}`,
  ];
}

export const STREAMS = [
  '# Bounds the requests of one connection that wait for weir.',
  'http2_protocol_options: { max_concurrent_streams: 100 }',
];

const GRPC_DENIALS = [
  '# Envoy turns a denial of a gRPC call into a response of gRPC. Without this its status would be',
  '# UNAVAILABLE; 8 is RESOURCE_EXHAUSTED.',
  'local_reply_config:',
  '  mappers:',
  '    - filter:',
  '        and_filter:',
  '          filters:',
  '            - response_flag_filter: { flags: [UAEX] }',
  '            - status_code_filter:',
  '                comparison: { op: EQ, value: { default_value: 429, runtime_key: weir.none } }',
  '            - header_filter:',
  '                header:',
  '                  name: content-type',
  `                  string_match: { safe_regex: { regex: '${GRPC_CONTENT_TYPE}([+].*)?' } }`,
  '      headers_to_add:',
  `        - header: { key: grpc-status, value: "${GRPC_DENIED_STATUS}" }`,
  `      body: { inline_string: ${GRPC_DENIED_MESSAGE} }`,
];

const NORMALIZED_PATH = [
  '# The application receives the path with which Envoy has chosen a route.',
  'normalize_path: true',
  'merge_slashes: true',
  '# An application may decode /api%2Flogin to /api/login. If it needs encoded slashes, set',
  '# KEEP_UNCHANGED: the prefix /api/login then does not protect /api%2Flogin.',
  'path_with_escaped_slashes_action: UNESCAPE_AND_FORWARD',
];

const UNDERSCORES = [
  '# Some applications read X_Api_Key as X-Api-Key, which weir would not have counted.',
  'common_http_protocol_options:',
  '  headers_with_underscores_action: DROP_HEADER',
];

const REMOVE_FORWARDED_HOST = [
  '# Envoy sends its own value, the Host of the client.',
  '- x-forwarded-host',
];

/** Envoy chooses the first route that matches. */
function routeEntries(setup: GatewaySetup): string[][] {
  const { routes, upstream } = setup;
  const longestFirst = routes.toSorted((a, b) => b.prefix.length - a.prefix.length);
  const entries = longestFirst.map(({ policy, prefix }) => {
    const entry = routeEntry(prefix, upstream);
    return isWholeSite(routes) ? entry : [...entry, ...enablingLines(policy).map(indented)];
  });
  if (protectsEveryPath(routes)) return entries;
  return [...entries, ['# No namespace protects the other paths.', ...routeEntry('/', upstream)]];
}

const indented = (line: string) => `  ${line}`;

export function routeEntry(prefix: string, upstream: Upstream): string[] {
  const { isHttps, path } = upstream;
  const fields = [
    'cluster: application',
    ...(path === undefined ? [] : [`prefix_rewrite: ${path}${prefix}`]),
    ...(isHttps
      ? [
          `host_rewrite_literal: ${JSON.stringify(authority(upstream, 443))}`,
          'append_x_forwarded_host: true',
        ]
      : []),
  ];
  return [
    `- match: { prefix: ${prefix} }`,
    ...(fields.length === 1
      ? [`  route: { ${fields[0]} }`]
      : ['  route:', ...fields.map((field) => `    ${field}`)]),
  ];
}

const filterName = ({ namespace }: Policy) => JSON.stringify(`weir.${namespace}`);

/** The filter of one of several policies. */
function checkFilter({ policy }: Route, { weir }: GatewaySetup): string[] {
  return [
    `- name: ${filterName(policy)}`,
    '  # Routes enable it.',
    '  disabled: true',
    ...filterLines(policy, weir),
  ];
}

/** Enables the filter of a policy for a route. */
function enablingLines(policy: Policy): string[] {
  return [
    'typed_per_filter_config:',
    `  ${filterName(policy)}:`,
    '    "@type": type.googleapis.com/envoy.config.route.v3.FilterConfig',
    '    config: {}',
  ];
}

/** The check of a policy, without the name of the filter. */
function filterLines(policy: Policy, weir: WeirAddress): string[] {
  return [
    '  typed_config:',
    ...[
      `"@type": ${FILTERS}.http.ext_authz.v3.ExtAuthz`,
      'transport_api_version: V3',
      ...failureMode(policy),
      ...requestHeaders(policy),
      'http_service:',
      '  server_uri:',
      '    uri: http://weir',
      '    cluster: weir',
      '    # Includes the wait for a connection, which a flood makes long.',
      `    timeout: ${QUEUE_TIMEOUT_MS / 1_000}s`,
      '  # Envoy appends the path of the client, unchanged, and uses its method.',
      `  path_prefix: ${JSON.stringify(checkPrefix(policy))}`,
      ...keyHeader(weir),
      '  authorization_response:',
      '    # Headers of a denial. Envoy also forwards its body to the client.',
      '    allowed_client_headers:',
      '      patterns:',
      ...exactPatterns(denialHeaders(policy), 8),
      "    # Headers of an allowed request, added to the application's response.",
      '    allowed_client_headers_on_success:',
      '      patterns:',
      ...exactPatterns(quotaHeaders(policy), 8),
    ].map((line) => `    ${line}`),
  ];
}

function failureMode({ onError }: Policy): string[] {
  const isOpen = onError === 'allow';
  return [
    '# Applies if weir is stopped, late, or responds with a 5xx. Every other status',
    '# except 200 denies the request, for example the 401 for a wrong key.',
    `failure_mode_allow: ${isOpen}`,
    ...(isOpen ? [] : ['status_on_error: { code: 429 }']),
  ];
}

/** Which headers of the client Envoy sends to weir. */
function requestHeaders(policy: Policy): string[] {
  const names = forwardedHeaders(policy);
  const allowed = [
    '# Envoy sends no other header of the client to weir, except Host.',
    'allowed_headers:',
    '  patterns:',
    ...exactPatterns(names, 4),
  ];
  // Envoy sends Authorization by default.
  const disallowed = ['disallowed_headers:', '  patterns:', ...exactPatterns(['authorization'], 4)];
  const isIdentifying = names.includes('authorization');
  return [...(names.length > 0 ? allowed : []), ...(isIdentifying ? [] : disallowed)];
}

function keyHeader(weir: WeirAddress): string[] {
  if (!weir.needsKey) return [];
  return [
    '  authorization_request:',
    '    headers_to_add:',
    '      # From the environment of Envoy.',
    '      - key: x-weir-key',
    '        value: "%ENVIRONMENT(WEIR_KEY)%"',
  ];
}

function weirCluster(weir: WeirAddress): string[] {
  return [
    '- name: weir',
    `  connect_timeout: ${TIMEOUT_MS / 1_000}s`,
    '  # A flood queues for these connections. By default Envoy fails requests beyond 1024 queued',
    '  # ones, and failure_mode_allow would allow them.',
    '  circuit_breakers:',
    '    thresholds:',
    `      - max_connections: ${CONNECTIONS_MAX}`,
    `        max_pending_requests: ${PENDING_REQUESTS_MAX}`,
    `        max_requests: ${PENDING_REQUESTS_MAX}`,
    '  typed_extension_protocol_options:',
    '    envoy.extensions.upstreams.http.v3.HttpProtocolOptions:',
    `      "@type": ${UPSTREAMS}.http.v3.HttpProtocolOptions`,
    '      # weir closes an idle connection after 10 s; Envoy must close it earlier.',
    '      common_http_protocol_options: { idle_timeout: 5s }',
    '      explicit_http_config: { http_protocol_options: {} }',
    ...endpointLines('weir', weir),
  ];
}

export function applicationCluster(upstream: Upstream): string[] {
  return [
    '- name: application',
    '  connect_timeout: 1s',
    ...(upstream.isHttps ? tlsLines(bareHost(upstream.host)) : []),
    ...endpointLines('application', upstream),
  ];
}

/** TLS to the application. A server name of SNI is never an address. */
function tlsLines(host: string): string[] {
  const isAddress = isIP(host) !== 0;
  return [
    '  transport_socket:',
    '    name: envoy.transport_sockets.tls',
    '    typed_config:',
    `      "@type": ${TRANSPORT_SOCKETS}.tls.v3.UpstreamTlsContext`,
    ...(isAddress ? [] : [`      sni: ${JSON.stringify(host)}`]),
    '      common_tls_context:',
    '        validation_context:',
    '          # For a private CA, name its file here.',
    `          trusted_ca: { filename: ${SYSTEM_CA_FILE} }`,
    '          match_typed_subject_alt_names:',
    `            - san_type: ${isAddress ? 'IP_ADDRESS' : 'DNS'}`,
    `              matcher: { exact: ${JSON.stringify(host)} }`,
  ];
}

/** @param options of a listener, with a comma before them */
function socketAddress({ host, port }: { host: string; port: number }, options = ''): string {
  const address = JSON.stringify(bareHost(host));
  return `socket_address: { address: ${address}, port_value: ${port}${options} }`;
}

/** @param names of the headers that weir sets */
export function removedHeaders(names: readonly string[]): string[] {
  return [
    '# The quota headers of weir replace those of the application.',
    'response_headers_to_remove:',
    ...names.map((name) => `  - ${name.toLowerCase()}`),
  ];
}

/** Envoy matches header names in lower case. */
function exactPatterns(names: readonly string[], indent: number): string[] {
  return names.map((name) => `${spaces(indent)}- exact: ${JSON.stringify(name.toLowerCase())}`);
}

export function endpointLines(
  name: string,
  at: { host: string; port: number } | { socket: string },
): string[] {
  const isFixed = 'socket' in at || isIP(bareHost(at.host)) !== 0;
  const address =
    'socket' in at ? `pipe: { path: ${JSON.stringify(at.socket)} }` : socketAddress(at);
  return [
    `  type: ${isFixed ? 'STATIC' : 'STRICT_DNS'}`,
    '  load_assignment:',
    `    cluster_name: ${name}`,
    '    endpoints:',
    '      - lb_endpoints:',
    '          - endpoint:',
    '              address:',
    `                ${address}`,
  ];
}
