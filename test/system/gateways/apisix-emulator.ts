/**
 * Emulates APISIX's forward-auth plugin, after apache/apisix: apisix/plugins/forward-auth.lua,
 * apisix/plugins/serverless/init.lua (its function runs before all other plugins),
 * apisix/plugins/response-rewrite.lua and apisix/core/request.lua. t/plugin/forward-auth.t shows
 * which X-Forwarded-* headers are ignored. The serialization follows ledgetech/lua-resty-http:
 * lib/resty/http.lua, of which api7 maintains a copy.
 */

import { parse } from 'yaml';
import {
  applicationResponse,
  type ClientRequest,
  type EmulatorOptions,
  type GatewayEmulator,
  HOST,
  KEY_VARIABLE,
  sendOnce,
  serializeHead,
} from './gateway-emulator.ts';

interface ForwardAuth {
  uri: string;
  request_method: 'GET' | 'POST';
  request_headers?: string[];
  extra_headers?: Record<string, string>;
  client_headers: string[];
  upstream_headers: string[];
  allow_degradation: boolean;
  status_on_error?: number;
}

/** As ngx.req.get_headers returns them: names in lower case, all values of each name. */
function normalizeHeaders(
  { headers = [] }: ClientRequest,
  firstOnlyNames: string[],
): Map<string, string[]> {
  const header = new Map<string, string[]>();
  for (const [name, value] of headers) {
    const key = name.toLowerCase();
    header.set(key, [...(header.get(key) ?? []), value]);
  }
  for (const name of firstOnlyNames) {
    const values = header.get(name);
    if (values !== undefined) header.set(name, values.slice(0, 1));
  }
  return header;
}

/** The header names in the printed function that keeps only the first of repeated headers. */
function firstOnlyHeaderNames(plugins: Record<string, { functions: string[] }>): string[] {
  const [text] = plugins['serverless-pre-function']?.functions ?? [''];
  const [, names = ''] = /ipairs\(\{(.*?)\}\)/.exec(text) ?? [];
  return JSON.parse(`[${names}]`);
}

/** resty.http_headers: names that differ only in case are the same header. */
function setHeader(to: Map<string, [string, string]>, name: string, value: string): void {
  to.set(name.toLowerCase(), [name, value]);
}

export function emulateApisix(text: string, { key = '' }: EmulatorOptions = {}): GatewayEmulator {
  const [route] = parse(text).routes;
  const auth: ForwardAuth = route.plugins['forward-auth'];
  const rewrite = route.plugins['response-rewrite'];
  const removed: string[] = route.plugins['proxy-rewrite'].headers.remove;
  const firstOnly = firstOnlyHeaderNames(route.plugins);
  const uri = new URL(auth.uri);
  const checkRequest = (request: ClientRequest) => {
    const from = request.remoteAddress ?? '198.51.100.1';
    const header = normalizeHeaders(request, firstOnly);
    const forwarded = {
      'X-Forwarded-Proto': 'http',
      'X-Forwarded-Method': request.method ?? 'GET',
      'X-Forwarded-Host': HOST,
      'X-Forwarded-Uri': request.target ?? '/',
      'X-Forwarded-For': from,
    };
    const checkHeaders = new Map<string, [string, string]>();
    for (const [name, value] of Object.entries(forwarded)) setHeader(checkHeaders, name, value);
    const variables: Record<string, string> = {
      $proxy_add_x_forwarded_for: [...(header.get('x-forwarded-for') ?? []), from].join(', '),
      // apisix/core/config_yaml.lua replaces it when it reads the file.
      [`\${{${KEY_VARIABLE}}}`]: key,
    };
    for (const [name, value] of Object.entries(auth.extra_headers ?? {})) {
      setHeader(checkHeaders, name, variables[value] ?? value);
    }
    for (const name of auth.request_headers ?? []) {
      // core.request.header returns the first value of a name.
      const value = header.get(name.toLowerCase())?.[0];
      if (!Object.hasOwn(forwarded, name) && value !== undefined) {
        setHeader(checkHeaders, name, value);
      }
    }
    setHeader(checkHeaders, 'Host', uri.host);
    setHeader(checkHeaders, 'User-Agent', 'lua-resty-http/0.17.1 (Lua) ngx_lua/10026');
    const requestLine = `${auth.request_method} ${uri.pathname} HTTP/1.1`;
    return serializeHead(requestLine, [...checkHeaders.values()]);
  };
  return {
    checkRequest,
    send: async (request) => {
      const response = await sendOnce(uri.hostname, Number(uri.port), checkRequest(request));
      const header = normalizeHeaders(request, firstOnly);
      for (const name of removed) header.delete(name.toLowerCase());
      if (response === undefined && !auth.allow_degradation) {
        return { status: auth.status_on_error ?? 403, headers: {}, body: '' };
      }
      if (response !== undefined && response.status >= 300) {
        const headers = Object.fromEntries(
          auth.client_headers
            .map((name) => name.toLowerCase())
            .filter((name) => response.headers[name] !== undefined)
            .map((name) => [name, response.headers[name]]),
        );
        const body = request.method === 'HEAD' ? '' : response.body;
        return { status: response.status, headers, body };
      }
      for (const name of response === undefined ? [] : auth.upstream_headers) {
        const value = response?.headers[name.toLowerCase()];
        header.delete(name.toLowerCase());
        if (value !== undefined) header.set(name.toLowerCase(), [value]);
      }
      const variable = (name: string) => {
        if (name === 'upstream_status') return '200';
        return header.get(name.replace('http_', '').replaceAll('_', '-'))?.[0] ?? '';
      };
      const vars: [string, '~~', string][] = rewrite.vars;
      const isRewritten = vars.every(([name, , regex]) => new RegExp(regex).test(variable(name)));
      const set = Object.entries<string>(isRewritten ? rewrite.headers.set : {});
      return applicationResponse(
        request,
        Object.fromEntries([...header].map(([name, values]) => [name, values.join(', ')])),
        Object.fromEntries(set.map(([name, of]) => [name.toLowerCase(), variable(of.slice(1))])),
      );
    },
  };
}
