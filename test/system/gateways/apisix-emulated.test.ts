/** APISIX, which is not installed: an emulation reads the printed configuration. */

import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { apisix } from '../../../src/commands/gateways/apisix.ts';
import { everyPath, type GatewaySetup } from '../../../src/commands/gateways/setup.ts';
import type { Policy } from '../../../src/policies/policy.ts';
import { LONGEST_WINDOW_MS, requestBytes } from '../../support/http.ts';
import { emulateApisix } from './apisix-emulator.ts';
import { defineEmulatorTests, useWeir, withFakeWeir } from './emulator-cases.ts';
import { sendOnce, testPolicy } from './gateway-emulator.ts';

const setupOf = (part: Partial<Policy>, weir: GatewaySetup['weir']): GatewaySetup => ({
  routes: everyPath(testPolicy('login', { gateway: 'apisix', ...part })),
  weir,
  listenPort: 9_080,
  upstream: { host: '127.0.0.1', port: 3_000 },
});
const weirAt = (port: number) => ({ host: '127.0.0.1', port, needsKey: false });

describe('behind APISIX', () => {
  defineEmulatorTests({
    gateway: 'apisix',
    print: apisix,
    emulate: emulateApisix,
    sendsHeadersWhenAllowed: true,
    failsOpen: true,
    statusWithoutWeir: 429,
  });

  test('a check is a GET whose X-Forwarded-* are set by APISIX', () => {
    const text = apisix(setupOf({ identify: ['header:x-api-key'] }, weirAt(7_071)));
    const check = emulateApisix(text).checkRequest({
      method: 'POST',
      target: '/a//b?c',
      headers: [
        ['Content-Length', '5'],
        ['X-Forwarded-For', '192.0.2.66'],
        ['X-Forwarded-Host', 'apisix.apache.org'],
        ['X-API-KEY', 'one'],
        ['X-Api-Key', 'two'],
      ],
    });
    expect(check.toString().split('\r\n')).toEqual([
      'GET /v1/check/login HTTP/1.1',
      'X-Forwarded-Proto: http',
      'X-Forwarded-Method: POST',
      'X-Forwarded-Host: shop.example',
      'X-Forwarded-Uri: /a//b?c',
      'X-Forwarded-For: 198.51.100.1',
      'x-api-key: one',
      'Host: 127.0.0.1:7071',
      'User-Agent: lua-resty-http/0.17.1 (Lua) ngx_lua/10026',
      '',
      '',
    ]);
  });

  test('a response of weir that is not a 2xx goes to the client', async () => {
    const statuses = (response: string) =>
      withFakeWeir(response, async (port) => {
        const outcomes = (['allow', 'deny'] as const).map(async (onError) => {
          return (await emulateApisix(apisix(setupOf({ onError }, weirAt(port)))).send({})).status;
        });
        return Promise.all(outcomes);
      });
    expect(await statuses('503 Down\r\nContent-Length: 4\r\n\r\ndown')).toEqual([503, 503]);
    expect(await statuses('401 Unauthorized\r\nContent-Length: 0\r\n\r\n')).toEqual([401, 401]);
    expect(await statuses('200 OK\r\nContent-Length: 0\r\n\r\n')).toEqual([200, 200]);
  });
});

describe('APISIX with a check that has a body', () => {
  const weir = useWeir('apisix', {
    posted: { windows: [{ limit: 2, duration: LONGEST_WINDOW_MS }] },
  });

  test.each([
    { name: 'arrives', body: 'hello' },
    { name: 'is announced, but does not arrive', body: '' },
  ])('gets a response, and weir closes the connection, if the body $name', async ({ body }) => {
    const head = requestBytes({
      path: '/v1/check/posted',
      headers: { 'Content-Length': '5', 'X-Forwarded-For': '198.51.100.1' },
    });
    const request = Buffer.concat([head, Buffer.from(body)]);
    const response = await sendOnce('127.0.0.1', weir.port, request, 20_000);
    expect([response?.status, response?.headers.connection]).toEqual([200, 'close']);
  });
});

describe('the configuration of APISIX', () => {
  test('ends with #END, and closes idle connections before weir does', () => {
    const text = apisix(setupOf({}, weirAt(7_071)));
    expect(text).toMatch(/\n#END\n$/);
    expect(parse(text).routes[0].plugins['forward-auth']).toMatchObject({
      timeout: 2_000,
      keepalive: true,
      keepalive_timeout: 5_000,
    });
  });

  test('cannot use a Unix socket', () => {
    expect(() => apisix(setupOf({}, { socket: '/run/weir.sock' }))).toThrow('a Unix socket');
  });
});
