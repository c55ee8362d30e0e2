/**
 * Traefik, APISIX and Istio, which are not installed, with the other forms of the printed
 * configuration. The tests choose a route as these gateways do; an emulation uses it.
 */

import { describe, expect, test } from 'vitest';
import { parse, parseAllDocuments, stringify } from 'yaml';
import { apisix, apisixSnippet } from '../../../src/commands/gateways/apisix.ts';
import { istio } from '../../../src/commands/gateways/istio.ts';
import type { GatewaySetup, Upstream } from '../../../src/commands/gateways/setup.ts';
import { traefik, traefikSnippet } from '../../../src/commands/gateways/traefik.ts';
import type { Policy } from '../../../src/policies/policy.ts';
import { emulateApisix } from './apisix-emulator.ts';
import { useWeir } from './emulator-cases.ts';
import { type GatewayEmulator, testPolicy } from './gateway-emulator.ts';
import { emulateTraefik } from './traefik-emulator.ts';

/** A namespace with each special character. */
const ODD = '~a.B:c@d-e_';
const POLICIES = { site: {}, login: {}, [ODD]: {} };
const HTTP: Upstream = { host: 'application', port: 3_000 };
const HTTPS: Upstream = { isHttps: true, host: 'app.example.com', port: 443, path: '/shop' };

function setupOf(
  prefixes: Record<string, string>,
  { policies = new Map<string, Policy>(), port = 7_071 } = {},
  upstream = HTTP,
): GatewaySetup {
  const routes = Object.entries(prefixes).map(([namespace, prefix]) => {
    return { policy: policies.get(namespace) ?? testPolicy(namespace, {}), prefix };
  });
  const weir = { host: '127.0.0.1', port, needsKey: false };
  return { routes, weir, listenPort: 8_080, upstream };
}

/** The entry with the longest prefix of a path. */
function longestMatch<T>(entries: T[], prefixOf: (entry: T) => string, path: string): T {
  const matching = entries.filter((entry) => path.startsWith(prefixOf(entry)));
  const [longest] = matching.toSorted((a, b) => prefixOf(b).length - prefixOf(a).length);
  return longest;
}

interface Router {
  rule: string;
  middlewares?: string[];
  service: string;
}

function traefikRouter(text: string, path: string): Router {
  const routers = Object.values<Router>(parse(text).http.routers);
  return longestMatch(routers, ({ rule }) => /^PathPrefix\(`(.*)`\)$/.exec(rule)![1], path);
}

function traefikFor(text: string, path: string): GatewayEmulator {
  const { http } = parse(text);
  const application = traefikRouter(text, path);
  return emulateTraefik(stringify({ http: { ...http, routers: { application } } }));
}

interface ApisixRoute {
  id: string;
  uri: string;
  plugins?: Record<string, unknown>;
  plugin_config_id?: string;
}

function apisixRoute(text: string, path: string): ApisixRoute {
  const { routes, plugin_configs: configs = [] } = parse(text);
  const route = longestMatch<ApisixRoute>(routes, ({ uri }) => uri.replace(/\*$/, ''), path);
  const config = configs.find(({ id }: ApisixRoute) => id === route.plugin_config_id);
  return { ...route, ...config };
}

const GATEWAYS = [
  {
    name: 'traefik',
    print: traefik,
    emulate: traefikFor,
    /** Adds printed middlewares to a site with two routers, as the comment says. */
    addToSite: (snippet: string) => {
      const [, names] = /each router for PathPrefix\(`\/login`\): (.*)/.exec(snippet)!;
      const router = (prefix: string, middlewares?: string[]) => {
        return {
          rule: `PathPrefix(\`${prefix}\`)`,
          service: 'shop',
          ...(middlewares && { middlewares }),
        };
      };
      const middlewares = names.split(', ').map((name) => name.replace(/@file$/, ''));
      const routers = { login: router('/login', middlewares), other: router('/') };
      return stringify({ http: { ...parse(snippet).http, routers } });
    },
    printSnippet: traefikSnippet,
    isChecked: (text: string, path: string) => traefikRouter(text, path).middlewares !== undefined,
  },
  {
    name: 'apisix',
    print: apisix,
    emulate: (text: string, path: string) => {
      return emulateApisix(stringify({ routes: [apisixRoute(text, path)] }));
    },
    addToSite: (snippet: string) => {
      const [, id] = /plugin_config_id: (\S+) +# in each route .* with \/login$/m.exec(snippet)!;
      const routes = [
        { id: 'login', uri: '/login*', plugin_config_id: id },
        { id: 'other', uri: '/*' },
      ];
      return stringify({ ...parse(snippet), routes });
    },
    printSnippet: apisixSnippet,
    isChecked: (text: string, path: string) => {
      return apisixRoute(text, path).plugins?.['forward-auth'] !== undefined;
    },
  },
] as const;

describe.each(GATEWAYS)('behind $name', (gateway) => {
  const { name, print, emulate, addToSite, printSnippet, isChecked } = gateway;
  const weir = useWeir(name, POLICIES);
  const send = async (text: string, target: string, remoteAddress: string) => {
    return (await emulate(text, target).send({ target, remoteAddress })).status;
  };

  test('each policy in one text limits its own paths', async () => {
    const prefixes = { site: '/', login: '/login', [ODD]: '/login/odd' };
    const text = print(setupOf(prefixes, weir));
    for (const path of ['/', '/login', '/login/odd/x']) {
      expect([path, await send(text, path, '198.51.100.2')]).toEqual([path, 200]);
      expect([path, await send(text, path, '198.51.100.2')]).toEqual([path, 429]);
    }
  });

  test('paths without a policy are not checked', () => {
    const text = print(setupOf({ login: '/login' }, weir));
    expect(['/login/a', '/', '/log'].map((path) => isChecked(text, path))).toEqual([
      ...[true, false, false],
    ]);
  });

  test('the printed parts protect a route of an existing site, and no other', async () => {
    const snippet = printSnippet(setupOf({ login: '/login' }, weir));
    expect(snippet).not.toContain('application:3000');
    const text = addToSite(snippet);
    expect(await send(text, '/login', '198.51.100.3')).toBe(200);
    expect(await send(text, '/login', '198.51.100.3')).toBe(429);
    expect(isChecked(text, '/')).toBe(false);
  });
});

describe('an application over TLS', () => {
  test('behind Traefik gets the host of the URL, and the path before the path', () => {
    const { http } = parse(traefik(setupOf({ login: '/login' }, {}, HTTPS)));
    expect(http.services.application.loadBalancer).toEqual({
      passHostHeader: false,
      servers: [{ url: 'https://app.example.com:443' }],
    });
    const routers = Object.values<Router>(http.routers);
    expect(routers.map(({ middlewares }) => middlewares?.at(-1))).toEqual([
      ...['application-path', 'application-path'],
    ]);
    expect(http.middlewares['application-path']).toEqual({ addPrefix: { prefix: '/shop' } });
  });

  test('behind APISIX gets the host of the URL, and nginx verifies its certificate', () => {
    const text = apisix(setupOf({ login: '/login' }, {}, HTTPS));
    const { routes, upstreams } = parse(text);
    expect(upstreams).toEqual([
      {
        id: 'application',
        type: 'roundrobin',
        scheme: 'https',
        pass_host: 'node',
        nodes: { 'app.example.com:443': 1 },
      },
    ]);
    const rewrites = routes.map((route: ApisixRoute) => route.plugins?.['proxy-rewrite']);
    expect(rewrites).toEqual([
      expect.objectContaining({ regex_uri: ['^(/.*)$', '/shop$1'] }),
      { regex_uri: ['^(/.*)$', '/shop$1'], headers: { remove: ['X-Weir-Key'] } },
    ]);
    expect(text).toContain('proxy_ssl_verify on;');
    const address = { ...HTTPS, host: '10.0.0.1' };
    expect(() => apisix(setupOf({ site: '/' }, {}, address))).toThrow('must have a host name');
  });
});

test('APISIX forwards the path without dot segments by which it chose any of the routes', () => {
  const { routes } = parse(apisix(setupOf({ login: '/login', [ODD]: '/odd' })));
  // With this plugin APISIX forwards the normalized path, and otherwise the path as received.
  const rewrites = routes.map((route: ApisixRoute) => route.plugins?.['proxy-rewrite']);
  const headers = { remove: ['X-Weir-Key'] };
  expect(rewrites).toEqual([{ headers }, { headers }, { headers }]);
  expect(apisixSnippet(setupOf({ login: '/login' }))).toContain('# Add proxy-rewrite to the other');
});

test('Istio merges slashes before it compares a path with the prefix of the policy', () => {
  const mesh = (prefix: string) => {
    return parseAllDocuments(istio(setupOf({ login: prefix })))[0].toJS().spec.meshConfig;
  };
  const normalization = 'DECODE_AND_MERGE_SLASHES';
  expect(mesh('/login').pathNormalization).toEqual({ normalization });
  expect(mesh('/').pathNormalization).toBeUndefined();
});

test('Istio checks only paths with the prefix of the policy', () => {
  const rules = (prefix: string) => {
    return parseAllDocuments(istio(setupOf({ login: prefix })))
      .at(-1)
      ?.toJS().spec.rules;
  };
  expect(rules('/')).toEqual([{}]);
  expect(rules('/login')).toEqual([{ to: [{ operation: { paths: ['/login*'] } }] }]);
});
