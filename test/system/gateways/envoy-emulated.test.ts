/**
 * Emulations of Envoy and of Istio, whose gateway is an Envoy. test/system/gateways/envoy.test.ts installs a
 * real Envoy.
 */

import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { envoy } from '../../../src/commands/gateways/envoy.ts';
import { istio } from '../../../src/commands/gateways/istio.ts';
import { everyPath, type GatewaySetup } from '../../../src/commands/gateways/setup.ts';
import type { Policy } from '../../../src/policies/policy.ts';
import { defineEmulatorTests, withFakeWeir } from './emulator-cases.ts';
import {
  emulateEnvoy,
  parseEnvoyConfiguration,
  parseIstioConfiguration,
} from './envoy-emulator.ts';
import { testPolicy } from './gateway-emulator.ts';

const setupOf = (part: Partial<Policy>, weir: GatewaySetup['weir']): GatewaySetup => ({
  routes: everyPath(testPolicy('login', part)),
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

  test('a check has the method and the path of the client, and no body', () => {
    const emulator = emulateEnvoy(configured(print(setupOf({}, weirAt(7_071)))));
    const check = emulator.checkRequest({
      method: 'PUT',
      target: '/a//b/../c%2F?d=/e',
      headers: [
        ['User-Agent', 'curl/8'],
        ['Content-Length', '5'],
        ['X-Forwarded-For', '192.0.2.66'],
        ['X-Forwarded-For', '192.0.2.67'],
      ],
    });
    expect(check.toString().split('\r\n')).toEqual([
      'PUT /v1/check/login//a//b/../c%2F?d=/e HTTP/1.1',
      'host: shop.example',
      'content-length: 0',
      'x-forwarded-for: 192.0.2.66,192.0.2.67,198.51.100.1',
      'x-envoy-internal: true',
      'x-envoy-expected-rq-timeout-ms: 5000',
      '',
      '',
    ]);
  });

  test('a 5xx is a failure; every other status except 200 denies the request', async () => {
    const statuses = (response: string) =>
      withFakeWeir(response, async (port) => {
        const outcomes = (['allow', 'deny'] as const).map(async (onError) => {
          const emulator = emulateEnvoy(configured(print(setupOf({ onError }, weirAt(port)))));
          return (await emulator.send({})).status;
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

  test('closes idle connections before weir does', () => {
    const [weir] = clusters(weirAt(7_071));
    const [options] = Object.values<Record<string, unknown>>(weir.typed_extension_protocol_options);
    expect(options.common_http_protocol_options).toEqual({ idle_timeout: '5s' });
    expect([weir.connect_timeout, weir.type]).toEqual(['2s', 'STATIC']);
  });

  test('queues a flood for a connection, and counts no queued request as a failure', () => {
    const [weir] = clusters(weirAt(7_071));
    expect(weir.circuit_breakers.thresholds).toEqual([
      { max_connections: 1_024, max_pending_requests: 100_000, max_requests: 100_000 },
    ]);
  });

  test('connects to weir by address, host name or Unix socket', () => {
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

  test('trusts as many proxies as the policy, and sends only the headers that the policy reads', () => {
    const printed = (part: Partial<Policy>) => {
      const { static_resources } = parse(envoy(setupOf(part, weirAt(7_071))));
      const manager = static_resources.listeners[0].filter_chains[0].filters[0].typed_config;
      const { xff_num_trusted_hops: hops, upgrade_configs: upgrades } = manager;
      const underscores = manager.common_http_protocol_options?.headers_with_underscores_action;
      return { hops, upgrades, underscores, filter: manager.http_filters[0].typed_config };
    };
    expect(printed({ trustedHops: 3 }).hops).toBe(2);
    expect(printed({}).upgrades).toEqual([{ upgrade_type: 'websocket' }]);
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
  test('has the address of weir, the idle timeout, and the gateway that checks', () => {
    const text = istio(setupOf({}, { host: 'weir.default.svc', port: 7_071, needsKey: false }));
    expect(text.match(/^kind: .*/gm)).toEqual([
      'kind: IstioOperator',
      'kind: ServiceEntry',
      'kind: DestinationRule',
      'kind: AuthorizationPolicy',
    ]);
    expect(text).toContain('resolution: DNS\n');
    expect(text).toContain('idleTimeout: 5s\n');
    // Without this setting Istio does not bound the queue; Envoy itself has a default bound.
    expect(text).toContain('maxConnections: 1024\n');
    expect(text).not.toMatch(/http1MaxPendingRequests: /);
    expect(text).toContain('action: CUSTOM\n');
  });

  test('cannot use a Unix socket', () => {
    expect(() => istio(setupOf({}, { socket: '/run/weir.sock' }))).toThrow('a Unix socket');
  });
});
