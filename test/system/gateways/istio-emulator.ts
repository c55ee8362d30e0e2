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
  type ClientRequest,
  type GatewayEmulator,
  pickHeaders,
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

/** The values by names in lower case, with the address of the connection appended. */
function headersOf({ headers, remoteAddress }: ClientRequest): Map<string, string[]> {
  const values = new Map<string, string[]>();
  const append = (name: string, value: string) => {
    values.set(name, [...(values.get(name) ?? []), value]);
  };
  for (const [name, value] of headers) {
    const key = name.toLowerCase();
    if (!key.startsWith('x-envoy-')) append(key, value);
  }
  // Istio's gateways use the address of the connection: pilot/pkg/networking/core/gateway.go.
  append('x-forwarded-for', remoteAddress);
  return values;
}

export function emulateIstio(text: string, key = ''): GatewayEmulator {
  const [operator, service] = parseAllDocuments(text).map((document) => document.toJS());
  const [{ envoyExtAuthzHttp }] = operator.spec.meshConfig.extensionProviders;
  const provider: Provider = envoyExtAuthzHttp;
  const [{ address }] = service.spec.endpoints;
  const timeoutMs = Number.parseFloat(provider.timeout) * 1_000;
  const added = Object.entries(provider.includeAdditionalHeadersInCheck ?? {});
  const overwritten = added.map(([name]) => name.toLowerCase());
  const included = (provider.includeRequestHeadersInCheck ?? []).map((name) => name.toLowerCase());
  return {
    weir: { host: address, port: provider.port },
    timeoutMs,

    /** RawHttpClientImpl::check */
    checkRequest: (request) => {
      const header = headersOf(request);
      // A check has repeated headers joined.
      const joined = (name: string) => header.get(name)?.join(',') ?? '';
      const sent = ['authorization', ...included].filter((name) => {
        return header.has(name) && !['host', 'content-length', ...overwritten].includes(name);
      });
      return serializeHead(`${request.method} ${provider.pathPrefix}${request.target} HTTP/1.1`, [
        ['host', joined('host')],
        ['content-length', '0'],
        ...[...new Set(sent)].map((name): [string, string] => [name, joined(name)]),
        ...added.map(([name, value]): [string, string] => {
          return [name.toLowerCase(), value.replace('<key>', key)];
        }),
        ['x-envoy-internal', 'true'],
        ['x-envoy-expected-rq-timeout-ms', String(timeoutMs)],
      ]);
    },

    react: (request, response) => {
      const headers = Object.fromEntries(headersOf(request));
      if (response === undefined || response.status >= 500) {
        if (provider.failOpen) return { headers, responseHeaders: () => ({}) };
        const status = Number(provider.statusOnError ?? 403);
        return { denial: { status, headers: {}, body: '' } };
      }
      if (response.status === 200) {
        const allowed = pickHeaders(response, provider.headersToDownstreamOnAllow);
        return { headers, responseHeaders: () => allowed };
      }
      const denied = pickHeaders(response, provider.headersToDownstreamOnDeny);
      return { denial: { ...response, headers: denied } };
    },
  };
}
