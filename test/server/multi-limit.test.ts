/** multiLimit over HTTP: many connections to several acceptors, concurrent with single checks. */

import { expect, test } from 'vitest';
import { describeEngines } from '../support/engine-modes.ts';
import type { Fields } from '../support/operations.ts';
import { seededRandom } from '../support/seeded-random.ts';
import { ROOT_KEY } from '../support/server.ts';
import { useServer } from '../support/test-server.ts';

interface Answer {
  data: { success: boolean; passed: boolean; limits: Fields[] };
}

const CLIENTS = 6;
const REQUESTS = 40;
const IDENTIFIERS = 20;
const LIMIT = 60;
/** The longest window of v2. */
const DURATION_MS = 2_592_000_000;

describeEngines('decided %s:', (mode) => {
  const server = useServer({ mode, args: ['--acceptors', '2', '--counters', '4096'] });
  const post = async (path: string, body: unknown) => {
    const headers = { Authorization: `Bearer ${ROOT_KEY}`, 'Content-Type': 'application/json' };
    const init = { method: 'POST', headers, body: JSON.stringify(body) };
    const answer = await fetch(server.url + path, init);
    expect(answer.status).toBe(200);
    return (await answer.json()) as Answer;
  };
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
    const verdicts = { passed: 0, failed: 0 };
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
        if (!passed) continue;
        items.forEach(({ cost }, at) => {
          consumed[numbers[at]] += cost;
        });
      }
    };
    await Promise.all(Array.from({ length: CLIENTS }, (_, i) => client(i + 1)));
    for (const [number, used] of consumed.entries()) {
      expect([number, used <= LIMIT]).toEqual([number, true]);
      const { data } = await server.ok('ratelimit.limit', check(number, 0));
      expect([number, (data as Fields).remaining]).toEqual([number, LIMIT - used]);
    }
    expect(verdicts.passed).toBeGreaterThan(10);
    expect(verdicts.failed).toBeGreaterThan(10);
  });
});
