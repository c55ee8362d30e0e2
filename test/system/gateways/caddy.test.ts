/** Caddy with the configuration that weir prints for it. */

import { describe, expect, test } from 'vitest';
import { defineGatewayTests } from './gateway-cases.ts';
import { sendSequentially, startRecordingProxy, statusesOf } from './gateway-process.ts';
import { atPort, useGatewayStack } from './gateway-stack.ts';
import { realCaddy } from './real-gateways.ts';

describe.skipIf(realCaddy.isMissing)('Caddy', () => {
  defineGatewayTests(realCaddy);

  describe('under load', () => {
    const stack = useGatewayStack(realCaddy, { login: { limit: 2, onError: 'allow' } });

    // Caddy may dial the application for a check: the dial reads its address too late.
    test('repeats a check that has reached the application, and takes it for no failure', async () => {
      const { application, gatewayPort } = stack;
      const misdirect = { count: 1, port: application.port };
      const proxy = await startRecordingProxy(gatewayPort, misdirect);
      stack.stops.push(proxy.stop);
      const caddy = await stack.serve('login', { weir: atPort(proxy.port) });
      const responses = await sendSequentially(caddy.port, [{}, {}, {}, {}]);
      expect(statusesOf(responses)).toEqual([200, 200, 429, 429]);
      expect(responses.filter(({ headers }) => headers.ratelimit === undefined)).toEqual([]);
      const misdirected = application.requests.filter(({ url }) => url.startsWith('/v1/check/'));
      expect(misdirected.length).toBeGreaterThan(0);
    });
  });
});
