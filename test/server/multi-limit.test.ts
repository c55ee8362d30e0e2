/** multiLimit over HTTP: many connections to several acceptors, concurrent with single checks. */

import { afterAll, beforeAll, expect, test } from 'vitest';
import { WILDCARD_OVERRIDES_MAX } from '../../src/core/constants.ts';
import { describeEngines, type EngineServer, startEngineServer } from '../support/engine-modes.ts';
import { callOperationOk, type Fields } from '../support/operations.ts';
import { overrideId } from '../support/override-model.ts';
import { seededRandom } from '../support/seeded-random.ts';
import {
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from '../support/server.ts';
import { addRecords, withStore } from '../support/store.ts';
import { testWithOneBuild } from '../support/uws-binaries.ts';

interface Answer {
  data: { success: boolean; passed: boolean; limits: Fields[] };
}

const CLIENTS = 12;
const REQUESTS = 70;
const IDENTIFIERS = 40;
const LIMIT = 250;
/** The longest window of v2. */
const DURATION_MS = 2_592_000_000;

async function postTo(server: ServerProcess, path: string, body: unknown): Promise<Answer> {
  const headers = { Authorization: `Bearer ${ROOT_KEY}`, 'Content-Type': 'application/json' };
  const init = { method: 'POST', headers, body: JSON.stringify(body) };
  const answer = await fetch(server.url + path, init);
  expect(answer.status).toBe(200);
  return (await answer.json()) as Answer;
}

describeEngines('decided %s:', (mode) => {
  const dataDir = temporaryDirectory();
  let server: EngineServer;
  beforeAll(async () => {
    const args = ['--acceptors', '2', '--counters', '4096'];
    server = await startEngineServer(mode, dataDir, { args });
  });
  afterAll(async () => {
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    await server.closeEngine();
    removeDirectory(dataDir);
  });

  const post = (path: string, body: unknown) => postTo(server, path, body);
  const check = (number: number, cost: number) => {
    return {
      namespace: 'many',
      identifier: `id_${number}`,
      limit: LIMIT,
      duration: DURATION_MS,
      cost,
    };
  };

  test('the responses account for every consumed token', async () => {
    const consumed = new Array<number>(IDENTIFIERS).fill(0);
    const verdicts = { passed: 0, failed: 0, items: 0 };
    const client = async (seed: number) => {
      const next = seededRandom(seed);
      for (let i = 0; i < REQUESTS; i++) {
        if (next(3) === 0) {
          const number = next(IDENTIFIERS);
          const { data } = await post('/v2/ratelimit.limit', check(number, 2));
          if (data.success) consumed[number] += 2;
          continue;
        }
        // Some of them several times.
        const numbers = Array.from({ length: 1 + next(30) }, () => next(IDENTIFIERS));
        const items = numbers.map((number) => check(number, next(4)));
        const { passed, limits } = (await post('/v2/ratelimit.multiLimit', items)).data;
        expect(limits.map(({ identifier }) => identifier)).toEqual(
          items.map(({ identifier }) => identifier),
        );
        expect(passed).toBe(limits.every((limit) => limit.passed));
        verdicts[passed ? 'passed' : 'failed']++;
        verdicts.items += items.length;
        if (!passed) continue;
        items.forEach(({ cost }, at) => {
          consumed[numbers[at]] += cost;
        });
      }
    };
    await Promise.all(Array.from({ length: CLIENTS }, (_, i) => client(i + 1)));
    for (const [number, used] of consumed.entries()) {
      expect([number, used <= LIMIT]).toEqual([number, true]);
      const { data } = await callOperationOk(server.port, 'ratelimit.limit', check(number, 0));
      expect([number, (data as Fields).remaining]).toEqual([number, LIMIT - used]);
    }
    expect(verdicts.passed).toBeGreaterThan(100);
    expect(verdicts.failed).toBeGreaterThan(100);
    console.info(`many (${mode}): ${JSON.stringify(verdicts)}`);
  });
});

testWithOneBuild(
  'a thread that reads 100 checks under the worst known patterns counts as responsive',
  async () => {
    const dataDir = temporaryDirectory();
    withStore(dataDir, (store) => {
      addRecords(store, 'namespaces', [{ id: 'rlns_1', name: 'many', createdMs: 1 }]);
      const said = { limit: 1, durationMs: 1_000, isAsync: false, createdMs: 1, scope: 'rlns_1' };
      // They share prefix, suffix and infixes, and the text has nearly all of each.
      const overrides = Array.from({ length: WILDCARD_OVERRIDES_MAX }, (_, i) => {
        const identifier = `*${'a'.repeat(50 + (i % 100))}ba${'a'.repeat(i / 100)}*`;
        return { id: overrideId(i), identifier, ...said };
      });
      addRecords(store, 'overrides', overrides);
    });
    const server = await startServer(dataDir, { args: ['--acceptors', '1', '--counters', '1024'] });
    const text = `${'a'.repeat(49)}b`.repeat(10);
    const items = Array.from({ length: 100 }, (_, i) => {
      const identifier = `${text}${i}`;
      return { namespace: 'many', identifier, limit: LIMIT, duration: DURATION_MS };
    });
    // It may take longer than the other clients of the tests wait for a response.
    const { data } = await postTo(server, '/v2/ratelimit.multiLimit', items);
    expect(data.passed).toBe(true);
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    removeDirectory(dataDir);
  },
  240_000,
);
