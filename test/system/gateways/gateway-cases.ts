/**
 * Tests for every gateway with the configuration that weir prints for it, a real weir and an
 * application. The tests of a policy share a gateway. Each attempt of a test uses new clients.
 */

import { chmodSync, writeFileSync } from 'node:fs';
import { Agent, type AgentOptions } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { everyPath, type GatewaySetup } from '../../../src/commands/gateways/setup.ts';
import { NAMESPACE_MAX_CHARACTERS, POLICY_WINDOWS_MAX } from '../../../src/core/constants.ts';
import { GATEWAYS, type Gateway as GatewayName } from '../../../src/policies/gateways.ts';
import { POLICY_DEFAULTS, type Policy } from '../../../src/policies/policy.ts';
import {
  exchange,
  LONGEST_WINDOW_MS,
  type ParsedResponse,
  requestBytes,
} from '../../support/http.ts';
import {
  freePort,
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  suspendProcess,
  temporaryDirectory,
  waitUntil,
} from '../../support/server.ts';
import {
  type Application,
  type Gateway,
  type RecordingProxy,
  sendConcurrently,
  sendSequentially,
  sendThrough,
  startApplication,
  startRecordingProxy,
  upgradeProtocol,
} from './gateway-process.ts';

interface GatewayUnderTest {
  /** Whether it joins repeated headers in a check, but forwards them separately. */
  joinsHeaders?: boolean;
  /** Whether it drops headers with unusual names, so that a policy must not read them. */
  dropsUnusualHeaderNames?: boolean;
  /** Whether it is a proxy in front of an application, not a part of it. */
  isProxy: boolean;
  name: GatewayName;
  print: (setup: GatewaySetup) => string;
  /** @param key weir's key, in place of the printed placeholder */
  start: (text: string, port: number, key: string) => Promise<Gateway>;
}

const longestWindow = (limit: number) => ({ windows: [{ limit, duration: LONGEST_WINDOW_MS }] });
/** The longest namespace, which leads to the longest responses. */
const LONGEST_NAMESPACE = 'n'.repeat(NAMESPACE_MAX_CHARACTERS);
const DEFAULT_POLICY = { ...POLICY_DEFAULTS, identify: ['ip'] };

/** By namespace: the differences from the default policy. */
const POLICIES: Record<string, Partial<Policy>> = {
  open: longestWindow(3),
  closed: { ...longestWindow(100), identify: ['header:x-api-key'], onError: 'deny' },
  cookies: { ...longestWindow(2), identify: ['cookie:connect.sid'], legacyHeaders: true },
  keys: { ...longestWindow(2), identify: ['header:x-api-key'], missing: 'allow' },
  named: { ...longestWindow(2), identify: ['header:api_key'] },
  combined: {
    identify: ['ip', 'method', 'path', 'header:x-api-key'],
    windows: [
      { limit: 3, duration: LONGEST_WINDOW_MS },
      { limit: 2, duration: LONGEST_WINDOW_MS / 2 },
    ],
  },
  behind: { ...longestWindow(2), trustedHops: 2 },
  shadow: { ...longestWindow(1), shadow: true },
  // A policy may serve either Envoy or Istio.
  listed: {
    ...longestWindow(3),
    gateway: GATEWAYS.filter((gateway) => gateway !== 'istio'),
    identify: ['method', 'path', 'header:x-api-key'],
  },
  [LONGEST_NAMESPACE]: {
    identify: ['header:user-agent'],
    missing: 'deny',
    legacyHeaders: true,
    windows: Array.from({ length: POLICY_WINDOWS_MAX }, (_, i) => {
      return { limit: 2 + i, duration: LONGEST_WINDOW_MS - i };
    }),
  },
};

/** Headers with which a client may try to be taken for another one. */
const FORGED_HEADERS = {
  'X-Forwarded-For': '192.0.2.7',
  'X-Forwarded-Method': 'PUT',
  'X-Forwarded-Uri': '/other',
  'X-Real-Ip': '192.0.2.8',
  Forwarded: 'for=192.0.2.9',
  'X-Weir-Key': 'a-key-of-the-client',
};

/** Removes the headers of a body, and those of weir's API. */
const NO_BODY_HEADERS = { Authorization: '', 'Content-Type': '', 'Content-Length': '' };

/** A new address for each connection: the whole of 127.0.0.0/8 belongs to this machine. */
let lastAddress = 1;
const agentFromNewAddress = () => {
  lastAddress++;
  const localAddress = `127.0.${lastAddress >> 8}.${lastAddress & 255}`;
  return new Agent({ keepAlive: true, maxSockets: 1, localAddress } as AgentOptions);
};
/** Names of clients without usage. */
let lastClientNumber = 0;
const newClientName = () => `client-${++lastClientNumber}`;

/** The namespaces whose gateways have a recording proxy between them and weir. */
const RECORDED = ['keys', 'listed', 'shadow'];
const SIZES = ['--acceptors', '1', '--workers', '1', '--counters', '16384'];

const ATTEMPTS = 10;
const remainingIn = ({ headers }: ParsedResponse) =>
  Number(/;r=(\d+)/.exec(headers.ratelimit)?.[1]);
const statusesOf = (responses: ParsedResponse[]) => responses.map(({ status }) => status);

export function defineGatewayTests(gatewayUnderTest: GatewayUnderTest): void {
  const { name, print, start, dropsUnusualHeaderNames, isProxy, joinsHeaders } = gatewayUnderTest;
  const isEnvoy = name === 'envoy';
  let directory = '';
  const policies = Object.fromEntries(
    Object.entries(POLICIES).map(([namespace, more]): [string, Policy] => {
      return [
        namespace,
        { ...DEFAULT_POLICY, namespace, gateway: name, windows: [], ...more } as Policy,
      ];
    }),
  );
  let gatewayPort = 0;
  let weir: ServerProcess;
  let application: Application;
  const stops: (() => Promise<unknown>)[] = [];
  const gateways: Gateway[] = [];
  const served = new Map<string, Promise<Gateway>>();
  const proxies = new Map<string, RecordingProxy>();

  /** The failures to get a response of weir that gateways have logged. */
  const timeouts = () =>
    gateways.flatMap(
      ({ output }) =>
        output().match(/timed out|timeout|weir answered (50\d|neither)|weir has not answered/g) ??
        [],
    );

  /** Repeats a test if a gateway did not wait long enough for weir on a busy machine. */
  function testInTime(name: string, run: () => Promise<void>): void {
    test(name, async () => {
      for (let attempt = 1; ; attempt++) {
        const { length } = timeouts();
        try {
          await run();
          return;
        } catch (error) {
          await sleep(50);
          if (attempt === ATTEMPTS || timeouts().length === length) throw error;
        }
      }
    });
  }

  async function startWeir(dataDir: string, port: number, more: string[] = []) {
    const config = join(directory, 'weir.json');
    const args = ['--config', config, '--gateway-port', String(port), ...SIZES, ...more];
    const server = await startServer(join(directory, dataDir), { args });
    stops.push(() => {
      // A failed test may leave it stopped.
      server.child.kill('SIGCONT');
      return server.stop();
    });
    return server;
  }

  /** Waits for a first check in time: a new weir may be too slow for the gateway's timeout. */
  function firstResponse({ port }: Gateway): Promise<void> {
    return waitUntil('weir responds in time', async () => {
      return (await sendThrough(port, {}, agentFromNewAddress())).headers.ratelimit !== undefined;
    });
  }

  /** Starts a gateway for a policy, with weir at an address. */
  async function serve(policy: Policy, at: GatewaySetup['weir'], key = ''): Promise<Gateway> {
    const listenPort = await freePort();
    const upstream = { host: '127.0.0.1', port: application.port };
    const gateway = await start(
      print({ routes: everyPath(policy), weir: at, listenPort, upstream }),
      listenPort,
      key,
    );
    stops.push(gateway.stop);
    gateways.push(gateway);
    return gateway;
  }
  const atPort = (port: number, needsKey = false) => ({ host: '127.0.0.1', port, needsKey });

  async function startProxy(weirPort = gatewayPort): Promise<RecordingProxy> {
    const proxy = await startRecordingProxy(weirPort);
    stops.push(proxy.stop);
    return proxy;
  }

  /** @returns the gateway for a policy that its tests share */
  function serving(namespace: string): Promise<Gateway> {
    const start = async () => {
      if (!RECORDED.includes(namespace)) return serve(policies[namespace], atPort(gatewayPort));
      const proxy = await startProxy();
      proxies.set(namespace, proxy);
      return serve(policies[namespace], atPort(proxy.port));
    };
    const gateway = served.get(namespace) ?? start();
    served.set(namespace, gateway);
    return gateway;
  }

  /** @returns the shared gateway, and a function for the bytes that it sends to weir from now on */
  async function recording(namespace: string) {
    const gateway = await serving(namespace);
    const proxy = proxies.get(namespace)!;
    const before = proxy.bytesToWeir().length;
    return { gateway, proxy, bytes: () => proxy.bytesToWeir().slice(before) };
  }

  beforeAll(async () => {
    const file = Object.values(policies).map(({ namespace, ...policy }) => [namespace, policy]);
    directory = temporaryDirectory();
    const text = JSON.stringify({ policies: Object.fromEntries(file) });
    writeFileSync(join(directory, 'weir.json'), text);
    gatewayPort = await freePort();
    application = await startApplication();
    stops.push(application.stop);
    // Some gateways run as another user than the one that starts them.
    chmodSync(directory, 0o755);
    const socket = ['--gateway-socket', join(directory, 'weir socket')];
    const args = [...socket, '--gateway-socket-mode', '0666'];
    weir = await startWeir('data', gatewayPort, args);
    await firstResponse(await serving('shadow'));
  });
  afterAll(async () => {
    for (const stop of stops.reverse()) await stop();
    removeDirectory(directory);
  });

  describe('by client address', () => {
    let gateway: Gateway;
    beforeAll(async () => {
      gateway = await serving('open');
    });

    testInTime(
      'the application gets as many requests as the limit, and others get a 429',
      async () => {
        // The response of the application then has RateLimit headers, which a proxy replaces.
        const path = isProxy ? '/first?a=b/limited' : '/first?a=b';
        const all = Array.from({ length: 5 }, () => ({ path }));
        const parts = [...all, { path, method: 'HEAD' }];
        const before = application.requests.length;
        const responses = await sendSequentially(gateway.port, parts, agentFromNewAddress());
        expect(statusesOf(responses)).toEqual([200, 200, 200, 429, 429, 429]);
        const allowed = responses.slice(0, 3);
        expect(allowed.map(remainingIn)).toEqual([2, 1, 0]);
        for (const { body, headers } of allowed) {
          expect(body).toBe('application');
          expect(headers['x-application']).toBe('yes');
          expect(headers['ratelimit-policy']).toBe(`"open";q=3;w=${LONGEST_WINDOW_MS / 1_000}`);
          expect(headers['x-ratelimit-limit']).toBeUndefined();
        }
        const denied = responses.slice(3);
        for (const response of denied) {
          const { headers } = response;
          expect(remainingIn(response)).toBe(0);
          expect(headers['ratelimit-policy']).toBe(allowed[0].headers['ratelimit-policy']);
          expect(Number(headers['retry-after'])).toBeGreaterThan(0);
          expect(headers['cache-control']).toBe('no-store');
          // Envoy removes it from a response without a body.
          if (isEnvoy && response === denied[2]) continue;
          expect(headers['content-type']).toBe('application/problem+json');
        }
        expect(JSON.parse(denied[0].body)).toMatchObject({ status: 429 });
        expect(denied[0].body).toContain('quota-exceeded');
        expect(denied[2].body).toBe('');
        const received = application.requests.slice(before);
        expect(received.map(({ url }) => url)).toEqual([path, path, path]);
      },
    );

    testInTime('an HTTP/1.0 client without a Host is limited, or told to upgrade', async () => {
      const text = Buffer.from('GET /old HTTP/1.0\r\n\r\n');
      const send = () => exchange(gateway.port, [text]);
      if (isEnvoy) {
        expect((await send())[0].status).toBe(426);
        return;
      }
      await waitUntil('it is denied', async () => (await send())[0].status === 429);
      // Some gateways reject an HTTP/1.1 request without a Host before weir gets a check.
      expect(application.requests.map(({ url }) => url)).toContain('/old');
    });

    testInTime('a client with forged proxy headers is counted by its own address', async () => {
      const headers = FORGED_HEADERS;
      const all = [{}, {}, {}, { headers }];
      const responses = await sendSequentially(gateway.port, all, agentFromNewAddress());
      expect(statusesOf(responses)).toEqual([200, 200, 200, 429]);
      // The client with the forged address has used nothing.
      expect(remainingIn(await sendThrough(gateway.port, { headers }, agentFromNewAddress()))).toBe(
        2,
      );
    });

    testInTime('a body arrives completely, is counted once, and can follow a denial', async () => {
      const body = 'x'.repeat(200_000);
      const agent = agentFromNewAddress();
      const before = application.requests.length;
      const post = { method: 'POST', path: '/post', body };
      expect(remainingIn(await sendThrough(gateway.port, post, agent))).toBe(2);
      expect(remainingIn(await sendThrough(gateway.port, post, agent))).toBe(1);
      const received = application.requests.slice(before);
      expect(received.map((request) => [request.method, request.body])).toEqual([
        ['POST', body],
        ['POST', body],
      ]);
      expect(remainingIn(await sendThrough(gateway.port, {}, agent))).toBe(0);
      for (const parts of [post, {}, post]) {
        expect((await sendThrough(gateway.port, parts, agent)).status).toBe(429);
      }
    });

    if (isProxy) {
      testInTime(
        'an allowed client may upgrade to WebSocket, and to no other protocol',
        async () => {
          const agent = agentFromNewAddress();
          const to = (protocol: string) => upgradeProtocol(gateway.port, protocol, agent);
          expect(await to('websocket')).toEqual({ status: 101, received: 'ping' });
          // With h2c a client could send further requests without checks, if the application
          // agrees.
          expect(await to('h2c')).toEqual({ status: 200, received: '' });
          expect((await sendThrough(gateway.port, {}, agent)).status).toBe(200);
          expect(await to('websocket')).toEqual({ status: 429, received: '' });
          const connecting = Buffer.from('CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n');
          const [{ status }] = await exchange(gateway.port, [connecting]);
          expect(status).not.toBe(200);
        },
      );
    }

    testInTime("the application's own error statuses are not changed", async () => {
      for (const paths of [
        ['/401', '/403', '/404'],
        ['/429', '/500', '/503'],
      ]) {
        const agent = agentFromNewAddress();
        for (const path of paths) {
          const response = await sendThrough(gateway.port, { path }, agent);
          expect([path, response.status, response.body]).toEqual([
            path,
            Number(path.slice(1)),
            'application',
          ]);
          expect(response.headers.ratelimit).toBeDefined();
        }
      }
    });
  });

  test('a request that the application breaks off is not sent again', async () => {
    // On a connection that it has used before, Caddy sends a GET again, as Go's transport does.
    const gateway = await serve(policies.shadow, atPort(gatewayPort));
    expect((await sendThrough(gateway.port, { path: '/broken' })).status).toBe(isEnvoy ? 503 : 502);
    expect(application.requests.filter(({ url }) => url === '/broken')).toHaveLength(1);
  });

  testInTime('of 1 000 concurrent requests exactly as many as the limit are allowed', async () => {
    const gateway = await serving('closed');
    const headers = { 'X-Api-Key': newClientName() };
    const responses = await sendConcurrently(gateway.port, 1_000, 50, { headers });
    expect(statusesOf(responses).filter((status) => status === 200)).toHaveLength(100);
    expect(statusesOf(responses).filter((status) => status === 429)).toHaveLength(900);
    // Each response contains a decision of weir: no request was denied because of a timeout.
    expect(responses.filter(({ headers }) => headers.ratelimit === undefined)).toEqual([]);
  });

  testInTime('9 KB of cookies are forwarded, and one of them identifies the client', async () => {
    const gateway = await serving('cookies');
    const withSession = (name: string) => ({
      headers: { Cookie: `CONNECT.SID=x; a=${'b'.repeat(9_000)}; connect.sid=${name}; c=d` },
    });
    const [one, two] = [withSession(newClientName()), withSession(newClientName())];
    const responses = await sendSequentially(gateway.port, [one, one, one, two]);
    expect(statusesOf(responses)).toEqual([200, 200, 429, 200]);
    expect(responses.map(({ headers }) => headers['x-ratelimit-remaining'])).toEqual([
      ...['1', '0', '0', '1'],
    ]);
    for (const { headers } of responses) {
      expect(headers['x-ratelimit-limit']).toBe('2');
      expect(headers['x-ratelimit-reset']).toMatch(/^\d+$/);
    }
    expect(application.requests.at(-1)?.headers.cookie).toBe(two.headers.Cookie);
  });

  testInTime(
    'a header identifies the client, and weir gets nothing else of the client',
    async () => {
      const { gateway, bytes } = await recording('keys');
      const withKey = (name: string) => ({
        path: '/private?token=secret-0',
        headers: {
          'X-Api-Key': name,
          Authorization: 'Bearer secret-1',
          Cookie: 'a=secret-2',
          'X-Weir-Key': 'secret-3',
        },
      });
      const [one, two] = [withKey(newClientName()), withKey(newClientName())];
      const responses = await sendSequentially(gateway.port, [one, one, one, two]);
      expect(statusesOf(responses)).toEqual([200, 200, 429, 200]);
      expect(bytes().split(/\bHTTP\/1\.1\r\n/)).toHaveLength(5);
      // Envoy includes the path and the query, and has no setting for it before 1.31.
      const sent = isEnvoy ? bytes().replaceAll('?token=secret-0', '') : bytes();
      expect(sent).not.toContain('secret');
      const { headers } = application.requests.at(-1)!;
      expect([headers['x-api-key'], headers.authorization]).toEqual([
        two.headers['X-Api-Key'],
        'Bearer secret-1',
      ]);
      // The policy allows clients without the header.
      const without = await sendSequentially(gateway.port, [{}, {}, {}, {}]);
      expect(statusesOf(without)).toEqual([200, 200, 200, 200]);
    },
  );

  testInTime('an oversized header does not count as a missing one', async () => {
    const gateway = await serving('keys');
    const long = { headers: { 'X-Api-Key': 'x'.repeat(9_000) } };
    await waitUntil(
      'it is denied',
      async () => (await sendThrough(gateway.port, long)).status === 429,
    );
    expect((await sendThrough(gateway.port)).status).toBe(200);
    // A header as long as a token of an identity provider identifies the client.
    const token = (name: string) => ({ headers: { 'X-Api-Key': 'x'.repeat(4_000) + name } });
    const [one, two] = [token(newClientName()), token(newClientName())];
    const responses = await sendSequentially(gateway.port, [one, one, one, two]);
    expect(statusesOf(responses)).toEqual([200, 200, 429, 200]);
    if (!isProxy) return;
    // Some applications would treat it as X-Api-Key.
    expect((await sendThrough(gateway.port, { headers: { X_Api_Key: 'x' } })).status).toBe(200);
    expect(Object.keys(application.requests.at(-1)!.headers)).not.toContain('x_api_key');
  });

  testInTime('the longest namespace and the most windows work', async () => {
    const gateway = await serving(LONGEST_NAMESPACE);
    const headers = { 'User-Agent': newClientName() };
    // The last request has no user agent, so no identifier.
    const responses = await sendSequentially(gateway.port, [
      { headers },
      { headers },
      { headers },
      {},
    ]);
    expect(statusesOf(responses)).toEqual([200, 200, 429, 429]);
    expect(responses[0].headers.ratelimit.split(', ')).toHaveLength(POLICY_WINDOWS_MAX);
  });

  for (const [namespace, name, prefix] of [
    ['keys', 'X-Api-Key', ''],
    ['cookies', 'Cookie', 'connect.sid='],
  ]) {
    testInTime(`a repeated ${name} header does not circumvent the limit`, async () => {
      const gateway = await serving(namespace);
      const value = prefix + newClientName();
      const before = application.requests.length;
      const lines = (i: number) => {
        const other = `${prefix}${newClientName()}${i % 2 === 0 ? '' : '; a=b'}`;
        return i < 6 ? [value, other] : [other, value];
      };
      for (let i = 0; i < 12; i++) {
        const twice = { [name]: lines(i).join(`\r\n${name}: `), ...NO_BODY_HEADERS };
        await exchange(gateway.port, [requestBytes({ method: 'GET', headers: twice })]);
      }
      // An application may use any of the values that it gets.
      const withValue = application.requests.slice(before).filter(({ rawHeaders }) => {
        return rawHeaders.some((text, i) => i % 2 === 1 && text.split('; ').includes(value));
      });
      expect(withValue.length).toBeLessThanOrEqual(2);
    });
  }

  if (!joinsHeaders) {
    testInTime('of repeated headers the application gets the one that is counted', async () => {
      const gateway = await serving('keys');
      const twice = { 'X-Api-Key': `${newClientName()}\r\nX-Api-Key: other`, ...NO_BODY_HEADERS };
      const [response] = await exchange(gateway.port, [
        requestBytes({ method: 'GET', headers: twice }),
      ]);
      expect(remainingIn(response)).toBe(1);
      const { rawHeaders } = application.requests.at(-1)!;
      const names = rawHeaders.map((text) => text.toLowerCase());
      const at = names.indexOf('x-api-key');
      expect(names.lastIndexOf('x-api-key')).toBe(at);
      const again = { 'X-Api-Key': rawHeaders[at + 1] };
      expect(remainingIn(await sendThrough(gateway.port, { headers: again }))).toBe(0);
    });
  }

  testInTime('a header may have any name, or weir rejects the policy', async () => {
    if (dropsUnusualHeaderNames) {
      await expect(serving('named')).rejects.toThrow('looks at "api_key"');
      return;
    }
    const gateway = await serving('named');
    const withKey = (name: string) => ({ headers: { 'Api-Key': 'x', api_key: name } });
    const [one, two] = [withKey(newClientName()), withKey(newClientName())];
    const responses = await sendSequentially(gateway.port, [one, one, one, two]);
    expect(statusesOf(responses)).toEqual([200, 200, 429, 200]);
    expect(application.requests.at(-1)?.headers.api_key).toBe(two.headers.api_key);
  });

  for (const [namespace, identifyingLine] of [
    ['open', ''],
    ['cookies', 'Cookie: connect.sid=odd'],
    ['keys', 'X-Api-Key: odd'],
  ]) {
    testInTime(
      `no malformed or oversized head allows a client that ${namespace} denies`,
      async () => {
        const gateway = await serving(namespace);
        const send = async (lines: string[]): Promise<number | undefined> => {
          const head = ['GET /odd HTTP/1.1', 'Host: odd', ...lines, '', ''].join('\r\n');
          const responses = await exchange(gateway.port, [Buffer.from(head, 'latin1')]).catch(
            () => [],
          );
          return responses[0]?.status;
        };
        const identity = identifyingLine === '' ? [] : [identifyingLine];
        await waitUntil('it is denied', async () => (await send(identity)) === 429);
        const before = application.requests.length;
        const heads = [
          [...identity, `X-Long: ${'x'.repeat(40_000)}`],
          [...identity, ...Array.from({ length: 150 }, (_, i) => `X-Many-${i}: x`)],
          [...identity, 'X-Odd: a\x01b'],
          [...identity, 'X-Forwarded-For: \x01'],
          [...identity.map((line) => `${line}; a=\x01`)],
          [...identity.map((line) => `${line}; ${'a=b;'.repeat(3_500)}`)],
          // Slow for a backtracking pattern that tries every part of a run of blanks.
          [...identity.map((line) => `${line};${' '.repeat(13_000)}x`)],
          [...identity, ...Array.from({ length: 4 }, () => `Cookie: a=${'x'.repeat(14_000)}`)],
          [...identity.map((line) => `${line}; connect.sid=${'z'.repeat(40_000)}`)],
          // Weir closes most of these connections, sometimes before its response has been read.
          ...Array.from({ length: 4 }, () => [...identity, `X-Long: ${'x'.repeat(300_000)}`]),
          ...Array.from({ length: 4 }, () => {
            return [...identity, ...Array.from({ length: 2_000 }, (_, i) => `X-Many-${i}: x`)];
          }),
        ];
        for (const [i, lines] of heads.entries()) {
          // An unchanged but different key belongs to another client.
          if (namespace === 'keys' && i >= 4 && i <= 7) continue;
          expect([i, await send(lines)]).not.toEqual([i, 200]);
        }
        expect(application.requests.slice(before)).toEqual([]);
        expect(await send(identity)).toBe(429);
      },
    );
  }

  testInTime('a flood of a denied client on one connection is denied completely', async () => {
    const gateway = await serving('open');
    const one = Buffer.from('GET /flood HTTP/1.1\r\nHost: flood\r\n\r\n');
    const flood = async (length: number) => {
      return statusesOf(
        await exchange(gateway.port, [Buffer.concat(Array(length).fill(one))], length),
      );
    };
    await waitUntil('it is denied', async () => (await flood(1))[0] === 429);
    expect(new Set(await flood(800))).toEqual(new Set([429]));
  });

  testInTime(
    'address, method, path and a header identify together, and the tightest window denies',
    async () => {
      const gateway = await serving('combined');
      const request = { path: '/a', headers: { 'X-Api-Key': 'one' } };
      const all = [
        ...[request, { ...request, path: '//x/../%61?b' }, request],
        { ...request, headers: { ...FORGED_HEADERS, ...request.headers } },
        { ...request, method: 'POST' },
        { ...request, path: '/b' },
        { ...request, headers: { 'X-Api-Key': 'two' } },
      ];
      const responses = await sendSequentially(gateway.port, all, agentFromNewAddress());
      expect(statusesOf(responses)).toEqual([200, 200, 429, 429, 200, 200, 200]);
      expect(responses[0].headers['ratelimit-policy']).toMatch(/q=3;.*q=2;/);
      expect((await sendThrough(gateway.port, request, agentFromNewAddress())).status).toBe(200);
    },
  );

  testInTime('an absolute URL as the target counts by its path, or is rejected', async () => {
    const gateway = await serving('combined');
    const key = newClientName();
    const send = async (target: string) => {
      const head = `GET ${target} HTTP/1.1\r\nHost: h\r\nX-Api-Key: ${key}\r\n\r\n`;
      return (await exchange(gateway.port, [Buffer.from(head)]))[0];
    };
    expect(remainingIn(await send('/'))).toBe(2);
    expect(remainingIn(await send('http://h'))).toBe(1);
    expect((await send('http://h/?a')).status).toBe(429);
    expect((await send('x:http://h/v1/check/shadow')).status).toBe(400);
  });

  testInTime('a client cannot name another gateway than its own, by any target', async () => {
    const { gateway, bytes } = await recording('listed');
    const key = newClientName();
    const other = isEnvoy ? 'nginx' : 'envoy';
    const forged = 'X-Forwarded-Method: PUT\r\nX-Forwarded-Uri: /forged';
    const send = async (target: string, method = 'GET') => {
      const head = `${method} ${target} HTTP/1.1\r\nHost: h\r\nX-Api-Key: ${key}\r\n${forged}\r\n\r\n`;
      // Some gateways close the connection without a response.
      const [response] = await exchange(gateway.port, [Buffer.from(head)]).catch(() => []);
      return response?.status;
    };
    const query = `gateway=${other}`;
    const targets = [
      ...[`/one?${query}`, `/one?gateway=${name}&${query}`, `/one?${query}&gateway=${name}`],
      ...[`/?${query}`, `//?${query}`, `/..?${query}`, `/%3F${query}`, `/#?${query}`, `/&${query}`],
      ...[`http://h?${query}`, `http://h/?${query}`, `http://h#?${query}`, `HTTP://h?${query}`],
      ...[`?${query}`, `??${query}`, `#?${query}`, `&${query}`, `*?${query}`, `-too?${query}`],
      ...[
        `http://?${query}`,
        `http:?${query}`,
        `http:///?${query}`,
        `%3F${query}`,
        `h:80?${query}`,
      ],
    ];
    const before = application.requests.length;
    for (const target of targets) await send(target);
    for (const target of ['*', `*?${query}`]) await send(target, 'OPTIONS');
    const address = `/v1/check/listed${isEnvoy ? '/' : `?gateway=${name}`}`;
    const lines = bytes().match(/\S+ \S+ HTTP\/1\.1(?=\r\n)/g) ?? [];
    expect(lines.length).toBeGreaterThan(2);
    for (const line of lines) {
      const [, target] = line.replace('/auth-request/', '/check/').split(' ');
      expect([line, isEnvoy ? target.startsWith(address) : target === address]).toEqual([
        line,
        true,
      ]);
    }
    // All checks were counted by the method and the path of the client's request.
    const received = application.requests.slice(before);
    expect(received.filter(({ url }) => url.startsWith('/one'))).toHaveLength(3);
    expect([await send('/one'), await send(`/one?${query}`)]).toEqual([429, 429]);
  });

  testInTime(
    'behind a trusted proxy its client is counted, whatever that client claims',
    async () => {
      const gateway = await serving('behind');
      const withChain = (chain: string) => ({ headers: { 'X-Forwarded-For': chain } });
      const [one, two] = [`10.0.0.${++lastClientNumber}`, `10.0.0.${++lastClientNumber}`];
      const responses = await sendSequentially(gateway.port, [
        withChain(one),
        withChain(`192.0.2.1, ${one}`),
        withChain(`${two}, 192.0.2.2, ${one}`),
        withChain(`${one}, ${two}`),
      ]);
      expect(statusesOf(responses)).toEqual([200, 200, 429, 200]);
    },
  );

  testInTime(
    'in shadow mode every request is allowed, and connections to weir are reused',
    async () => {
      const { gateway, proxy, bytes } = await recording('shadow');
      const before = proxy.connections();
      const responses = await sendConcurrently(gateway.port, 300, 4);
      expect(statusesOf(responses).every((status) => status === 200)).toBe(true);
      expect(bytes().split(/\bHTTP\/1\.1\r\n/)).toHaveLength(301);
      // Four for each process of the gateway, and those that a timeout has closed.
      expect(proxy.connections() - before).toBeLessThan(40);
    },
  );

  testInTime('on the port for checks, with a key, and over a Unix socket', async () => {
    const withKey = await serve(policies.open, atPort(weir.port, true), ROOT_KEY);
    const onSocket = await serve(policies.open, { socket: join(directory, 'weir socket') });
    const headers = { 'X-Weir-Key': 'a-key-of-the-client' };
    for (const { port } of [withKey, onSocket]) {
      const all = Array.from({ length: 4 }, () => ({ headers }));
      const responses = await sendSequentially(port, all, agentFromNewAddress());
      expect(statusesOf(responses)).toEqual([200, 200, 200, 429]);
      expect(responses.map(remainingIn)).toEqual([2, 1, 0, 0]);
    }
  });

  if (!isProxy) {
    test('a busy application allows no denied client', async () => {
      const gateway = await serving('keys');
      const headers = { 'X-Api-Key': newClientName() };
      await waitUntil(
        'it is denied',
        async () => (await sendThrough(gateway.port, { headers })).status === 429,
      );
      for (let i = 0; i < 3; i++) {
        const busy = sendThrough(gateway.port, {
          path: '/busy',
          headers: { 'X-Api-Key': newClientName() },
        });
        const responses = await sendConcurrently(gateway.port, 64, 64, { headers });
        expect(new Set(statusesOf(responses))).toEqual(new Set([429]));
        expect((await busy).status).toBe(200);
      }
    });

    test('an application stops waiting for an unresponsive weir, until weir responds again', async () => {
      const proxy = await startProxy();
      const gateway = await serve(policies.closed, atPort(proxy.port));
      const headers = { 'X-Api-Key': newClientName() };
      await firstResponse(gateway);
      await suspendProcess(weir);
      const responses = await sendConcurrently(gateway.port, 1_000, 400, { headers });
      weir.child.kill('SIGCONT');
      expect(new Set(statusesOf(responses))).toEqual(new Set([429]));
      // Twice the 64 timeouts after which it stops waiting, and some retries.
      expect(proxy.bytesToWeir().split('GET /v1/check/').length).toBeLessThan(200);
      await firstResponse(gateway);
    });
  }

  /** Checks the responses to a client without a decision of weir. */
  async function expectUndecided(
    gateway: Gateway,
    { onError }: Policy,
    { bodies = ['whole', '', 'whole'], isKept = true } = {},
  ) {
    const path = `/undecided/${newClientName()}`;
    const all = bodies.map((body) => ({ method: 'POST', path, body }));
    for (const { status, headers, body } of await sendSequentially(gateway.port, all)) {
      if (isKept) expect(headers.connection).not.toBe('close');
      expect(headers.ratelimit).toBeUndefined();
      expect(status).toBe(onError === 'allow' ? 200 : 429);
      if (onError === 'allow') {
        expect(body).toBe('application');
      } else if (!isEnvoy) {
        // Envoy can only configure the status.
        expect(headers['retry-after']).toBe('1');
        expect(headers['cache-control']).toBe('no-store');
        expect(headers['content-type']).toBe('application/problem+json');
        expect(JSON.parse(body).status).toBe(429);
      }
    }
    const received = application.requests.filter(({ url }) => url === path);
    expect(received.map(({ body }) => body)).toEqual(onError === 'allow' ? bodies : []);
  }

  test('without a response of weir the policy decides, and the check is not sent again', async () => {
    const port = await freePort();
    const another = await startWeir('data-another', port);
    const undecided: { gateway: Gateway; policy: Policy }[] = [];
    // One after the other: HAProxy also uses the next port.
    for (const policy of [policies.open, policies.closed]) {
      const gateway = await serve(policy, atPort(port));
      await firstResponse(gateway);
      undecided.push({ gateway, policy });
    }
    const mute = createServer((socket) => socket.resume());
    await new Promise<void>((resolve) => mute.listen(0, '127.0.0.1', resolve));
    stops.push(async () => mute.close());
    const proxy = await startProxy((mute.address() as AddressInfo).port);
    const muted = {
      gateway: await serve(policies.open, atPort(proxy.port)),
      policy: policies.open,
    };
    await suspendProcess(another);
    // Each request waits for the gateway's timeout.
    const bodies = ['whole'];
    await Promise.all(
      [...undecided, muted].map((of) => expectUndecided(of.gateway, of.policy, { bodies })),
    );
    // weir may have counted it.
    expect(proxy.bytesToWeir().split(/\bHTTP\/1\.1\r\n/)).toHaveLength(2);
    another.child.kill('SIGCONT');
    await another.stop();
    for (const { gateway, policy } of undecided) await expectUndecided(gateway, policy);
    await startWeir('data-another', port);
    for (const { gateway } of undecided) await firstResponse(gateway);
  });

  test('with a wrong key or an unknown namespace the policy decides, and a log has the reason', async () => {
    const unknown = { ...policies.closed, namespace: 'unknown' };
    const cases = [
      { policy: policies.open, at: atPort(weir.port, true), key: 'wrong', status: 401 },
      { policy: unknown, at: atPort(gatewayPort), key: '', status: 404 },
    ];
    for (const { policy, at, key, status } of cases) {
      const gateway = await serve(policy, at, key);
      if (isEnvoy) {
        // Envoy forwards every status but 200 and 5xx, and logs nothing.
        expect((await sendThrough(gateway.port)).status).toBe(status);
        continue;
      }
      await expectUndecided(gateway, policy, { isKept: false });
      await waitUntil('the reason is in the log', () => {
        return /unexpected status|weir answered/.test(gateway.output());
      });
    }
  });
}
