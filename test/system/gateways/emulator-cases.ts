/**
 * Tests for the gateways that cannot run here, with a real weir. The emulator reads the
 * configuration that weir prints for the gateway, and sends checks as configured there.
 */

import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { everyPath, type GatewaySetup } from '../../../src/commands/gateways/setup.ts';
import type { Gateway } from '../../../src/policies/gateways.ts';
import type { Policy } from '../../../src/policies/policy.ts';
import { LONGEST_WINDOW_MS } from '../../support/http.ts';
import { writeConfig } from '../../support/policy-config.ts';
import {
  freePort,
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from '../../support/server.ts';
import {
  APPLICATION_BODY,
  type ClientRequest,
  type EmulatorOptions,
  type GatewayEmulator,
  testPolicy,
} from './gateway-emulator.ts';

interface EmulatedGateway {
  gateway: Gateway;
  print: (setup: GatewaySetup) => string;
  emulate: (text: string, options?: EmulatorOptions) => GatewayEmulator;
}

/** A name with each special character. */
const ODD_HEADER = "X-!#$%&'*+.^_`|~-0";
const POLICIES: Record<string, Partial<Policy>> = {
  plain: {},
  legacy: { legacyHeaders: true },
  'by-ip': {},
  'by-hop': { trustedHops: 2 },
  'by-hop-and-all': { trustedHops: 2, identify: ['ip', 'method', 'path'] },
  'by-method': { identify: ['method'] },
  'by-path': { identify: ['path'] },
  'by-header': { identify: ['header:X-Api-Key'] },
  'by-cookie': { identify: ['cookie:session'] },
  'by-all': { identify: ['ip', 'method', 'header:x-api-key'] },
  '~a.B:c@d-e': { identify: [`header:${ODD_HEADER}`] },
  'with-key': { identify: ['header:x-api-key'] },
  'without-key': {},
  denying: { onError: 'deny' },
};

const PROXY_ADDRESS = '203.0.113.9';
const LONG_COOKIES = `a=${'x'.repeat(9_000)}; session=`;

/** A setup whose policies, if it has them, are not those of a running weir. */
export function setupOf(
  gateway: Gateway,
  part: Partial<Policy>,
  weir: GatewaySetup['weir'],
): GatewaySetup {
  const routes = everyPath(testPolicy('login', { gateway, ...part }));
  return { routes, weir, listenPort: 8_080, upstream: { host: 'application', port: 3_000 } };
}

export const weirAt = (port: number) => ({ host: '127.0.0.1', port, needsKey: false });

/**
 * Starts a weir for all tests of a describe block.
 * @returns its gateway port, which needs no key, and its active policies
 */
export function useWeir(gateway: Gateway, settings: Record<string, Partial<Policy>>) {
  const policies = Object.entries(settings).map(([namespace, part]) => {
    return testPolicy(namespace, { gateway, ...part });
  });
  const started = {
    policies: new Map(policies.map((policy) => [policy.namespace, policy])),
    server: undefined as ServerProcess | undefined,
    port: 0,
  };
  const directory = temporaryDirectory();
  beforeAll(async () => {
    started.port = await freePort();
    const texts = policies.map(({ namespace, ...text }) => [namespace, text]);
    const config = writeConfig(directory, Object.fromEntries(texts));
    const sizes = ['--acceptors', '1', '--workers', '1', '--counters', '1024'];
    started.server = await startServer(join(directory, 'data'), {
      args: [...sizes, '--gateway-port', String(started.port), '--config', config],
    });
  });
  afterAll(async () => {
    await started.server?.stop();
    removeDirectory(directory);
  });
  return started;
}

/**
 * Sends a request through the gateway to a server that responds to each check with a fixed text.
 * @param response a status line without its version, headers and a body
 * @returns the statuses with both values of `onError`, allow and deny
 */
export async function statusesAfter(
  response: string,
  { gateway, print, emulate }: EmulatedGateway,
): Promise<number[]> {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', () => socket.end(`HTTP/1.1 ${response}`));
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  const { port } = server.address() as AddressInfo;
  const statuses: number[] = [];
  for (const onError of ['allow', 'deny'] as const) {
    const text = print(setupOf(gateway, { onError }, weirAt(port)));
    statuses.push((await emulate(text).send({})).status);
  }
  server.close();
  return statuses;
}

export function defineEmulatorTests(gatewayUnderTest: EmulatedGateway): void {
  const { gateway, print, emulate } = gatewayUnderTest;
  const weir = useWeir(gateway, POLICIES);
  const printFor = (namespace: string, port = weir.port, needsKey = false) => {
    const policy = weir.policies.get(namespace) ?? testPolicy(namespace, { gateway });
    return print({
      routes: everyPath(policy),
      weir: { host: '127.0.0.1', port, needsKey },
      listenPort: 8_080,
      upstream: { host: '127.0.0.1', port: 3_000 },
    });
  };
  const gatewayFor = (namespace: string, options: EmulatorOptions = {}) => {
    return emulate(printFor(namespace), options);
  };
  const withHeader = (name: string, value: string): ClientRequest => {
    return { headers: [[name, value]] };
  };

  /** Each request has its own counter: it is allowed once, and then denied. */
  async function expectOneEach(
    emulator: GatewayEmulator,
    requests: ClientRequest[],
  ): Promise<void> {
    for (const expected of [200, 429]) {
      for (const request of requests) {
        const { status } = await emulator.send(request);
        expect({ ...request, status }).toEqual({ ...request, status: expected });
      }
    }
  }

  test('an allowed client gets the response of the application', async () => {
    const { status, body, headers } = await gatewayFor('plain').send({});
    expect([status, body]).toEqual([200, APPLICATION_BODY]);
    expect(headers['ratelimit-policy']).toBe(`"plain";q=1;w=${LONGEST_WINDOW_MS / 1_000}`);
    expect(headers.ratelimit).toMatch(/^"plain";r=0;t=\d+$/);
  });

  test('a denied client gets 429, when to retry, and why', async () => {
    const emulator = gatewayFor('legacy');
    const legacy = { 'x-ratelimit-limit': '1', 'x-ratelimit-remaining': '0' };
    expect((await emulator.send({})).headers).toMatchObject(legacy);
    const { status, headers, body, applicationHeaders } = await emulator.send({});
    expect([status, applicationHeaders]).toEqual([429, undefined]);
    expect(headers).toMatchObject({
      ...legacy,
      'ratelimit-policy': `"legacy";q=1;w=${LONGEST_WINDOW_MS / 1_000}`,
      ratelimit: expect.stringMatching(/^"legacy";r=0;t=\d+$/),
      'retry-after': expect.stringMatching(/^[1-9]\d*$/),
      'cache-control': 'no-store',
      'content-type': 'application/problem+json',
      'x-ratelimit-reset': expect.stringMatching(/^\d+$/),
    });
    expect(JSON.parse(body)).toMatchObject({ status: 429 });
  });

  test('each method has its own counter, with a body or without', async () => {
    const requests = ['GET', 'HEAD', 'POST', 'DELETE'].map((method): ClientRequest => {
      return { method, headers: method === 'POST' ? [['Content-Length', '5']] : [] };
    });
    await expectOneEach(gatewayFor('by-method'), requests);
  });

  test('all spellings of a path share one counter', async () => {
    const emulator = gatewayFor('by-path');
    const targets = ['/', '/a/b', '/a%2Fb', '/a/b/', '/A/b', `/${'long/'.repeat(400)}`];
    await expectOneEach(
      emulator,
      targets.map((target) => ({ target })),
    );
    for (const target of ['//', '/a//b', '/x/../a/b', '/%61/b?c', '/a%2fb', '/./A/b']) {
      expect([target, (await emulator.send({ target })).status]).toEqual([target, 429]);
    }
  });

  test('a client cannot forge its address', async () => {
    const emulator = gatewayFor('by-ip');
    const requests = ['198.51.100.7', '198.51.100.8', '2001:db8::1'].map((remoteAddress) => ({
      remoteAddress,
    }));
    await expectOneEach(emulator, requests);
    for (const [i, { remoteAddress }] of requests.entries()) {
      const address = `192.0.2.${i}`;
      const headers: [string, string][] = [
        ['X-Forwarded-For', address],
        ['X-Forwarded-For', `${address}, ${address}`],
        ['X-Real-IP', address],
        ['Forwarded', `for=${address}`],
        ['X-Envoy-External-Address', address],
        ['X-Forwarded-Method', address],
        ['X-Forwarded-Uri', address],
        ['Connection', 'x-forwarded-for, x-forwarded-method'],
      ];
      const { status } = await emulator.send({ remoteAddress, headers });
      expect([remoteAddress, status]).toEqual([remoteAddress, 429]);
    }
  });

  test('behind a trusted proxy the client is the one that the proxy names', async () => {
    const emulator = gatewayFor('by-hop');
    const through = (chain: string, word = 'GET'): ClientRequest => ({
      remoteAddress: PROXY_ADDRESS,
      headers: [
        ['X-Forwarded-For', chain],
        ['X-Forwarded-Method', word],
        ['X-Forwarded-Uri', `/${word}`],
      ],
    });
    await expectOneEach(emulator, [through('192.0.2.1'), through('192.0.2.2')]);
    expect((await emulator.send(through('192.0.2.77, 192.0.2.2'))).status).toBe(429);
    // A header that the proxy forwards from its client is not trusted.
    const all = gatewayFor('by-hop-and-all');
    expect((await all.send(through('192.0.2.1', 'one'))).status).toBe(200);
    expect((await all.send(through('192.0.2.1', 'two'))).status).toBe(429);
  });

  test('a header or a cookie identifies the client, also among 9 KB of cookies', async () => {
    await expectOneEach(gatewayFor('by-header'), [
      withHeader('x-api-key', 'one'),
      withHeader('X-API-KEY', 'two'),
    ]);
    await expectOneEach(gatewayFor('by-cookie'), [
      withHeader('Cookie', `${LONG_COOKIES}one`),
      withHeader('cookie', `${LONG_COOKIES}two`),
    ]);
    await expectOneEach(gatewayFor('by-all'), [
      { remoteAddress: '198.51.100.7', ...withHeader('x-api-key', 'one') },
      { remoteAddress: '198.51.100.7', ...withHeader('x-api-key', 'two') },
      { remoteAddress: '198.51.100.8', ...withHeader('x-api-key', 'two') },
      { method: 'POST', remoteAddress: '198.51.100.8', ...withHeader('x-api-key', 'two') },
    ]);
    // Special characters in names are printed correctly.
    await expectOneEach(gatewayFor('~a.B:c@d-e'), [
      withHeader(ODD_HEADER, 'one'),
      withHeader(ODD_HEADER, 'two'),
    ]);
  });

  test.each([
    ['by-header', 'X-Api-Key', 'good', 'other'],
    ['by-cookie', 'Cookie', 'session=good', 'session=other'],
  ])(
    'under %s a repeated %s header does not circumvent the limit',
    async (policy, name, one, other) => {
      const emulator = gatewayFor(policy);
      let believed = 0;
      for (let i = 0; i < 6; i++) {
        const next = `${other}${policy}${i}; a=b`;
        const values = i < 3 ? [one, next] : [next, one];
        const headers = values.map((value): [string, string] => [name, value]);
        const { applicationHeaders } = await emulator.send({ headers });
        // The application may use any of the headers that it gets.
        if (/\bgood\b/.test(applicationHeaders?.[name.toLowerCase()] ?? '')) believed++;
      }
      expect(believed).toBeLessThanOrEqual(1);
    },
  );

  test('weir gets only the client headers that identify the client', () => {
    const headers: [string, string][] = [
      ['Authorization', 'Bearer of the end user'],
      ['X-Api-Key', 'one'],
      ['Cookie', 'session=secret'],
      ['Content-Length', '5'],
      ['Accept', 'x-secret'],
    ];
    const bytes = gatewayFor('by-header').checkRequest({ method: 'POST', headers });
    expect(bytes.toString()).toMatch(/x-api-key: one/i);
    expect(bytes.toString()).not.toMatch(/secret|content-length: 5/i);
    // Istio has no setting that removes it.
    if (gateway !== 'istio') expect(bytes.toString()).not.toMatch(/bearer/i);
  });

  test('weir gets the key of the gateway, and a key of the client is not forwarded', async () => {
    const printed = printFor('with-key', weir.server!.port, true);
    expect(printed).not.toContain(ROOT_KEY);
    const request = (key: string): ClientRequest => ({
      headers: [
        ['X-Api-Key', 'one'],
        ['X-Weir-Key', key],
      ],
    });
    const keyed = emulate(printed, { key: ROOT_KEY });
    const allowed = await keyed.send(request('of the client'));
    expect(allowed.status).toBe(200);
    // Istio's configuration does not change other headers of requests to the application.
    if (gateway !== 'istio') expect(allowed.applicationHeaders).not.toHaveProperty('x-weir-key');
    expect((await keyed.send(request('of the client'))).status).toBe(429);
    const wrong = await emulate(printed, { key: 'wrong' }).send(request(ROOT_KEY));
    expect([wrong.status, wrong.applicationHeaders]).toEqual([401, undefined]);
    const without = gatewayFor('without-key');
    expect(without.checkRequest(request(ROOT_KEY)).toString()).not.toMatch(/x-weir-key/i);
  });

  test('onError decides if weir is stopped; a gateway with an unknown policy allows nothing', async () => {
    const port = await freePort();
    expect((await emulate(printFor('plain', port)).send({})).status).toBe(200);
    expect((await emulate(printFor('denying', port)).send({})).status).toBe(429);
    expect((await gatewayFor('nowhere').send({})).status).toBe(404);
  });
}
