/** HAProxy on the configuration and the Lua file that weir prints for it. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { haproxy } from '../../src/commands/gateways/haproxy.ts';
import { haproxyLua } from '../../src/commands/gateways/haproxy-lua.ts';
import { readPolicies } from '../../src/policies/policy.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import { defineGatewayTests } from '../support/gateway-cases.ts';
import {
  type Application,
  type Gateway,
  sendThrough,
  startApplication,
  startGateway,
} from '../support/gateway-process.ts';
import {
  exchange,
  LONGEST_WINDOW_MS,
  type ParsedResponse,
  type RequestParts,
  requestBytes,
} from '../support/http.ts';
import { realHaproxy } from '../support/real-gateways.ts';
import { freePort, removeDirectory, temporaryDirectory, waitUntil } from '../support/server.ts';

/** What goes with a body, and the API of weir. */
const NOT_SAID = { Authorization: '', 'Content-Type': '', 'Content-Length': '' };

interface HaproxySetup {
  text: string;
  lua: string;
  port: number;
  key?: string;
  /** One that it takes the place of. */
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

    /** What is printed for each of these policies, which are in force. */
    async function printedFor(policies: Record<string, object>): Promise<HaproxySetup[]> {
      const directory = temporaryDirectory();
      stops.push(() => removeDirectory(directory));
      const config = join(directory, 'weir.json');
      writeFileSync(config, JSON.stringify({ policies }));
      const at = await freePort();
      await own.start({ args: ['--config', config, '--gateway-port', String(at)] });
      application = await startApplication();
      stops.push(application.stop);
      const upstream = { host: '127.0.0.1', port: application.port };
      const weir = { host: '127.0.0.1', port: at, needsKey: false };
      const printed: HaproxySetup[] = [];
      for (const policy of readPolicies(policies)) {
        const port = await freePort();
        // Beside it is the port of the section through which weir is asked.
        await freePort();
        const text = haproxy({ policy, weir, listenPort: port, upstream });
        // Of its own no more is in there than the policy.
        const lua = haproxyLua({ policy, weir, listenPort: 8_080, upstream });
        printed.push({ text, lua, port });
      }
      return printed;
    }

    test('nobody else is believed than weir', async () => {
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
      expect(application.requests.map(({ url }) => url)).toEqual(['/v1/check/limited']);
      expect(gateway.output()).toContain('weir answered 200');
    });

    const twice = { gateway: 'haproxy', limit: 2, duration: LONGEST_WINDOW_MS };
    const left = ({ headers }: ParsedResponse) => /;r=(\d+)/.exec(headers.ratelimit)?.[1];

    test('nobody gets around the limit by sending more than HAProxy can ask with, or twice', async () => {
      const [keys, sessions, behind] = await printedFor({
        keys: { ...twice, identify: ['header:x-api-key', 'header:x-user', 'path'] },
        sessions: { ...twice, identify: 'cookie:session' },
        behind: { ...twice, trustedHops: 2 },
      });
      for (const printed of [keys, sessions, behind]) stops.push((await start(printed)).stop);
      /** With as much as HAProxy takes: it answers a head of more with a 400. */
      const askMost = async (printed: HaproxySetup, parts: (much: string) => RequestParts) => {
        for (let bytes = 16_000; ; bytes -= 20) {
          const answer = await sendThrough(printed.port, parts('x'.repeat(bytes)));
          if (answer.status !== 400) return answer;
        }
      };
      const askStrangely = async ({ port }: HaproxySetup, name: string, value: string) => {
        const headers = { ...NOT_SAID, [name]: value };
        const [answer] = await exchange(port, [requestBytes({ method: 'GET', headers })]);
        return answer;
      };
      const behindMuch = (much: string) => ({
        headers: { 'X-Forwarded-For': `${much}, 192.0.2.1`, 'X-Weir-Key': 'a-key-of-the-client' },
      });
      const answers = [
        await askMost(keys, (much) => ({ headers: { 'X-User': 'one', 'X-Api-Key': much } })),
        await askMost(keys, (much) => ({ path: `/${much}`, headers: { 'X-User': 'one' } })),
        await askMost(keys, (much) => ({ headers: { 'X-User': much } })),
        await askMost(sessions, (much) => ({ headers: { Cookie: `session=${much}` } })),
        // Somebody in particular, who has written much in front of what is believed.
        await askMost(behind, behindMuch),
        await sendThrough(behind.port, { headers: { 'X-Forwarded-For': '192.0.2.1' } }),
        await askMost(behind, behindMuch),
        // And what weir would not answer at all, and the application with a 400.
        await askStrangely(behind, 'X-Forwarded-For', '\u0001, 192.0.2.1'),
        await askStrangely(sessions, 'Cookie', 'session=\u0001'),
        // Nobody knows which of them the application will believe.
        await sendThrough(sessions.port, { headers: { Cookie: 'session=one; session=two' } }),
      ];
      expect(answers.map(left)).toEqual(['1', '0', '0', '1', '1', '0', '0', '0', '0', '0']);
      const statuses = answers.map(({ status }) => status);
      expect(statuses).toEqual([200, 200, 429, 200, 200, 200, 429, 429, 400, 429]);
      const keysPassed = application.requests.filter(({ headers }) => headers['x-weir-key']);
      expect(keysPassed).toEqual([]);
    });

    test('a reload leaves nobody without a limit', async () => {
      const [printed] = await printedFor({ login: twice });
      const before = await start(printed);
      expect(left(await sendThrough(printed.port))).toBe('1');
      const after = await start({ ...printed, before });
      stops.push(after.stop);
      await waitUntil('the one before has ended', () => {
        return before.child.exitCode !== null || before.child.signalCode !== null;
      });
      expect([before.child.exitCode, before.child.signalCode]).toEqual([0, null]);
      await before.stop();
      expect(left(await sendThrough(printed.port))).toBe('0');
      expect((await sendThrough(printed.port)).status).toBe(429);
    });
  });
});
