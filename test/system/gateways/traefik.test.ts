/** A real Traefik with the file that `weir gateway` prints for it. */

import { Agent, type AgentOptions } from 'node:http';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  exchange,
  LONGEST_WINDOW_MS,
  type ParsedResponse,
  requestBytes,
} from '../../support/http.ts';
import { type PolicySettings, writeConfig } from '../../support/policy-config.ts';
import {
  freePort,
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
  waitUntil,
} from '../../support/server.ts';
import { runWeir } from '../../support/weir-command.ts';
import {
  type Application,
  type Gateway,
  type RecordingProxy,
  sendConcurrently,
  sendSequentially,
  sendThrough,
  startApplication,
  startGateway,
  startRecordingProxy,
  upgradeProtocol,
} from './gateway-process.ts';
import { installTraefik } from './real-gateways.ts';

const traefik = await installTraefik();

const LIMIT = 3;
const POLICIES = {
  addresses: { limit: LIMIT },
  keys: { limit: LIMIT, identify: 'header:x-api-key', missing: 'allow' },
  cookies: { limit: LIMIT, identify: 'cookie:session' },
  hundred: { limit: 100, identify: 'header:x-api-key' },
  behind: { limit: LIMIT, trustedHops: 2 },
  targets: { limit: LIMIT, identify: ['method', 'path'] },
  denying: { limit: LIMIT, onError: 'deny' },
  listed: { limit: LIMIT, gateway: ['traefik', 'envoy'], identify: ['method', 'path'] },
} as const;
/** Policies of the Traefik that most tests share, each for the paths below its name. */
const SHARED = ['addresses', 'keys', 'cookies', 'hundred', 'targets', 'denying'];

/** The response without a decision of weir. */
const NO_DECISION = { status: 500, body: '' };

let lastAddress = 1;
/** A client with another address: all of 127.0.0.0/8 belongs to this machine. */
const newClient = () => {
  // More than 254: each poll of a Traefik that starts has its own.
  const localAddress = `127.0.${++lastAddress >> 8}.${lastAddress & 255}`;
  return new Agent({ keepAlive: true, maxSockets: 1, localAddress } as AgentOptions);
};
const statusesOf = (responses: ParsedResponse[]) => responses.map(({ status }) => status);
const withKey = (key: string, path = '/keys') => ({ path, headers: { 'X-Api-Key': key } });

describe.skipIf(traefik === undefined)('Traefik', () => {
  const directory = temporaryDirectory();
  let application: Application;
  let weir: ServerProcess;
  let gatewayPort = 0;
  let proxy: RecordingProxy;
  /** The gateway with all of `SHARED`, and with `listed` for other paths. */
  let port = 0;
  const stops: (() => Promise<unknown>)[] = [];

  const startWeir = (name = 'data', args = ['--gateway-port', `${gatewayPort}`]) => {
    const policies = Object.fromEntries(
      Object.entries(POLICIES).map(([name, policy]) => [name, { gateway: 'traefik', ...policy }]),
    ) as Record<string, PolicySettings>;
    const config = writeConfig(directory, policies);
    const sizes = ['--acceptors', '1', '--workers', '1', '--counters', '1024'];
    return startServer(join(directory, name), { args: ['--config', config, ...sizes, ...args] });
  };

  /** @param routes a namespace, or a namespace and the prefix of its paths: `keys=/login` */
  async function print(routes: string[], { server = weir, args = [] as string[] } = {}) {
    const namespaces = routes.flatMap((route) => ['--namespace', route]);
    const upstream = ['--upstream', `http://127.0.0.1:${application.port}`];
    const all = ['gateway', 'traefik', ...namespaces, ...args, ...upstream];
    const { code, stdout, stderr } = await runWeir(server.url, all);
    expect([code, stderr]).toEqual([0, '']);
    return stdout;
  }

  async function startTraefik(configuration: string, args: string[] = []): Promise<Gateway> {
    const listenPort = await freePort();
    const gateway = await startGateway({
      configuration,
      fileName: 'weir.yaml',
      port: listenPort,
      command: (path) => {
        const entryPoint = `--entryPoints.web.address=:${listenPort}`;
        return [traefik!, entryPoint, `--providers.file.filename=${path}`, ...args];
      },
      env: { WEIR_KEY: ROOT_KEY },
    });
    stops.push(gateway.stop);
    // It listens before it has read the file.
    await waitUntil('Traefik has routes', async () => {
      const request = { method: 'OPTIONS', path: '/addresses/start' };
      return (await sendThrough(listenPort, request, newClient())).status !== 404;
    });
    return gateway;
  }

  /** @returns a function for the bytes that weir gets from now on */
  function record(): () => string {
    const before = proxy.bytesToWeir().length;
    return () => proxy.bytesToWeir().slice(before);
  }

  beforeAll(async () => {
    application = await startApplication();
    gatewayPort = await freePort();
    weir = await startWeir();
    proxy = await startRecordingProxy(gatewayPort);
    const text = await print(['listed', ...SHARED.map((name) => `${name}=/${name}`)]);
    const recorded = text.replaceAll(`127.0.0.1:${gatewayPort}`, `127.0.0.1:${proxy.port}`);
    ({ port } = await startTraefik(recorded));
  });
  afterAll(async () => {
    for (const stop of stops) await stop();
    await proxy.stop();
    await weir.stop();
    await application.stop();
    removeDirectory(directory);
  });

  test('allows as many requests as the limit, and the others get the response of weir', async () => {
    const before = application.requests.length;
    const body = 'x'.repeat(200_000);
    const path = '/addresses?b=c';
    const all = Array.from({ length: 5 }, () => ({ method: 'POST', path, body }));
    const responses = await sendSequentially(port, all, newClient());
    expect(statusesOf(responses)).toEqual([200, 200, 200, 429, 429]);
    const received = application.requests.slice(before);
    expect(received.map(({ method, url, body: { length } }) => [method, url, length])).toEqual(
      Array.from({ length: LIMIT }, () => ['POST', path, body.length]),
    );
    // The application gets the quota headers, and the client those of a denial only.
    expect(received.map(({ headers }) => headers.ratelimit)).toEqual(
      [2, 1, 0].map((rest) => expect.stringMatching(new RegExp(`^"addresses";r=${rest};t=\\d+$`))),
    );
    expect(responses[0].headers).not.toHaveProperty('ratelimit');
    expect(responses[3].headers).toMatchObject({
      'ratelimit-policy': `"addresses";q=3;w=${LONGEST_WINDOW_MS / 1_000}`,
      'cache-control': 'no-store',
      'content-type': 'application/problem+json',
      'retry-after': expect.stringMatching(/^[1-9]/),
    });
    expect(JSON.parse(responses[3].body)).toMatchObject({ 'violated-policies': ['addresses'] });
  });

  test('of 1 000 concurrent requests exactly as many as the limit are allowed', async () => {
    const request = withKey('concurrent', '/hundred');
    const statuses = statusesOf(await sendConcurrently(port, 1_000, 50, request));
    expect(statuses.filter((status) => status === 200)).toHaveLength(100);
    expect(statuses.filter((status) => status === 429)).toHaveLength(900);
  });

  test('counts a client with forged headers by its own address', async () => {
    const headers = {
      'X-Forwarded-For': '192.0.2.7',
      'X-Real-Ip': '192.0.2.8',
      Forwarded: 'for=192.0.2.9',
      'X-Weir-Key': 'a-key-of-the-client',
    };
    const path = '/addresses';
    const all = [{ path }, { path }, { path, headers }, { path, headers }];
    expect(statusesOf(await sendSequentially(port, all, newClient()))).toEqual([
      ...[200, 200, 200, 429],
    ]);
    expect(application.requests.at(-1)?.headers).not.toHaveProperty('x-weir-key');
  });

  test('counts by the method and the path that it sets itself', async () => {
    const headers = { 'X-Forwarded-Method': 'PUT', 'X-Forwarded-Uri': '/forged' };
    const all = Array.from({ length: 4 }, (_, i) => ({ path: `/targets?${i}`, headers }));
    expect(statusesOf(await sendSequentially(port, all))).toEqual([200, 200, 200, 429]);
    expect((await sendThrough(port, { path: '/targets/other', headers })).status).toBe(200);
  });

  test('behind a trusted proxy counts the client of that proxy', async () => {
    const trusted = ['--entryPoints.web.forwardedHeaders.trustedIPs=127.0.0.0/8'];
    const behind = await startTraefik(await print(['behind']), trusted);
    const from = (chain: string) => ({ headers: { 'X-Forwarded-For': chain } });
    const all = [from('10.0.0.1'), from('192.0.2.1, 10.0.0.1'), from('10.0.0.1')];
    const more = [from('10.0.0.1'), from('10.0.0.2')];
    const responses = await sendSequentially(behind.port, [...all, ...more]);
    expect(statusesOf(responses)).toEqual([200, 200, 200, 429, 200]);
  });

  test('sends weir what identifies the client, and nothing else of it', async () => {
    const bytes = record();
    const request = (key: string) => {
      const { path, headers } = withKey(key);
      return { path, headers: { ...headers, Authorization: 'Bearer secret', Cookie: 'a=secret' } };
    };
    const all = ['one', 'one', 'one', 'one', 'two'].map(request);
    expect(statusesOf(await sendSequentially(port, all))).toEqual([200, 200, 200, 429, 200]);
    expect(bytes()).toContain('X-Api-Key: two');
    expect(bytes()).not.toContain('secret');
    expect(application.requests.at(-1)?.headers.authorization).toBe('Bearer secret');
  });

  test.each([
    ['X-Api-Key', '/keys', ''],
    ['Cookie', '/cookies', 'session='],
  ] as const)('a repeated %s header does not circumvent the limit', async (name, path, prefix) => {
    const before = application.requests.length;
    for (let i = 0; i < 8; i++) {
      const values = [`${prefix}same`, `${prefix}other-${i}`];
      const lines = (i < 4 ? values : values.toReversed()).join(`\r\n${name}: `);
      const headers = { Authorization: '', 'Content-Type': '', 'Content-Length': '' };
      const parts = { method: 'GET', path, headers: { ...headers, [name]: lines } };
      await exchange(port, [requestBytes(parts)]);
    }
    const received = application.requests.slice(before).filter(({ rawHeaders }) => {
      return rawHeaders.some((text) => text.includes(`${prefix}same`));
    });
    expect(received.length).toBeLessThanOrEqual(LIMIT);
  });

  test('a client cannot name another gateway, by any target', async () => {
    const bytes = record();
    const query = 'gateway=envoy';
    const targets = [`/?${query}`, `//?${query}`, `/a/..?${query}`, `/%3F${query}`, `/#?${query}`];
    for (const target of [...targets, `http://h?${query}`, `?${query}`, `*?${query}`]) {
      const head = `GET ${target} HTTP/1.1\r\nHost: h\r\nX-Forwarded-Uri: /forged\r\n\r\n`;
      await exchange(port, [Buffer.from(head)]).catch(() => []);
    }
    const sent = bytes().match(/(?<=^GET )\S+(?= HTTP\/1\.1\r$)/gm) ?? [];
    expect(sent.length).toBeGreaterThan(2);
    expect(new Set(sent)).toEqual(new Set(['/v1/check/listed?gateway=traefik']));
    expect(bytes()).not.toContain('/forged');
  });

  test('an allowed client may upgrade to WebSocket, and to no other protocol', async () => {
    const agent = newClient();
    const to = (protocol: string) => upgradeProtocol(port, protocol, agent, '/addresses');
    expect(await to('websocket')).toEqual({ status: 101, received: 'ping' });
    expect((await to('h2c')).status).not.toBe(101);
    expect((await sendThrough(port, { path: '/addresses' }, agent)).status).toBe(200);
    expect((await to('websocket')).status).toBe(429);
  });

  test('sends a key to the port for checks, and hides it from the application', async () => {
    const server = await startWeir('data-keys', []);
    stops.push(server.stop);
    const keyed = await startTraefik(await print(['keys'], { server }));
    const all = Array.from({ length: 4 }, () => withKey('with a key'));
    expect(statusesOf(await sendSequentially(keyed.port, all))).toEqual([200, 200, 200, 429]);
    const { headers } = application.requests.at(-1)!;
    expect(headers).toMatchObject({ 'x-api-key': 'with a key' });
    expect(headers).not.toHaveProperty('x-weir-key');
  });

  test('with several policies in one text, the longest prefix selects one', async () => {
    const before = application.requests.length;
    const all = ['/keys', '/./keys/a', '//keys', '/other', '/%6beys'].map((path) => {
      return withKey('several policies', path);
    });
    const statuses = statusesOf(await sendSequentially(port, all));
    expect(statuses).toEqual([200, 200, 200, 200, 429]);
    const policies = application.requests.slice(before).map(({ headers }) => {
      return String(headers['ratelimit-policy']).split(';', 1)[0];
    });
    expect(policies).toEqual(['"keys"', '"keys"', '"keys"', '"listed"']);
  });

  test('the snippet protects the router to which its middlewares are added', async () => {
    const snippet = await print(['keys=/login'], { args: ['--snippet'] });
    const site = [
      '  routers:',
      '    login:',
      '      rule: PathPrefix(`/login`)',
      '      middlewares: [weir-before, weir]',
      '      service: shop',
      '    others:',
      '      rule: PathPrefix(`/`)',
      '      service: shop',
      '  services:',
      '    shop:',
      `      loadBalancer: { servers: [{ url: "http://127.0.0.1:${application.port}" }] }`,
    ];
    const merged = await startTraefik(`${snippet.trimEnd()}\n${site.join('\n')}\n`);
    const all = Array.from({ length: 4 }, () => withKey('snippet', '/login'));
    const responses = await sendSequentially(merged.port, [...all, { ...all[0], path: '/' }]);
    expect(statusesOf(responses)).toEqual([200, 200, 200, 429, 200]);
  });

  test('denies requests with a 500 while weir is stopped, with both values of onError', async () => {
    await weir.stop();
    for (const path of ['/addresses', '/denying']) {
      expect(await sendThrough(port, { path }, newClient())).toMatchObject(NO_DECISION);
    }
    weir = await startWeir();
    await waitUntil('Traefik gets decisions', async () => {
      return (await sendThrough(port, { path: '/denying' }, newClient())).status === 200;
    });
  });
});
