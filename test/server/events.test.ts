/** Decisions that a server writes as events. */

import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { useDataDirectory } from '../support/data-directory.ts';
import { describeEngines, startEngineServer } from '../support/engine-modes.ts';
import { readMetrics, sendRequest } from '../support/http.ts';
import type { ApiClient, Fields } from '../support/operations.ts';
import { forwardedFor, writeConfig } from '../support/policy-config.ts';
import {
  freePort,
  ROOT_KEY,
  removeDirectory,
  spawnServer,
  temporaryDirectory,
  waitUntil,
} from '../support/server.ts';
import { SMALL } from '../support/test-server.ts';

const TRACEPARENT = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
const own = useDataDirectory(SMALL);

const readEvents = (text: string): Fields[] => {
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line));
};
const eventsIn = (dataDir: string) =>
  readEvents(readFileSync(join(dataDir, 'events.jsonl'), 'utf8'));
const post = (server: ApiClient, path: string, body: unknown, headers = {}) => {
  const authorization = { Authorization: `Bearer ${ROOT_KEY}` };
  return server.send({
    ...{ path, body: JSON.stringify(body), headers: { ...authorization, ...headers } },
  });
};
const DURATION = 3_600_000;

describeEngines('events, decided %s:', (mode) => {
  test('show every decision, with what its request said', async () => {
    const configDir = temporaryDirectory();
    const windows = [
      { limit: 5, duration: 60_000 },
      { limit: 1, duration: DURATION },
    ];
    const policies = { site: { windows }, open: { limit: 9, missing: 'deny' } };
    const config = writeConfig(configDir, policies as never);
    const gatewayPort = await freePort();
    const more = ['--events', 'all', '--config', config, '--gateway-port', String(gatewayPort)];
    const startMs = Date.now() - 1_000;
    const server = own.adopt(
      await startEngineServer(mode, own.dataDir, { args: [...SMALL, ...more] }),
    );
    const override = { namespaceName: 'n', identifier: 'vip', limit: 7, duration: DURATION };
    const { overrideId } = await server.ok('ratelimits.setOverride', override);
    const terms = { namespace: 'n', limit: 1, duration: DURATION };
    const meta = { user: { é: 1 }, list: [null] };
    const resources = [{ type: 'project', id: 'p_1' }];
    const batch = ['a', 'b'].map((identifier) => ({ ...terms, identifier, cost: 1 }));
    const traced = { traceparent: TRACEPARENT };
    const vip = { ...terms, identifier: 'vip', cost: 3, meta, resources };
    const x = { ...terms, identifier: 'x', cost: 2 };
    await post(server, '/v1/ratelimits.limit', vip, traced);
    await post(server, '/v1/ratelimits.limit', x, { traceparent: 'invalid' });
    await post(server, '/v2/ratelimit.limit', { ...terms, identifier: 'y' });
    await post(server, '/v2/ratelimit.multiLimit', batch, traced);
    const gateway = (path: string, headers: Record<string, string>) => {
      return sendRequest(gatewayPort, { method: 'GET', path, headers });
    };
    await gateway('/v1/check/site', { ...forwardedFor('203.0.113.9'), traceparent: TRACEPARENT });
    await gateway('/v1/check/site', forwardedFor('203.0.113.9'));
    await gateway('/v1/check/open', {});
    // A request that is no decision.
    await post(server, '/v1/ratelimits.limit', { ...terms, identifier: 1 });
    await server.stop();
    removeDirectory(configDir);
    const events = eventsIn(own.dataDir).map(({ time, reset, ...event }) => {
      expect(time).toBeGreaterThanOrEqual(startMs);
      expect(time).toBeLessThanOrEqual(Date.now() + 1_000);
      return event;
    });
    const decided = { duration: DURATION, cost: 1, limit: 1 };
    const site = {
      ...{ ...decided, namespace: 'site', identifier: '203.0.113.9' },
      ...{ remaining: 0, policy: 'site' },
    };
    const expected = [
      {
        ...{
          ...decided,
          namespace: 'n',
          identifier: 'vip',
          decision: 'allowed',
          cost: 3,
          limit: 7,
        },
        ...{ remaining: 4, override: overrideId, traceparent: TRACEPARENT, meta, resources },
      },
      { ...decided, namespace: 'n', identifier: 'x', decision: 'denied', cost: 2, remaining: 1 },
      { ...decided, namespace: 'n', identifier: 'y', decision: 'allowed', remaining: 0 },
      ...['a', 'b'].map((identifier) => {
        const one = { ...decided, namespace: 'n', identifier, decision: 'allowed', remaining: 0 };
        return { ...one, traceparent: TRACEPARENT };
      }),
      { ...site, decision: 'allowed', traceparent: TRACEPARENT },
      { ...site, decision: 'denied' },
      { namespace: 'open', decision: 'denied', cost: 1, policy: 'open' },
    ];
    const fields = (event: object) => JSON.stringify(Object.entries(event).sort());
    expect(events.map(fields).sort()).toEqual(expected.map(fields).sort());
  });

  test('of a sample show all decisions on a request, or none', async () => {
    const args = [...SMALL, '--events', 'all', '--events-one-in', '2'];
    const server = own.adopt(await startEngineServer(mode, own.dataDir, { args }));
    const terms = { namespace: 'n', limit: 1, duration: DURATION };
    const headers = { traceparent: TRACEPARENT };
    const numbers = Array.from({ length: 40 }, (_, i) => i);
    for (const i of numbers) {
      const batch = ['a', 'b'].map((part) => ({ ...terms, identifier: `${part}${i}`, cost: 1 }));
      await post(server, '/v2/ratelimit.multiLimit', batch, headers);
      await post(server, '/v1/ratelimits.limit', { ...terms, identifier: `c${i}` }, headers);
    }
    await server.stop();
    const events = eventsIn(own.dataDir);
    const numbersOf = (part: string) => {
      const identifiers = events.map(({ identifier }) => String(identifier));
      return identifiers.filter((it) => it[0] === part).map((it) => Number(it.slice(1)));
    };
    expect(numbersOf('a')).toEqual(numbersOf('b'));
    for (const part of ['a', 'c']) {
      // Each of these fails by chance once in 10 ** 12 runs.
      expect(numbersOf(part).length).toBeGreaterThan(0);
      expect(numbersOf(part).length).toBeLessThan(numbers.length);
    }
    expect(events.every(({ traceparent }) => traceparent === TRACEPARENT)).toBe(true);
  });
});

describe('events', () => {
  test('go to standard output on request, only of denials, with hashes of identifiers', async () => {
    const args = ['--events', 'denied', '--events-file', '-', '--events-identifier', 'hash'];
    const server = await own.start({ args: [...SMALL, ...args] });
    const body = { namespace: 'n', identifier: 'secret', limit: 1, duration: DURATION };
    for (let i = 0; i < 3; i++) await post(server, '/v1/ratelimits.limit', body);
    const events = () => readEvents(server.stdout().replace(/^[^{].*$/gm, ''));
    await waitUntil('both denials are written', () => events().length === 2);
    expect(server.stdout()).not.toContain('secret');
    const [first, second] = events();
    expect(first.identifierHash).toMatch(/^[\da-f]{32}$/);
    expect([second.identifierHash, second.decision]).toEqual([first.identifierHash, 'denied']);
    const metrics = await readMetrics(server.adminUrl);
    expect(metrics.get('weir_events_total{outcome="written"}')).toBe(2);
    expect(metrics.get('weir_events_total{outcome="dropped"}')).toBe(0);
  });

  test('nobody reads do not keep a server from stopping', async () => {
    const server = await own.start({ args: [...SMALL, '--events', 'all', '--events-file', '-'] });
    server.child.stdout?.pause();
    const meta = 'x'.repeat(60_000);
    const body = { namespace: 'n', identifier: 'a', limit: 9, duration: DURATION, meta: { meta } };
    for (let i = 0; i < 20; i++) await post(server, '/v1/ratelimits.limit', body);
    server.child.kill('SIGTERM');
    await waitUntil('it has ended', () => server.child.exitCode !== null);
    expect(server.child.exitCode).toBe(0);
  });

  test('are off by default', async () => {
    const server = await own.start();
    await post(server, '/v1/ratelimits.limit', { identifier: 'a', limit: 1, duration: DURATION });
    await server.stop();
    expect(existsSync(join(own.dataDir, 'events.jsonl'))).toBe(false);
  });

  test('a file that cannot be written stops the start with one sentence', async () => {
    const path = join(own.dataDir, 'missing', 'events.jsonl');
    const server = await spawnServer(own.dataDir, {
      args: [...SMALL, '--events', 'all', '--events-file', path],
    });
    const { code } = await server.exited;
    expect(code).not.toBe(0);
    expect(server.stderr()).toContain('the file of events cannot be written: ENOENT');
  });
});
