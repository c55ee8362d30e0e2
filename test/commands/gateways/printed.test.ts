/** Printed configurations: what no test with a real or emulated gateway would notice. */

import { describe, expect, test } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { apisix, apisixSnippet } from '../../../src/commands/gateways/apisix.ts';
import { caddy } from '../../../src/commands/gateways/caddy.ts';
import { envoy } from '../../../src/commands/gateways/envoy.ts';
import { envoyRls, envoyRlsSnippet } from '../../../src/commands/gateways/envoy-rls.ts';
import { istio } from '../../../src/commands/gateways/istio.ts';
import { istioRls } from '../../../src/commands/gateways/istio-rls.ts';
import type { GatewaySetup, RlsSetup, Upstream } from '../../../src/commands/gateways/setup.ts';
import { traefik } from '../../../src/commands/gateways/traefik.ts';
import { POLICY_DEFAULTS, type Policy } from '../../../src/policies/policy.ts';
import { parseConfiguration } from '../../../src/rls/config/parse.ts';
import { rulesIn } from '../../support/rls/printed-rules.ts';

const WEIR = { host: '127.0.0.1', port: 7_071, needsKey: false };
const SOCKET = { socket: '/run/weir.sock' };
const HTTP: Upstream = { host: 'application', port: 3_000 };
const HTTPS: Upstream = { isHttps: true, host: 'app.example.com', port: 443, path: '/shop' };

interface SetupParts {
  policy?: Partial<Policy>;
  prefixes?: string[];
  weir?: GatewaySetup['weir'];
  upstream?: Upstream;
  listen?: string;
}

function setupOf(parts: SetupParts = {}): GatewaySetup {
  const { prefixes = ['/'], weir = WEIR, upstream = HTTP, listen = '127.0.0.1' } = parts;
  const routes = prefixes.map((prefix, i) => {
    const windows = [{ limit: 1, duration: 60_000 }];
    const own = { ...POLICY_DEFAULTS, gateway: 'envoy', identify: ['ip'], windows } as const;
    return { prefix, policy: { ...own, ...parts.policy, namespace: `policy-${i}` } as Policy };
  });
  return { routes, weir, listen: { host: listen, port: 8_080 }, upstream };
}

test('Caddy sends weir no method and no path that a client claims', () => {
  const printed = (policy: Partial<Policy>) => caddy(setupOf({ policy }));
  // A policy that skips preflights would otherwise allow any request.
  expect(printed({})).toContain('header_up -X-Forwarded-Method\n');
  expect(printed({})).toContain('header_up -X-Forwarded-Uri\n');
  const skipping = printed({ skip: ['preflight', '/healthz'] });
  expect(skipping).toContain('header_up X-Forwarded-Method {http.request.method}\n');
  expect(skipping).toContain('header_up X-Forwarded-Uri {http.request.uri}\n');
});

describe('the configuration of Envoy', () => {
  const clusterOf = (weir: GatewaySetup['weir']) => {
    return parse(envoy(setupOf({ weir }))).static_resources.clusters[0];
  };

  test('never sends weir the Content-Type, with which a failed check would allow a call', () => {
    const setup = setupOf({ policy: { identify: ['ip', 'header:Content-Type'] } });
    for (const print of [envoy, istio]) expect(() => print(setup)).toThrow('remove header:content');
    expect(envoy(setupOf())).not.toMatch(/exact: "content-type"[\s\S]*http_service/);
  });

  test('closes idle connections before weir does', () => {
    const weir = clusterOf(WEIR);
    const [options] = Object.values<Record<string, unknown>>(weir.typed_extension_protocol_options);
    expect(options.common_http_protocol_options).toEqual({ idle_timeout: '5s' });
    expect([weir.connect_timeout, weir.type]).toEqual(['2s', 'STATIC']);
  });

  test('queues a flood for a connection, and counts no queued request as a failure', () => {
    expect(clusterOf(WEIR).circuit_breakers.thresholds).toEqual([
      { max_connections: 1_024, max_pending_requests: 100_000, max_requests: 100_000 },
    ]);
  });

  test.each([
    ['[::1]', 'STATIC', '::1'],
    ['weir', 'STRICT_DNS', 'weir'],
  ])('connects to weir at %s', (host, expected, address) => {
    const { type, load_assignment } = clusterOf({ ...WEIR, host });
    const [{ endpoint }] = load_assignment.endpoints[0].lb_endpoints;
    const socket_address = { address, port_value: 7_071 };
    expect([type, endpoint.address]).toEqual([expected, { socket_address }]);
  });

  test('trusts as many proxies as the policy, and reads only the headers that it names', () => {
    const printed = (policy: Partial<Policy>) => {
      const { static_resources } = parse(envoy(setupOf({ policy })));
      const manager = static_resources.listeners[0].filter_chains[0].filters[0].typed_config;
      const underscores = manager.common_http_protocol_options?.headers_with_underscores_action;
      return { ...manager, underscores, filter: manager.http_filters[0].typed_config };
    };
    expect(printed({ trustedHops: 3 }).xff_num_trusted_hops).toBe(2);
    // An application may read such a header as the identifying one.
    const dropped = (...identify: string[]) => printed({ identify }).underscores;
    expect(dropped('header:X-Api-Key')).toBe('DROP_HEADER');
    expect(dropped('header:X-Api-Key', 'header:api_key')).toBeUndefined();
    expect(dropped('cookie:id', 'header:authorization')).toBeUndefined();
    // Envoy rejects an empty list.
    expect(printed({ identify: ['method', 'path'] }).filter).not.toHaveProperty('allowed_headers');
    const { filter } = printed({ identify: ['header:Authorization'] });
    expect(filter.allowed_headers).toEqual({ patterns: [{ exact: 'authorization' }] });
    expect(filter).not.toHaveProperty('disallowed_headers');
  });
});

describe('the configuration of Istio', () => {
  const weir = { host: 'weir.default.svc', port: 7_071, needsKey: false };

  test('has the address of weir, the timeouts, and the gateway that checks', () => {
    const text = istio(setupOf({ weir }));
    expect(text.match(/^kind: .*/gm)).toEqual([
      'kind: IstioOperator',
      'kind: ServiceEntry',
      'kind: DestinationRule',
      'kind: AuthorizationPolicy',
    ]);
    for (const line of ['resolution: DNS', 'idleTimeout: 5s', 'timeout: 5s', 'action: CUSTOM']) {
      expect(text).toMatch(new RegExp(`^[ -]*${line}$`, 'm'));
    }
    // Without this setting Istio does not bound the queue; Envoy itself has a default bound.
    expect(text).toContain('maxConnections: 1024\n');
    expect(text).not.toMatch(/http1MaxPendingRequests: /);
  });

  test('merges slashes before it compares a path with the prefix, and checks no other path', () => {
    const documents = (prefix: string) => {
      return parseAllDocuments(istio(setupOf({ weir, prefixes: [prefix] }))).map((of) => of.toJS());
    };
    const normalizationOf = (prefix: string) => {
      return documents(prefix)[0].spec.meshConfig.pathNormalization;
    };
    expect(normalizationOf('/login')).toEqual({ normalization: 'DECODE_AND_MERGE_SLASHES' });
    expect(normalizationOf('/')).toBeUndefined();
    const rulesOf = (prefix: string) => documents(prefix).at(-1).spec.rules;
    expect(rulesOf('/')).toEqual([{}]);
    expect(rulesOf('/login')).toEqual([{ to: [{ operation: { paths: ['/login*'] } }] }]);
  });
});

describe('the configuration of APISIX', () => {
  const rewritesOf = (text: string) => {
    const { routes } = parse(text) as { routes: { plugins?: Record<string, unknown> }[] };
    return routes.map(({ plugins }) => plugins?.['proxy-rewrite']);
  };
  const headers = { remove: ['X-Weir-Key'] };

  test('ends with #END, and closes idle connections before weir does', () => {
    const text = apisix(setupOf());
    expect(text).toMatch(/\n#END\n$/);
    expect(parse(text).routes[0].plugins['forward-auth']).toMatchObject({
      timeout: 2_000,
      keepalive: true,
      keepalive_timeout: 5_000,
    });
  });

  test('forwards the path without dot segments by which it chose any of the routes', () => {
    // With this plugin APISIX forwards the normalized path, and otherwise the path as received.
    const text = apisix(setupOf({ prefixes: ['/login', '/odd'] }));
    expect(rewritesOf(text)).toEqual([{ headers }, { headers }, { headers }]);
    const snippet = apisixSnippet(setupOf({ prefixes: ['/login'] }));
    expect(snippet).toContain('# Add proxy-rewrite to the other');
  });

  test('sends the host of an https URL, and nginx verifies its certificate', () => {
    const text = apisix(setupOf({ prefixes: ['/login'], upstream: HTTPS }));
    expect(parse(text).upstreams).toEqual([
      {
        id: 'application',
        type: 'roundrobin',
        scheme: 'https',
        pass_host: 'node',
        nodes: { 'app.example.com:443': 1 },
      },
    ]);
    expect(rewritesOf(text)).toEqual([
      expect.objectContaining({ regex_uri: ['^(/.*)$', '/shop$1'] }),
      { regex_uri: ['^(/.*)$', '/shop$1'], headers },
    ]);
    expect(text).toContain('proxy_ssl_verify on;');
    const address = { ...HTTPS, host: '10.0.0.1' };
    expect(() => apisix(setupOf({ upstream: address }))).toThrow('must have a host name');
  });
});

describe('the configuration of Traefik', () => {
  test.each([
    // An empty list would mean all headers.
    [['ip'], ['x-forwarded-for', 'content-type']],
    [
      ['method', 'path'],
      ['x-forwarded-for', 'content-type'],
    ],
    [
      ['header:x-api-key', 'cookie:session'],
      ['x-forwarded-for', 'x-api-key', 'cookie', 'content-type'],
    ],
    [['ip:header:True-Client-IP'], ['x-forwarded-for', 'true-client-ip', 'content-type']],
  ])('sends only the headers that a policy with %j reads', (identify, expected) => {
    const { http } = parse(traefik(setupOf({ policy: { identify } })));
    expect(http.middlewares.weir.forwardAuth.authRequestHeaders).toEqual(expected);
  });

  test('sends the host of an https URL, and puts its path before the path', () => {
    const { http } = parse(traefik(setupOf({ prefixes: ['/login'], upstream: HTTPS })));
    expect(http.services.application.loadBalancer).toEqual({
      passHostHeader: false,
      servers: [{ url: 'https://app.example.com:443' }],
    });
    const routers = Object.values<{ middlewares: string[] }>(http.routers);
    expect(routers.map(({ middlewares }) => middlewares.at(-1))).toEqual([
      ...['application-path', 'application-path'],
    ]);
    expect(http.middlewares['application-path']).toEqual({ addPrefix: { prefix: '/shop' } });
  });

  test('says that Traefik does not support onError: allow', () => {
    expect(traefik(setupOf())).toContain('onError is allow, which Traefik does not support');
  });
});

test.each([
  ['APISIX', apisix],
  ['Istio', istio],
  ['Traefik', traefik],
])('%s cannot use a Unix socket', (_, print) => {
  expect(() => print(setupOf({ weir: SOCKET }))).toThrow('a Unix socket');
});

describe('the configuration for the rate limit service', () => {
  const setup = (parts: Partial<RlsSetup> = {}): RlsSetup => ({
    domain: 'say "hello"',
    service: { host: '127.0.0.1', port: 8_081 },
    onError: 'allow',
    listen: { host: '127.0.0.1', port: 8_080 },
    upstream: HTTP,
    ...parts,
  });

  test('has in a comment rules for each of its descriptors, which weir accepts', () => {
    for (const text of [envoyRls(setup()), envoyRlsSnippet(setup()), istioRls(setup())]) {
      const { domains } = parseConfiguration([{ name: 'site.yaml', text: rulesIn(text) }], {
        isCompatible: false,
        mergesDomains: false,
      });
      expect(domains).toHaveLength(1);
      const [{ name, rules }] = domains;
      expect(name).toBe('say "hello"');
      expect(rules.map(({ key, value }) => [key, value])).toEqual([
        ['masked_remote_address', undefined],
        ['route', 'all'],
      ]);
      const actions = text.match(/(?<=- )(masked_remote_address|generic_key): .*/g);
      expect(actions).toEqual([
        'masked_remote_address: { v6_prefix_mask_len: 64 }',
        'generic_key: { descriptor_key: route, descriptor_value: all }',
      ]);
    }
  });

  test('has the same filter, cluster and descriptors for Istio as for Envoy', () => {
    const { static_resources } = parse(envoyRls(setup()));
    const [filter] = static_resources.listeners[0].filter_chains[0].filters;
    const { http_filters, route_config } = filter.typed_config;
    const patches = parse(istioRls(setup())).spec.configPatches;
    const values = patches.map(({ patch }: { patch: { value: unknown } }) => patch.value);
    const { rate_limits } = route_config.virtual_hosts[0];
    expect(values).toEqual([static_resources.clusters[0], http_filters[0], { rate_limits }]);
    const [part1, part2, part3, part4] = parseAllDocuments(envoyRlsSnippet(setup())).map((part) =>
      part.toJS(),
    );
    expect(part1.use_remote_address).toBe(true);
    expect([part2[0], part3[0]]).toEqual([http_filters[0], static_resources.clusters[0]]);
    expect(part4.rate_limits).toEqual(rate_limits);
  });

  test('waits for a flood: 5 s, and for more calls than Envoy has open by default', () => {
    const { static_resources } = parse(envoyRls(setup()));
    const text = envoyRls(setup());
    expect(text).toContain('timeout: 5s\n');
    expect(static_resources.clusters[0].circuit_breakers.thresholds).toEqual([
      { max_connections: 1_024, max_pending_requests: 100_000, max_requests: 100_000 },
    ]);
  });

  test('says where weir must run if Istio calls it on loopback', () => {
    expect(istioRls(setup())).toContain('must be a container in the pod');
    const service = { host: 'weir.default.svc', port: 8_081 };
    expect(istioRls(setup({ service }))).not.toContain('must be a container in the pod');
  });
});
