/** A real Envoy with the configuration that weir prints for it. */

import { type ClientHttp2Session, connect, type OutgoingHttpHeaders } from 'node:http2';
import { afterAll, describe, expect, test } from 'vitest';
import { LONGEST_WINDOW_MS, type ParsedResponse } from '../../support/http.ts';
import { defineGatewayTests } from './gateway-cases.ts';
import { defineFormTests } from './gateway-form-cases.ts';
import { startRecordingProxy } from './gateway-process.ts';
import { atPort, useGatewayStack } from './gateway-stack.ts';
import { realEnvoy } from './real-gateways.ts';

const envoy = await realEnvoy();

describe.skipIf(envoy.isMissing)('Envoy', () => defineGatewayTests(envoy));

describe.skipIf(envoy.isMissing)('Envoy with another form of the configuration', () => {
  defineFormTests(envoy);
});

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

describe.skipIf(envoy.isMissing)('Envoy over HTTP/2 without TLS', () => {
  const stack = useGatewayStack(envoy, {
    addresses: { limit: 2 },
    cookies: { limit: 2, identify: ['cookie:session'] },
    listed: { limit: 2, gateway: ['envoy', 'nginx'], identify: ['method', 'path'] },
  });
  const sessions: ClientHttp2Session[] = [];
  afterAll(() => {
    for (const session of sessions) session.destroy();
  });

  function connectTo(port: number): ClientHttp2Session {
    const session = connect(`http://127.0.0.1:${port}`);
    sessions.push(session);
    return session;
  }
  const connectFor = async (namespace: string) => connectTo((await stack.serve(namespace)).port);

  test('allows as many requests as the limit, and the others get a 429 with its reason', async () => {
    const session = await connectFor('addresses');
    const requests = Array.from({ length: 50 }, () => sendOverHttp2(session, {}));
    const responses = await Promise.all(requests);
    expect(responses.filter(({ status }) => status === 200)).toHaveLength(2);
    expect(stack.application.requests).toHaveLength(2);
    // Of one connection.
    expect(session.remoteSettings.maxConcurrentStreams).toBe(100);
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

  test('a client cannot name another gateway, by any path', async () => {
    const proxy = await startRecordingProxy(stack.gatewayPort);
    const { port } = await stack.serve('listed', { weir: atPort(proxy.port) });
    const forged = { 'x-forwarded-method': 'PUT', 'x-forwarded-uri': '/forged' };
    const query = '?gateway=nginx';
    const paths = [`/${query}`, query, `/a/..${query}`, `//${query}`, `*${query}`, `h${query}`];
    for (const path of paths) {
      // Envoy closes a connection on which a path is invalid.
      const session = connectTo(port).on('error', () => {});
      await sendOverHttp2(session, { ...forged, ':path': path }).catch(() => {});
    }
    await proxy.stop();
    const targets = proxy.bytesToWeir().match(/(?<=^GET )\S+(?= HTTP\/1\.1\r$)/gm) ?? [];
    expect(targets.length).toBeGreaterThan(2);
    expect(targets.filter((target) => !target.startsWith('/v1/check/listed//'))).toEqual([]);
  });

  test('cookies that HTTP/2 has split are joined, and one of them identifies the client', async () => {
    const session = await connectFor('cookies');
    const send = (name: string) =>
      sendOverHttp2(session, { cookie: ['a=b', `session=${name}`, 'c=d'] });
    const statuses: number[] = [];
    for (const name of ['one', 'one', 'one', 'two']) statuses.push((await send(name)).status);
    expect(statuses).toEqual([200, 200, 429, 200]);
    expect(stack.application.requests.at(-1)?.headers.cookie).toBe('a=b; session=two; c=d');
  });
});
