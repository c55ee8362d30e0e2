/**
 * What every gateway does on the text that weir prints for it, with the real gateway, the real weir
 * and an application behind them. Each attempt at a test is made by callers of its own.
 */

import { chmodSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { Agent, type AgentOptions } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { GatewaySetup } from '../../src/commands/gateways/setup.ts';
import { NAMESPACE_MAX_CHARACTERS, POLICY_WINDOWS_MAX } from '../../src/core/constants.ts';
import { POLICY_DEFAULTS, type Policy } from '../../src/policies/policy.ts';
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
import { exchange, LONGEST_WINDOW_MS, type ParsedResponse, requestBytes } from './http.ts';
import {
  freePort,
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
  waitUntil,
} from './server.ts';

export interface GatewayUnderTest {
  /** Whether it joins repeated headers in a check, and forwards them apart. */
  joinsHeaders?: boolean;
  /** Whether a policy may look at a header that nginx drops for its name. */
  dropsUnusualHeaderNames?: boolean;
  /** Whether it stands in front of an application, and is no part of it. */
  isProxy: boolean;
  name: Policy['gateway'];
  print: (setup: GatewaySetup) => string;
  /** @param key what is put where the text says that a key has to be */
  start: (text: string, port: number, key: string) => Promise<Gateway>;
}

const longestWindow = (limit: number) => ({ windows: [{ limit, duration: LONGEST_WINDOW_MS }] });
/** The longest name, and with it the longest answers. */
const LONGEST_NAMESPACE = 'n'.repeat(NAMESPACE_MAX_CHARACTERS);
const DEFAULT_POLICY = { ...POLICY_DEFAULTS, identify: ['ip'] };

/** By namespace, what differs from the usual. */
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
  [LONGEST_NAMESPACE]: {
    identify: ['header:user-agent'],
    missing: 'deny',
    legacyHeaders: true,
    windows: Array.from({ length: POLICY_WINDOWS_MAX }, (_, i) => {
      return { limit: 2 + i, duration: LONGEST_WINDOW_MS - i };
    }),
  },
};

/** What a client might send to be taken for somebody else. */
const FORGED_HEADERS = {
  'X-Forwarded-For': '192.0.2.7',
  'X-Forwarded-Method': 'PUT',
  'X-Forwarded-Uri': '/elsewhere',
  'X-Real-Ip': '192.0.2.8',
  Forwarded: 'for=192.0.2.9',
  'X-Weir-Key': 'a-key-of-the-client',
};

/** Without a body, and what is said of one. */
const NO_BODY_HEADERS = { Authorization: '', 'Content-Type': '', 'Content-Length': '' };

/** A connection from another address: all of 127.0.0.0/8 are this machine's. */
let lastAddress = 1;
const agentFromNewAddress = () => {
  lastAddress++;
  const localAddress = `127.0.${lastAddress >> 8}.${lastAddress & 255}`;
  return new Agent({ keepAlive: true, maxSockets: 1, localAddress } as AgentOptions);
};
/** Whom nothing was counted for. */
let lastClientNumber = 0;
const newClientName = () => `someone-${++lastClientNumber}`;

const ATTEMPTS = 10;
const remainingIn = ({ headers }: ParsedResponse) =>
  Number(/;r=(\d+)/.exec(headers.ratelimit)?.[1]);
const statusesOf = (answers: ParsedResponse[]) => answers.map(({ status }) => status);

/** Stops all its threads, of which none answers any more behind this. */
async function suspendProcess({ child }: ServerProcess): Promise<void> {
  child.kill('SIGSTOP');
  const tasks = `/proc/${child.pid}/task`;
  await waitUntil('it hangs', () => {
    return readdirSync(tasks).every((task) => {
      return readFileSync(`${tasks}/${task}/stat`, 'utf8').includes(') T ');
    });
  });
}

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

  /** How often a gateway has not waited for weir, or asked somebody else. */
  const timeouts = () =>
    gateways.flatMap(
      ({ output }) =>
        output().match(/timed out|timeout|weir answered (50\d|neither)|weir has not answered/g) ??
        [],
    );

  /** A machine that is busy may keep weir for longer than gateways wait: then once more. */
  function testInTime(what: string, run: () => Promise<void>): void {
    test(what, async () => {
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
    const args = ['--config', config, '--gateway-port', String(port), '--acceptors', '1', ...more];
    const server = await startServer(join(directory, dataDir), { args });
    stops.push(() => {
      // A test that fails may leave it hanging.
      server.child.kill('SIGCONT');
      return server.stop();
    });
    return server;
  }

  /** A new weir's first answers may take longer than a gateway waits; they are of no test. */
  function firstAnswer({ port }: Gateway): Promise<void> {
    return waitUntil('weir answers in time', async () => {
      return (await sendThrough(port, {}, agentFromNewAddress())).headers.ratelimit !== undefined;
    });
  }

  /** The gateway for a namespace, which asks weir where it is said. */
  async function serve(policy: Policy, at: GatewaySetup['weir'], key = ''): Promise<Gateway> {
    const listenPort = await freePort();
    const upstream = { host: '127.0.0.1', port: application.port };
    const gateway = await start(print({ policy, weir: at, listenPort, upstream }), listenPort, key);
    stops.push(gateway.stop);
    gateways.push(gateway);
    return gateway;
  }
  const atPort = (port: number, needsKey = false) => ({ host: '127.0.0.1', port, needsKey });
  const serving = (namespace: string) => serve(policies[namespace], atPort(gatewayPort));

  async function wired(namespace: string): Promise<{ gateway: Gateway; wire: RecordingProxy }> {
    const wire = await startRecordingProxy(gatewayPort);
    stops.push(wire.stop);
    return { gateway: await serve(policies[namespace], atPort(wire.port)), wire };
  }

  beforeAll(async () => {
    const file = Object.values(policies).map(({ namespace, ...policy }) => [namespace, policy]);
    directory = temporaryDirectory();
    const text = JSON.stringify({ policies: Object.fromEntries(file) });
    writeFileSync(join(directory, 'weir.json'), text);
    gatewayPort = await freePort();
    application = await startApplication();
    stops.push(application.stop);
    // Some gateways serve as somebody else than who has started them.
    chmodSync(directory, 0o755);
    const socket = ['--gateway-socket', join(directory, 'weir socket')];
    const args = [...socket, '--gateway-socket-mode', '0666'];
    weir = await startWeir('data', gatewayPort, args);
    await firstAnswer(await serving('shadow'));
  });
  afterAll(async () => {
    for (const stop of stops.reverse()) await stop();
    removeDirectory(directory);
  });

  describe('by the address of the client', () => {
    let gateway: Gateway;
    beforeAll(async () => {
      gateway = await serving('open');
    });

    testInTime('as many as the limit come to the application, others get a 429', async () => {
      const path = '/first?a=b';
      const all = Array.from({ length: 5 }, () => ({ path }));
      const parts = [...all, { path, method: 'HEAD' }];
      const before = application.requests.length;
      const answers = await sendSequentially(gateway.port, parts, agentFromNewAddress());
      expect(statusesOf(answers)).toEqual([200, 200, 200, 429, 429, 429]);
      const admitted = answers.slice(0, 3);
      expect(admitted.map(remainingIn)).toEqual([2, 1, 0]);
      for (const { body, headers } of admitted) {
        expect(body).toBe('application');
        expect(headers['x-application']).toBe('yes');
        expect(headers['ratelimit-policy']).toBe(`"open";q=3;w=${LONGEST_WINDOW_MS / 1_000}`);
        expect(headers['x-ratelimit-limit']).toBeUndefined();
      }
      const refused = answers.slice(3);
      for (const answer of refused) {
        const { headers } = answer;
        expect(remainingIn(answer)).toBe(0);
        expect(headers['ratelimit-policy']).toBe(admitted[0].headers['ratelimit-policy']);
        expect(Number(headers['retry-after'])).toBeGreaterThan(0);
        expect(headers['cache-control']).toBe('no-store');
        // Envoy leaves it out where there is no body.
        if (isEnvoy && answer === refused[2]) continue;
        expect(headers['content-type']).toBe('application/problem+json');
      }
      expect(JSON.parse(refused[0].body)).toMatchObject({ status: 429 });
      expect(refused[0].body).toContain('quota-exceeded');
      expect(refused[2].body).toBe('');
      const seen = application.requests.slice(before);
      expect(seen.map(({ url }) => url)).toEqual([path, path, path]);
    });

    testInTime('a client of HTTP/1.0 without a host is served, or told to upgrade', async () => {
      const text = Buffer.from('GET /old HTTP/1.0\r\n\r\n');
      const asking = () => exchange(gateway.port, [text]);
      if (isEnvoy) {
        expect((await asking())[0].status).toBe(426);
        return;
      }
      await waitUntil('it is refused', async () => (await asking())[0].status === 429);
      // Which answers a request of HTTP/1.1 without one by itself.
      expect(application.requests.map(({ url }) => url)).toContain('/old');
    });

    testInTime('who forges what a proxy says is counted as ever', async () => {
      const headers = FORGED_HEADERS;
      const all = [{}, {}, {}, { headers }];
      const answers = await sendSequentially(gateway.port, all, agentFromNewAddress());
      expect(statusesOf(answers)).toEqual([200, 200, 200, 429]);
      // And somebody else has used nothing.
      expect(remainingIn(await sendThrough(gateway.port, { headers }, agentFromNewAddress()))).toBe(
        2,
      );
    });

    testInTime('a body comes whole, is counted once, and can follow a refusal', async () => {
      const body = 'x'.repeat(200_000);
      const agent = agentFromNewAddress();
      const before = application.requests.length;
      const post = { method: 'POST', path: '/post', body };
      expect(remainingIn(await sendThrough(gateway.port, post, agent))).toBe(2);
      expect(remainingIn(await sendThrough(gateway.port, post, agent))).toBe(1);
      const seen = application.requests.slice(before);
      expect(seen.map((request) => [request.method, request.body])).toEqual([
        ['POST', body],
        ['POST', body],
      ]);
      expect(remainingIn(await sendThrough(gateway.port, {}, agent))).toBe(0);
      for (const parts of [post, {}, post]) {
        expect((await sendThrough(gateway.port, parts, agent)).status).toBe(429);
      }
    });

    if (isProxy) {
      testInTime('who is admitted may change to WebSocket, and to nothing else', async () => {
        const agent = agentFromNewAddress();
        const to = (protocol: string) => upgradeProtocol(gateway.port, protocol, agent);
        expect(await to('websocket')).toEqual({ status: 101, heard: 'said' });
        // By which a client could ask on past weir, where the application takes it.
        expect(await to('h2c')).toEqual({ status: 200, heard: '' });
        expect((await sendThrough(gateway.port, {}, agent)).status).toBe(200);
        expect(await to('websocket')).toEqual({ status: 429, heard: '' });
        const connecting = Buffer.from('CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n');
        const [{ status }] = await exchange(gateway.port, [connecting]);
        expect(status).not.toBe(200);
      });
    }

    if (isProxy) {
      testInTime("quotas are weir's, whatever the application says of its own", async () => {
        const { headers } = await sendThrough(
          gateway.port,
          { path: '/limited' },
          agentFromNewAddress(),
        );
        expect(headers['ratelimit-policy']).toBe(`"open";q=3;w=${LONGEST_WINDOW_MS / 1_000}`);
        expect(headers.ratelimit).toMatch(/^"open";r=2;t=\d+$/);
      });
    }

    testInTime("the application's own refusals and errors pass as they are", async () => {
      for (const paths of [
        ['/401', '/403', '/404'],
        ['/429', '/500', '/503'],
      ]) {
        const agent = agentFromNewAddress();
        for (const path of paths) {
          const answer = await sendThrough(gateway.port, { path }, agent);
          expect([path, answer.status, answer.body]).toEqual([
            path,
            Number(path.slice(1)),
            'application',
          ]);
          expect(answer.headers.ratelimit).toBeDefined();
        }
      }
    });
  });

  test('an application that breaks is not asked again', async () => {
    const gateway = await serving('shadow');
    expect((await sendThrough(gateway.port, { path: '/broken' })).status).toBe(isEnvoy ? 503 : 502);
    expect(application.requests.filter(({ url }) => url === '/broken')).toHaveLength(1);
  });

  test('of 1 000 requests at once exactly as many pass as the limit', async () => {
    const gateway = await serving('closed');
    const headers = { 'X-Api-Key': newClientName() };
    const answers = await sendConcurrently(gateway.port, 1_000, 50, { headers });
    expect(statusesOf(answers).filter((status) => status === 200)).toHaveLength(100);
    expect(statusesOf(answers).filter((status) => status === 429)).toHaveLength(900);
    // Each by a decision of weir, and none because weir was late.
    expect(answers.filter(({ headers }) => headers.ratelimit === undefined)).toEqual([]);
  });

  testInTime('9 KB of cookies come through, and one of them says who asks', async () => {
    const gateway = await serving('cookies');
    const of = (who: string) => ({
      headers: { Cookie: `CONNECT.SID=x; a=${'b'.repeat(9_000)}; connect.sid=${who}; c=d` },
    });
    const [one, two] = [of(newClientName()), of(newClientName())];
    const answers = await sendSequentially(gateway.port, [one, one, one, two]);
    expect(statusesOf(answers)).toEqual([200, 200, 429, 200]);
    expect(answers.map(({ headers }) => headers['x-ratelimit-remaining'])).toEqual([
      ...['1', '0', '0', '1'],
    ]);
    for (const { headers } of answers) {
      expect(headers['x-ratelimit-limit']).toBe('2');
      expect(headers['x-ratelimit-reset']).toMatch(/^\d+$/);
    }
    expect(application.requests.at(-1)?.headers.cookie).toBe(two.headers.Cookie);
  });

  testInTime('a header says who asks; nothing else of the client goes to weir', async () => {
    const { gateway, wire } = await wired('keys');
    const of = (who: string) => ({
      path: '/private?token=secret-0',
      headers: {
        'X-Api-Key': who,
        Authorization: 'Bearer secret-1',
        Cookie: 'a=secret-2',
        'X-Weir-Key': 'secret-3',
      },
    });
    const [one, two] = [of(newClientName()), of(newClientName())];
    const answers = await sendSequentially(gateway.port, [one, one, one, two]);
    expect(statusesOf(answers)).toEqual([200, 200, 429, 200]);
    expect(wire.bytesToWeir().split(/\bHTTP\/1\.1\r\n/)).toHaveLength(5);
    // Envoy asks by the path and the query, for which it has no setting before 1.31.
    expect(
      isEnvoy ? wire.bytesToWeir().replaceAll('?token=secret-0', '') : wire.bytesToWeir(),
    ).not.toContain('secret');
    const { headers } = application.requests.at(-1)!;
    expect([headers['x-api-key'], headers.authorization]).toEqual([
      two.headers['X-Api-Key'],
      'Bearer secret-1',
    ]);
    // As the policy says of who has none.
    const without = await sendSequentially(gateway.port, [{}, {}, {}, {}]);
    expect(statusesOf(without)).toEqual([200, 200, 200, 200]);
  });

  testInTime('what is there, but is no identity, does not pass as left out', async () => {
    const gateway = await serving('keys');
    const long = { headers: { 'X-Api-Key': 'x'.repeat(9_000) } };
    await waitUntil(
      'it is counted',
      async () => (await sendThrough(gateway.port, long)).status === 429,
    );
    expect((await sendThrough(gateway.port)).status).toBe(200);
    // As long as a token of an identity provider, it is one.
    const token = (who: string) => ({ headers: { 'X-Api-Key': 'x'.repeat(4_000) + who } });
    const [one, two] = [token(newClientName()), token(newClientName())];
    const answers = await sendSequentially(gateway.port, [one, one, one, two]);
    expect(statusesOf(answers)).toEqual([200, 200, 429, 200]);
    if (!isProxy) return;
    // Some applications would take it for X-Api-Key.
    expect((await sendThrough(gateway.port, { headers: { X_Api_Key: 'x' } })).status).toBe(200);
    expect(Object.keys(application.requests.at(-1)!.headers)).not.toContain('x_api_key');
  });

  testInTime('with the longest name, and as many windows as there may be', async () => {
    const gateway = await serving(LONGEST_NAMESPACE);
    const headers = { 'User-Agent': newClientName() };
    // The last sends none, and gets no name from the gateway.
    const answers = await sendSequentially(gateway.port, [
      { headers },
      { headers },
      { headers },
      {},
    ]);
    expect(statusesOf(answers)).toEqual([200, 200, 429, 429]);
    expect(answers[0].headers.ratelimit.split(', ')).toHaveLength(POLICY_WINDOWS_MAX);
  });

  for (const [namespace, name, prefix] of [
    ['keys', 'X-Api-Key', ''],
    ['cookies', 'Cookie', 'connect.sid='],
  ]) {
    testInTime(`a repeated ${name} header is no way around the limit`, async () => {
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
      // An application may believe any of the lines that it gets.
      const believed = application.requests.slice(before).filter(({ rawHeaders }) => {
        return rawHeaders.some((text, i) => i % 2 === 1 && text.split('; ').includes(value));
      });
      expect(believed.length).toBeLessThanOrEqual(2);
    });
  }

  if (!joinsHeaders) {
    testInTime('of repeated headers the application gets the one that is counted', async () => {
      const gateway = await serving('keys');
      const twice = { 'X-Api-Key': `${newClientName()}\r\nX-Api-Key: other`, ...NO_BODY_HEADERS };
      const [answer] = await exchange(gateway.port, [
        requestBytes({ method: 'GET', headers: twice }),
      ]);
      expect(remainingIn(answer)).toBe(1);
      const { rawHeaders } = application.requests.at(-1)!;
      const names = rawHeaders.map((text) => text.toLowerCase());
      const at = names.indexOf('x-api-key');
      expect(names.lastIndexOf('x-api-key')).toBe(at);
      const again = { 'X-Api-Key': rawHeaders[at + 1] };
      expect(remainingIn(await sendThrough(gateway.port, { headers: again }))).toBe(0);
    });
  }

  testInTime('a header may have any name, or is told to be dropped', async () => {
    if (dropsUnusualHeaderNames) {
      await expect(serving('named')).rejects.toThrow('looks at "api_key"');
      return;
    }
    const gateway = await serving('named');
    const of = (who: string) => ({ headers: { 'Api-Key': 'x', api_key: who } });
    const [one, two] = [of(newClientName()), of(newClientName())];
    const answers = await sendSequentially(gateway.port, [one, one, one, two]);
    expect(statusesOf(answers)).toEqual([200, 200, 429, 200]);
    expect(application.requests.at(-1)?.headers.api_key).toBe(two.headers.api_key);
  });

  for (const [namespace, who] of [
    ['open', ''],
    ['cookies', 'Cookie: connect.sid=odd'],
    ['keys', 'X-Api-Key: odd'],
  ]) {
    testInTime(
      `who is refused under ${namespace} gets in by no head that weir does not take`,
      async () => {
        const gateway = await serving(namespace);
        const asking = async (lines: string[]): Promise<number | undefined> => {
          const head = ['GET /odd HTTP/1.1', 'Host: odd', ...lines, '', ''].join('\r\n');
          const answers = await exchange(gateway.port, [Buffer.from(head, 'latin1')]).catch(
            () => [],
          );
          return answers[0]?.status;
        };
        const own = who === '' ? [] : [who];
        await waitUntil('it is refused', async () => (await asking(own)) === 429);
        const before = application.requests.length;
        const heads = [
          [...own, `X-Long: ${'x'.repeat(40_000)}`],
          [...own, ...Array.from({ length: 150 }, (_, i) => `X-Many-${i}: x`)],
          [...own, 'X-Odd: a\x01b'],
          [...own, 'X-Forwarded-For: \x01'],
          [...own.map((line) => `${line}; a=\x01`)],
          [...own.map((line) => `${line}; ${'a=b;'.repeat(3_500)}`)],
          // A head to think about for long, where a pattern tries every part of a run of blanks.
          [...own.map((line) => `${line};${' '.repeat(13_000)}x`)],
          [...own, ...Array.from({ length: 4 }, () => `Cookie: a=${'x'.repeat(14_000)}`)],
          [...own.map((line) => `${line}; connect.sid=${'z'.repeat(40_000)}`)],
          // Of these weir cuts off most, sometimes before its answer has been read.
          ...Array.from({ length: 4 }, () => [...own, `X-Long: ${'x'.repeat(300_000)}`]),
          ...Array.from({ length: 4 }, () => {
            return [...own, ...Array.from({ length: 2_000 }, (_, i) => `X-Many-${i}: x`)];
          }),
        ];
        for (const [i, lines] of heads.entries()) {
          // Under a key that is read as it is, another one is another caller.
          if (namespace === 'keys' && i >= 4 && i <= 7) continue;
          expect([i, await asking(lines)]).not.toEqual([i, 200]);
        }
        expect(application.requests.slice(before)).toEqual([]);
        expect(await asking(own)).toBe(429);
      },
    );
  }

  testInTime('of a flood on one connection nobody gets in who is refused', async () => {
    const gateway = await serving('open');
    const one = Buffer.from('GET /flood HTTP/1.1\r\nHost: flood\r\n\r\n');
    const flood = async (length: number) => {
      return statusesOf(
        await exchange(gateway.port, [Buffer.concat(Array(length).fill(one))], length),
      );
    };
    await waitUntil('it is refused', async () => (await flood(1))[0] === 429);
    expect(new Set(await flood(800))).toEqual(new Set([429]));
  });

  testInTime(
    'address, method, path and a header together; the tightest window refuses',
    async () => {
      const gateway = await serving('combined');
      const of = { path: '/a', headers: { 'X-Api-Key': 'one' } };
      const all = [
        ...[of, { ...of, path: '//x/../%61?b' }, of],
        { ...of, headers: { ...FORGED_HEADERS, ...of.headers } },
        { ...of, method: 'POST' },
        { ...of, path: '/b' },
        { ...of, headers: { 'X-Api-Key': 'two' } },
      ];
      const answers = await sendSequentially(gateway.port, all, agentFromNewAddress());
      expect(statusesOf(answers)).toEqual([200, 200, 429, 429, 200, 200, 200]);
      expect(answers[0].headers['ratelimit-policy']).toMatch(/q=3;.*q=2;/);
      expect((await sendThrough(gateway.port, of, agentFromNewAddress())).status).toBe(200);
    },
  );

  testInTime('a target that is a whole URL is the path in it, or refused', async () => {
    const gateway = await serving('combined');
    const key = newClientName();
    const asking = async (target: string) => {
      const head = `GET ${target} HTTP/1.1\r\nHost: h\r\nX-Api-Key: ${key}\r\n\r\n`;
      return (await exchange(gateway.port, [Buffer.from(head)]))[0];
    };
    expect(remainingIn(await asking('/'))).toBe(2);
    expect(remainingIn(await asking('http://h'))).toBe(1);
    expect((await asking('http://h/?a')).status).toBe(429);
    expect((await asking('x:http://h/v1/check/shadow')).status).toBe(400);
  });

  testInTime(
    'behind another proxy its client is who asks, whatever that client has said',
    async () => {
      const gateway = await serving('behind');
      const of = (chain: string) => ({ headers: { 'X-Forwarded-For': chain } });
      const [one, two] = [`10.0.0.${++lastClientNumber}`, `10.0.0.${++lastClientNumber}`];
      const answers = await sendSequentially(gateway.port, [
        of(one),
        of(`192.0.2.1, ${one}`),
        of(`${two}, 192.0.2.2, ${one}`),
        of(`${one}, ${two}`),
      ]);
      expect(statusesOf(answers)).toEqual([200, 200, 429, 200]);
    },
  );

  testInTime('in shadow nobody is refused; connections to weir are kept', async () => {
    const { gateway, wire } = await wired('shadow');
    const answers = await sendConcurrently(gateway.port, 300, 4);
    expect(statusesOf(answers).every((status) => status === 200)).toBe(true);
    expect(wire.bytesToWeir().split(/\bHTTP\/1\.1\r\n/)).toHaveLength(301);
    // Four of each process of the gateway, and those that some timeout has ended.
    expect(wire.connections()).toBeLessThan(40);
  });

  testInTime('on the port of the checks, with a key', async () => {
    const at = atPort(weir.port, true);
    const agent = agentFromNewAddress();
    const gateway = await serve(policies.open, at, ROOT_KEY);
    for (const expected of [200, 200, 200, 429]) {
      const headers = { 'X-Weir-Key': 'a-key-of-the-client' };
      const answer = await sendThrough(gateway.port, { headers }, agent);
      expect(answer.status).toBe(expected);
      expect(answer.headers.ratelimit).toBeDefined();
    }
  });

  testInTime('over a Unix socket', async () => {
    const agent = agentFromNewAddress();
    const gateway = await serve(policies.open, { socket: join(directory, 'weir socket') });
    for (const expected of [200, 200, 200, 429]) {
      const answer = await sendThrough(gateway.port, {}, agent);
      expect([answer.status, answer.headers.ratelimit]).toEqual([expected, expect.any(String)]);
    }
  });

  if (!isProxy) {
    test('an application that is busy for a while lets nobody in who is refused', async () => {
      const gateway = await serving('keys');
      const headers = { 'X-Api-Key': newClientName() };
      await waitUntil(
        'it is refused',
        async () => (await sendThrough(gateway.port, { headers })).status === 429,
      );
      for (let i = 0; i < 5; i++) {
        const busy = sendThrough(gateway.port, {
          path: '/busy',
          headers: { 'X-Api-Key': newClientName() },
        });
        const answers = await sendConcurrently(gateway.port, 64, 64, { headers });
        expect(new Set(statusesOf(answers))).toEqual(new Set([429]));
        expect((await busy).status).toBe(200);
      }
    });

    test('where weir hangs, an application soon waits no more, until it answers again', async () => {
      const { gateway, wire } = await wired('closed');
      const headers = { 'X-Api-Key': newClientName() };
      await firstAnswer(gateway);
      await suspendProcess(weir);
      const answers = await sendConcurrently(gateway.port, 1_000, 400, { headers });
      weir.child.kill('SIGCONT');
      expect(new Set(statusesOf(answers))).toEqual(new Set([429]));
      // Twice the 64 after which it waits no more, and what tries again; of 400 at once not all.
      expect(wire.bytesToWeir().split('GET /v1/check/').length).toBeLessThan(200);
      await firstAnswer(gateway);
    });
  }

  test('what weir does not answer is not sent again: it may have been counted', async () => {
    const mute = createServer((socket) => socket.resume());
    await new Promise<void>((resolve) => mute.listen(0, '127.0.0.1', resolve));
    stops.push(async () => mute.close());
    const wire = await startRecordingProxy((mute.address() as AddressInfo).port);
    stops.push(wire.stop);
    const gateway = await serve(policies.open, atPort(wire.port));
    expect((await sendThrough(gateway.port)).status).toBe(200);
    expect(wire.bytesToWeir().split(/\bHTTP\/1\.1\r\n/)).toHaveLength(2);
  });

  /** What a client gets where weir has not decided. */
  async function undecided(
    gateway: Gateway,
    { onError }: Policy,
    isKept: boolean,
    bodies = ['whole', '', 'whole'],
  ) {
    const before = application.requests.length;
    const all = bodies.map((body) => ({ method: 'POST', path: '/undecided', body }));
    for (const { status, headers, body } of await sendSequentially(gateway.port, all)) {
      if (isKept) expect(headers.connection).not.toBe('close');
      expect(headers.ratelimit).toBeUndefined();
      expect(status).toBe(onError === 'allow' ? 200 : 429);
      if (onError === 'allow') {
        expect(body).toBe('application');
      } else if (!isEnvoy) {
        // Envoy has a setting for the status alone.
        expect(headers['retry-after']).toBe('1');
        expect(headers['cache-control']).toBe('no-store');
        expect(headers['content-type']).toBe('application/problem+json');
        expect(JSON.parse(body).status).toBe(429);
      }
    }
    const seen = application.requests.slice(before).map((request) => request.body);
    expect(seen).toEqual(onError === 'allow' ? bodies : []);
  }

  describe.each(['open', 'closed'])('without a decision, %s:', (namespace) => {
    const policy = policies[namespace];

    test('weir hangs, and goes on; it is stopped, and started again', async () => {
      const port = await freePort();
      const another = await startWeir(`data-${namespace}`, port);
      const gateway = await serve(policy, atPort(port));
      await firstAnswer(gateway);
      await suspendProcess(another);
      // Each waits until the gateway gives up.
      await undecided(gateway, policy, true, ['whole']);
      another.child.kill('SIGCONT');
      await another.stop();
      await undecided(gateway, policy, true);
      await startWeir(`data-${namespace}`, port);
      await firstAnswer(gateway);
    });

    test('a wrong key, and a namespace without a policy, are in the error log', async () => {
      const wrong = await serve(policy, atPort(weir.port, true), 'wrong');
      const unknown = await serve({ ...policy, namespace: 'unknown' }, atPort(gatewayPort));
      for (const gateway of [wrong, unknown]) {
        if (isEnvoy) {
          // It passes on what is neither a 200 nor a 5xx, and has it in no log.
          expect((await sendThrough(gateway.port)).status).toBe(gateway === wrong ? 401 : 404);
          continue;
        }
        await undecided(gateway, policy, false);
        expect(gateway.output()).toMatch(/unexpected status|weir answered/);
      }
    });
  });
}
