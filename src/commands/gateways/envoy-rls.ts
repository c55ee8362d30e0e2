/**
 * Prints a complete bootstrap file of Envoy that calls weir's rate limit service, or parts to add
 * to an existing one.
 */

import { indentLines } from './common.ts';
import {
  applicationCluster,
  bootstrap,
  endpointLines,
  FILTERS,
  PENDING_REQUESTS_MAX,
  removedHeaders,
  routeEntry,
  STREAMS,
  UPSTREAMS,
} from './envoy.ts';
import {
  CONNECTIONS_MAX,
  QUEUE_TIMEOUT_MS,
  type RlsSetup,
  type ServiceAddress,
  TIMEOUT_MS,
} from './setup.ts';

/** The value of the descriptor that all requests of a route share. */
const ROUTE = 'all';

export function envoyRls(setup: RlsSetup): string {
  const { domain, service, listen, upstream } = setup;
  return bootstrap({
    comment: [
      `# Domain ${JSON.stringify(domain)} of weir's rate limit service for Envoy 1.31 or later:`,
      '#   envoy -c <this file>',
      '#',
      ...rulesComment(setup),
    ],
    listen,
    manager: ADDRESSES,
    afterUpgrades: STREAMS,
    routeConfig: REMOVED_HEADERS,
    routes: routeEntry('/', upstream),
    virtualHost: RATE_LIMITS,
    filters: filterLines(setup),
    clusters: [...weirCluster(service), ...applicationCluster(upstream)],
  });
}

export function envoyRlsSnippet(setup: RlsSetup): string {
  const { domain, service } = setup;
  return `# For Envoy 1.31 or later: domain ${JSON.stringify(domain)} of weir's rate limit service.
# Add these parts to an existing configuration. Each part begins with the place where it goes.
#${indentLines('', rulesComment(setup))}
---
# Part 1: in the HttpConnectionManager.${indentLines('', ADDRESSES, STREAMS)}
---
# Part 2: in http_filters of the HttpConnectionManager, before the router.${indentLines(
    '',
    filterLines(setup),
  )}
---
# Part 3: in clusters.${indentLines('', weirCluster(service))}
---
# Part 4: in each virtual host to protect.${indentLines('', REMOVED_HEADERS, [
    '# Routes with rate_limits of their own do not use these.',
    ...RATE_LIMITS,
  ])}
`;
}

/** The comment with the file of the rules: without its `# ` it is valid as it is. */
export function rulesComment({ domain }: RlsSetup): string[] {
  return [
    'The rules, for a YAML file in the folder that WEIR_RLS_CONFIG names:',
    '',
    `  domain: ${JSON.stringify(domain)}`,
    '  descriptors:',
    '    # Each client address.',
    '    - key: masked_remote_address',
    '      rate_limit:',
    '        unit: minute',
    '        requests_per_unit: 100',
    '    # All clients together.',
    '    - key: route',
    `      value: ${ROUTE}`,
    '      rate_limit:',
    '        unit: second',
    '        requests_per_unit: 1000',
  ].map((line) => (line === '' ? '#' : `# ${line}`));
}

const ADDRESSES = [
  '# The client is the address of the connection. With proxies in front of Envoy, also set',
  '# xff_num_trusted_hops to their number.',
  'use_remote_address: true',
];

const REMOVED_HEADERS = removedHeaders([
  'x-ratelimit-limit',
  'x-ratelimit-remaining',
  'x-ratelimit-reset',
  'ratelimit-policy',
  'ratelimit',
]);

export const RATE_LIMITS = [
  'rate_limits:',
  '  # Each element makes a descriptor: weir counts it by the rule that matches it.',
  '  - actions:',
  '      # An IPv6 client has a /64, and could use another address for each request.',
  '      - masked_remote_address: { v6_prefix_mask_len: 64 }',
  '  - actions:',
  `      - generic_key: { descriptor_key: route, descriptor_value: ${ROUTE} }`,
];

export function filterLines({ domain, onError }: RlsSetup): string[] {
  const isClosed = onError === 'deny';
  return [
    '- name: envoy.filters.http.ratelimit',
    '  typed_config:',
    ...[
      `"@type": ${FILTERS}.http.ratelimit.v3.RateLimit`,
      `domain: ${JSON.stringify(domain)}`,
      '# Applies if weir is stopped, late, or responds with an error.',
      `failure_mode_deny: ${isClosed}`,
      ...(isClosed ? ['status_on_error: { code: 429 }'] : []),
      '# x-ratelimit-limit, -remaining and -reset. With WEIR_RLS_HEADERS=ietf weir itself sends',
      '# Retry-After. Envoy 1.40 has enable_retry_after_header; older versions reject it.',
      'enable_x_ratelimit_headers: DRAFT_VERSION_03',
      '# The status of a denied gRPC call is RESOURCE_EXHAUSTED. By default it is UNAVAILABLE,',
      '# after which a client may send its call again at once.',
      'rate_limited_as_resource_exhausted: true',
      '# By default Envoy waits for 20 ms. A flood delays responses for longer, and',
      '# failure_mode_deny decides about requests without a response.',
      `timeout: ${QUEUE_TIMEOUT_MS / 1_000}s`,
      'rate_limit_service:',
      '  transport_api_version: V3',
      '  grpc_service: { envoy_grpc: { cluster_name: weir } }',
    ].map((line) => `    ${line}`),
  ];
}

export function weirCluster(service: ServiceAddress): string[] {
  return [
    '- name: weir',
    `  connect_timeout: ${TIMEOUT_MS / 1_000}s`,
    ...CIRCUIT_BREAKERS.map((line) => `  ${line}`),
    '  typed_extension_protocol_options:',
    '    envoy.extensions.upstreams.http.v3.HttpProtocolOptions:',
    `      "@type": ${UPSTREAMS}.http.v3.HttpProtocolOptions`,
    '      # gRPC needs HTTP/2.',
    '      explicit_http_config: { http2_protocol_options: {} }',
    ...endpointLines('weir', service),
  ];
}

const CIRCUIT_BREAKERS = [
  '# By default Envoy fails calls beyond 1024 open ones, and failure_mode_deny decides about them.',
  'circuit_breakers:',
  '  thresholds:',
  `    - max_connections: ${CONNECTIONS_MAX}`,
  `      max_pending_requests: ${PENDING_REQUESTS_MAX}`,
  `      max_requests: ${PENDING_REQUESTS_MAX}`,
];
