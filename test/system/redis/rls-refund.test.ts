/** A refund on one machine is visible to a call on another one, with counters in Redis. */

import { beforeAll, describe, expect, test } from 'vitest';
import { recordMeasurement } from '../../support/guarantees.ts';
import { isRedisMissing } from '../../support/programs/redis.ts';
import { useRlsServer } from '../../support/rls/rls-server.ts';
import { waitUntil } from '../../support/server.ts';
import { useRedis } from './use-redis.ts';

const ROUNDS = 20;
const CALLS_MAX = 5_000;
/** Denied calls count, too. A refund of so many tokens is not used up by CALLS_MAX of them. */
const LIMIT = 10 * CALLS_MAX;

describe.skipIf(isRedisMissing)('two machines that share a Redis', () => {
  const redis = useRedis();
  const env: Record<string, string> = { WEIR_ENGINE: 'redis', WEIR_REDIS_TIMEOUT_MS: '1000' };
  const rules = (algorithm: string) =>
    `  - { key: ${algorithm}, rate_limit: { unit: year, requests_per_unit: ${LIMIT}, algorithm: ${algorithm} } }`;
  const files = {
    'd.yaml': [
      'domain: d',
      'allow_negative_hits: true',
      'descriptors:',
      ...['fixed', 'sliding', 'gcra'].map(rules),
    ].join('\n'),
  };
  beforeAll(() => {
    env.WEIR_REDIS_URL = redis.url;
  });
  const one = useRlsServer({ files, env });
  const other = useRlsServer({ files, env });
  beforeAll(async () => {
    for (const { adminUrl } of [one, other]) {
      await waitUntil('Redis serves it', async () => {
        return (
          ((await (await fetch(`${adminUrl}/readyz`)).json()) as { status: string }).status ===
          'ready'
        );
      });
    }
  });

  test.each(['fixed', 'sliding', 'gcra'])('see a refund of each other: %s', async (key) => {
    const times: number[] = [];
    for (let n = 0; n < ROUNDS; n++) {
      const of = `${key}=${n}`;
      expect((await one.rls.ask('d', [{ of, hits: LIMIT }]))[0]).toBe('OK');
      expect((await other.rls.ask('d', [of]))[0]).toBe('OVER_LIMIT');
      expect((await one.rls.ask('d', [{ of, hits: LIMIT, isRefund: true }]))[0]).toBe('OK');
      const refundedAt = performance.now();
      // Without a pause between two calls, so that the figure is exact.
      let calls = 0;
      while ((await other.rls.ask('d', [of]))[0] !== 'OK') {
        if (++calls === CALLS_MAX) throw new Error('the other machine does not see the refund');
      }
      times.push(performance.now() - refundedAt);
    }
    times.sort((a, b) => a - b);
    const figure = `median ${times[ROUNDS / 2].toFixed(1)} ms, longest ${times[ROUNDS - 1].toFixed(1)} ms`;
    recordMeasurement('P2', `refund on another machine, ${key}`, `${ROUNDS} refunds`, figure);
  });
});
