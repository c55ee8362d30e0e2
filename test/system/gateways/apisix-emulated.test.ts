/** APISIX, which cannot run here: an emulation reads the printed configuration. */

import { describe, expect, test } from 'vitest';
import { parse, stringify } from 'yaml';
import { apisix, apisixSnippet } from '../../../src/commands/gateways/apisix.ts';
import { emulateApisix } from './apisix-emulator.ts';
import { defineGatewayTests } from './gateway-cases.ts';
import { emulatedGateway } from './gateway-emulator.ts';
import { agentFromNewAddress, type Gateway, sendThrough } from './gateway-process.ts';
import { useGatewayStack } from './gateway-stack.ts';

const APISIX = emulatedGateway('apisix', apisix, emulateApisix);
/** Names with each special character. */
const ODD = '~a.B:c@d-e_';
const ODD_HEADER = "x-!#$%&'*+.^_`|~-0";

describe('behind APISIX', () => {
  defineGatewayTests(APISIX);
});

describe('APISIX', () => {
  const stack = useGatewayStack(APISIX, {
    ...{ site: { limit: 1 }, login: { limit: 1 }, [ODD]: { limit: 1 } },
    headers: { limit: 1, identify: [`header:${ODD_HEADER}`] },
  });
  const statuses = async ({ port }: Gateway, paths: string[]) => {
    const agent = agentFromNewAddress();
    const all: number[] = [];
    for (const path of paths) all.push((await sendThrough(port, { path }, agent)).status);
    return all;
  };

  test('sends a check as a GET, with X-Forwarded-* that it sets itself', async () => {
    const text = apisix(await stack.setupOf('headers'));
    const check = emulateApisix(text).checkRequest({
      method: 'POST',
      target: '/a//b?c',
      remoteAddress: '198.51.100.1',
      headers: [
        ['Host', 'shop.example'],
        ['Content-Length', '5'],
        ['X-Forwarded-For', '192.0.2.66'],
        ['X-Forwarded-Host', 'apisix.apache.org'],
        [ODD_HEADER.toUpperCase(), 'one'],
        [ODD_HEADER, 'two'],
      ],
    });
    expect(check?.toString().split('\r\n')).toEqual([
      'GET /v1/check/headers?gateway=apisix HTTP/1.1',
      'X-Forwarded-Proto: http',
      'X-Forwarded-Method: POST',
      'X-Forwarded-Host: shop.example',
      'X-Forwarded-Uri: /a//b?c',
      'X-Forwarded-For: 198.51.100.1',
      `${ODD_HEADER}: one`,
      `Host: 127.0.0.1:${stack.gatewayPort}`,
      'User-Agent: lua-resty-http/0.17.1 (Lua) ngx_lua/10026',
      '',
      '',
    ]);
  });

  test('limits the paths of each policy in one text', async () => {
    const gateway = await stack.serve({ site: '/', login: '/login', [ODD]: '/login/odd' });
    const paths = ['/', '/login', '/login/odd/x'];
    expect(await statuses(gateway, [...paths, ...paths])).toEqual([200, 200, 200, 429, 429, 429]);
  });

  test('does not check paths without a policy', async () => {
    const gateway = await stack.serve({ login: '/login' });
    const paths = ['/login/a', '/', '/log', '/', '/login'];
    expect(await statuses(gateway, paths)).toEqual([200, 200, 200, 200, 429]);
  });

  test('protects a route of an existing site to which the printed parts are added', async () => {
    const edit = (snippet: string) => {
      expect(snippet).not.toContain(String(stack.application.port));
      const [, id] = /plugin_config_id: (\S+) +# in each route .* with \/login$/m.exec(snippet)!;
      const routes = [{ uri: '/login*', plugin_config_id: id }, { uri: '/*' }];
      return stringify({ ...parse(snippet), routes });
    };
    const gateway = await stack.serve({ login: '/login' }, { print: apisixSnippet, edit });
    expect(await statuses(gateway, ['/login', '/', '/login', '/'])).toEqual([200, 200, 429, 200]);
  });
});
