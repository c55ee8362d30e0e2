/**
 * Tests for every emulated gateway with a real weir. The emulator reads the configuration that weir
 * prints for the gateway, and sends checks as configured there.
 */

import { writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { everyPath, type GatewaySetup } from '../../../src/commands/gateways/setup.ts';
import type { Gateway } from '../../../src/policies/gateways.ts';
import type { Policy } from '../../../src/policies/policy.ts';
import { exchange, LONGEST_WINDOW_MS } from '../../support/http.ts';
import { writeConfig } from '../../support/policy-config.ts';
import {
  freePort,
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
  waitUntil,
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
  emulate: (text: string, options: EmulatorOptions) => GatewayEmulator;
  /** Whether an allowed client gets the RateLimit headers. */
  sendsHeadersWhenAllowed: boolean;
  /** Whether it can allow requests while weir is stopped. */
  failsOpen: boolean;
  /** The status of a denied request while weir is stopped. */
  statusWithoutWeir: number;
}

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
  '~a.B:c@d-e': { identify: ["header:X-!#$%&'*+.^_`|~-0"] },
  'with-key': { identify: ['header:x-api-key'] },
  'without-key': {},
  sequential: { windows: [{ limit: 3, duration: LONGEST_WINDOW_MS }] },
  denying: { onError: 'deny' },
};

/** Number of the next file that triggers a fault. */
let nextFaultFile = 0;
const FAULT_PRELOAD = new URL('../../support/acceptor-fault.preload.mjs', import.meta.url).pathname;

const PROXY_ADDRESS = '203.0.113.9';
const LONG_COOKIES = `a=${'x'.repeat(9_000)}; session=`;
const UPSTREAM = { host: '127.0.0.1', port: 3_000 };

/**
 * Starts a weir for all tests of a describe block.
 * @returns its gateway port, which needs no key, and its active policies
 */
export function useWeir(
  gateway: Gateway,
  settings: Record<string, Partial<Policy>>,
  env: Record<string, string> = {},
) {
  const policies = Object.entries(settings).map(([namespace, part]) => {
    return testPolicy(namespace, { gateway, ...part });
  });
  const started = {
    policies: new Map(policies.map((policy) => [policy.namespace, policy])),
    directory: '',
    server: undefined as ServerProcess | undefined,
    port: 0,
  };
  beforeAll(async () => {
    started.directory = temporaryDirectory();
    started.port = await freePort();
    const texts = policies.map(({ namespace, ...text }) => [namespace, text]);
    const config = writeConfig(started.directory, Object.fromEntries(texts));
    started.server = await startServer(join(started.directory, 'data'), {
      args: ['--acceptors', '1', '--gateway-port', String(started.port), '--config', config],
      execArgv: env.FAULT === undefined ? [] : ['--import', FAULT_PRELOAD],
      env,
    });
  });
  afterAll(async () => {
    started.server?.child.kill('SIGKILL');
    await started.server?.exited;
    removeDirectory(started.directory);
  });
  return started;
}

/**
 * @param response the response to every request in place of weir's: empty for none, or a status
 * line without its version, headers and a body
 */
export async function withFakeWeir<T>(
  response: string,
  send: (port: number) => Promise<T>,
): Promise<T> {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', () => response !== '' && socket.end(`HTTP/1.1 ${response}`));
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  const outcome = await send((server.address() as AddressInfo).port);
  server.close();
  return outcome;
}

export function defineEmulatorTests(gatewayUnderTest: EmulatedGateway): void {
  const { gateway, print, emulate } = gatewayUnderTest;
  const weir = useWeir(gateway, POLICIES);
  const setup = (namespace: string, port = weir.port, needsKey = false): GatewaySetup => ({
    routes: everyPath(weir.policies.get(namespace) ?? testPolicy(namespace, { gateway })),
    weir: { host: '127.0.0.1', port, needsKey },
    listenPort: 8_080,
    upstream: UPSTREAM,
  });
  const gatewayFor = (namespace: string, options: EmulatorOptions = {}) =>
    emulate(print(setup(namespace)), options);

  /** Each request has its own counter: it is allowed once, and then denied. */
  async function expectOneEach(
    emulator: GatewayEmulator,
    requests: ClientRequest[],
  ): Promise<void> {
    for (const status of [200, 429]) {
      for (const request of requests) {
        const response = await emulator.send(request);
        expect([request.method, request.target, request.headers, response.status]).toEqual([
          request.method,
          request.target,
          request.headers,
          status,
        ]);
      }
    }
  }

  test('an allowed client gets the response of the application', async () => {
    const { status, body, headers, applicationHeaders } = await gatewayFor('plain').send({});
    expect([status, body]).toEqual([200, APPLICATION_BODY]);
    const quotas = gatewayUnderTest.sendsHeadersWhenAllowed ? headers : applicationHeaders!;
    expect(quotas['ratelimit-policy']).toBe(`"plain";q=1;w=${LONGEST_WINDOW_MS / 1_000}`);
    expect(quotas.ratelimit).toMatch(/^"plain";r=0;t=\d+$/);
  });

  test('a denied client gets 429, when to retry, and why', async () => {
    const emulator = gatewayFor('legacy');
    const allowed = await emulator.send({});
    const quotas = gatewayUnderTest.sendsHeadersWhenAllowed
      ? allowed.headers
      : allowed.applicationHeaders!;
    expect(quotas).toMatchObject({ 'x-ratelimit-limit': '1', 'x-ratelimit-remaining': '0' });
    const { status, headers, body, applicationHeaders } = await emulator.send({});
    expect([status, applicationHeaders]).toEqual([429, undefined]);
    expect(headers).toMatchObject({
      'ratelimit-policy': `"legacy";q=1;w=${LONGEST_WINDOW_MS / 1_000}`,
      ratelimit: expect.stringMatching(/^"legacy";r=0;t=\d+$/),
      'retry-after': expect.stringMatching(/^[1-9]\d*$/),
      'cache-control': 'no-store',
      'content-type': 'application/problem+json',
      'x-ratelimit-limit': '1',
      'x-ratelimit-remaining': '0',
      'x-ratelimit-reset': expect.stringMatching(/^\d+$/),
    });
    expect(JSON.parse(body)).toMatchObject({ status: 429 });
  });

  test('each method has its own counter, with a body or without', async () => {
    const methods = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'PATCH'];
    const requests = methods.map((method): ClientRequest => {
      const hasBody = ['POST', 'PUT', 'PATCH'].includes(method);
      return { method, headers: hasBody ? [['Content-Length', '5']] : [] };
    });
    await expectOneEach(gatewayFor('by-method'), requests);
    const denied = await gatewayFor('by-method').send({ method: 'HEAD' });
    expect([denied.status, denied.body]).toEqual([429, '']);
  });

  test('all spellings of a path share one counter', async () => {
    const emulator = gatewayFor('by-path');
    const long = `/${'long/'.repeat(400)}`;
    const targets = ['/', '/a/b', '/a%2Fb', '/a/b/', '/A/b', long];
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
    const forged = (address: string): [string, string][] => [
      ['X-Forwarded-For', address],
      ['X-Forwarded-For', `${address}, ${address}`],
      ['X-Real-IP', address],
      ['Forwarded', `for=${address}`],
      ['X-Envoy-External-Address', address],
      ['X-Forwarded-Method', address],
      ['X-Forwarded-Uri', address],
      ['Connection', 'x-forwarded-for, x-forwarded-method'],
    ];
    const requests = ['198.51.100.7', '198.51.100.8', '2001:db8::1'].map((remoteAddress) => ({
      remoteAddress,
    }));
    await expectOneEach(emulator, requests);
    for (const [i, { remoteAddress }] of requests.entries()) {
      const { status } = await emulator.send({ remoteAddress, headers: forged(`192.0.2.${i}`) });
      expect([remoteAddress, status]).toEqual([remoteAddress, 429]);
    }
  });

  test('behind a trusted proxy the client is the one that the proxy names', async () => {
    const emulator = gatewayFor('by-hop', { trustedIPs: [PROXY_ADDRESS] });
    const through = (...chain: string[]): ClientRequest => ({
      remoteAddress: PROXY_ADDRESS,
      headers: [
        ['X-Forwarded-For', chain.join(', ')],
        ['X-Forwarded-Method', 'GET'],
      ],
    });
    await expectOneEach(emulator, [through('192.0.2.1'), through('192.0.2.2')]);
    const { status } = await emulator.send(through('192.0.2.77', '192.0.2.2'));
    expect(status).toBe(429);
    // A header that the proxy forwards from its client is not trusted.
    const all = gatewayFor('by-hop-and-all', { trustedIPs: [PROXY_ADDRESS] });
    const passedOn = (word: string): ClientRequest => ({
      remoteAddress: PROXY_ADDRESS,
      headers: [
        ['X-Forwarded-For', '192.0.2.1'],
        ['X-Forwarded-Method', word],
        ['X-Forwarded-Uri', `/${word}`],
      ],
    });
    expect((await all.send(passedOn('one'))).status).toBe(200);
    expect((await all.send(passedOn('two'))).status).toBe(429);
  });

  test('special characters in names are printed correctly', async () => {
    const name = "X-!#$%&'*+.^_`|~-0";
    const emulator = gatewayFor('~a.B:c@d-e');
    const headers = (value: string): [string, string][] => [[name, value]];
    await expectOneEach(emulator, [{ headers: headers('one') }, { headers: headers('two') }]);
  });

  test('a header or a cookie identifies the client, also among 9 KB of cookies', async () => {
    const headers = (name: string, value: string): [string, string][] => [[name, value]];
    await expectOneEach(gatewayFor('by-header'), [
      { headers: headers('x-api-key', 'one') },
      { headers: headers('X-API-KEY', 'two') },
    ]);
    await expectOneEach(gatewayFor('by-cookie'), [
      { headers: headers('Cookie', `${LONG_COOKIES}one`) },
      { headers: headers('cookie', `${LONG_COOKIES}two`) },
    ]);
    await expectOneEach(gatewayFor('by-all'), [
      { remoteAddress: '198.51.100.7', headers: headers('x-api-key', 'one') },
      { remoteAddress: '198.51.100.7', headers: headers('x-api-key', 'two') },
      { remoteAddress: '198.51.100.8', headers: headers('x-api-key', 'two') },
      { method: 'POST', remoteAddress: '198.51.100.8', headers: headers('x-api-key', 'two') },
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
    const printed = print(setup('with-key', weir.server!.port, true));
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
    expect(wrong.status).toBeGreaterThanOrEqual(400);
    expect(wrong.applicationHeaders).toBe(undefined);
    const without = gatewayFor('without-key');
    expect(without.checkRequest(request(ROOT_KEY)).toString()).not.toMatch(/x-weir-key/i);
    const { applicationHeaders } = await without.send(request(ROOT_KEY));
    if (gateway !== 'istio') expect(applicationHeaders).not.toHaveProperty('x-weir-key');
  });

  test('sequential checks share one connection', async () => {
    const emulator = gatewayFor('sequential');
    const checks = ['GET', 'HEAD', 'POST', 'HEAD', 'GET'].map((method) =>
      emulator.checkRequest({ method }),
    );
    const methods = checks.map((bytes) => bytes.toString('latin1').split(' ')[0]);
    const responses = await exchange(weir.port, checks, checks.length, true, methods);
    expect(responses.map(({ status }) => status)).toEqual([200, 200, 200, 429, 429]);
    expect(responses.map(({ headers }) => headers.connection)).not.toContain('close');
    for (const response of responses.slice(0, 3)) expect(response.body).toBe('');
  });

  describe('without weir,', () => {
    const outcome = async (port: number, namespace: string) => {
      const { status } = await emulate(print(setup(namespace, port)), {
        usesConfiguredTimeout: true,
      }).send({});
      return status;
    };
    const { failsOpen, statusWithoutWeir } = gatewayUnderTest;
    const open = failsOpen ? 200 : statusWithoutWeir;

    test('onError decides if weir is stopped', async () => {
      const port = await freePort();
      expect(await outcome(port, 'plain')).toBe(open);
      expect(await outcome(port, 'denying')).toBe(statusWithoutWeir);
    });

    // Traefik waits for 30 s, and has no setting for it.
    if (!failsOpen) return;
    test('onError decides if weir is slow', async () => {
      const statuses = await withFakeWeir('', (port) =>
        Promise.all([outcome(port, 'plain'), outcome(port, 'denying')]),
      );
      expect(statuses).toEqual([200, statusWithoutWeir]);
    });
  });

  describe('after an internal error of weir,', () => {
    const faultFile = join(tmpdir(), `weir-fault-${process.pid}-${nextFaultFile++}`);
    const policies = { allowed: {}, denied: { onError: 'deny' } } as const;
    const failing = useWeir(gateway, policies, { FAULT: 'address', FAULT_FILE: faultFile });
    afterAll(() => removeDirectory(faultFile));

    test('onError decides', async () => {
      const { server, port } = failing;
      const emulator = (namespace: string) => {
        const policy = failing.policies.get(namespace)!;
        const address = { host: '127.0.0.1', port, needsKey: false };
        return emulate(
          print({ ...setup(namespace), routes: everyPath(policy), weir: address }),
          {},
        );
      };
      writeFileSync(faultFile, '');
      await waitUntil('the fault occurs', () => server!.stderr().includes('fault injected'));
      for (let i = 0; i < 2; i++) {
        expect(await emulator('allowed').send({})).toMatchObject({
          status: 200,
          body: APPLICATION_BODY,
        });
        const denied = await emulator('denied').send({});
        expect([denied.status, denied.headers['retry-after']]).toEqual([429, '1']);
        expect(JSON.parse(denied.body).status).toBe(429);
      }
    });
  });

  test('a gateway with an unknown policy allows no request', async () => {
    const response = await emulate(print(setup('nowhere')), {}).send({});
    expect(response.status).toBeGreaterThanOrEqual(400);
    expect(response.applicationHeaders).toBe(undefined);
  });
}
