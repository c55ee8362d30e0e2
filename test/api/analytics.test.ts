/** The operations that show what was counted. */

import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { ANALYTICS_FILE } from '../../src/analytics/database.ts';
import { OTHER_NAMESPACE } from '../../src/core/namespace.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import {
  describeEngines,
  type EngineMode,
  type EngineServer,
  startEngineServer,
} from '../support/engine-modes.ts';
import { errorIn, readMetric, sendCheck, sendRequest } from '../support/http.ts';
import { callOperation, callOperationOk, type Fields } from '../support/operations.ts';
import { forwardedFor, writeConfig } from '../support/policy-config.ts';
import {
  freePort,
  removeDirectory,
  type ServerProcess,
  temporaryDirectory,
  waitUntil,
} from '../support/server.ts';

const HOUR_MS = 3_600_000;
const SIZES = ['--acceptors', '2', '--workers', '1', '--counters', '1024'];
const own = useDataDirectory(SIZES);

const start = async (mode: EngineMode, args: string[] = []): Promise<EngineServer> => {
  const server = await startEngineServer(mode, own.dataDir, { args: [...SIZES, ...args] });
  own.started.push(server);
  closeEngine = server.closeEngine;
  return server;
};
let closeEngine = async () => {};
afterEach(() => closeEngine());

const check = (server: ServerProcess, fields: Fields) => {
  return sendCheck(server.port, { limit: 5, duration: 60_000, ...fields });
};
/** Checks of a namespace that is not stored yet are counted some ms later. */
const create = async (server: ServerProcess, ...names: string[]) => {
  for (const namespaceName of names) {
    const fields = { namespaceName, identifier: 'unused', limit: 1, duration: 60_000 };
    await callOperationOk(server.port, 'ratelimits.setOverride', fields);
  }
};
const figuresOf = async (server: ServerProcess, fields: Fields = {}) => {
  const { namespaces } = await callOperationOk(server.port, 'analytics.getNamespaces', fields);
  return Object.fromEntries(
    (namespaces as Fields[]).map(({ name, id, ...figures }) => [name, figures]),
  );
};
const identifiersOf = async (server: ServerProcess, namespaceName: string, limit = 20) => {
  const fields = { namespaceName, limit };
  const { denied, spent } = await callOperationOk(server.port, 'analytics.getIdentifiers', fields);
  const short = (items: unknown) => {
    return (items as Fields[]).map(({ identifier, count, error }) => [identifier, count, error]);
  };
  return { denied: short(denied), spent: short(spent) };
};

describeEngines('analytics, decided %s:', (mode) => {
  test('count every decision at once: of checks, batches and asynchronous checks', async () => {
    const server = await start(mode);
    await create(server, 'login', 'batch');
    for (let i = 0; i < 7; i++) await check(server, { namespace: 'login', identifier: 'é' });
    await check(server, { namespace: 'login', identifier: 'b', cost: 4 });
    await check(server, { namespace: 'login', identifier: 'b', cost: 3 });
    await check(server, { namespace: 'login', identifier: 'c', cost: 2, async: true });
    const batch = ['x', 'x', 'y'].map((identifier) => {
      return { namespace: 'batch', identifier, limit: 2, duration: 60_000, cost: 1 };
    });
    await callOperationOk(server.port, 'ratelimit.multiLimit', batch);
    await callOperationOk(server.port, 'ratelimit.multiLimit', batch);
    expect(await figuresOf(server)).toEqual({
      login: { allowed: 7, denied: 3, tokensAllowed: 11, tokensDenied: 5 },
      batch: { allowed: 3, denied: 3, tokensAllowed: 3, tokensDenied: 3 },
    });
    expect(await identifiersOf(server, 'login')).toEqual({
      denied: [
        ['é', 2, 0],
        ['b', 1, 0],
      ],
      spent: [
        ['é', 5, 0],
        ['b', 4, 0],
        ['c', 2, 0],
      ],
    });
    expect((await identifiersOf(server, 'batch', 1)).denied).toEqual([['x', 2, 0]]);
  });

  test('count a gateway check once, by the identifier of its policy', async () => {
    const windows = [
      { limit: 2, duration: 60_000 },
      { limit: 100, duration: 3_600_000 },
    ];
    const configDir = temporaryDirectory();
    const config = writeConfig(configDir, {
      site: { windows, gateway: 'nginx', cost: 2 } as never,
    });
    const gatewayPort = await freePort();
    const server = await start(mode, ['--config', config, '--gateway-port', String(gatewayPort)]);
    const request = {
      method: 'GET',
      path: '/v1/check/site',
      headers: forwardedFor('203.0.113.9'),
    };
    for (const status of [200, 429]) {
      expect((await sendRequest(gatewayPort, request)).status).toBe(status);
    }
    expect(await figuresOf(server)).toEqual({
      site: { allowed: 1, denied: 1, tokensAllowed: 2, tokensDenied: 2 },
    });
    expect(await identifiersOf(server, 'site')).toEqual({
      denied: [['203.0.113.9', 1, 0]],
      spent: [['203.0.113.9', 2, 0]],
    });
    removeDirectory(configDir);
  });
});

describe('analytics', () => {
  test('survive a restart, and add up with what is counted after it', async () => {
    const first = await own.start();
    await create(first, 'a');
    await check(first, { namespace: 'a', identifier: 'x', cost: 3 });
    await check(first, { namespace: 'a', identifier: 'long '.repeat(100), cost: 5 });
    await first.stop();
    const second = await own.start();
    await check(second, { namespace: 'a', identifier: 'x' });
    expect(await figuresOf(second)).toEqual({
      a: { allowed: 3, denied: 0, tokensAllowed: 9, tokensDenied: 0 },
    });
    const { complete, spent } = await callOperationOk(second.port, 'analytics.getIdentifiers', {
      namespaceName: 'a',
    });
    expect({ complete, spent }).toEqual({
      complete: true,
      spent: [
        { identifier: 'long '.repeat(100).slice(0, 96), cutOff: true, count: 5, error: 0 },
        { identifier: 'x', count: 4, error: 0 },
      ],
    });
  });

  test('have points only for minutes and hours with checks', async () => {
    const server = await own.start();
    await create(server, 'a');
    await check(server, { namespace: 'a', identifier: 'x' });
    await check(server, { namespace: 'a', identifier: 'x' });
    const now = Date.now();
    for (const granularity of ['minute', 'hour']) {
      const answer = await callOperationOk(server.port, 'analytics.getTimeline', {
        ...{ namespaceName: 'a', granularity, start: now - 5 * HOUR_MS, end: now + 1_000 },
      });
      const points = answer.points as { time: number; allowed: number }[];
      // The two checks may lie on both sides of the end of a minute.
      expect(points.length).toBeLessThanOrEqual(2);
      expect(points.reduce((sum, { allowed }) => sum + allowed, 0)).toBe(2);
      const unitMs = granularity === 'minute' ? 60_000 : HOUR_MS;
      for (const time of [answer.start as number, answer.end as number, points[0].time]) {
        expect(time % unitMs).toBe(0);
      }
    }
    const before = { start: now - 3 * HOUR_MS, end: now - 2 * HOUR_MS };
    expect(await figuresOf(server, before)).toEqual({});
    const { points } = await callOperationOk(server.port, 'analytics.getTimeline', {
      ...{ namespaceName: 'a', ...before },
    });
    expect(points).toEqual([]);
  });

  test('reject a range that is empty or has too many points, and name what is accepted', async () => {
    const server = await own.start();
    await create(server, 'a');
    const messageOf = async (
      operation: 'getTimeline' | 'getNamespaces' | 'getIdentifiers',
      fields: Fields,
    ) => {
      return errorIn(await callOperation(server.port, `analytics.${operation}`, fields)).message;
    };
    expect(await messageOf('getNamespaces', { start: 5, end: 5 })).toBe(
      '"start" must be before "end"; got 5 and 5',
    );
    expect(await messageOf('getNamespaces', { start: '-1' })).toContain(
      '"start" must be a time in Unix milliseconds, from 0 to',
    );
    expect(
      await messageOf('getTimeline', { namespaceName: 'a', start: 0, end: HOUR_MS * 26 }),
    ).toBe(
      'the range from "start" to "end" must have at most 1500 points; got 1560 of a minute each',
    );
    expect(await messageOf('getTimeline', { namespaceName: 'a', granularity: 'day' })).toBe(
      '"granularity" must be minute or hour; got "day"',
    );
    const tooLong = 'the range from "start" to "end" must have at most 744 hours; got 745';
    const hours = { start: 0, end: HOUR_MS * 745 };
    expect(await messageOf('getNamespaces', hours)).toBe(tooLong);
    expect(await messageOf('getIdentifiers', { namespaceName: 'a', ...hours })).toBe(tooLong);
    expect(await messageOf('getTimeline', {})).toBe('"namespaceId" or "namespaceName" is required');
  });

  test('show a key only the namespaces that it may read', async () => {
    const server = await own.start();
    await create(server, 'mine', 'theirs');
    for (const namespace of ['mine', 'theirs']) await check(server, { namespace, identifier: 'x' });
    const listed = await callOperationOk(server.port, 'ratelimits.listNamespaces');
    const { id } = (listed.namespaces as Fields[]).find(({ name }) => name === 'mine')!;
    const { key } = await callOperationOk(server.port, 'keys.create', {
      name: 'mine',
      permissions: [`ratelimit.${id}.read_analytics`],
    });
    const { namespaces, total } = await callOperationOk(
      server.port,
      'analytics.getNamespaces',
      {},
      key as string,
    );
    expect([(namespaces as Fields[]).map(({ name }) => name), total]).toEqual([['mine'], 1]);
    const ask = (namespaceName: string) => {
      return callOperation(server.port, 'analytics.getTimeline', { namespaceName }, key as string);
    };
    expect((await ask('mine')).status).toBe(200);
    expect((await ask('theirs')).status).toBe(403);
    expect((await ask(OTHER_NAMESPACE)).status).toBe(403);
    const others = await callOperationOk(server.port, 'analytics.getTimeline', {
      namespaceName: OTHER_NAMESPACE,
    });
    expect([others.namespace, others.points]).toEqual([{ name: OTHER_NAMESPACE }, []]);
  });

  test('are off on request, which leaves no file and answers 503', async () => {
    const server = await own.start({ args: [...SIZES, '--analytics', 'off'] });
    await check(server, { namespace: 'a', identifier: 'x' });
    const answer = await callOperation(server.port, 'analytics.getNamespaces');
    expect([answer.status, errorIn(answer).message]).toEqual([
      503,
      'there are no analytics: WEIR_ANALYTICS is off, or the log says why their file is not used',
    ]);
    expect(existsSync(join(own.dataDir, ANALYTICS_FILE))).toBe(false);
  });

  test('of a damaged file are moved aside, and checks are served', async () => {
    const first = await own.start();
    await first.stop();
    writeFileSync(join(own.dataDir, ANALYTICS_FILE), 'damaged'.repeat(1_000));
    const server = await own.start();
    const message = 'the analytics cannot be read; weir starts with empty ones';
    await waitUntil('the log says so', () => server.stderr().includes(message));
    await create(server, 'a');
    await check(server, { namespace: 'a', identifier: 'x' });
    expect(Object.keys(await figuresOf(server))).toEqual(['a']);
    expect(readdirSync(own.dataDir)).toContain(`${ANALYTICS_FILE}.damaged`);
    expect(await readMetric(server.adminUrl, 'weir_analytics_write_failures_total')).toBe(0);
  });
});
