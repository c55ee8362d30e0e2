/**
 * Envoy's ext_authz with an HTTP service, after envoyproxy/envoy:
 * source/common/http/conn_manager_utility.cc for the client's address,
 * source/extensions/filters/common/ext_authz/ext_authz_http_impl.cc for the request and the reading
 * of the answer, source/extensions/filters/http/ext_authz/ext_authz.cc for what becomes of it, and
 * api/envoy/extensions/filters/http/ext_authz/v3/ext_authz.proto. Since 1.28
 * (envoy.reloadable_features.ext_authz_http_send_original_xff) X-Forwarded-For is left as it is.
 *
 * What Istio makes of its own configuration is in istio/istio:
 * pilot/pkg/security/authz/builder/extauthz.go.
 */

import { parse, parseAllDocuments } from 'yaml';
import {
  type ClientRequest,
  exchangeOnce,
  fromApplication,
  HOST,
  KEY_VARIABLE,
  lines,
  patience,
  type Replay,
  type ReplayOptions,
} from './replay.ts';

interface Matcher {
  exact: string;
  ignore_case?: boolean;
}
interface Matchers {
  patterns: Matcher[];
}

interface ExtAuthz {
  failure_mode_allow: boolean;
  status_on_error?: { code: number };
  allowed_headers?: Matchers;
  disallowed_headers?: Matchers;
  http_service: {
    server_uri: { timeout: string };
    path_prefix: string;
    authorization_request?: { headers_to_add: { key: string; value: string }[] };
    authorization_response: {
      allowed_client_headers: Matchers;
      allowed_client_headers_on_success: Matchers;
    };
  };
}

interface Configured {
  filter: ExtAuthz;
  weir: { host: string; port: number };
  /** Headers that the application does not get. */
  removed: string[];
  usesRemoteAddress: boolean;
}

/** The node's own address, which stands for a client on the loopback interface. */
const LOCAL_ADDRESS = '10.0.0.2';

function matches({ patterns }: Matchers, name: string): boolean {
  return patterns.some(({ exact, ignore_case = false }) => {
    return ignore_case ? exact.toLowerCase() === name : exact === name;
  });
}

export function configuredEnvoy(text: string, key = ''): Configured {
  const { static_resources } = parse(text.replaceAll(`%ENVIRONMENT(${KEY_VARIABLE})%`, key));
  const [chain] = static_resources.listeners[0].filter_chains;
  const manager = chain.filters[0].typed_config;
  const [filter] = manager.http_filters;
  const [cluster] = static_resources.clusters;
  const [{ lb_endpoints }] = cluster.load_assignment.endpoints;
  const { address, port_value } = lb_endpoints[0].endpoint.address.socket_address;
  return {
    filter: filter.typed_config,
    weir: { host: address, port: port_value },
    removed: manager.route_config.request_headers_to_remove,
    usesRemoteAddress: manager.use_remote_address,
  };
}

export function configuredIstio(text: string, key = ''): Configured {
  const [operator, service] = parseAllDocuments(text).map((document) => document.toJS());
  const [{ envoyExtAuthzHttp: provider }] = operator.spec.meshConfig.extensionProviders;
  const patterns = (names: string[]): Matchers => ({
    patterns: names.map((exact) => ({ exact, ignore_case: true })),
  });
  const added = Object.entries<string>(provider.includeAdditionalHeadersInCheck ?? {});
  return {
    filter: {
      failure_mode_allow: provider.failOpen,
      status_on_error: provider.statusOnError && { code: Number(provider.statusOnError) },
      allowed_headers: patterns(provider.includeRequestHeadersInCheck ?? []),
      http_service: {
        server_uri: { timeout: provider.timeout },
        path_prefix: provider.pathPrefix,
        authorization_request: {
          headers_to_add: added.map(([name, value]) => ({
            key: name,
            value: value.replace('<key>', key),
          })),
        },
        authorization_response: {
          allowed_client_headers: patterns(provider.headersToDownstreamOnDeny),
          allowed_client_headers_on_success: patterns(provider.headersToDownstreamOnAllow),
        },
      },
    },
    weir: { host: service.spec.endpoints[0].address, port: provider.port },
    removed: [],
    // Of its gateways: pilot/pkg/networking/core/gateway.go.
    usesRemoteAddress: true,
  };
}

/** Names in lower case, lines of one name in one, and the address of the connection. */
function incoming(
  { headers = [], from = '198.51.100.1' }: ClientRequest,
  usesRemoteAddress: boolean,
): Map<string, string> {
  const header = new Map<string, string>();
  const append = (name: string, value: string, between: string) => {
    const before = header.get(name);
    header.set(name, before === undefined ? value : before + between + value);
  };
  for (const [name, value] of headers) {
    const key = name.toLowerCase();
    if (!key.startsWith('x-envoy-')) append(key, value, ',');
  }
  const address = from.startsWith('127.') ? LOCAL_ADDRESS : from;
  if (usesRemoteAddress) append('x-forwarded-for', address, ',');
  return header;
}

export function envoyReplay(
  { filter, weir, removed, usesRemoteAddress }: Configured,
  options: ReplayOptions = {},
): Replay {
  const service = filter.http_service;
  const timeoutMs = Number.parseFloat(service.server_uri.timeout) * 1_000;
  /** RawHttpClientImpl::check */
  const bytes = (request: ClientRequest) => {
    const target = service.path_prefix + (request.target ?? '/');
    const asked: [string, string][] = [
      ['host', HOST],
      ['content-length', '0'],
    ];
    const added = service.authorization_request?.headers_to_add ?? [];
    const overwritten = added.map(({ key }) => key.toLowerCase());
    for (const [name, value] of incoming(request, usesRemoteAddress)) {
      if (['host', 'content-length'].includes(name) || overwritten.includes(name)) continue;
      const isAllowed =
        name === 'authorization' ||
        (filter.allowed_headers !== undefined && matches(filter.allowed_headers, name));
      const { disallowed_headers = { patterns: [] } } = filter;
      if (isAllowed && !matches(disallowed_headers, name)) asked.push([name, value]);
    }
    asked.push(...added.map(({ key, value }): [string, string] => [key.toLowerCase(), value]));
    asked.push(['x-envoy-internal', 'true']);
    asked.push(['x-envoy-expected-rq-timeout-ms', String(timeoutMs)]);
    return lines(`${request.method ?? 'GET'} ${target} HTTP/1.1`, asked);
  };
  return {
    bytes,
    ask: async (request) => {
      const waitMs = patience(timeoutMs, options);
      const answer = await exchangeOnce(weir.host, weir.port, bytes(request), waitMs);
      const header = incoming(request, usesRemoteAddress);
      for (const name of removed) header.delete(name);
      const application = Object.fromEntries(header);
      const picked = (matchers: Matchers) =>
        Object.fromEntries(
          Object.entries(answer?.headers ?? {}).filter(([name]) => matches(matchers, name)),
        );
      if (answer === undefined || answer.status >= 500) {
        if (filter.failure_mode_allow) return fromApplication(request, application);
        return { status: filter.status_on_error?.code ?? 403, headers: {}, body: '' };
      }
      const { allowed_client_headers, allowed_client_headers_on_success } =
        service.authorization_response;
      if (answer.status === 200) {
        return fromApplication(request, application, picked(allowed_client_headers_on_success));
      }
      const headers = picked(allowed_client_headers);
      return { status: answer.status, headers, body: answer.body };
    },
  };
}
