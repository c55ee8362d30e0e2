/** HAProxy with the configuration and the Lua file that weir prints for it. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { haproxy } from '../../../src/commands/gateways/haproxy.ts';
import { haproxyLua } from '../../../src/commands/gateways/haproxy-lua.ts';
import { everyPath } from '../../../src/commands/gateways/setup.ts';
import { readPolicies } from '../../../src/policies/policy.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import {
  exchange,
  LONGEST_WINDOW_MS,
  type ParsedResponse,
  type RequestParts,
  requestBytes,
} from '../../support/http.ts';
import { freePort, removeDirectory, temporaryDirectory, waitUntil } from '../../support/server.ts';
import { defineGatewayTests } from './gateway-cases.ts';
import {
  type Application,
  type Gateway,
  sendThrough,
  startApplication,
  startGateway,
} from './gateway-process.ts';
import { realHaproxy } from './real-gateways.ts';

/** Removes the headers that requests of these tests have by default. */
const NO_BODY_HEADERS = { Authorization: '', 'Content-Type': '', 'Content-Length': '' };

interface HaproxySetup {
  text: string;
  lua: string;
  port: number;
  key?: string;
  /** The process that this one replaces. */
  before?: Gateway;
}

function start({
  text: configuration,
  lua,
  port,
  key = '',
  before,
}: HaproxySetup): Promise<Gateway> {
  return startGateway({
    configuration,
    fileName: 'haproxy.cfg',
    port,
    command: (path, directory) => {
      writeFileSync(join(directory, 'weir.lua'), lua);
      const reload = before === undefined ? [] : ['-sf', String(before.child.pid)];
      return ['haproxy', '-f', path, ...reload];
    },
    env: { WEIR_KEY: key },
  });
}

describe.skipIf(realHaproxy.isMissing)('HAProxy', () => {
  defineGatewayTests({ ...realHaproxy, isProxy: true });

  describe('with a weir of its own', () => {
    const own = useDataDirectory(['--acceptors', '1']);
    const stops: (() => unknown)[] = [];
    let application: Application;
    afterEach(async () => {
      for (const stop of stops.splice(0)) await stop();
    });

    /** Starts weir with the policies. @returns the printed configuration of each */
    async function printedFor(policies: Record<string, object>): Promise<HaproxySetup[]> {
      const directory = temporaryDirectory();
      stops.push(() => removeDirectory(directory));
      const config = join(directory, 'weir.json');
      writeFileSync(config, JSON.stringify({ policies }));
      const gatewayPort = await freePort();
      await own.start({ args: ['--config', config, '--gateway-port', String(gatewayPort)] });
      application = await startApplication();
      stops.push(application.stop);
      const upstream = { host: '127.0.0.1', port: application.port };
      const weir = { host: '127.0.0.1', port: gatewayPort, needsKey: false };
      const printed: HaproxySetup[] = [];
      for (const policy of readPolicies(policies)) {
        const port = await freePort();
        // Reserves the next port, which the section for checks uses.
        await freePort();
        const text = haproxy({ routes: everyPath(policy), weir, listenPort: port, upstream });
        // weir.lua does not depend on the listen port.
        const lua = haproxyLua({ routes: everyPath(policy), weir, listenPort: 8_080, upstream });
        printed.push({ text, lua, port });
      }
      return printed;
    }

    test('a response of another server is not a decision', async () => {
      const [{ text, ...printed }] = await printedFor({
        limited: { gateway: 'haproxy', limit: 2, duration: LONGEST_WINDOW_MS, onError: 'deny' },
      });
      const elsewhere = text.replace(
        /server weir \S+/,
        `server weir 127.0.0.1:${application.port}`,
      );
      const gateway = await start({ ...printed, text: elsewhere });
      stops.push(gateway.stop);
      expect((await sendThrough(printed.port)).status).toBe(429);
      expect(application.requests.map(({ url }) => url)).toEqual([
        '/v1/check/limited?gateway=haproxy',
      ]);
      await waitUntil('the reason is in the log', () => {
        return gateway.output().includes('weir answered 200');
      });
    });

    const policy = { gateway: 'haproxy', limit: 2, duration: LONGEST_WINDOW_MS };
    const remaining = ({ headers }: ParsedResponse) => /;r=(\d+)/.exec(headers.ratelimit)?.[1];

    test('an oversized, invalid or repeated identity does not bypass the limit', async () => {
      const [keys, sessions, behind] = await printedFor({
        keys: { ...policy, identify: ['header:x-api-key', 'header:x-user', 'path'] },
        sessions: { ...policy, identify: 'cookie:session' },
        behind: { ...policy, trustedHops: 2 },
      });
      for (const printed of [keys, sessions, behind]) stops.push((await start(printed)).stop);
      /** Sends the longest text that HAProxy accepts: it responds to a larger head with a 400. */
      const sendLongest = async (printed: HaproxySetup, parts: (long: string) => RequestParts) => {
        for (let bytes = 16_000; ; bytes -= 20) {
          const response = await sendThrough(printed.port, parts('x'.repeat(bytes)));
          if (response.status !== 400) return response;
        }
      };
      const sendRaw = async ({ port }: HaproxySetup, name: string, value: string) => {
        const headers = { ...NO_BODY_HEADERS, [name]: value };
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
      expect(responses.map(remaining)).toEqual(['1', '0', '0', '1', '1', '0', '0', '0', '0', '0']);
      const statuses = responses.map(({ status }) => status);
      expect(statuses).toEqual([200, 200, 429, 200, 200, 200, 429, 429, 400, 429]);
      const withKey = application.requests.filter(({ headers }) => headers['x-weir-key']);
      expect(withKey).toEqual([]);
    });

    test('the limit applies across a reload', async () => {
      const [printed] = await printedFor({ login: policy });
      const before = await start(printed);
      expect(remaining(await sendThrough(printed.port))).toBe('1');
      const after = await start({ ...printed, before });
      stops.push(after.stop);
      await waitUntil('the replaced process has exited', () => {
        return before.child.exitCode !== null || before.child.signalCode !== null;
      });
      expect([before.child.exitCode, before.child.signalCode]).toEqual([0, null]);
      await before.stop();
      expect(remaining(await sendThrough(printed.port))).toBe('0');
      expect((await sendThrough(printed.port)).status).toBe(429);
    });
  });
});
