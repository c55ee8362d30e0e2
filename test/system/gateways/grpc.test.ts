/** Denied gRPC calls through real gateways, over HTTP/2 without TLS. */

import {
  connect,
  constants,
  type IncomingHttpHeaders,
  type IncomingHttpStatusHeader,
  type OutgoingHttpHeaders,
} from 'node:http2';
import { afterAll, describe, expect, test } from 'vitest';
import { GRPC_DENIED_MESSAGE } from '../../../src/policies/grpc.ts';
import { freePort } from '../../support/server.ts';
import { newKey } from './gateway-process.ts';
import { atPort, useGatewayStack } from './gateway-stack.ts';
import { realCaddy, realEnvoy, realHaproxy, realNginx, realTraefik } from './real-gateways.ts';

interface Response {
  headers: IncomingHttpHeaders & IncomingHttpStatusHeader;
  /** Whether the headers end the response, without a body. */
  isHeadersOnly: boolean;
  body: string;
}

const traefik = await realTraefik();
const envoy = await realEnvoy();

/** With the change that makes the printed text serve HTTP/2 without TLS. */
const GATEWAYS = [
  {
    gateway: realNginx,
    edit: (text: string) => text.replace(/^( *listen .*);$/m, '$1 http2;'),
  },
  {
    gateway: realCaddy,
    edit: (text: string) => text.replace(/^\tservers \{$/m, '$&\n\t\tprotocols h1 h2c'),
  },
  { gateway: realHaproxy, edit: (text: string) => text.replace('proto h1', 'proto h2') },
  { gateway: traefik, edit: (text: string) => text },
  { gateway: envoy, edit: (text: string) => text },
];

for (const { gateway, edit } of GATEWAYS) {
  const { name } = gateway;
  describe.skipIf(gateway.isMissing)(name, () => {
    const stack = useGatewayStack(gateway, {
      calls: { limit: 1, identify: 'header:x-api-key', onError: 'deny' },
    });
    const closes: (() => void)[] = [];
    afterAll(() => {
      for (const close of closes) close();
    });

    async function clientOf(weirPort = stack.gatewayPort) {
      const { port } = await stack.serve('calls', { edit, weir: atPort(weirPort) });
      const session = connect(`http://127.0.0.1:${port}`);
      closes.push(() => session.destroy());
      return (headers: OutgoingHttpHeaders) => {
        return new Promise<Response>((resolve, reject) => {
          const stream = session.request({
            ':method': 'POST',
            ':path': '/a.Service/M',
            ...headers,
          });
          let response: Response;
          stream.setEncoding('utf8');
          stream.on('response', (received, flags) => {
            const isHeadersOnly = (flags & constants.NGHTTP2_FLAG_END_STREAM) !== 0;
            response = { headers: received, isHeadersOnly, body: '' };
          });
          stream.on('data', (text) => {
            response.body += text;
          });
          stream.on('error', reject);
          stream.on('end', () => resolve(response));
          stream.end('message');
        });
      };
    }

    test.each(['application/grpc', 'application/grpc+proto', 'application/grpc+json'])(
      'a denied call with %s gets the status of gRPC, without a body',
      async (type) => {
        const send = await clientOf();
        const call = { 'content-type': type, te: 'trailers', ...newKey() };
        expect((await send(call)).headers[':status']).toBe(200);
        const { headers, isHeadersOnly } = await send(call);
        // Traefik returns what weir has sent, and a 200 would allow the request.
        expect(headers[':status']).toBe(name === 'traefik' ? 429 : 200);
        expect(isHeadersOnly).toBe(true);
        expect(headers).toMatchObject({
          'content-type': 'application/grpc',
          'grpc-status': '8',
          'grpc-message': GRPC_DENIED_MESSAGE,
          'cache-control': 'no-store',
          ratelimit: expect.stringContaining('"calls";r=0'),
          'retry-after': expect.stringMatching(/^[1-9]/),
        });
      },
    );

    test('other content types get a 429 with a problem', async () => {
      const send = await clientOf();
      const key = newKey();
      await send(key);
      for (const type of ['application/grpc-web', 'application/json', 'x:application/grpc']) {
        const { headers, body } = await send({ 'content-type': type, ...key });
        expect([type, headers[':status']]).toEqual([type, 429]);
        expect(headers['content-type']).toBe('application/problem+json');
        expect(headers).not.toHaveProperty('grpc-status');
        expect(JSON.parse(body).status).toBe(429);
      }
    });

    test('while weir is down, onError denies a call', async () => {
      const send = await clientOf(await freePort());
      const { headers } = await send({ 'content-type': 'application/grpc', te: 'trailers' });
      const { ':status': status, 'grpc-status': grpcStatus } = headers;
      // Clients of gRPC take a 429 for UNAVAILABLE, and a 500 for UNKNOWN.
      const expected: Record<string, unknown[]> = {
        nginx: [200, '8'],
        haproxy: [200, '8'],
        envoy: [200, '8'],
        caddy: [429, undefined],
        traefik: [500, undefined],
      };
      expect([status, grpcStatus]).toEqual(expected[name]);
    });
  });
}
