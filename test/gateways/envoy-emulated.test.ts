/**
 * Envoy, and Istio, which is made of Envoys: replayed. A real Envoy, which the tests install, is in
 * test/outside/envoy.test.ts.
 */

import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { envoy } from '../../src/commands/gateways/envoy.ts';
import { istio } from '../../src/commands/gateways/istio.ts';
import type { GatewaySetup } from '../../src/commands/gateways/setup.ts';
import type { Policy } from '../../src/policies/policy.ts';
import { defineEmulatorTests, withFakeWeir } from '../support/emulator-cases.ts';
import {
  emulateEnvoy,
  parseEnvoyConfiguration,
  parseIstioConfiguration,
} from '../support/envoy-emulator.ts';
import { testPolicy } from '../support/gateway-emulator.ts';

const setupOf = (part: Partial<Policy>, weir: GatewaySetup['weir']): GatewaySetup => ({
  policy: testPolicy('login', part),
  weir,
  listenPort: 8_080,
  upstream: { host: 'application', port: 3_000 },
});
const weirAt = (port: number) => ({ host: '127.0.0.1', port, needsKey: false });

describe.each([
  ['Envoy', 'envoy', envoy, parseEnvoyConfiguration],
  ['Istio', 'istio', istio, parseIstioConfiguration],
] as const)('behind %s', (_, gateway, print, configured) => {
  defineEmulatorTests({
    gateway,
    print,
    emulate: (text, options) => emulateEnvoy(configured(text, options.key), options),
    sendsHeadersWhenAllowed: true,
    failsOpen: true,
    statusWithoutWeir: 429,
  });

  test('weir is asked with the method and the path of the client, and without a body', () => {
    const replay = emulateEnvoy(configured(print(setupOf({}, weirAt(7_071)))));
    const asked = replay.checkRequest({
      method: 'PUT',
      target: '/a//b/../c%2F?d=/e',
      headers: [
        ['User-Agent', 'curl/8'],
        ['Content-Length', '5'],
        ['X-Forwarded-For', '192.0.2.66'],
        ['X-Forwarded-For', '192.0.2.67'],
      ],
    });
    expect(asked.toString().split('\r\n')).toEqual([
      'PUT /v1/check/login/a//b/../c%2F?d=/e HTTP/1.1',
      'host: shop.example',
      'content-length: 0',
      'x-forwarded-for: 192.0.2.66,192.0.2.67,198.51.100.1',
      'x-envoy-internal: true',
      'x-envoy-expected-rq-timeout-ms: 5000',
      '',
      '',
    ]);
  });

  test('a 5xx is a failure, whose words are lost; all else but a 200 refuses', async () => {
    const statuses = (answer: string) =>
      withFakeWeir(answer, async (port) => {
        const outcomes = (['allow', 'deny'] as const).map(async (onError) => {
          const replay = emulateEnvoy(configured(print(setupOf({ onError }, weirAt(port)))));
          return (await replay.send({})).status;
        });
        return Promise.all(outcomes);
      });
    expect(await statuses('503 Down\r\nContent-Length: 4\r\n\r\ndown')).toEqual([200, 429]);
    expect(await statuses('204 No Content\r\n\r\n')).toEqual([204, 204]);
    expect(await statuses('401 Unauthorized\r\nContent-Length: 0\r\n\r\n')).toEqual([401, 401]);
    expect(await statuses('200 OK\r\nContent-Length: 0\r\n\r\n')).toEqual([200, 200]);
  });
});

describe('the configuration of Envoy', () => {
  const clusters = (weir: GatewaySetup['weir']) =>
    parse(envoy(setupOf({}, weir))).static_resources.clusters;

  test('keeps connections to weir for less than weir does', () => {
    const [weir] = clusters(weirAt(7_071));
    const [options] = Object.values<Record<string, unknown>>(weir.typed_extension_protocol_options);
    expect(options.common_http_protocol_options).toEqual({ idle_timeout: '5s' });
    expect([weir.connect_timeout, weir.type]).toEqual(['2s', 'STATIC']);
  });

  test('has a flood wait for a connection, and takes no waiting request for a failure', () => {
    const [weir] = clusters(weirAt(7_071));
    expect(weir.circuit_breakers.thresholds).toEqual([
      { max_connections: 1_024, max_pending_requests: 100_000, max_requests: 100_000 },
    ]);
  });

  test('reaches weir by its address, its name or its Unix socket', () => {
    const endpoint = (weir: GatewaySetup['weir']) => {
      const [{ type, load_assignment }] = clusters(weir);
      return [type, load_assignment.endpoints[0].lb_endpoints[0].endpoint.address];
    };
    const port_value = 7_071;
    expect(endpoint({ host: '[::1]', port: 7_071, needsKey: false })).toEqual([
      'STATIC',
      { socket_address: { address: '::1', port_value } },
    ]);
    expect(endpoint({ host: 'weir', port: 7_071, needsKey: false })).toEqual([
      'STRICT_DNS',
      { socket_address: { address: 'weir', port_value } },
    ]);
    expect(endpoint({ socket: '/run/we ir.sock' })).toEqual([
      'STATIC',
      { pipe: { path: '/run/we ir.sock' } },
    ]);
  });

  test('believes as many proxies as the policy, and takes only what the policy reads', () => {
    const printed = (part: Partial<Policy>) => {
      const { static_resources } = parse(envoy(setupOf(part, weirAt(7_071))));
      const manager = static_resources.listeners[0].filter_chains[0].filters[0].typed_config;
      const { xff_num_trusted_hops: hops, upgrade_configs: upgrades } = manager;
      const underscores = manager.common_http_protocol_options?.headers_with_underscores_action;
      return { hops, upgrades, underscores, filter: manager.http_filters[0].typed_config };
    };
    expect(printed({ trustedHops: 3 }).hops).toBe(2);
    expect(printed({}).upgrades).toEqual([{ upgrade_type: 'websocket' }]);
    // Which an application may take for the one that identifies.
    const dropped = (...identify: string[]) => printed({ identify }).underscores;
    expect(dropped('header:X-Api-Key')).toBe('DROP_HEADER');
    expect(dropped('header:X-Api-Key', 'header:api_key')).toBeUndefined();
    expect(dropped('cookie:id', 'header:authorization')).toBeUndefined();
    // An empty list is no valid one.
    expect(printed({ identify: ['method', 'path'] }).filter).not.toHaveProperty('allowed_headers');
    const own = printed({ identify: ['header:Authorization'] }).filter;
    expect(own.allowed_headers).toEqual({ patterns: [{ exact: 'authorization' }] });
    expect(own).not.toHaveProperty('disallowed_headers');
  });
});

describe('the configuration of Istio', () => {
  test('says where weir is, how long connections are kept, and who asks', () => {
    const text = istio(setupOf({}, { host: 'weir.default.svc', port: 7_071, needsKey: false }));
    expect(text.match(/^kind: .*/gm)).toEqual([
      'kind: IstioOperator',
      'kind: ServiceEntry',
      'kind: DestinationRule',
      'kind: AuthorizationPolicy',
    ]);
    expect(text).toContain('resolution: DNS\n');
    expect(text).toContain('idleTimeout: 5s\n');
    // Without a bound for those that wait Istio sets none, where Envoy itself has one.
    expect(text).toContain('maxConnections: 1024\n');
    expect(text).not.toMatch(/http1MaxPendingRequests: /);
    expect(text).toContain('action: CUSTOM\n');
  });

  test('has no way to a Unix socket', () => {
    expect(() => istio(setupOf({}, { socket: '/run/weir.sock' }))).toThrow('over TCP only');
  });
});
