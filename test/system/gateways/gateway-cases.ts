/**
 * Tests for every gateway with the configuration that weir prints for it, a real weir and an
 * application. The tests of a policy share a gateway. Each attempt of a test uses new clients.
 */

import { createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, describe, expect, test } from 'vitest';
import { NAMESPACE_MAX_CHARACTERS, POLICY_WINDOWS_MAX } from '../../../src/core/constants.ts';
import {
  GATEWAYS,
  type Gateway as GatewayName,
  isEnvoyBased,
} from '../../../src/policies/gateways.ts';
import {
  exchange,
  LONGEST_WINDOW_MS,
  type RequestParts,
  requestBytes,
  sendRequest,
} from '../../support/http.ts';
import type { PolicySettings } from '../../support/policy-config.ts';
import { freePort, ROOT_KEY, suspendProcess, waitUntil } from '../../support/server.ts';
import {
  agentFromNewAddress,
  type Gateway,
  newAddress,
  newClientName,
  newKey,
  type RecordingProxy,
  remainingIn,
  sendConcurrently,
  sendSequentially,
  sendThrough,
  startRecordingProxy,
  statusesOf,
  upgradeProtocol,
} from './gateway-process.ts';
import { atPort, type Routes, useGatewayStack } from './gateway-stack.ts';
import type { TestedGateway } from './real-gateways.ts';

/** The longest namespace, which leads to the longest responses. */
const LONGEST_NAMESPACE = 'n'.repeat(NAMESPACE_MAX_CHARACTERS);

const POLICIES: Record<string, PolicySettings> = {
  open: { limit: 3 },
  closed: { limit: 100, identify: ['header:x-api-key'], onError: 'deny' },
  cookies: { limit: 2, identify: ['cookie:connect.sid'], legacyHeaders: true },
  keys: { limit: 2, identify: ['header:x-api-key'], missing: 'allow' },
  named: { limit: 2, identify: ['header:api_key'] },
  cdn: { limit: 2, identify: ['ip:header:cf-connecting-ip'], missing: 'deny' },
  combined: {
    identify: ['ip', 'method', 'path', 'header:x-api-key'],
    windows: [
      { limit: 3, duration: LONGEST_WINDOW_MS },
      { limit: 2, duration: LONGEST_WINDOW_MS / 2 },
    ],
  },
  behind: { limit: 2, trustedHops: 2 },
  shadow: { limit: 1, shadow: true },
  skipping: { limit: 1, identify: ['header:x-api-key'], skip: ['preflight', '/healthz'] },
  [LONGEST_NAMESPACE]: {
    identify: ['header:user-agent'],
    missing: 'deny',
    legacyHeaders: true,
    windows: Array.from({ length: POLICY_WINDOWS_MAX }, (_, i) => {
      return { limit: 2 + i, duration: LONGEST_WINDOW_MS - i };
    }),
  },
};
/** For all gateways that one policy may serve: either Envoy or Istio. */
const listedFor = (name: GatewayName): PolicySettings => ({
  limit: 3,
  gateway: GATEWAYS.filter((gateway) => gateway !== (name === 'istio' ? 'envoy' : 'istio')),
  identify: ['method', 'path', 'header:x-api-key'],
});

/** Headers with which a client may try to be taken for another one. */
const FORGED_HEADERS = {
  'X-Forwarded-For': '192.0.2.7',
  'X-Forwarded-Method': 'PUT',
  'X-Forwarded-Uri': '/other',
  'X-Real-Ip': '192.0.2.8',
  Forwarded: 'for=192.0.2.9',
  'X-Envoy-External-Address': '192.0.2.10',
  'X-Weir-Key': 'a-key-of-the-client',
};

/** Removes the headers of a body, and those of weir's API. */
const NO_BODY_HEADERS = { Authorization: '', 'Content-Type': '', 'Content-Length': '' };

/** The namespaces whose gateways have a recording proxy between them and weir. */
const RECORDED = ['keys', 'listed', 'shadow'];

const ATTEMPTS = 10;
/** The failures to get a response of weir, in the logs of gateways. */
const TIMED_OUT = /timed out|timeout|weir answered (50\d|neither)|weir has not answered/g;

/** Each attempt uses another IPv6 network. */
let networks = 0;

export function defineGatewayTests(gatewayUnderTest: TestedGateway): void {
  const { name, isMiddleware, isEmulated, dropsUnusualHeaderNames } = gatewayUnderTest;
  const isEnvoy = isEnvoyBased(name);
  /** Traefik returns a 500 instead, waits for 30 s, and has no setting for either. */
  const appliesOnError = name !== 'traefik';
  /** Whether the client gets a response of weir with an error. */
  const forwardsErrors = isEnvoy || name === 'apisix' || name === 'traefik';
  const usesSockets = !['apisix', 'istio', 'traefik'].includes(name);
  const stack = useGatewayStack(gatewayUnderTest, { ...POLICIES, listed: listedFor(name) });
  const served = new Map<string, Promise<Gateway>>();
  const proxies = new Map<string, RecordingProxy>();
  const timeouts = () => stack.gateways.flatMap(({ output }) => output().match(TIMED_OUT) ?? []);

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

  const serveAt = (routes: Routes, port: number) => stack.serve(routes, { weir: atPort(port) });

  async function startProxy(weirPort = stack.gatewayPort): Promise<RecordingProxy> {
    const proxy = await startRecordingProxy(weirPort);
    stack.stops.push(proxy.stop);
    return proxy;
  }

  /** @returns the gateway for a policy that its tests share */
  function serving(namespace: string): Promise<Gateway> {
    const start = async () => {
      if (!RECORDED.includes(namespace)) return stack.serve(namespace);
      const proxy = await startProxy();
      proxies.set(namespace, proxy);
      return serveAt(namespace, proxy.port);
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

  beforeAll(async () => stack.firstResponse(await serving('shadow')));

  /** @returns a function for the requests that the application has received since */
  function receiving() {
    const before = stack.application.requests.length;
    return () => stack.application.requests.slice(before);
  }
  const lastReceived = () => stack.application.requests.at(-1)!;

  /** The status of the response to these lines; undefined if there is none. */
  async function statusOf({ port }: Gateway, line: string, ...headers: string[]) {
    const head = [`${line} HTTP/1.1`, 'Host: h', ...headers, '', ''].join('\r\n');
    const [response] = await exchange(port, [Buffer.from(head, 'latin1')]).catch(() => []);
    return response?.status;
  }
  const untilDenied = (send: () => Promise<number | undefined>) =>
    waitUntil('it is denied', async () => (await send()) === 429);

  /** A client is allowed twice, and another one afterwards. @returns all responses */
  async function expectTwoClients({ port }: Gateway, headersOf: (name: string) => object) {
    const [one, two] = [newClientName(), newClientName()].map((name) => {
      return { path: '/private?token=secret-0', headers: { ...headersOf(name) } };
    });
    const responses = await sendSequentially(port, [one, one, one, two]);
    expect(statusesOf(responses)).toEqual([200, 200, 429, 200]);
    expect(lastReceived().headers).toMatchObject(
      Object.fromEntries(
        Object.entries(two.headers)
          .filter(([name]) => name !== 'X-Weir-Key')
          .map(([name, value]) => [name.toLowerCase(), value]),
      ),
    );
    return responses;
  }

  describe('by client address', () => {
    let gateway: Gateway;
    beforeAll(async () => {
      gateway = await serving('open');
    });

    testInTime('the application gets as many requests as the limit, others a 429', async () => {
      // The response of the application has RateLimit headers, which most proxies replace.
      const keepsHeaders = isMiddleware || name === 'traefik';
      const path = keepsHeaders ? '/first?a=b' : '/first?a=b/limited';
      const all = Array.from({ length: 5 }, () => ({ path }));
      const received = receiving();
      const responses = await sendSequentially(
        gateway.port,
        [...all, { path, method: 'HEAD' }],
        agentFromNewAddress(),
      );
      expect(statusesOf(responses)).toEqual([200, 200, 200, 429, 429, 429]);
      const allowed = responses.slice(0, 3);
      expect(allowed.map(remainingIn)).toEqual([2, 1, 0]);
      for (const { body, headers } of allowed) {
        expect([body, headers['x-application']]).toEqual(['application', 'yes']);
        expect(headers['x-ratelimit-limit']).toBeUndefined();
      }
      const quota = `"open";q=3;w=${LONGEST_WINDOW_MS / 1_000}`;
      for (const { headers } of responses) expect(headers['ratelimit-policy']).toBe(quota);
      for (const [i, response] of responses.slice(3).entries()) {
        const { headers } = response;
        expect(remainingIn(response)).toBe(0);
        expect(Number(headers['retry-after'])).toBeGreaterThan(0);
        expect(headers['cache-control']).toBe('no-store');
        // Envoy removes it from a response without a body.
        if (name === 'envoy' && i === 2) continue;
        expect(headers['content-type']).toBe('application/problem+json');
      }
      expect(JSON.parse(responses[3].body)).toMatchObject({ status: 429 });
      expect(responses[3].body).toContain('quota-exceeded');
      expect(responses[5].body).toBe('');
      expect(received().map(({ url }) => url)).toEqual([path, path, path]);
    });

    testInTime('a blocked client, which can never pass, gets no Retry-After', async () => {
      const identifier = newAddress();
      const set = await sendRequest(stack.weir.port, {
        path: '/v2/ratelimit.setOverride',
        body: JSON.stringify({ namespace: 'open', identifier, limit: 0, duration: 60_000 }),
      });
      expect(set.status).toBe(200);
      const agent = agentFromNewAddress(identifier);
      const { status, headers } = await sendThrough(gateway.port, {}, agent);
      expect([status, headers['retry-after']]).toEqual([429, undefined]);
      expect(headers.ratelimit).toBe('"open";r=0');
      expect(headers['cache-control']).toBe('no-store');
    });

    testInTime('a client with forged proxy headers is counted by its own address', async () => {
      const headers = FORGED_HEADERS;
      const all = [{}, {}, {}, { headers }];
      const responses = await sendSequentially(gateway.port, all, agentFromNewAddress());
      expect(statusesOf(responses)).toEqual([200, 200, 200, 429]);
      // The client with the forged address has used nothing.
      const other = await sendThrough(gateway.port, { headers }, agentFromNewAddress());
      expect(remainingIn(other)).toBe(2);
    });

    testInTime('a body arrives completely, is counted once, and can follow a denial', async () => {
      const body = 'x'.repeat(200_000);
      const agent = agentFromNewAddress();
      const received = receiving();
      const post = { method: 'POST', path: '/post', body };
      expect(remainingIn(await sendThrough(gateway.port, post, agent))).toBe(2);
      expect(remainingIn(await sendThrough(gateway.port, post, agent))).toBe(1);
      expect(received().map((request) => [request.method, request.body])).toEqual([
        ['POST', body],
        ['POST', body],
      ]);
      expect(remainingIn(await sendThrough(gateway.port, {}, agent))).toBe(0);
      for (const parts of [post, {}, post]) {
        expect((await sendThrough(gateway.port, parts, agent)).status).toBe(429);
      }
    });

    testInTime("the application's own error statuses are not changed", async () => {
      for (const statuses of [
        [401, 403, 404],
        [429, 500, 503],
      ]) {
        const agent = agentFromNewAddress();
        for (const expected of statuses) {
          const parts = { path: `/${expected}` };
          const { status, body, headers } = await sendThrough(gateway.port, parts, agent);
          expect([status, body]).toEqual([expected, 'application']);
          expect(headers.ratelimit).toBeDefined();
        }
      }
    });

    if (isEmulated) return;

    testInTime('an HTTP/1.0 client without a Host is limited, or told to upgrade', async () => {
      const text = Buffer.from('GET /old HTTP/1.0\r\n\r\n');
      const send = async () => (await exchange(gateway.port, [text]))[0].status;
      if (isEnvoy) {
        expect(await send()).toBe(426);
        return;
      }
      await untilDenied(send);
      // Some gateways reject an HTTP/1.1 request without a Host before weir gets a check.
      expect(stack.application.requests.map(({ url }) => url)).toContain('/old');
    });

    if (!isMiddleware) {
      testInTime('a client may upgrade to WebSocket, and to no other protocol', async () => {
        const agent = agentFromNewAddress();
        const to = (protocol: string) => upgradeProtocol(gateway.port, protocol, agent);
        expect(await to('websocket')).toEqual({ status: 101, received: 'ping' });
        // With h2c a client could send further requests without checks, if the application agrees.
        expect(await to('h2c')).toEqual({ status: 200, received: '' });
        expect((await sendThrough(gateway.port, {}, agent)).status).toBe(200);
        expect(await to('websocket')).toEqual({ status: 429, received: '' });
        expect(await statusOf(gateway, 'CONNECT h:80')).not.toBe(200);
      });
    }

    testInTime('a flood of a denied client on one connection is denied completely', async () => {
      const one = Buffer.from('GET /flood HTTP/1.1\r\nHost: flood\r\n\r\n');
      const flood = async (length: number) => {
        const packet = Buffer.concat(Array(length).fill(one));
        return statusesOf(await exchange(gateway.port, [packet], length));
      };
      await untilDenied(async () => (await flood(1))[0]);
      expect(new Set(await flood(800))).toEqual(new Set([429]));
    });
  });

  // On a connection that they have used before, Caddy and Traefik send a GET again, as Go does.
  const repeats = name === 'traefik' || isEmulated;
  test.skipIf(repeats)('a request that the application breaks off is not repeated', async () => {
    const gateway = await stack.serve('shadow');
    const received = receiving();
    const { status } = await sendThrough(gateway.port, { path: '/broken' });
    expect(status).toBe(isEnvoy ? 503 : 502);
    expect(received().filter(({ url }) => url === '/broken')).toHaveLength(1);
  });

  testInTime('of 1 000 concurrent requests exactly as many as the limit are allowed', async () => {
    const gateway = await serving('closed');
    const responses = await sendConcurrently(gateway.port, 1_000, 50, { headers: newKey() });
    expect(statusesOf(responses).filter((status) => status === 200)).toHaveLength(100);
    expect(statusesOf(responses).filter((status) => status === 429)).toHaveLength(900);
    // Each response contains a decision of weir: no request was denied because of a timeout.
    expect(responses.filter(({ headers }) => headers.ratelimit === undefined)).toEqual([]);
  });

  testInTime('9 KB of cookies are forwarded, and one of them identifies the client', async () => {
    const responses = await expectTwoClients(await serving('cookies'), (client) => {
      const Cookie = `CONNECT.SID=x; a=${'b'.repeat(9_000)}; connect.sid=${client}; c=d`;
      return { Cookie };
    });
    for (const [i, { headers }] of responses.entries()) {
      expect(headers['x-ratelimit-remaining']).toBe(['1', '0', '0', '1'][i]);
      expect(headers['x-ratelimit-limit']).toBe('2');
      expect(headers['x-ratelimit-reset']).toMatch(/^\d+$/);
    }
  });

  testInTime('a header identifies, and weir gets nothing else of the client', async () => {
    const { gateway, bytes } = await recording('keys');
    await expectTwoClients(gateway, (client) => ({
      'X-Api-Key': client,
      Authorization: 'Bearer secret-1',
      Cookie: 'a=secret-2',
      'X-Weir-Key': 'secret-3',
    }));
    expect(bytes().split(/\bHTTP\/1\.1\r\n/)).toHaveLength(5);
    let sent = bytes();
    // These include the query; Envoy has no setting for it before 1.31.
    if (isEnvoy || ['apisix', 'traefik'].includes(name)) sent = sent.replaceAll('=secret-0', '');
    // Istio has no setting that removes it.
    if (name === 'istio') sent = sent.replaceAll('Bearer secret-1', '');
    expect(sent).not.toContain('secret');
    // The policy allows clients without the header.
    const without = await sendSequentially(gateway.port, [{}, {}, {}, {}]);
    expect(statusesOf(without)).toEqual([200, 200, 200, 200]);
  });

  testInTime('an oversized header does not count as a missing one', async () => {
    const gateway = await serving('keys');
    const long = { headers: { 'X-Api-Key': 'x'.repeat(9_000) } };
    await untilDenied(async () => (await sendThrough(gateway.port, long)).status);
    expect((await sendThrough(gateway.port)).status).toBe(200);
    // A header as long as a token of an identity provider identifies the client.
    await expectTwoClients(gateway, (client) => ({ 'X-Api-Key': 'x'.repeat(4_000) + client }));
    if (isMiddleware || isEmulated || name === 'traefik') return;
    // Some applications would treat it as X-Api-Key.
    expect((await sendThrough(gateway.port, { headers: { X_Api_Key: 'x' } })).status).toBe(200);
    expect(Object.keys(lastReceived().headers)).not.toContain('x_api_key');
  });

  testInTime('the longest namespace and the most windows work', async () => {
    const gateway = await serving(LONGEST_NAMESPACE);
    const headers = { 'User-Agent': newClientName() };
    // The last request has no user agent, so no identifier. APISIX sends one of its own.
    const all = [{ headers }, { headers }, { headers }, {}];
    const responses = await sendSequentially(gateway.port, all);
    expect(statusesOf(responses)).toEqual([200, 200, 429, name === 'apisix' ? 200 : 429]);
    expect(responses[0].headers.ratelimit.split(', ')).toHaveLength(POLICY_WINDOWS_MAX);
  });

  for (const [namespace, header, prefix] of [
    ['keys', 'X-Api-Key', ''],
    ['cookies', 'Cookie', 'connect.sid='],
  ]) {
    testInTime(`a repeated ${header} header does not circumvent the limit`, async () => {
      const gateway = await serving(namespace);
      const value = prefix + newClientName();
      const received = receiving();
      for (let i = 0; i < 12; i++) {
        const other = `${prefix}${newClientName()}${i % 2 === 0 ? '' : '; a=b'}`;
        const values = i < 6 ? [value, other] : [other, value];
        await statusOf(gateway, 'GET /', ...values.map((each) => `${header}: ${each}`));
      }
      // An application may use any of the values that it gets.
      const withValue = received().filter(({ rawHeaders }) => {
        return rawHeaders.some((text, i) => i % 2 === 1 && text.split('; ').includes(value));
      });
      expect(withValue.length).toBeLessThanOrEqual(2);
    });
  }

  testInTime('the address in a header identifies, grouped by its network', async () => {
    const gateway = await serving('cdn');
    const network = `2001:db8:${(++networks).toString(16)}`;
    const send = (...addresses: string[]) => {
      return statusOf(gateway, 'GET /', ...addresses.map((text) => `CF-Connecting-IP: ${text}`));
    };
    const statuses: number[] = [];
    for (const text of [`${network}::1`, `${network.toUpperCase()}:0::2`, `${network}:0:0:1::`]) {
      statuses.push(await send(text));
    }
    expect(statuses).toEqual([200, 200, 429]);
    expect(await send(`${network}:1::1`)).toBe(200);
    const invalid = [[], ['unknown']];
    // nginx before 1.23 and APISIX check the first of several lines.
    if (name !== 'nginx' && name !== 'apisix') invalid.push([`${network}:2::1`, `${network}:3::1`]);
    for (const addresses of invalid) expect(await send(...addresses)).toBe(429);
  });

  // Envoy joins repeated headers in a check, but forwards them separately. Traefik forwards both.
  if (!isEnvoy && name !== 'traefik') {
    testInTime('of repeated headers the application gets the one that is counted', async () => {
      const gateway = await serving('keys');
      const twice = { 'X-Api-Key': `${newClientName()}\r\nX-Api-Key: other`, ...NO_BODY_HEADERS };
      const bytes = requestBytes({ method: 'GET', headers: twice });
      const [response] = await exchange(gateway.port, [bytes]);
      expect(remainingIn(response)).toBe(1);
      const { rawHeaders } = lastReceived();
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
    await expectTwoClients(await serving('named'), (client) => {
      return { 'Api-Key': 'x', api_key: client };
    });
  });

  for (const [namespace, identifyingLine] of isEmulated
    ? []
    : [
        ['open', ''],
        ['cookies', 'Cookie: connect.sid=odd'],
        ['keys', 'X-Api-Key: odd'],
      ]) {
    testInTime(
      `no malformed or oversized head allows a client that ${namespace} denies`,
      async () => {
        const gateway = await serving(namespace);
        const send = (lines: string[]) => statusOf(gateway, 'GET /odd', ...lines);
        const identity = identifyingLine === '' ? [] : [identifyingLine];
        const changed = (suffix: string) => identity.map((line) => `${line}; ${suffix}`);
        await untilDenied(() => send(identity));
        const received = receiving();
        const heads = [
          [...identity, `X-Long: ${'x'.repeat(40_000)}`],
          [...identity, ...Array.from({ length: 150 }, (_, i) => `X-Many-${i}: x`)],
          [...identity, 'X-Odd: a\x01b'],
          [...identity, 'X-Forwarded-For: \x01'],
          [...identity, ...Array.from({ length: 4 }, () => `Cookie: a=${'x'.repeat(14_000)}`)],
          changed(`connect.sid=${'z'.repeat(40_000)}`),
          // Weir closes most of these connections, sometimes before its response has been read.
          ...Array.from({ length: 4 }, () => [...identity, `X-Long: ${'x'.repeat(300_000)}`]),
          ...Array.from({ length: 4 }, () => {
            return [...identity, ...Array.from({ length: 2_000 }, (_, i) => `X-Many-${i}: x`)];
          }),
        ];
        // A changed key, or one among several headers, belongs to another client.
        if (namespace === 'keys') heads.splice(4, 1);
        else {
          // The blanks are slow for a backtracking pattern that tries every part of their run.
          for (const suffix of ['a=\x01', 'a=b;'.repeat(3_500), `${' '.repeat(13_000)}x`]) {
            heads.push(changed(suffix));
          }
        }
        for (const [i, lines] of heads.entries()) {
          expect([i, await send(lines)]).not.toEqual([i, 200]);
        }
        expect(received()).toEqual([]);
        expect(await send(identity)).toBe(429);
      },
    );
  }

  testInTime('all parts identify together, and the tightest window denies', async () => {
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
  });

  if (!isEmulated) {
    testInTime('an absolute URL as the target counts by its path, or is rejected', async () => {
      const gateway = await serving('combined');
      const key = `X-Api-Key: ${newClientName()}`;
      const send = (target: string) => statusOf(gateway, `GET ${target}`, key);
      const all = [await send('/'), await send('http://h'), await send('http://h/?a')];
      expect(all).toEqual([200, 200, 429]);
      expect(await send('x:http://h/v1/check/shadow')).toBe(400);
    });
  }

  testInTime('a client cannot name another gateway than its own, by any target', async () => {
    const { gateway, bytes } = await recording('listed');
    const other = isEnvoy ? 'nginx' : 'envoy';
    const headers = ['X-Forwarded-Method: PUT', 'X-Forwarded-Uri: /forged'];
    headers.push(`X-Api-Key: ${newClientName()}`);
    const send = (target: string, method = 'GET') => {
      return statusOf(gateway, `${method} ${target}`, ...headers);
    };
    const query = `gateway=${other}`;
    const targets = [
      ...[`/one?${query}`, `/one?gateway=${name}&${query}`, `/one?${query}&gateway=${name}`],
      ...['/?', '//?', '/..?', '/%3F', '/#?', '/&'].map((start) => start + query),
      ...['http://h?', 'http://h/?', 'http://h#?', 'HTTP://h?'].map((start) => start + query),
      ...['?', '??', '#?', '&', '*?', '-too?', '%3F', 'h:80?'].map((start) => start + query),
      ...['http://?', 'http:?', 'http:///?'].map((start) => start + query),
    ];
    const received = receiving();
    for (const target of targets) await send(target);
    for (const target of ['*', `*?${query}`]) await send(target, 'OPTIONS');
    const address = `/v1/check/listed${isEnvoy ? '/' : `?gateway=${name}`}`;
    const lines = bytes().match(/\S+ \S+ HTTP\/1\.1(?=\r\n)/g) ?? [];
    expect(lines.length).toBeGreaterThan(2);
    const foreign = lines.filter((line) => {
      const [, target] = line.replace('/auth-request/', '/check/').split(' ');
      return isEnvoy ? !target.startsWith(address) : target !== address;
    });
    expect(foreign).toEqual([]);
    // All checks were counted by the method and the path of the client's request.
    expect(received().filter(({ url }) => url.startsWith('/one'))).toHaveLength(3);
    expect([await send('/one'), await send(`/one?${query}`)]).toEqual([429, 429]);
  });

  testInTime('behind a trusted proxy its client counts, whatever that claims', async () => {
    const gateway = await serving('behind');
    const withChain = (chain: string) => ({ headers: { 'X-Forwarded-For': chain } });
    const [one, two] = [newAddress(), newAddress()];
    const responses = await sendSequentially(gateway.port, [
      withChain(one),
      withChain(`192.0.2.1, ${one}`),
      withChain(`${two}, 192.0.2.2, ${one}`),
      withChain(`${one}, ${two}`),
    ]);
    expect(statusesOf(responses)).toEqual([200, 200, 429, 200]);
  });

  testInTime('a preflight and a path that the policy skips use no tokens', async () => {
    const gateway = await serving('skipping');
    const headers = newKey();
    const preflight = { Origin: 'https://app.example', 'Access-Control-Request-Method': 'PUT' };
    const send = async (parts: RequestParts) => {
      const all = { ...parts, headers: { ...headers, ...parts.headers } };
      const { status, headers: responded } = await sendThrough(gateway.port, all);
      return [status, responded.ratelimit === undefined ? 'not counted' : 'counted'];
    };
    const received = receiving();
    const skipped: RequestParts[] = [
      { method: 'OPTIONS', headers: preflight },
      { path: '/healthz' },
      { path: '/%68ealthz?a=b', method: 'POST', body: 'body' },
    ];
    const checked: RequestParts[] = [
      { method: 'POST', headers: { ...preflight, 'X-Forwarded-Method': 'OPTIONS' } },
      { method: 'OPTIONS', headers: { 'X-Forwarded-Method': 'OPTIONS' } },
      { headers: { 'X-Forwarded-Uri': '/healthz' } },
      { path: '/healthz/..%2f' },
      // Traefik forwards this path without the repeated slash, also to weir.
      ...(name === 'traefik' ? [] : [{ path: '//healthz' }]),
    ];
    for (const parts of skipped) expect(await send(parts)).toEqual([200, 'not counted']);
    expect(await send({})).toEqual([200, 'counted']);
    // The limit is reached now.
    for (const parts of checked) {
      expect([parts, await send(parts)]).toEqual([parts, [429, 'counted']]);
    }
    for (const parts of skipped) expect(await send(parts)).toEqual([200, 'not counted']);
    expect(received()).toHaveLength(7);
  });

  testInTime(
    'in shadow mode every request is allowed; connections to weir are reused',
    async () => {
      const { gateway, proxy, bytes } = await recording('shadow');
      const before = proxy.connections();
      const responses = await sendConcurrently(gateway.port, 300, 4);
      expect(statusesOf(responses).every((status) => status === 200)).toBe(true);
      expect(bytes().split(/\bHTTP\/1\.1\r\n/)).toHaveLength(301);
      // Four for each process of the gateway, and those that a timeout has closed. Traefik keeps two.
      if (!isEmulated && name !== 'traefik') {
        expect(proxy.connections() - before).toBeLessThan(40);
      }
    },
  );

  testInTime('on the port for checks, with a key, and over a Unix socket', async () => {
    const gateways = [
      await stack.serve('open', { weir: atPort(stack.weir.port, true), key: ROOT_KEY }),
      ...(usesSockets ? [await stack.serve('open', { weir: { socket: stack.socket } })] : []),
    ];
    const headers = { 'X-Weir-Key': 'a-key-of-the-client' };
    for (const { port } of gateways) {
      const all = Array.from({ length: 4 }, () => ({ headers }));
      const responses = await sendSequentially(port, all, agentFromNewAddress());
      expect(statusesOf(responses)).toEqual([200, 200, 200, 429]);
      expect(responses.map(remainingIn)).toEqual([2, 1, 0, 0]);
      // Istio has no setting that removes it, and a middleware removes no header.
      if (isMiddleware || name === 'istio') continue;
      expect(lastReceived().headers).not.toHaveProperty('x-weir-key');
    }
  });

  if (isMiddleware) {
    test('a busy application allows no denied client', async () => {
      const gateway = await serving('keys');
      const headers = newKey();
      await untilDenied(async () => (await sendThrough(gateway.port, { headers })).status);
      for (let i = 0; i < 3; i++) {
        const busy = sendThrough(gateway.port, { path: '/busy', headers: newKey() });
        const responses = await sendConcurrently(gateway.port, 64, 64, { headers });
        expect(new Set(statusesOf(responses))).toEqual(new Set([429]));
        expect((await busy).status).toBe(200);
      }
    });

    test('an application stops waiting for an unresponsive weir, until weir responds', async () => {
      const proxy = await startProxy();
      const gateway = await serveAt('closed', proxy.port);
      await stack.firstResponse(gateway);
      await suspendProcess(stack.weir);
      const responses = await sendConcurrently(gateway.port, 1_000, 400, { headers: newKey() });
      stack.weir.child.kill('SIGCONT');
      expect(new Set(statusesOf(responses))).toEqual(new Set([429]));
      // Twice the 64 timeouts after which it stops waiting, and some retries.
      expect(proxy.bytesToWeir().split('GET /v1/check/').length).toBeLessThan(200);
      await stack.firstResponse(gateway);
    });
  }

  /** Checks the responses to a client without a decision of weir. */
  async function expectUndecided(
    gateway: Gateway,
    onError: 'allow' | 'deny',
    { bodies = ['whole', '', 'whole'], isKept = true } = {},
  ) {
    const received = receiving();
    const path = `/undecided/${newClientName()}`;
    const isAllowed = onError === 'allow' && appliesOnError;
    const all = bodies.map((body) => ({ method: 'POST', path, body }));
    for (const { status, headers, body } of await sendSequentially(gateway.port, all)) {
      if (isKept) expect(headers.connection).not.toBe('close');
      expect(headers.ratelimit).toBeUndefined();
      if (isAllowed) {
        expect([status, body]).toEqual([200, 'application']);
      } else if (forwardsErrors) {
        // Only the status can be configured, in Traefik not even that.
        expect([status, body]).toEqual([appliesOnError ? 429 : 500, '']);
      } else {
        expect(headers['retry-after']).toBe('1');
        expect(headers['cache-control']).toBe('no-store');
        expect(headers['content-type']).toBe('application/problem+json');
        expect([status, JSON.parse(body).status]).toEqual([429, 429]);
      }
    }
    const own = received().filter(({ url }) => url === path);
    expect(own.map(({ body }) => body)).toEqual(isAllowed ? bodies : []);
  }

  test('without a response of weir the policy decides, and the check is not sent again', async () => {
    const port = await freePort();
    const another = await stack.startWeir(port, 'another');
    const undecided: [Gateway, 'allow' | 'deny'][] = [];
    for (const [namespace, onError] of [
      ['open', 'allow'],
      ['closed', 'deny'],
    ] as const) {
      const gateway = await serveAt(namespace, port);
      await stack.firstResponse(gateway);
      undecided.push([gateway, onError]);
    }
    if (appliesOnError) {
      const mute = createServer((socket) => socket.resume());
      await new Promise<void>((resolve) => mute.listen(0, '127.0.0.1', resolve));
      stack.stops.push(() => mute.close());
      const proxy = await startProxy((mute.address() as { port: number }).port);
      const muted = await serveAt('open', proxy.port);
      await suspendProcess(another);
      // Each request waits for the gateway's timeout.
      const options = { bodies: ['whole'] };
      await Promise.all([
        ...undecided.map(([gateway, onError]) => expectUndecided(gateway, onError, options)),
        expectUndecided(muted, 'allow', options),
      ]);
      // weir may have counted it.
      expect(proxy.bytesToWeir().split(/\bHTTP\/1\.1\r\n/)).toHaveLength(2);
      another.child.kill('SIGCONT');
    }
    await another.stop();
    for (const [gateway, onError] of undecided) await expectUndecided(gateway, onError);
    await stack.startWeir(port, 'another');
    for (const [gateway] of undecided) await stack.firstResponse(gateway);
  });

  test('with a wrong key or an unknown namespace the policy decides, and a log says why', async () => {
    const closed = stack.policies.get('closed')!;
    const unknown = [{ policy: { ...closed, namespace: 'unknown' }, prefix: '/' }];
    const keyed = { weir: atPort(stack.weir.port, true), key: 'wrong' };
    const cases = [
      { gateway: await stack.serve('open', keyed), onError: 'allow', status: 401 },
      { gateway: await stack.serve(unknown), onError: 'deny', status: 404 },
    ] as const;
    for (const { gateway, onError, status } of cases) {
      if (forwardsErrors) {
        // These forward most statuses, and log nothing.
        expect((await sendThrough(gateway.port)).status).toBe(status);
        continue;
      }
      await expectUndecided(gateway, onError, { isKept: false });
      await waitUntil('the reason is in the log', () => {
        return /unexpected status|weir answered/.test(gateway.output());
      });
    }
  });
}
