/**
 * Emulates APISIX's forward-auth plugin, after apache/apisix: apisix/plugins/forward-auth.lua,
 * apisix/plugins/serverless/init.lua (its function runs before all other plugins),
 * apisix/plugins/response-rewrite.lua and apisix/core/request.lua. t/plugin/forward-auth.t shows
 * which X-Forwarded-* headers are ignored. The serialization follows ledgetech/lua-resty-http:
 * lib/resty/http.lua, of which api7 maintains a copy.
 */

import { parse } from 'yaml';
import {
  type ClientRequest,
  type GatewayEmulator,
  pickHeaders,
  serializeHead,
} from './gateway-emulator.ts';

const KEY_VARIABLE = 'WEIR_KEY';

interface ForwardAuth {
  uri: string;
  request_method: 'GET' | 'POST';
  request_headers?: string[];
  extra_headers?: Record<string, string>;
  client_headers: string[];
  upstream_headers: string[];
  allow_degradation: boolean;
  status_on_error?: number;
  timeout: number;
}

interface Plugins {
  'forward-auth'?: ForwardAuth;
  'serverless-pre-function'?: { functions: string[] };
  'response-rewrite'?: { vars: [string, '~~', string][]; headers: { set: Record<string, string> } };
  'proxy-rewrite'?: { headers: { remove: string[] } };
}

interface Route {
  uri: string;
  plugins?: Plugins;
  plugin_config_id?: string;
}

/** @returns the plugins of the route with the longest prefix of the path; undefined without one */
function pluginsFor(text: string, path: string): Plugins | undefined {
  const { routes, plugin_configs: configs = [] } = parse(text);
  const prefixOf = ({ uri }: Route) => uri.replace(/\*$/, '');
  const matching: Route[] = routes.filter((route: Route) => path.startsWith(prefixOf(route)));
  const [route] = matching.toSorted((a, b) => prefixOf(b).length - prefixOf(a).length);
  if (route === undefined) return undefined;
  const config = configs.find(({ id }: { id: string }) => id === route.plugin_config_id);
  return route.plugins ?? config?.plugins ?? {};
}

/** As ngx.req.get_headers returns them: names in lower case, all values of each name. */
function normalizeHeaders({ headers }: ClientRequest, plugins: Plugins): Map<string, string[]> {
  const header = new Map<string, string[]>();
  for (const [name, value] of headers) {
    const key = name.toLowerCase();
    header.set(key, [...(header.get(key) ?? []), value]);
  }
  // The printed function keeps only the first of repeated headers.
  const [lua] = plugins['serverless-pre-function']?.functions ?? [''];
  const [, names = ''] = /ipairs\(\{(.*?)\}\)/.exec(lua) ?? [];
  for (const name of JSON.parse(`[${names}]`)) {
    const values = header.get(name);
    if (values !== undefined) header.set(name, values.slice(0, 1));
  }
  return header;
}

export function emulateApisix(text: string, key = ''): GatewayEmulator {
  const { routes, plugin_configs: configs = [] } = parse(text);
  const [{ plugins }] = [...configs, ...routes];
  const { uri, timeout }: ForwardAuth = plugins['forward-auth'];
  const { hostname: host, port } = new URL(uri);
  return {
    weir: { host, port: Number(port) },
    timeoutMs: timeout,

    checkRequest: (request) => {
      const plugins = pluginsFor(text, request.target);
      const auth = plugins?.['forward-auth'];
      if (plugins === undefined || auth === undefined) return undefined;
      const header = normalizeHeaders(request, plugins);
      const forwarded = {
        'X-Forwarded-Proto': 'http',
        'X-Forwarded-Method': request.method,
        'X-Forwarded-Host': header.get('host')?.[0] ?? '',
        'X-Forwarded-Uri': request.target,
        'X-Forwarded-For': request.remoteAddress,
      };
      // resty.http_headers: names that differ only in case are the same header.
      const check = new Map<string, [string, string]>();
      const set = (name: string, value: string) => check.set(name.toLowerCase(), [name, value]);
      for (const [name, value] of Object.entries(forwarded)) set(name, value);
      const proxies = header.get('x-forwarded-for') ?? [];
      const variables: Record<string, string> = {
        $proxy_add_x_forwarded_for: [...proxies, request.remoteAddress].join(', '),
        // apisix/core/config_yaml.lua replaces it when it reads the file.
        [`\${{${KEY_VARIABLE}}}`]: key,
      };
      for (const [name, value] of Object.entries(auth.extra_headers ?? {})) {
        set(name, variables[value] ?? value);
      }
      for (const name of auth.request_headers ?? []) {
        // core.request.header returns the first value of a name.
        const value = header.get(name.toLowerCase())?.[0];
        if (!Object.hasOwn(forwarded, name) && value !== undefined) set(name, value);
      }
      const { host, pathname, search } = new URL(auth.uri);
      if (!check.has('host')) set('Host', host);
      if (!check.has('user-agent')) {
        set('User-Agent', 'lua-resty-http/0.17.1 (Lua) ngx_lua/10026');
      }
      const line = `${auth.request_method} ${pathname}${search} HTTP/1.1`;
      return serializeHead(line, [...check.values()]);
    },

    react: (request, response) => {
      const plugins = pluginsFor(text, request.target);
      if (plugins === undefined) return { denial: { status: 404, headers: {}, body: '' } };
      const auth = plugins['forward-auth'];
      const header = normalizeHeaders(request, plugins);
      for (const name of plugins['proxy-rewrite']?.headers.remove ?? []) {
        header.delete(name.toLowerCase());
      }
      if (auth === undefined) {
        return { headers: Object.fromEntries(header), responseHeaders: () => ({}) };
      }
      if (response === undefined && !auth.allow_degradation) {
        return { denial: { status: auth.status_on_error ?? 403, headers: {}, body: '' } };
      }
      if (response !== undefined && response.status >= 300) {
        const { status, body } = response;
        return { denial: { status, headers: pickHeaders(response, auth.client_headers), body } };
      }
      for (const name of response === undefined ? [] : auth.upstream_headers) {
        const value = response?.headers[name.toLowerCase()];
        header.delete(name.toLowerCase());
        if (value !== undefined) header.set(name.toLowerCase(), [value]);
      }
      const { vars, headers } = plugins['response-rewrite']!;
      const responseHeaders = (status: number) => {
        const variable = (name: string) => {
          if (name === 'upstream_status') return String(status);
          return header.get(name.replace('http_', '').replaceAll('_', '-'))?.[0] ?? '';
        };
        const isRewritten = vars.every(([name, , regex]) => new RegExp(regex).test(variable(name)));
        const set = Object.entries(isRewritten ? headers.set : {});
        return Object.fromEntries(
          set.map(([name, of]) => [name.toLowerCase(), variable(of.slice(1))]),
        );
      };
      return { headers: Object.fromEntries(header), responseHeaders };
    },
  };
}
