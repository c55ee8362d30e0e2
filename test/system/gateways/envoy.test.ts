/** A real Envoy with the configuration that weir prints for it. */

import { type ClientHttp2Session, connect, type OutgoingHttpHeaders } from 'node:http2';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { SYSTEM_CA_FILE } from '../../../src/commands/gateways/common.ts';
import { envoySnippet } from '../../../src/commands/gateways/envoy.ts';
import { everyPath } from '../../../src/commands/gateways/setup.ts';
import { readPolicies } from '../../../src/policies/policy.ts';
import { LONGEST_WINDOW_MS, type ParsedResponse } from '../../support/http.ts';
import { type PolicySettings, writeConfig } from '../../support/policy-config.ts';
import {
  freePort,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from '../../support/server.ts';
import { defineGatewayTests } from './gateway-cases.ts';
import { defineFormTests } from './gateway-form-cases.ts';
import {
  type Application,
  type Gateway,
  startApplication,
  startRecordingProxy,
} from './gateway-process.ts';
import { envoySite } from './gateway-sites.ts';
import { realEnvoy } from './real-gateways.ts';

const envoy = await realEnvoy();
const isMissing = envoy.isMissing;

describe.skipIf(isMissing)('Envoy', () => {
  defineGatewayTests({ ...envoy, isProxy: true, joinsHeaders: true });
});

describe.skipIf(isMissing)('Envoy with another form of the configuration', () => {
  defineFormTests({
    ...envoy,
    printSnippet: envoySnippet,
    addToSite: envoySite,
    trust: (text, caFile) => text.replace(SYSTEM_CA_FILE, caFile),
    tlsHost: '127.0.0.1',
  });
});

const COMMON = { gateway: 'envoy', limit: 2, duration: LONGEST_WINDOW_MS } as const;
const LISTED_GATEWAYS: PolicySettings['gateway'] = ['envoy', 'nginx'];
const POLICIES = {
  addresses: COMMON,
  keys: { ...COMMON, identify: ['header:x-api-key'] },
  cookies: { ...COMMON, identify: ['cookie:session'] },
  listed: { ...COMMON, gateway: LISTED_GATEWAYS, identify: ['method', 'path'] },
};

type Response = Pick<ParsedResponse, 'status' | 'body'> & { headers: Record<string, unknown> };

function sendOverHttp2(
  session: ClientHttp2Session,
  headers: OutgoingHttpHeaders,
): Promise<Response> {
  return new Promise((resolve, reject) => {
    const stream = session.request({ ':path': '/', ...headers });
    let response: Response;
    let body = '';
    stream.setEncoding('utf8');
    stream.on('response', ({ ':status': status = 0, ...rest }) => {
      response = { status, headers: rest, body: '' };
    });
    stream.on('data', (text) => {
      body += text;
    });
    stream.on('error', reject);
    stream.on('end', () => resolve({ ...response, body }));
    stream.end();
  });
}

describe.skipIf(isMissing)('Envoy over HTTP/2 without TLS', () => {
  const directory = temporaryDirectory();
  let application: Application;
  let weir: ServerProcess;
  let gatewayPort = 0;
  const gateways: Gateway[] = [];
  const sessions: ClientHttp2Session[] = [];

  beforeAll(async () => {
    application = await startApplication();
    gatewayPort = await freePort();
    const args = ['--config', writeConfig(directory, POLICIES), '--gateway-port', `${gatewayPort}`];
    weir = await startServer(join(directory, 'data'), { args });
  });
  afterAll(async () => {
    for (const session of sessions) session.destroy();
    for (const { stop } of gateways) await stop();
    await weir.stop();
    await application.stop();
    removeDirectory(directory);
  });

  async function connectTo(
    namespace: keyof typeof POLICIES,
    weirPort = gatewayPort,
  ): Promise<ClientHttp2Session> {
    const [policy] = readPolicies({ [namespace]: POLICIES[namespace] });
    const listenPort = await freePort();
    const upstream = { host: '127.0.0.1', port: application.port };
    const at = { host: '127.0.0.1', port: weirPort, needsKey: false };
    const text = envoy.print({ routes: everyPath(policy), weir: at, listenPort, upstream });
    gateways.push(await envoy.start(text, listenPort, ''));
    const session = connect(`http://127.0.0.1:${listenPort}`);
    sessions.push(session);
    return session;
  }

  test('allows as many requests as the limit, and the others get a 429 with its reason', async () => {
    const session = await connectTo('addresses');
    const requests = Array.from({ length: 50 }, () => sendOverHttp2(session, {}));
    const responses = await Promise.all(requests);
    expect(responses.filter(({ status }) => status === 200)).toHaveLength(2);
    expect(application.requests).toHaveLength(2);
    const denied = responses.filter(({ status }) => status === 429);
    expect(denied).toHaveLength(48);
    expect(denied[0].headers).toMatchObject({
      'ratelimit-policy': `"addresses";q=2;w=${LONGEST_WINDOW_MS / 1_000}`,
      'cache-control': 'no-store',
      'content-type': 'application/problem+json',
      'retry-after': expect.stringMatching(/^[1-9]/),
    });
    expect(JSON.parse(denied[0].body)).toMatchObject({ status: 429 });
  });

  test('a connection has at most 100 concurrent requests', async () => {
    const session = await connectTo('addresses');
    await sendOverHttp2(session, {});
    expect(session.remoteSettings.maxConcurrentStreams).toBe(100);
  });

  test('a repeated header does not circumvent the limit', async () => {
    const session = await connectTo('keys');
    const before = application.requests.length;
    for (let i = 0; i < 6; i++) {
      await sendOverHttp2(session, { 'x-api-key': i < 3 ? ['good', `${i}`] : [`${i}`, 'good'] });
    }
    const withGood = application.requests.slice(before).filter(({ rawHeaders }) => {
      return rawHeaders.includes('good');
    });
    expect(withGood.length).toBeLessThanOrEqual(2);
  });

  test('a client cannot name another gateway, by any path', async () => {
    const proxy = await startRecordingProxy(gatewayPort);
    await connectTo('listed', proxy.port);
    const forged = { 'x-forwarded-method': 'PUT', 'x-forwarded-uri': '/forged' };
    const query = '?gateway=nginx';
    const paths = [`/${query}`, query, `/a/..${query}`, `//${query}`, `*${query}`, `h${query}`];
    for (const path of paths) {
      // Envoy closes a connection on which a path is invalid.
      const session = connect(`http://127.0.0.1:${gateways.at(-1)!.port}`);
      session.on('error', () => {});
      await sendOverHttp2(session, { ...forged, ':path': path }).catch(() => {});
      session.destroy();
    }
    await proxy.stop();
    const targets = proxy.bytesToWeir().match(/(?<=^GET )\S+(?= HTTP\/1\.1\r$)/gm) ?? [];
    expect(targets.length).toBeGreaterThan(2);
    expect(targets.filter((target) => !target.startsWith('/v1/check/listed//'))).toEqual([]);
  });

  test('cookies that HTTP/2 has split are joined, and one of them identifies the client', async () => {
    const session = await connectTo('cookies');
    const send = (name: string) =>
      sendOverHttp2(session, { cookie: ['a=b', `session=${name}`, 'c=d'] });
    const statuses: number[] = [];
    for (const name of ['one', 'one', 'one', 'two']) statuses.push((await send(name)).status);
    expect(statuses).toEqual([200, 200, 429, 200]);
    expect(application.requests.at(-1)?.headers.cookie).toBe('a=b; session=two; c=d');
  });
});
