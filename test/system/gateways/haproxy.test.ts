/** HAProxy with the configuration and the Lua file that weir prints for it. */

import { describe, expect, test } from 'vitest';
import { exchange, type RequestParts, requestBytes } from '../../support/http.ts';
import { waitUntil } from '../../support/server.ts';
import { defineGatewayTests } from './gateway-cases.ts';
import { type Gateway, remainingIn, sendThrough, statusesOf } from './gateway-process.ts';
import { useGatewayStack } from './gateway-stack.ts';
import { realHaproxy, startHaproxy } from './real-gateways.ts';

describe.skipIf(realHaproxy.isMissing)('HAProxy', () => {
  defineGatewayTests(realHaproxy);

  describe('with a weir of its own', () => {
    const stack = useGatewayStack(realHaproxy, {
      limited: { limit: 2, onError: 'deny' },
      keys: { limit: 2, identify: ['header:x-api-key', 'header:x-user', 'path'] },
      sessions: { limit: 2, identify: 'cookie:session' },
      behind: { limit: 2, trustedHops: 2 },
      login: { limit: 2 },
    });

    test('a response of another server is not a decision', async () => {
      const { application } = stack;
      const elsewhere = `server weir 127.0.0.1:${application.port}`;
      const edit = (text: string) => text.replace(/server weir \S+/, elsewhere);
      const gateway = await stack.serve('limited', { edit });
      const before = application.requests.length;
      expect((await sendThrough(gateway.port)).status).toBe(429);
      const received = application.requests.slice(before).map(({ url }) => url);
      expect(received).toEqual(['/v1/check/limited?gateway=haproxy']);
      await waitUntil('the reason is in the log', () => {
        return gateway.output().includes('weir answered 200');
      });
    });

    test('an oversized, invalid or repeated identity does not bypass the limit', async () => {
      const keys = await stack.serve('keys');
      const sessions = await stack.serve('sessions');
      const behind = await stack.serve('behind');
      /** Sends the longest text that HAProxy accepts: it responds to a larger head with a 400. */
      const sendLongest = async ({ port }: Gateway, parts: (long: string) => RequestParts) => {
        for (let bytes = 16_000; ; bytes -= 20) {
          const response = await sendThrough(port, parts('x'.repeat(bytes)));
          if (response.status !== 400) return response;
        }
      };
      const sendRaw = async ({ port }: Gateway, name: string, value: string) => {
        const none = { Authorization: '', 'Content-Type': '', 'Content-Length': '' };
        const headers = { ...none, [name]: value };
        const [response] = await exchange(port, [requestBytes({ method: 'GET', headers })]);
        return response;
      };
      const longChain = (long: string) => ({
        headers: { 'X-Forwarded-For': `${long}, 192.0.2.1`, 'X-Weir-Key': 'a-key-of-the-client' },
      });
      const responses = [
        await sendLongest(keys, (long) => ({ headers: { 'X-User': 'one', 'X-Api-Key': long } })),
        await sendLongest(keys, (long) => ({ path: `/${long}`, headers: { 'X-User': 'one' } })),
        await sendLongest(keys, (long) => ({ headers: { 'X-User': long } })),
        await sendLongest(sessions, (long) => ({ headers: { Cookie: `session=${long}` } })),
        // The trusted address follows a long text.
        await sendLongest(behind, longChain),
        await sendThrough(behind.port, { headers: { 'X-Forwarded-For': '192.0.2.1' } }),
        await sendLongest(behind, longChain),
        // weir does not respond to control characters, and the application responds with a 400.
        await sendRaw(behind, 'X-Forwarded-For', '\u0001, 192.0.2.1'),
        await sendRaw(sessions, 'Cookie', 'session=\u0001'),
        // It is unknown which of the two the application reads.
        await sendThrough(sessions.port, { headers: { Cookie: 'session=one; session=two' } }),
      ];
      expect(responses.map(remainingIn)).toEqual([1, 0, 0, 1, 1, 0, 0, 0, 0, 0]);
      const statuses = [200, 200, 429, 200, 200, 200, 429, 429, 400, 429];
      expect(statusesOf(responses)).toEqual(statuses);
      const withKey = stack.application.requests.filter(({ headers }) => headers['x-weir-key']);
      expect(withKey).toEqual([]);
    });

    test('the limit applies across a reload', async () => {
      const setup = await stack.setupOf('login');
      const text = realHaproxy.print(setup);
      const before = await startHaproxy(text, setup.listen.port);
      const send = () => sendThrough(setup.listen.port);
      expect(remainingIn(await send())).toBe(1);
      const after = await startHaproxy(text, setup.listen.port, '', before);
      stack.stops.push(after.stop);
      await waitUntil('the replaced process has exited', () => {
        return before.child.exitCode !== null || before.child.signalCode !== null;
      });
      expect([before.child.exitCode, before.child.signalCode]).toEqual([0, null]);
      await before.stop();
      expect(remainingIn(await send())).toBe(0);
      expect((await send()).status).toBe(429);
    });
  });
});
