/** Prints a complete bootstrap file of Envoy for a policy. */

import { isIP } from 'node:net';
import type { Policy } from '../../policies/policy.ts';
import {
  bareHost,
  checkPath,
  denialHeaders,
  dropsUnderscores,
  forwardedHeaders,
  quotaHeaders,
} from './common.ts';
import {
  CONNECTIONS_MAX,
  type GatewaySetup,
  QUEUE_TIMEOUT_MS,
  TIMEOUT_MS,
  type WeirAddress,
} from './setup.ts';

const FILTERS = 'type.googleapis.com/envoy.extensions.filters';
const UPSTREAMS = 'type.googleapis.com/envoy.extensions.upstreams';
/** More requests than weir can answer within the timeout: only the timeout fails a request. */
const PENDING_REQUESTS_MAX = 100_000;

export function envoy({ policy, weir, listenPort, upstream }: GatewaySetup): string {
  return `# Policy ${policy.namespace} of weir for Envoy 1.31 or later:
#   envoy -c <this file>
static_resources:
  listeners:
    - name: clients
      address:
        socket_address: { address: 0.0.0.0, port_value: ${listenPort} }
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": ${FILTERS}.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: clients
                # Append the address of the connection to the client's X-Forwarded-For.
                use_remote_address: true
                # Number of proxies in front of Envoy whose X-Forwarded-For is trusted.
                xff_num_trusted_hops: ${policy.trustedHops - 1}
                # Allow upgrades to WebSocket only: another protocol could bypass weir.
                upgrade_configs:
                  - upgrade_type: websocket
                # Bounds the requests of one connection that wait for weir.
                http2_protocol_options: { max_concurrent_streams: 100 }
${dropsUnderscores(policy) ? UNDERSCORES : ''}                route_config:
                  # Only weir reads this header: remove a client's.
                  request_headers_to_remove:
                    - x-weir-key
                  # The quota headers of weir replace those of the application.
                  response_headers_to_remove:
${headerList(quotaHeaders(policy), 20)}
                  virtual_hosts:
                    - name: application
                      domains: ["*"]
                      routes:
                        - match: { prefix: / }
                          route: { cluster: application }
                http_filters:
                  - name: envoy.filters.http.ext_authz
                    typed_config:
                      "@type": ${FILTERS}.http.ext_authz.v3.ExtAuthz
                      transport_api_version: V3
${failureMode(policy)}
${requestHeaders(policy)}
                      http_service:
                        server_uri:
                          uri: http://weir
                          cluster: weir
                          # Includes the wait for a connection, which a flood makes long.
                          timeout: ${QUEUE_TIMEOUT_MS / 1_000}s
                        # Envoy appends the path of the client, unchanged, and uses its method.
                        path_prefix: ${JSON.stringify(checkPath(policy))}${keyHeader(weir)}
                        authorization_response:
                          # Headers of a denial. Envoy also forwards its body to the client.
                          allowed_client_headers:
                            patterns:
${exactPatterns(denialHeaders(policy), 30)}
                          # Headers of an allowed request, added to the application's response.
                          allowed_client_headers_on_success:
                            patterns:
${exactPatterns(quotaHeaders(policy), 30)}
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": ${FILTERS}.http.router.v3.Router
  clusters:
    - name: weir
      connect_timeout: ${TIMEOUT_MS / 1_000}s
      # A flood queues for these connections. By default Envoy fails requests beyond 1024 queued
      # ones, and failure_mode_allow would allow them.
      circuit_breakers:
        thresholds:
          - max_connections: ${CONNECTIONS_MAX}
            max_pending_requests: ${PENDING_REQUESTS_MAX}
            max_requests: ${PENDING_REQUESTS_MAX}
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": ${UPSTREAMS}.http.v3.HttpProtocolOptions
          # weir closes an idle connection after 10 s; Envoy must close it earlier.
          common_http_protocol_options: { idle_timeout: 5s }
          explicit_http_config: { http_protocol_options: {} }
${endpoint('weir', weir)}
    - name: application
      connect_timeout: 1s
${endpoint('application', upstream)}
`;
}

const UNDERSCORES = `\
                # Some applications read X_Api_Key as X-Api-Key, which weir would not have counted.
                common_http_protocol_options:
                  headers_with_underscores_action: DROP_HEADER
`;

function failureMode({ onError }: Policy): string {
  const status = `
                      status_on_error: { code: 429 }`;
  const isOpen = onError === 'allow';
  return `\
                      # Applies if weir is stopped, late, or responds with a 5xx. Every other status
                      # except 200 denies the request, for example the 401 for a wrong key.
                      failure_mode_allow: ${isOpen}${isOpen ? '' : status}`;
}

/** Which headers of the client Envoy sends to weir. */
function requestHeaders(policy: Policy): string {
  const names = forwardedHeaders(policy);
  const allowed = `\
                      # Envoy sends no other header of the client to weir, except Host.
                      allowed_headers:
                        patterns:
${exactPatterns(names, 26)}
`;
  // Envoy sends Authorization by default.
  const disallowed = `\
                      disallowed_headers:
                        patterns:
${exactPatterns(['authorization'], 26)}
`;
  const isIdentifying = names.includes('authorization');
  return `${names.length > 0 ? allowed : ''}${isIdentifying ? '' : disallowed}`.trimEnd();
}

function keyHeader(weir: WeirAddress): string {
  if (!weir.needsKey) return '';
  return `
                        authorization_request:
                          headers_to_add:
                            # From the environment of Envoy.
                            - key: x-weir-key
                              value: "%ENVIRONMENT(WEIR_KEY)%"`;
}

function headerList(names: readonly string[], indent: number): string {
  return names.map((name) => `${' '.repeat(indent)}- ${name.toLowerCase()}`).join('\n');
}

/** Envoy matches header names in lower case. */
function exactPatterns(names: readonly string[], indent: number): string {
  return names
    .map((name) => `${' '.repeat(indent)}- exact: ${JSON.stringify(name.toLowerCase())}`)
    .join('\n');
}

function endpoint(name: string, at: { host: string; port: number } | { socket: string }): string {
  const isFixed = 'socket' in at || isIP(bareHost(at.host)) !== 0;
  const address =
    'socket' in at
      ? `pipe: { path: ${JSON.stringify(at.socket)} }`
      : `socket_address: { address: ${JSON.stringify(bareHost(at.host))}, port_value: ${at.port} }`;
  return `\
      type: ${isFixed ? 'STATIC' : 'STRICT_DNS'}
      load_assignment:
        cluster_name: ${name}
        endpoints:
          - lb_endpoints:
              - endpoint:
                  address:
                    ${address}`;
}
