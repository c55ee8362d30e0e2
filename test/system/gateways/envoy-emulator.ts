/**
 * Emulates Envoy's ext_authz with an HTTP service, after envoyproxy/envoy:
 * source/common/http/conn_manager_utility.cc for the client's address,
 * source/extensions/filters/common/ext_authz/ext_authz_http_impl.cc for the check request and its
 * response, source/extensions/filters/http/ext_authz/ext_authz.cc for the reaction to it, and
 * api/envoy/extensions/filters/http/ext_authz/v3/ext_authz.proto. Since 1.28
 * (envoy.reloadable_features.ext_authz_http_send_original_xff) X-Forwarded-For is not changed.
 *
 * istio/istio: pilot/pkg/security/authz/builder/extauthz.go turns Istio's configuration into
 * Envoy's.
 */

import { parse, parseAllDocuments } from 'yaml';
import {
  applicationResponse,
  type ClientRequest,
  type EmulatorOptions,
  type GatewayEmulator,
  HOST,
  KEY_VARIABLE,
  sendOnce,
  serializeHead,
  timeoutFor,
} from './gateway-emulator.ts';

interface HeaderMatcher {
  exact: string;
  ignore_case?: boolean;
}
interface HeaderMatchers {
  patterns: HeaderMatcher[];
}

interface ExtAuthz {
  failure_mode_allow: boolean;
  status_on_error?: { code: number };
  allowed_headers?: HeaderMatchers;
  disallowed_headers?: HeaderMatchers;
  http_service: {
    server_uri: { timeout: string };
    path_prefix: string;
    authorization_request?: { headers_to_add: { key: string; value: string }[] };
    authorization_response: {
      allowed_client_headers: HeaderMatchers;
      allowed_client_headers_on_success: HeaderMatchers;
    };
  };
}

interface EnvoyConfiguration {
  filter: ExtAuthz;
  weir: { host: string; port: number };
  /** Headers that are removed from requests to the application. */
  removedHeaders: string[];
  usesRemoteAddress: boolean;
}

/** The address of Envoy's host, which replaces a client address on the loopback interface. */
const LOCAL_ADDRESS = '10.0.0.2';

function matches({ patterns }: HeaderMatchers, name: string): boolean {
  return patterns.some(({ exact, ignore_case = false }) => {
    return ignore_case ? exact.toLowerCase() === name : exact === name;
  });
}

export function parseEnvoyConfiguration(text: string, key = ''): EnvoyConfiguration {
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
    removedHeaders: manager.route_config.request_headers_to_remove,
    usesRemoteAddress: manager.use_remote_address,
  };
}

export function parseIstioConfiguration(text: string, key = ''): EnvoyConfiguration {
  const [operator, service] = parseAllDocuments(text).map((document) => document.toJS());
  const [{ envoyExtAuthzHttp: provider }] = operator.spec.meshConfig.extensionProviders;
  const patterns = (names: string[]): HeaderMatchers => ({
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
    removedHeaders: [],
    // As in Istio's gateways: pilot/pkg/networking/core/gateway.go.
    usesRemoteAddress: true,
  };
}

/** Names in lower case, repeated headers joined, and the address of the connection appended. */
function normalizeHeaders(
  { headers = [], remoteAddress = '198.51.100.1' }: ClientRequest,
  usesRemoteAddress: boolean,
): Map<string, string> {
  const header = new Map<string, string>();
  const append = (name: string, value: string, between: string) => {
    const current = header.get(name);
    header.set(name, current === undefined ? value : current + between + value);
  };
  for (const [name, value] of headers) {
    const key = name.toLowerCase();
    if (!key.startsWith('x-envoy-')) append(key, value, ',');
  }
  const address = remoteAddress.startsWith('127.') ? LOCAL_ADDRESS : remoteAddress;
  if (usesRemoteAddress) append('x-forwarded-for', address, ',');
  return header;
}

export function emulateEnvoy(
  { filter, weir, removedHeaders, usesRemoteAddress }: EnvoyConfiguration,
  options: EmulatorOptions = {},
): GatewayEmulator {
  const service = filter.http_service;
  const timeoutMs = Number.parseFloat(service.server_uri.timeout) * 1_000;
  /** RawHttpClientImpl::check */
  const checkRequest = (request: ClientRequest) => {
    const target = service.path_prefix + (request.target ?? '/');
    const checkHeaders: [string, string][] = [
      ['host', HOST],
      ['content-length', '0'],
    ];
    const added = service.authorization_request?.headers_to_add ?? [];
    const overwritten = added.map(({ key }) => key.toLowerCase());
    for (const [name, value] of normalizeHeaders(request, usesRemoteAddress)) {
      if (['host', 'content-length'].includes(name) || overwritten.includes(name)) continue;
      const isAllowed =
        name === 'authorization' ||
        (filter.allowed_headers !== undefined && matches(filter.allowed_headers, name));
      const { disallowed_headers = { patterns: [] } } = filter;
      if (isAllowed && !matches(disallowed_headers, name)) checkHeaders.push([name, value]);
    }
    for (const { key, value } of added) checkHeaders.push([key.toLowerCase(), value]);
    checkHeaders.push(['x-envoy-internal', 'true']);
    checkHeaders.push(['x-envoy-expected-rq-timeout-ms', String(timeoutMs)]);
    return serializeHead(`${request.method ?? 'GET'} ${target} HTTP/1.1`, checkHeaders);
  };
  return {
    checkRequest,
    send: async (request) => {
      const waitMs = timeoutFor(timeoutMs, options);
      const response = await sendOnce(weir.host, weir.port, checkRequest(request), waitMs);
      const header = normalizeHeaders(request, usesRemoteAddress);
      for (const name of removedHeaders) header.delete(name);
      const application = Object.fromEntries(header);
      const picked = (matchers: HeaderMatchers) =>
        Object.fromEntries(
          Object.entries(response?.headers ?? {}).filter(([name]) => matches(matchers, name)),
        );
      if (response === undefined || response.status >= 500) {
        if (filter.failure_mode_allow) return applicationResponse(request, application);
        return { status: filter.status_on_error?.code ?? 403, headers: {}, body: '' };
      }
      const { allowed_client_headers, allowed_client_headers_on_success } =
        service.authorization_response;
      if (response.status === 200) {
        return applicationResponse(request, application, picked(allowed_client_headers_on_success));
      }
      const headers = picked(allowed_client_headers);
      return { status: response.status, headers, body: response.body };
    },
  };
}
