/**
 * Emulates the ext_authz filter that Istio configures in its Envoys, after envoyproxy/envoy:
 * source/common/http/conn_manager_utility.cc for the client's address,
 * source/extensions/filters/common/ext_authz/ext_authz_http_impl.cc for the check request and its
 * response, and source/extensions/filters/http/ext_authz/ext_authz.cc for the reaction to it. Since
 * 1.28 (envoy.reloadable_features.ext_authz_http_send_original_xff) X-Forwarded-For is not changed.
 *
 * istio/istio: pilot/pkg/security/authz/builder/extauthz.go turns Istio's configuration into
 * Envoy's.
 */

import { parseAllDocuments } from 'yaml';
import {
  applicationResponse,
  type ClientRequest,
  type EmulatorOptions,
  type GatewayEmulator,
  HOST,
  sendOnce,
  serializeHead,
} from './gateway-emulator.ts';

/** envoyExtAuthzHttp of MeshConfig. */
interface Provider {
  port: number;
  timeout: string;
  pathPrefix: string;
  failOpen: boolean;
  statusOnError?: string;
  includeRequestHeadersInCheck?: string[];
  includeAdditionalHeadersInCheck?: Record<string, string>;
  headersToDownstreamOnDeny: string[];
  headersToDownstreamOnAllow: string[];
}

/** The address of Envoy's host, which replaces a client address on the loopback interface. */
const LOCAL_ADDRESS = '10.0.0.2';

const has = (names: string[] = [], name: string) => {
  return names.some((other) => other.toLowerCase() === name);
};

/** Names in lower case, repeated headers joined, and the address of the connection appended. */
function normalizeHeaders({
  headers = [],
  remoteAddress = '198.51.100.1',
}: ClientRequest): Map<string, string> {
  const header = new Map<string, string>();
  const append = (name: string, value: string) => {
    const current = header.get(name);
    header.set(name, current === undefined ? value : `${current},${value}`);
  };
  for (const [name, value] of headers) {
    const key = name.toLowerCase();
    if (!key.startsWith('x-envoy-')) append(key, value);
  }
  // Istio's gateways use the address of the connection: pilot/pkg/networking/core/gateway.go.
  append('x-forwarded-for', remoteAddress.startsWith('127.') ? LOCAL_ADDRESS : remoteAddress);
  return header;
}

export function emulateIstio(text: string, { key = '' }: EmulatorOptions = {}): GatewayEmulator {
  const [operator, service] = parseAllDocuments(text).map((document) => document.toJS());
  const [{ envoyExtAuthzHttp }] = operator.spec.meshConfig.extensionProviders;
  const provider: Provider = envoyExtAuthzHttp;
  const [{ address }] = service.spec.endpoints;
  const timeoutMs = Number.parseFloat(provider.timeout) * 1_000;
  const added = Object.entries(provider.includeAdditionalHeadersInCheck ?? {});
  const overwritten = added.map(([name]) => name.toLowerCase());
  /** RawHttpClientImpl::check */
  const checkRequest = (request: ClientRequest) => {
    const checkHeaders: [string, string][] = [
      ['host', HOST],
      ['content-length', '0'],
    ];
    for (const [name, value] of normalizeHeaders(request)) {
      if (['host', 'content-length'].includes(name) || overwritten.includes(name)) continue;
      const isSent = name === 'authorization' || has(provider.includeRequestHeadersInCheck, name);
      if (isSent) checkHeaders.push([name, value]);
    }
    for (const [name, value] of added) {
      checkHeaders.push([name.toLowerCase(), value.replace('<key>', key)]);
    }
    checkHeaders.push(['x-envoy-internal', 'true']);
    checkHeaders.push(['x-envoy-expected-rq-timeout-ms', String(timeoutMs)]);
    const target = provider.pathPrefix + (request.target ?? '/');
    return serializeHead(`${request.method ?? 'GET'} ${target} HTTP/1.1`, checkHeaders);
  };
  return {
    checkRequest,
    send: async (request) => {
      const response = await sendOnce(address, provider.port, checkRequest(request));
      const application = Object.fromEntries(normalizeHeaders(request));
      if (response === undefined || response.status >= 500) {
        if (provider.failOpen) return applicationResponse(request, application);
        return { status: Number(provider.statusOnError ?? 403), headers: {}, body: '' };
      }
      const picked = (names: string[]) => {
        const headers = Object.entries(response.headers);
        return Object.fromEntries(headers.filter(([name]) => has(names, name)));
      };
      if (response.status === 200) {
        const headers = picked(provider.headersToDownstreamOnAllow);
        return applicationResponse(request, application, headers);
      }
      const headers = picked(provider.headersToDownstreamOnDeny);
      return { status: response.status, headers, body: response.body };
    },
  };
}
