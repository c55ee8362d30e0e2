/**
 * Tests for gateways that run here, with the other forms of a printed configuration: several
 * policies, parts added to the configuration of an existing site, and an application over TLS.
 */

import { readFileSync, writeFileSync } from 'node:fs';
import { Agent } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { TLSSocket } from 'node:tls';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { GatewaySetup, Route, Upstream } from '../../../src/commands/gateways/setup.ts';
import { type Policy, readPolicies } from '../../../src/policies/policy.ts';
import { CERTIFICATE_A, CERTIFICATE_B, type CertificatePair } from '../../support/certificates.ts';
import { LONGEST_WINDOW_MS, type ParsedResponse } from '../../support/http.ts';
import { type PolicySettings, writeConfig } from '../../support/policy-config.ts';
import {
  freePort,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
  waitUntil,
} from '../../support/server.ts';
import {
  type Application,
  echoUpgrades,
  type Gateway,
  sendThrough,
  startApplication,
  upgradeProtocol,
} from './gateway-process.ts';
import type { RealGateway } from './real-gateways.ts';

export interface GatewayForms extends RealGateway {
  printSnippet: (setup: GatewaySetup) => string;
  /** The configuration of an existing site with the parts of a snippet for /login. */
  addToSite: (parts: string, ports: { listen: number; application: number }) => string;
  /** The printed text with another file of CA certificates, as its comment describes. */
  trust: (text: string, caFile: string) => string;
  /** The host of an https application here. */
  tlsHost: string;
}

const LOGIN_LIMIT = 2;
const SITE_LIMIT = 20;
const SIZES = ['--acceptors', '1', '--workers', '1', '--counters', '1024'];

/** Outside the prefix /login if normalized; some applications handle all of /login/ alike. */
const UNSAFE_PATHS = [
  ...['/login/../x', '/login/%2e%2E/x', '/login%2F..%2Fx', '/login/..%5cx', '/login/..'],
  ...['/login//..//../x', '/login;/../x', '/login/./../x?a=b', '/x/..;/login', '/x\\..\\login'],
];

/** Names of clients without usage. */
let lastClientNumber = 0;
const newClient = () => ({ 'X-Api-Key': `form-client-${++lastClientNumber}` });

const policyOf = ({ headers }: ParsedResponse) => /^"([^"]*)"/.exec(headers.ratelimit ?? '')?.[1];

interface TlsApplication {
  port: number;
  /** Host, server name of TLS, path and X-Forwarded-Host of each request. */
  requests: [string | undefined, unknown, string | undefined, unknown][];
  stop: () => Promise<void>;
}

async function startTlsApplication({ cert, key }: CertificatePair): Promise<TlsApplication> {
  const requests: TlsApplication['requests'] = [];
  const server = createServer({ cert, key }, ({ headers, url, socket }, response) => {
    const { servername } = socket as TLSSocket & { servername: unknown };
    requests.push([headers.host, servername, url, headers['x-forwarded-host']]);
    response.end('over TLS');
  });
  const upgraded = echoUpgrades(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as AddressInfo).port,
    requests,
    stop: () => {
      for (const socket of upgraded) socket.destroy();
      server.closeAllConnections();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}

export function defineFormTests(gatewayUnderTest: GatewayForms): void {
  const { name, print, printSnippet, addToSite, trust, tlsHost } = gatewayUnderTest;
  const settings: Record<string, PolicySettings> = {
    site: { gateway: name, limit: SITE_LIMIT, identify: 'header:x-api-key' },
    login: { gateway: name, limit: LOGIN_LIMIT, identify: 'header:x-api-key', onError: 'deny' },
    open: { gateway: name, limit: LOGIN_LIMIT, identify: 'header:x-api-key', onError: 'allow' },
  };
  const directory = temporaryDirectory();
  let weir: ServerProcess;
  let weirPort = 0;
  let application: Application;
  let policies: Map<string, Policy>;
  const stops: (() => Promise<unknown>)[] = [];

  beforeAll(async () => {
    const read = readPolicies(
      Object.fromEntries(
        Object.entries(settings).map(([namespace, policy]) => {
          return [namespace, { duration: LONGEST_WINDOW_MS, ...policy }];
        }),
      ),
    );
    policies = new Map(read.map((policy) => [policy.namespace, policy]));
    weirPort = await freePort();
    const args = ['--config', writeConfig(directory, settings), '--gateway-port', `${weirPort}`];
    weir = await startServer(join(directory, 'data'), { args: [...args, ...SIZES] });
    application = await startApplication();
  });
  afterAll(async () => {
    for (const stop of stops.reverse()) await stop();
    await weir.stop();
    await application.stop();
    removeDirectory(directory);
  });

  async function setupOf(
    prefixes: Record<string, string>,
    upstream: Upstream = { host: '127.0.0.1', port: application.port },
    port = weirPort,
  ): Promise<GatewaySetup> {
    const listenPort = await freePort();
    // HAProxy also uses the next port.
    await freePort();
    const routes = Object.entries(prefixes).map(([namespace, prefix]): Route => {
      return { policy: policies.get(namespace)!, prefix };
    });
    return { routes, weir: { host: '127.0.0.1', port, needsKey: false }, listenPort, upstream };
  }

  async function serve(text: string, { listenPort }: GatewaySetup): Promise<Gateway> {
    const gateway = await gatewayUnderTest.start(text, listenPort, '');
    stops.push(gateway.stop);
    return gateway;
  }

  /** Starts the gateway of an existing site, to which the printed parts are added. */
  function serveSite(setup: GatewaySetup): Promise<Gateway> {
    const ports = { listen: setup.listenPort, application: application.port };
    return serve(addToSite(printSnippet(setup), ports), setup);
  }

  /** A new gateway may be slower than its timeout for weir. */
  function firstResponse({ port }: Gateway, path: string): Promise<void> {
    return waitUntil('weir responds within the timeout', async () => {
      const { headers } = await sendThrough(port, { path, headers: newClient() });
      return headers.ratelimit !== undefined;
    });
  }

  /** An unchecked path has no dot segments for the application. */
  async function expectSafePaths(gateway: Gateway): Promise<void> {
    const headers = newClient();
    await statusesOf(gateway, ['/login', '/login'], headers);
    for (const path of UNSAFE_PATHS) {
      const before = application.requests.length;
      const { status } = await sendThrough(gateway.port, { path, headers });
      const received = application.requests.slice(before).map(({ url }) => url);
      // Envoy removes dot segments before it forwards a request.
      const isSafe = received.every((url) => /^\/x(\?|$)|^\/$/.test(url));
      expect({ path, received, isSafe }).toEqual({ path, received, isSafe: true });
      expect([path, status]).toEqual([path, received.length > 0 ? 200 : expect.any(Number)]);
    }
    const paths = ['/.well-known/x', '/a..b/...', '/x?next=/../y', '/..a', '/a./b'];
    expect(await statusesOf(gateway, paths, headers)).toEqual([200, 200, 200, 200, 200]);
  }

  async function statusesOf({ port }: Gateway, paths: string[], headers: Record<string, string>) {
    const statuses: number[] = [];
    for (const path of paths) statuses.push((await sendThrough(port, { path, headers })).status);
    return statuses;
  }

  describe('with two policies in one text', () => {
    let gateway: Gateway;
    beforeAll(async () => {
      const setup = await setupOf({ site: '/', login: '/login' });
      gateway = await serve(print(setup), setup);
      await firstResponse(gateway, '/');
    });

    test('each limits its own paths, and has its own counters', async () => {
      const headers = newClient();
      const paths = ['/login', '/login/form?a=b', '/login', '/', '/log'];
      expect(await statusesOf(gateway, paths, headers)).toEqual([200, 200, 429, 200, 200]);
      const denied = await sendThrough(gateway.port, { path: '/login', headers });
      expect(JSON.parse(denied.body)).toMatchObject({ status: 429 });
      expect(policyOf(denied)).toBe('login');
      const allowed = await sendThrough(gateway.port, { headers });
      expect([policyOf(allowed), allowed.headers.ratelimit]).toEqual([
        'site',
        expect.stringContaining(`;r=${SITE_LIMIT - 3};`),
      ]);
    });

    test('an unusual form of a path does not select another policy', async () => {
      const headers = newClient();
      const forms = ['/%6Cogin', '//login', '/x/../login', '/./login', '/x%2F..%2Flogin'];
      await statusesOf(gateway, ['/login', '/login'], headers);
      const before = application.requests.length;
      for (const path of forms) {
        const { status } = await sendThrough(gateway.port, { path, headers });
        // A gateway may reject a path, but must not count it as another one.
        expect([path, status]).not.toEqual([path, 200]);
      }
      expect(application.requests).toHaveLength(before);
      const { status } = await sendThrough(gateway.port, { path: '/LOGIN', headers });
      expect(status).toBe(name === 'caddy' ? 429 : 200);
    });
  });

  test('paths without a policy are not checked, and have no dot segments', async () => {
    const setup = await setupOf({ login: '/login' });
    const gateway = await serve(print(setup), setup);
    await firstResponse(gateway, '/login');
    const headers = newClient();
    const paths = ['/login', '/', '/login', '/', '/login', '/'];
    expect(await statusesOf(gateway, paths, headers)).toEqual([200, 200, 200, 200, 429, 200]);
    const response = await sendThrough(gateway.port, { path: '/limited', headers });
    expect(policyOf(response)).not.toBe('login');
    await expectSafePaths(gateway);
  });

  test('without weir each policy applies its own onError', async () => {
    const prefixes = { site: '/', login: '/login', open: '/login/open' };
    const setup = await setupOf(prefixes, undefined, await freePort());
    const gateway = await serve(print(setup), setup);
    expect(await statusesOf(gateway, ['/', '/login', '/login/open'], newClient())).toEqual([
      200, 429, 200,
    ]);
    const { headers } = await sendThrough(gateway.port, { path: '/login' });
    // Envoy sends an empty body.
    if (name !== 'envoy') expect(headers['retry-after']).toBe('1');
  });

  describe('with parts added to an existing site', () => {
    test.each(['login', 'open'])(
      'limits /login with the policy %s and no other path',
      async (policy) => {
        const gateway = await serveSite(await setupOf({ [policy]: '/login' }));
        const headers = newClient();
        await firstResponse(gateway, '/login');
        const paths = ['/login', '/', '/login', '/login', '/', '/static/a', '/404'];
        expect(await statusesOf(gateway, paths, headers)).toEqual([
          200, 200, 200, 429, 200, 200, 404,
        ]);
        const denied = await sendThrough(gateway.port, { path: '/login', headers });
        expect(Number(denied.headers['retry-after'])).toBeGreaterThan(0);
        expect(denied.headers['content-type']).toBe('application/problem+json');
        expect(policyOf(denied)).toBe(policy);
        const own = await sendThrough(gateway.port, { path: '/limited', headers });
        expect(own.headers.ratelimit).toBe('"application";r=9;t=9');
        const replaced = await sendThrough(gateway.port, {
          path: '/login/limited',
          headers: newClient(),
        });
        expect(replaced.headers.ratelimit).toMatch(new RegExp(`^"${policy}";r=1;t=\\d+$`));
        // Requests that are not checked reach the application unchanged.
        await sendThrough(gateway.port, { headers: { 'X-Weir-Key': 'of-the-client' } });
        expect(application.requests.at(-1)?.headers['x-weir-key']).toBe('of-the-client');
        await expectSafePaths(gateway);
      },
    );

    test.each([
      ['login', 429],
      ['open', 200],
    ])(
      'without weir applies onError of the policy %s, to no other path',
      async (policy, status) => {
        const setup = await setupOf({ [policy]: '/login' }, undefined, await freePort());
        const gateway = await serveSite(setup);
        const paths = ['/login', '/', '/static/a', '/404'];
        expect(await statusesOf(gateway, paths, newClient())).toEqual([status, 200, 200, 404]);
      },
    );

    test.each([
      ['deny', 429],
      ['allow', 200],
    ] as const)('an unexpected response of weir applies onError %s', async (onError, status) => {
      const setup = await setupOf({ login: '/login' });
      const [{ policy, prefix }] = setup.routes;
      // weir has no such policy, and responds with a 404.
      const routes = [{ policy: { ...policy, namespace: 'unknown', onError }, prefix }];
      const gateway = await serveSite({ ...setup, routes });
      // Envoy denies a request after any status except 200 and 5xx.
      const expected = name === 'envoy' ? 404 : status;
      expect(await statusesOf(gateway, ['/login', '/'], newClient())).toEqual([expected, 200]);
      if (name === 'envoy') return;
      await waitUntil('the response is in a log', () => {
        const [directory] = gateway.child.spawnargs.filter((_, i, all) => all[i - 1] === '-p');
        const log =
          directory === undefined ? '' : readFileSync(join(directory, 'access.log'), 'utf8');
        return /unexpected status: 404|"GET \/login [^"]*" 204|weir answered/.test(
          log + gateway.output(),
        );
      });
    });
  });

  describe('with an application over TLS', () => {
    let trusted: TlsApplication;
    let other: TlsApplication;
    const caFile = join(directory, 'ca.pem');
    beforeAll(async () => {
      writeFileSync(caFile, CERTIFICATE_A.cert);
      trusted = await startTlsApplication(CERTIFICATE_A);
      other = await startTlsApplication(CERTIFICATE_B);
      stops.push(trusted.stop, other.stop);
    });
    const upstreamAt = (port: number, path?: string): Upstream => {
      return { isHttps: true, host: tlsHost, port, ...(path === undefined ? {} : { path }) };
    };
    test('sends its name as SNI and as Host, puts a path before the path, passes WebSocket', async () => {
      const setup = await setupOf(
        { site: '/', login: '/login' },
        upstreamAt(trusted.port, '/shop'),
      );
      const gateway = await serve(trust(print(setup), caFile), setup);
      const headers = {
        ...newClient(),
        Host: 'shop.example',
        'X-Forwarded-Host': 'forged.example',
      };
      for (const path of ['/a%2Fb%20c?d=%2F', '/login/e']) {
        const { status, body } = await sendThrough(gateway.port, { path, headers });
        expect([status, body]).toEqual([200, 'over TLS']);
        // Envoy decodes a slash before it chooses a route.
        const sent = name === 'envoy' ? path.replace('%2Fb', '/b') : path;
        expect(trusted.requests.at(-1)).toEqual([
          `${tlsHost}:${trusted.port}`,
          tlsHost === '127.0.0.1' ? false : tlsHost,
          `/shop${sent}`,
          'shop.example',
        ]);
      }
      const outcome = await upgradeProtocol(gateway.port, 'websocket', new Agent());
      expect(outcome).toEqual({ status: 101, received: 'ping' });
    });

    test('rejects a certificate of another CA or name, and by default one of a private CA', async () => {
      const start = async ({ port }: TlsApplication, edit: (text: string) => string) => {
        const setup = await setupOf({ site: '/' }, upstreamAt(port));
        return serve(edit(print(setup)), setup);
      };
      const trustFile = (text: string) => trust(text, caFile);
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
        gateways.map(({ port }) => sendThrough(port, { headers: newClient() })),
      );
      for (const { status } of responses) expect([502, 503]).toContain(status);
      expect(other.requests).toEqual([]);
      expect(trusted.requests).toHaveLength(before);
    });
  });
}
