/**
 * What has to hold behind every gateway, tried on the real server: the replay of the gateway reads
 * the configuration that is printed for it, and asks as it is told there.
 */

import { writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { GatewaySetup } from '../../src/commands/gateways/setup.ts';
import type { Gateway, Policy } from '../../src/policies/policy.ts';
import {
  APPLICATION_BODY,
  type ClientRequest,
  type EmulatorOptions,
  type GatewayEmulator,
  testPolicy,
} from './gateway-emulator.ts';
import { exchange, LONGEST_WINDOW_MS } from './http.ts';
import { writeConfig } from './policy-config.ts';
import {
  freePort,
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
  waitUntil,
} from './server.ts';

export interface EmulatedGateway {
  gateway: Gateway;
  print: (setup: GatewaySetup) => string;
  emulate: (text: string, options: EmulatorOptions) => GatewayEmulator;
  /** Whether an admitted client is told what it has left. */
  sendsHeadersWhenAllowed: boolean;
  /** Whether it can let clients in while weir is stopped. */
  failsOpen: boolean;
  /** What a client gets that is refused while weir is stopped. */
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
  'in-turn': { windows: [{ limit: 3, duration: LONGEST_WINDOW_MS }] },
  denying: { onError: 'deny' },
};

/** Files that make a fault strike, when they are there. */
let nextFaultFile = 0;
const FAULT_PRELOAD = new URL('./acceptor-fault.preload.mjs', import.meta.url).pathname;

const PROXY_ADDRESS = '203.0.113.9';
const LONG_COOKIES = `a=${'x'.repeat(9_000)}; session=`;
const UPSTREAM = { host: '127.0.0.1', port: 3_000 };

/**
 * A weir for all tests of where this is called.
 * @returns its port for gateways, which needs no key, and the policies in force
 */
export function useWeir(
  gateway: Gateway,
  parts: Record<string, Partial<Policy>>,
  env: Record<string, string> = {},
) {
  const policies = Object.entries(parts).map(([namespace, part]) => {
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
 * @param response what every request gets from what stands where weir would: nothing, or a status
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
    policy: weir.policies.get(namespace) ?? testPolicy(namespace, { gateway }),
    weir: { host: '127.0.0.1', port, needsKey },
    listenPort: 8_080,
    upstream: UPSTREAM,
  });
  const behind = (namespace: string, options: EmulatorOptions = {}) =>
    emulate(print(setup(namespace)), options);

  /** Each is admitted once, by a counter of its own, and refused then. */
  async function expectOneEach(client: GatewayEmulator, requests: ClientRequest[]): Promise<void> {
    for (const status of [200, 429]) {
      for (const request of requests) {
        const seen = await client.send(request);
        expect([request.method, request.target, request.headers, seen.status]).toEqual([
          request.method,
          request.target,
          request.headers,
          status,
        ]);
      }
    }
  }

  test('an admitted client gets what the application answers', async () => {
    const { status, body, headers, applicationHeaders } = await behind('plain').send({});
    expect([status, body]).toEqual([200, APPLICATION_BODY]);
    const told = gatewayUnderTest.sendsHeadersWhenAllowed ? headers : applicationHeaders!;
    expect(told['ratelimit-policy']).toBe(`"plain";q=1;w=${LONGEST_WINDOW_MS / 1_000}`);
    expect(told.ratelimit).toMatch(/^"plain";r=0;t=\d+$/);
  });

  test('a refused one gets 429, when to come back, and why', async () => {
    const client = behind('legacy');
    const admitted = await client.send({});
    const told = gatewayUnderTest.sendsHeadersWhenAllowed
      ? admitted.headers
      : admitted.applicationHeaders!;
    expect(told).toMatchObject({ 'x-ratelimit-limit': '1', 'x-ratelimit-remaining': '0' });
    const { status, headers, body, applicationHeaders } = await client.send({});
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

  test('a method is its own, with a body or without', async () => {
    const methods = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'PATCH'];
    const requests = methods.map((method): ClientRequest => {
      const hasBody = ['POST', 'PUT', 'PATCH'].includes(method);
      return { method, headers: hasBody ? [['Content-Length', '5']] : [] };
    });
    await expectOneEach(behind('by-method'), requests);
    const refused = await behind('by-method').send({ method: 'HEAD' });
    expect([refused.status, refused.body]).toEqual([429, '']);
  });

  test('a path has a counter of its own, and one only, however it is spelt', async () => {
    const client = behind('by-path');
    const long = `/${'long/'.repeat(400)}`;
    const targets = ['/', '/a/b', '/a%2Fb', '/a/b/', '/A/b', long];
    await expectOneEach(
      client,
      targets.map((target) => ({ target })),
    );
    for (const target of ['//', '/a//b', '/x/../a/b', '/%61/b?c', '/a%2fb', '/./A/b']) {
      expect([target, (await client.send({ target })).status]).toEqual([target, 429]);
    }
  });

  test('a client cannot say who it is', async () => {
    const client = behind('by-ip');
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
    await expectOneEach(client, requests);
    for (const [i, { remoteAddress }] of requests.entries()) {
      const { status } = await client.send({ remoteAddress, headers: forged(`192.0.2.${i}`) });
      expect([remoteAddress, status]).toEqual([remoteAddress, 429]);
    }
  });

  test('behind a proxy that is believed the client is who the proxy says', async () => {
    const client = behind('by-hop', { trustedIPs: [PROXY_ADDRESS] });
    const through = (...chain: string[]): ClientRequest => ({
      remoteAddress: PROXY_ADDRESS,
      headers: [
        ['X-Forwarded-For', chain.join(', ')],
        ['X-Forwarded-Method', 'GET'],
      ],
    });
    await expectOneEach(client, [through('192.0.2.1'), through('192.0.2.2')]);
    const { status } = await client.send(through('192.0.2.77', '192.0.2.2'));
    expect(status).toBe(429);
    // What the proxy passes on of the client's is no word of the proxy's.
    const all = behind('by-hop-and-all', { trustedIPs: [PROXY_ADDRESS] });
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

  test('odd names are printed as they are', async () => {
    const name = "X-!#$%&'*+.^_`|~-0";
    const client = behind('~a.B:c@d-e');
    const headers = (value: string): [string, string][] => [[name, value]];
    await expectOneEach(client, [{ headers: headers('one') }, { headers: headers('two') }]);
  });

  test('a header and a cookie say who it is, also among 9 KB of cookies', async () => {
    const headers = (name: string, value: string): [string, string][] => [[name, value]];
    await expectOneEach(behind('by-header'), [
      { headers: headers('x-api-key', 'one') },
      { headers: headers('X-API-KEY', 'two') },
    ]);
    await expectOneEach(behind('by-cookie'), [
      { headers: headers('Cookie', `${LONG_COOKIES}one`) },
      { headers: headers('cookie', `${LONG_COOKIES}two`) },
    ]);
    await expectOneEach(behind('by-all'), [
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
    'under %s a repeated %s header is no way around the limit',
    async (policy, name, one, other) => {
      const client = behind(policy);
      let believed = 0;
      for (let i = 0; i < 6; i++) {
        const next = `${other}${policy}${i}; a=b`;
        const values = i < 3 ? [one, next] : [next, one];
        const headers = values.map((value): [string, string] => [name, value]);
        const { applicationHeaders } = await client.send({ headers });
        // The application may believe any of the headers that it gets.
        if (/\bgood\b/.test(applicationHeaders?.[name.toLowerCase()] ?? '')) believed++;
      }
      expect(believed).toBeLessThanOrEqual(1);
    },
  );

  test('of what a client sends, weir gets only what says who it is', () => {
    const headers: [string, string][] = [
      ['Authorization', 'Bearer of the end user'],
      ['X-Api-Key', 'one'],
      ['Cookie', 'session=secret'],
      ['Content-Length', '5'],
      ['Accept', 'x-secret'],
    ];
    const asked = behind('by-header').checkRequest({ method: 'POST', headers }).toString();
    expect(asked).toMatch(/x-api-key: one/i);
    expect(asked).not.toMatch(/secret|content-length: 5/i);
    // Istio has no setting that leaves it out.
    if (gateway !== 'istio') expect(asked).not.toMatch(/bearer/i);
  });

  test('the key of weir is the gateway’s, and a client’s own goes nowhere', async () => {
    const printed = print(setup('with-key', weir.server!.port, true));
    expect(printed).not.toContain(ROOT_KEY);
    const request = (key: string): ClientRequest => ({
      headers: [
        ['X-Api-Key', 'one'],
        ['X-Weir-Key', key],
      ],
    });
    const keyed = emulate(printed, { key: ROOT_KEY });
    const admitted = await keyed.send(request('of the client'));
    expect(admitted.status).toBe(200);
    // Istio has no part in what else of its gateway's requests goes to the application.
    if (gateway !== 'istio') expect(admitted.applicationHeaders).not.toHaveProperty('x-weir-key');
    expect((await keyed.send(request('of the client'))).status).toBe(429);
    const wrong = await emulate(printed, { key: 'wrong' }).send(request(ROOT_KEY));
    expect(wrong.status).toBeGreaterThanOrEqual(400);
    expect(wrong.applicationHeaders).toBe(undefined);
    const without = behind('without-key');
    expect(without.checkRequest(request(ROOT_KEY)).toString()).not.toMatch(/x-weir-key/i);
    const { applicationHeaders } = await without.send(request(ROOT_KEY));
    if (gateway !== 'istio') expect(applicationHeaders).not.toHaveProperty('x-weir-key');
  });

  test('several in turn are asked about on one connection', async () => {
    const client = behind('in-turn');
    const asked = ['GET', 'HEAD', 'POST', 'HEAD', 'GET'].map((method) =>
      client.checkRequest({ method }),
    );
    const methods = asked.map((bytes) => bytes.toString('latin1').split(' ')[0]);
    const answers = await exchange(weir.port, asked, asked.length, true, methods);
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 429, 429]);
    expect(answers.map(({ headers }) => headers.connection)).not.toContain('close');
    for (const answer of answers.slice(0, 3)) expect(answer.body).toBe('');
  });

  describe('without weir', () => {
    const outcome = async (port: number, namespace: string) => {
      const { status } = await emulate(print(setup(namespace, port)), {
        usesConfiguredTimeout: true,
      }).send({});
      return status;
    };
    const { failsOpen, statusWithoutWeir } = gatewayUnderTest;
    const open = failsOpen ? 200 : statusWithoutWeir;

    test('that is stopped, the policy says what becomes of clients', async () => {
      const port = await freePort();
      expect(await outcome(port, 'plain')).toBe(open);
      expect(await outcome(port, 'denying')).toBe(statusWithoutWeir);
    });

    // Traefik waits for 30 s, for which it has no setting.
    if (!failsOpen) return;
    test('that is slow, the policy says it too', async () => {
      const statuses = await withFakeWeir('', (port) =>
        Promise.all([outcome(port, 'plain'), outcome(port, 'denying')]),
      );
      expect(statuses).toEqual([200, statusWithoutWeir]);
    });
  });

  describe('where weir itself fails', () => {
    const strike = join(tmpdir(), `weir-strike-${process.pid}-${nextFaultFile++}`);
    const policies = { allowed: {}, denied: { onError: 'deny' } } as const;
    const failing = useWeir(gateway, policies, { FAULT: 'address', FAULT_FILE: strike });
    afterAll(() => removeDirectory(strike));

    test('its answer is what the policy says', async () => {
      const { server, port } = failing;
      const client = (namespace: string) => {
        const policy = failing.policies.get(namespace)!;
        const place = { host: '127.0.0.1', port, needsKey: false };
        return emulate(print({ ...setup(namespace), policy, weir: place }), {});
      };
      writeFileSync(strike, '');
      await waitUntil('it strikes', () => server!.stderr().includes('the fault strikes'));
      for (let i = 0; i < 2; i++) {
        expect(await client('allowed').send({})).toMatchObject({
          status: 200,
          body: APPLICATION_BODY,
        });
        const denied = await client('denied').send({});
        expect([denied.status, denied.headers['retry-after']]).toEqual([429, '1']);
        expect(JSON.parse(denied.body).status).toBe(429);
      }
    });
  });

  test('of a policy that is not there nobody is admitted', async () => {
    const seen = await emulate(print(setup('nowhere')), {}).send({});
    expect(seen.status).toBeGreaterThanOrEqual(400);
    expect(seen.applicationHeaders).toBe(undefined);
  });
}
