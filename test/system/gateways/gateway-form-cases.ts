/**
 * Tests for gateways that run here, with the other forms of a printed configuration: several
 * policies, parts added to the configuration of an existing site, and an application over TLS.
 */

import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { Agent } from 'node:http';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import type { Upstream } from '../../../src/commands/gateways/setup.ts';
import { CERTIFICATE_A, CERTIFICATE_B } from '../../support/certificates.ts';
import type { ParsedResponse } from '../../support/http.ts';
import { freePort, waitUntil } from '../../support/server.ts';
import {
  type Application,
  type Gateway,
  isListening,
  newKey,
  remainingIn,
  sendThrough,
  startApplication,
  upgradeProtocol,
} from './gateway-process.ts';
import { atPort, type Routes, useGatewayStack } from './gateway-stack.ts';
import type { GatewayForms } from './real-gateways.ts';

const LOGIN_LIMIT = 2;
const SITE_LIMIT = 20;

/** Outside the prefix /login if normalized; some applications handle all of /login/ alike. */
const UNSAFE_PATHS = [
  ...['/login/../x', '/login/%2e%2E/x', '/login%2F..%2Fx', '/login/..%5cx', '/login/..'],
  ...['/login//..//../x', '/login;/../x', '/login/./../x?a=b', '/x/..;/login', '/x\\..\\login'],
];

const policyOf = ({ headers }: ParsedResponse) => /^"([^"]*)"/.exec(headers.ratelimit ?? '')?.[1];

export function defineFormTests(gatewayUnderTest: GatewayForms): void {
  const { name, printSnippet, addToSite, trust } = gatewayUnderTest;
  const isEnvoy = name === 'envoy';
  const identify = 'header:x-api-key';
  const stack = useGatewayStack(gatewayUnderTest, {
    site: { limit: SITE_LIMIT, identify },
    login: { limit: LOGIN_LIMIT, identify, onError: 'deny' },
    open: { limit: LOGIN_LIMIT, identify, onError: 'allow' },
  });
  const received = () => stack.application.requests;

  /** Starts the gateway of an existing site, to which the printed parts are added. */
  function serveSite(routes: Routes, port = stack.gatewayPort) {
    return stack.serve(routes, {
      weir: atPort(port),
      print: printSnippet,
      edit: (text, { listen }) => {
        return addToSite(text, { listen: listen.port, application: stack.application.port });
      },
    });
  }

  async function statusesOf({ port }: Gateway, paths: string[], headers: Record<string, string>) {
    const statuses: number[] = [];
    for (const path of paths) statuses.push((await sendThrough(port, { path, headers })).status);
    return statuses;
  }

  /** An unchecked path has no dot segments for the application. */
  async function expectSafePaths(gateway: Gateway): Promise<void> {
    const headers = newKey();
    await statusesOf(gateway, ['/login', '/login'], headers);
    for (const path of UNSAFE_PATHS) {
      const before = received().length;
      const { status } = await sendThrough(gateway.port, { path, headers });
      const urls = received()
        .slice(before)
        .map(({ url }) => url);
      // Envoy removes dot segments before it forwards a request.
      const unsafe = urls.filter((url) => !/^\/x(\?|$)|^\/$/.test(url));
      expect([path, unsafe]).toEqual([path, []]);
      expect([path, status]).toEqual([path, urls.length > 0 ? 200 : expect.any(Number)]);
    }
    const paths = ['/.well-known/x', '/a..b/...', '/x?next=/../y', '/..a', '/a./b'];
    expect(await statusesOf(gateway, paths, headers)).toEqual([200, 200, 200, 200, 200]);
  }

  describe('with two policies in one text', () => {
    let gateway: Gateway;
    beforeAll(async () => {
      gateway = await stack.serve({ site: '/', login: '/login' });
      await stack.firstResponse(gateway);
    });

    test('each limits its own paths, and has its own counters', async () => {
      const headers = newKey();
      const paths = ['/login', '/login/form?a=b', '/login', '/', '/log'];
      expect(await statusesOf(gateway, paths, headers)).toEqual([200, 200, 429, 200, 200]);
      const denied = await sendThrough(gateway.port, { path: '/login', headers });
      expect([policyOf(denied), JSON.parse(denied.body).status]).toEqual(['login', 429]);
      const allowed = await sendThrough(gateway.port, { headers });
      expect([policyOf(allowed), remainingIn(allowed)]).toEqual(['site', SITE_LIMIT - 3]);
    });

    test('an unusual form of a path does not select another policy', async () => {
      const headers = newKey();
      await statusesOf(gateway, ['/login', '/login'], headers);
      const before = received().length;
      for (const path of ['/%6Cogin', '//login', '/x/../login', '/./login', '/x%2F..%2Flogin']) {
        const { status } = await sendThrough(gateway.port, { path, headers });
        // A gateway may reject a path, but must not count it as another one.
        expect([path, status]).not.toEqual([path, 200]);
      }
      expect(received()).toHaveLength(before);
      const { status } = await sendThrough(gateway.port, { path: '/LOGIN', headers });
      expect(status).toBe(name === 'caddy' ? 429 : 200);
    });
  });

  test.each([
    ['127.0.0.1', [true, false, false]],
    ['[::1]', [false, true, false]],
    ['0.0.0.0', [true, false, true]],
    ['[::]', [true, true, true]],
  ])('listens on %s only', async (host, expected) => {
    const { port } = await stack.serve('site', { host });
    // The last one is an address of this machine, but not the one that gateways have by default.
    const addresses = ['127.0.0.1', '::1', '127.0.0.2'];
    const listens = await Promise.all(addresses.map((address) => isListening(port, address)));
    expect(listens).toEqual(expected);
  });

  test('paths without a policy are not checked, and have no dot segments', async () => {
    const gateway = await stack.serve({ login: '/login' });
    await stack.firstResponse(gateway, '/login');
    const headers = newKey();
    const paths = ['/login', '/', '/login', '/', '/login', '/'];
    expect(await statusesOf(gateway, paths, headers)).toEqual([200, 200, 200, 200, 429, 200]);
    const response = await sendThrough(gateway.port, { path: '/limited', headers });
    expect(policyOf(response)).not.toBe('login');
    await expectSafePaths(gateway);
  });

  test('without weir each policy applies its own onError', async () => {
    const prefixes = { site: '/', login: '/login', open: '/login/open' };
    const gateway = await stack.serve(prefixes, { weir: atPort(await freePort()) });
    const statuses = await statusesOf(gateway, ['/', '/login', '/login/open'], newKey());
    expect(statuses).toEqual([200, 429, 200]);
    const { headers } = await sendThrough(gateway.port, { path: '/login' });
    // Envoy sends an empty body.
    if (!isEnvoy) expect(headers['retry-after']).toBe('1');
  });

  describe('with parts added to an existing site', () => {
    test.each(['login', 'open'])('limits /login with the policy %s only', async (policy) => {
      const gateway = await serveSite({ [policy]: '/login' });
      const headers = newKey();
      await stack.firstResponse(gateway, '/login');
      const paths = ['/login', '/', '/login', '/login', '/', '/static/a', '/404'];
      const statuses = await statusesOf(gateway, paths, headers);
      expect(statuses).toEqual([200, 200, 200, 429, 200, 200, 404]);
      const denied = await sendThrough(gateway.port, { path: '/login', headers });
      expect(Number(denied.headers['retry-after'])).toBeGreaterThan(0);
      expect(denied.headers['content-type']).toBe('application/problem+json');
      expect(policyOf(denied)).toBe(policy);
      const own = await sendThrough(gateway.port, { path: '/limited', headers });
      expect(own.headers.ratelimit).toBe('"application";r=9;t=9');
      const other = { path: '/login/limited', headers: newKey() };
      const replaced = await sendThrough(gateway.port, other);
      expect(replaced.headers.ratelimit).toMatch(new RegExp(`^"${policy}";r=1;t=\\d+$`));
      // Requests that are not checked reach the application unchanged.
      await sendThrough(gateway.port, { headers: { 'X-Weir-Key': 'of-the-client' } });
      expect(received().at(-1)?.headers['x-weir-key']).toBe('of-the-client');
      await expectSafePaths(gateway);
    });

    test.each([
      ['login', 429],
      ['open', 200],
    ])('without weir applies onError of the policy %s only', async (policy, status) => {
      const gateway = await serveSite({ [policy]: '/login' }, await freePort());
      const paths = ['/login', '/', '/static/a', '/404'];
      expect(await statusesOf(gateway, paths, newKey())).toEqual([status, 200, 200, 404]);
    });

    test.each([
      ['deny', 429],
      ['allow', 200],
    ] as const)('an unexpected response of weir applies onError %s', async (onError, status) => {
      // weir has no such policy, and responds with a 404.
      const policy = { ...stack.policies.get('login')!, namespace: 'unknown', onError };
      const gateway = await serveSite([{ policy, prefix: '/login' }]);
      // Envoy denies a request after any status except 200 and 5xx.
      const expected = isEnvoy ? 404 : status;
      expect(await statusesOf(gateway, ['/login', '/'], newKey())).toEqual([expected, 200]);
      if (isEnvoy) return;
      const accessLog = join(gateway.directory, 'access.log');
      await waitUntil('the response is in a log', () => {
        const log = existsSync(accessLog) ? readFileSync(accessLog, 'utf8') : '';
        return /unexpected status: 404|"GET \/login [^"]*" 204|weir answered/.test(
          log + gateway.output(),
        );
      });
    });
  });

  describe('with an application over TLS', () => {
    let trusted: Application;
    let other: Application;
    const caFile = join(stack.directory, 'ca.pem');
    const host = isEnvoy ? '127.0.0.1' : 'localhost';
    const trustFile = (text: string) => trust(text, caFile);
    beforeAll(async () => {
      writeFileSync(caFile, CERTIFICATE_A.cert);
      trusted = await startApplication({ tls: CERTIFICATE_A });
      other = await startApplication({ tls: CERTIFICATE_B });
      stack.stops.push(trusted.stop, other.stop);
    });

    test('sends its name as SNI and Host, puts a path before the path, and upgrades', async () => {
      const upstream: Upstream = { isHttps: true, host, port: trusted.port, path: '/shop' };
      const prefixes = { site: '/', login: '/login' };
      const gateway = await stack.serve(prefixes, { upstream, edit: trustFile });
      const names = { Host: 'shop.example', 'X-Forwarded-Host': 'forged.example' };
      for (const path of ['/a%2Fb%20c?d=%2F', '/login/e']) {
        const { status } = await sendThrough(gateway.port, {
          path,
          headers: { ...newKey(), ...names },
        });
        expect(status).toBe(200);
        const { headers, url, servername } = trusted.requests.at(-1)!;
        expect([headers.host, servername]).toEqual([
          `${host}:${trusted.port}`,
          isEnvoy ? false : host,
        ]);
        // Envoy decodes a slash before it chooses a route.
        expect(url).toBe(`/shop${isEnvoy ? path.replace('%2Fb', '/b') : path}`);
        expect(headers['x-forwarded-host']).toBe('shop.example');
      }
      const outcome = await upgradeProtocol(gateway.port, 'websocket', new Agent());
      expect(outcome).toEqual({ status: 101, received: 'ping' });
    });

    test('rejects a certificate of another CA or name, and by default one of a private CA', async () => {
      const start = ({ port }: Application, edit: (text: string) => string) => {
        return stack.serve('site', { upstream: { isHttps: true, host, port }, edit });
      };
      const rename = (text: string) => {
        const named =
          /(proxy_ssl_name |sni str\(|tls_server_name |exact: )"?(localhost|127\.0\.0\.1)"?/g;
        return trustFile(text).replaceAll(named, '$1other.example');
      };
      const gateways = [await start(other, trustFile), await start(trusted, rename)];
      gateways.push(await start(trusted, (text) => text));
      const before = trusted.requests.length;
      // Some gateways try again for seconds.
      const responses = await Promise.all(
        gateways.map(({ port }) => sendThrough(port, { headers: newKey() })),
      );
      for (const { status } of responses) expect([502, 503]).toContain(status);
      expect([other.requests.length, trusted.requests.length]).toEqual([0, before]);
    });
  });
}
