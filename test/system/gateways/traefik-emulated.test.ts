/** Traefik 3.0 and 3.7, which are not installed: an emulation reads the printed configuration. */

import { describe, expect, test } from 'vitest';
import { parse, stringify } from 'yaml';
import { everyPath, type GatewaySetup } from '../../../src/commands/gateways/setup.ts';
import { traefik } from '../../../src/commands/gateways/traefik.ts';
import type { Policy } from '../../../src/policies/policy.ts';
import { defineEmulatorTests, useWeir, withFakeWeir } from './emulator-cases.ts';
import { testPolicy } from './gateway-emulator.ts';
import { emulateTraefik } from './traefik-emulator.ts';

const setupOf = (
  part: Partial<Policy>,
  weir: GatewaySetup['weir'],
  namespace = 'login',
): GatewaySetup => ({
  routes: everyPath(testPolicy(namespace, { gateway: 'traefik', ...part })),
  weir,
  listenPort: 8_080,
  upstream: { host: 'application', port: 3_000 },
});
const weirAt = (port: number) => ({ host: '127.0.0.1', port, needsKey: false });

/** Removes the list of headers, without which Traefik sends weir all headers of the client. */
function withAllHeaders(text: string): string {
  const configuration = parse(text);
  delete configuration.http.middlewares.weir.forwardAuth.authRequestHeaders;
  return stringify(configuration);
}

describe.each(['3.0', '3.7'] as const)('behind Traefik %s', (version) => {
  defineEmulatorTests({
    gateway: 'traefik',
    print: traefik,
    emulate: (text, options) => emulateTraefik(text, options, version),
    sendsHeadersWhenAllowed: false,
    failsOpen: false,
    statusWithoutWeir: 500,
  });

  test('a check is a GET with the expected headers', () => {
    const text = traefik(setupOf({ identify: ['header:x-api-key'] }, weirAt(7_071)));
    const check = emulateTraefik(text, {}, version).checkRequest({
      method: 'POST',
      target: '/a//b?c',
      headers: [
        ['User-Agent', 'curl/8'],
        ['Content-Length', '5'],
        ['X-Forwarded-For', '192.0.2.66'],
        ['X-Forwarded-Uri', '/'],
        ['X-API-KEY', 'one'],
      ],
    });
    expect(check.toString().split('\r\n')).toEqual([
      'GET /v1/check/login HTTP/1.1',
      'Host: 127.0.0.1:7071',
      'User-Agent: Go-http-client/1.1',
      'X-Api-Key: one',
      'X-Forwarded-For: 198.51.100.1',
      'X-Forwarded-Host: shop.example',
      'X-Forwarded-Method: POST',
      ...(version === '3.7' ? ['X-Forwarded-Port: 80'] : []),
      'X-Forwarded-Proto: http',
      'X-Forwarded-Uri: /a//b?c',
      'Accept-Encoding: gzip',
      '',
      '',
    ]);
  });

  describe('that sends all headers', () => {
    const weir = useWeir('traefik', { all: { identify: ['ip', 'method', 'cookie:session'] } });

    test('weir reads only what the policy names, not the Authorization of the client', async () => {
      const printed = traefik({
        ...setupOf({}, weirAt(weir.port)),
        routes: everyPath(weir.policies.get('all')!),
      });
      const client = emulateTraefik(withAllHeaders(printed), {}, version);
      const request = (session: string) => ({
        method: 'POST',
        headers: [
          ['Authorization', 'Bearer of the end user'],
          ['User-Agent', 'curl/8'],
          ['Content-Length', '5'],
          ['Content-Type', 'text/plain'],
          ['Accept-Encoding', 'br'],
          ['X-Real-Ip', session],
          ['X-Forwarded-For', session],
          ['Cookie', `a=${'x'.repeat(9_000)}; session=${session}`],
        ] as [string, string][],
      });
      expect(client.checkRequest(request('one')).toString()).toContain('Bearer of the end user');
      for (const status of [200, 429]) {
        expect((await client.send(request('one'))).status).toBe(status);
        expect((await client.send(request('two'))).status).toBe(status);
      }
    });
  });
});

test('Traefik forwards a request after a 2xx, and returns any other response to the client', async () => {
  const send = (response: string) =>
    withFakeWeir(response, (port) => emulateTraefik(traefik(setupOf({}, weirAt(port)))).send({}));
  const down = await send('503 Down\r\nContent-Length: 4\r\nConnection: x\r\nA: b\r\n\r\ndown');
  expect(down).toMatchObject({ status: 503, headers: { a: 'b' }, body: 'down' });
  expect(down.headers).not.toHaveProperty('connection');
  expect((await send('204 No Content\r\n\r\n')).status).toBe(200);
});

test('the configuration of Traefik sends only the headers that the policy reads', () => {
  const sent = (...identify: string[]) => {
    const { http } = parse(traefik(setupOf({ identify }, weirAt(7_071))));
    return http.middlewares.weir.forwardAuth.authRequestHeaders;
  };
  // An empty list would mean all headers.
  expect(sent('ip')).toEqual(['x-forwarded-for']);
  expect(sent('method', 'path')).toEqual(['x-forwarded-for']);
  expect(sent('header:x-api-key', 'cookie:session')).toEqual([
    'x-forwarded-for',
    'x-api-key',
    'cookie',
  ]);
});

test('the configuration of Traefik names its limits, and cannot use a Unix socket', () => {
  expect(traefik(setupOf({}, weirAt(7_071)))).toContain(
    'onError is allow, which Traefik does not support',
  );
  expect(() => traefik(setupOf({}, { socket: '/run/weir.sock' }))).toThrow('a Unix socket');
});
