/** APISIX, which cannot run here: an emulation reads the printed configuration. */

import { describe, expect, test } from 'vitest';
import { parse, stringify } from 'yaml';
import { apisix, apisixSnippet } from '../../../src/commands/gateways/apisix.ts';
import type { GatewaySetup } from '../../../src/commands/gateways/setup.ts';
import { LONGEST_WINDOW_MS, requestBytes } from '../../support/http.ts';
import { emulateApisix } from './apisix-emulator.ts';
import { defineEmulatorTests, setupOf, statusesAfter, useWeir, weirAt } from './emulator-cases.ts';
import { sendOnce } from './gateway-emulator.ts';

const GATEWAY = { gateway: 'apisix', print: apisix, emulate: emulateApisix } as const;
/** A namespace with each special character. */
const ODD = '~a.B:c@d-e_';

interface ApisixRoute {
  id: string;
  uri: string;
  plugins?: Record<string, unknown>;
  plugin_config_id?: string;
}

/** The route that APISIX chooses, the one with the longest prefix, with its plugins. */
function routeOf(text: string, path: string): ApisixRoute {
  const { routes, plugin_configs: configs = [] } = parse(text);
  const prefixOf = ({ uri }: ApisixRoute) => uri.replace(/\*$/, '');
  const matching: ApisixRoute[] = routes.filter((of: ApisixRoute) => path.startsWith(prefixOf(of)));
  const [route] = matching.toSorted((a, b) => prefixOf(b).length - prefixOf(a).length);
  return { ...route, ...configs.find(({ id }: ApisixRoute) => id === route.plugin_config_id) };
}

describe('behind APISIX', () => {
  defineEmulatorTests(GATEWAY);

  test('a check is a GET whose X-Forwarded-* are set by APISIX', () => {
    const text = apisix(setupOf('apisix', { identify: ['header:x-api-key'] }, weirAt(7_071)));
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

  test.each([
    ['503 Down\r\nContent-Length: 4\r\n\r\ndown', 503],
    ['401 Unauthorized\r\nContent-Length: 0\r\n\r\n', 401],
    ['200 OK\r\nContent-Length: 0\r\n\r\n', 200],
  ])('a response of weir that is not a 2xx goes to the client: %s', async (response, status) => {
    expect(await statusesAfter(response, GATEWAY)).toEqual([status, status]);
  });
});

describe('APISIX with several routes', () => {
  const weir = useWeir('apisix', {
    ...{ site: {}, login: {}, [ODD]: {} },
    posted: { windows: [{ limit: 2, duration: LONGEST_WINDOW_MS }] },
  });
  const setupFor = (prefixes: Record<string, string>): GatewaySetup => ({
    ...setupOf('apisix', {}, weirAt(weir.port)),
    routes: Object.entries(prefixes).map(([namespace, prefix]) => {
      return { policy: weir.policies.get(namespace)!, prefix };
    }),
  });
  const send = async (text: string, target: string, remoteAddress: string) => {
    const emulator = emulateApisix(stringify({ routes: [routeOf(text, target)] }));
    return (await emulator.send({ target, remoteAddress })).status;
  };
  const isChecked = (text: string, path: string) => {
    return routeOf(text, path).plugins?.['forward-auth'] !== undefined;
  };

  test('limits the paths of each policy in one text', async () => {
    const text = apisix(setupFor({ site: '/', login: '/login', [ODD]: '/login/odd' }));
    for (const path of ['/', '/login', '/login/odd/x']) {
      expect([path, await send(text, path, '198.51.100.2')]).toEqual([path, 200]);
      expect([path, await send(text, path, '198.51.100.2')]).toEqual([path, 429]);
    }
  });

  test('does not check paths without a policy', () => {
    const text = apisix(setupFor({ login: '/login' }));
    const paths = ['/login/a', '/', '/log'];
    expect(paths.map((path) => isChecked(text, path))).toEqual([true, false, false]);
  });

  test('protects a route of an existing site to which the printed parts are added', async () => {
    const snippet = apisixSnippet(setupFor({ login: '/login' }));
    expect(snippet).not.toContain('application:3000');
    const [, id] = /plugin_config_id: (\S+) +# in each route .* with \/login$/m.exec(snippet)!;
    const routes = [
      { id: 'login', uri: '/login*', plugin_config_id: id },
      { id: 'other', uri: '/*' },
    ];
    const text = stringify({ ...parse(snippet), routes });
    expect(await send(text, '/login', '198.51.100.3')).toBe(200);
    expect(await send(text, '/login', '198.51.100.3')).toBe(429);
    expect(isChecked(text, '/')).toBe(false);
  });

  test.each([
    { name: 'arrives', body: 'hello' },
    { name: 'is announced, but does not arrive', body: '' },
  ])('gets a response, and weir closes the connection, if a body $name', async ({ body }) => {
    const head = requestBytes({
      path: '/v1/check/posted',
      headers: { 'Content-Length': '5', 'X-Forwarded-For': '198.51.100.1' },
    });
    const request = Buffer.concat([head, Buffer.from(body)]);
    const response = await sendOnce('127.0.0.1', weir.port, request);
    expect([response?.status, response?.headers.connection]).toEqual([200, 'close']);
  });
});
