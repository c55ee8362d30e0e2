/** Operations on counters that the dashboard passes to acceptors. */

import { beforeAll, describe, expect, test } from 'vitest';
import { PENDING_COUNTER_OPERATIONS_MAX } from '../../src/core/constants.ts';
import { DashboardClient, messageOf } from '../support/dashboard.ts';
import { LONGEST_WINDOW_MS } from '../support/http.ts';
import type { Fields } from '../support/operations.ts';
import { DECIDE_MODES } from '../support/server.ts';
import { useServer } from '../support/test-server.ts';

const CHECK = { namespace: 'n', identifier: 'a', limit: 10, duration: LONGEST_WINDOW_MS };
const COUNTERS = { namespace: 'n', identifier: 'a' };

describe.each(DECIDE_MODES)('with WEIR_DECIDE=%s', (decide) => {
  const server = useServer({ args: ['--acceptors', '2', '--decide', decide] });
  let client: DashboardClient;
  beforeAll(async () => {
    // By its response, the namespace is known to all acceptors.
    const other = { namespaceName: 'n', identifier: 'other', limit: 1, duration: 1_000 };
    await server.ok('ratelimits.setOverride', other);
    client = await DashboardClient.signIn(server.adminUrl);
  });

  test('a check, an inspection, a refund and a reset have the results of the API', async () => {
    const call = async (operation: Parameters<typeof client.call>[0], fields: Fields) => {
      const { status, text } = await client.call(operation, fields);
      return [status, JSON.parse(text)];
    };
    const [status, checked] = await call('ratelimits.limit', { ...CHECK, cost: 4 });
    expect([status, checked]).toMatchObject([200, { success: true, limit: 10, remaining: 6 }]);
    // The counters are those of the API, on every acceptor.
    const next = await server.ok('ratelimits.limit', { ...CHECK, cost: 0 });
    expect(next).toEqual(checked);
    const inspected = await server.ok('ratelimits.inspect', COUNTERS);
    for (let i = 0; i < 2; i++) {
      expect(await call('ratelimits.inspect', COUNTERS)).toEqual([200, inspected]);
    }
    const { duration } = CHECK;
    const refund = { ...COUNTERS, duration, reset: checked.reset, cost: 3 };
    expect(await call('ratelimits.refund', refund)).toEqual([200, { refunded: 3 }]);
    expect(await call('ratelimits.reset', COUNTERS)).toEqual([200, { cleared: 1 }]);
    expect(await call('ratelimits.reset', COUNTERS)).toEqual([200, { cleared: 0 }]);
  });

  test('an error has the status and the body of the API', async () => {
    for (const [operation, fields] of [
      ['ratelimits.limit', { ...CHECK, limit: 'ten' }],
      ['ratelimits.inspect', { ...COUNTERS, namespace: 'unknown' }],
      ['ratelimits.refund', COUNTERS],
    ] as const) {
      const own = await client.call(operation, fields);
      const ofApi = await server.call(operation, fields);
      const withoutId = (text: string) => ({ ...JSON.parse(text).error, requestId: '' });
      expect(own.status).toBe(ofApi.status);
      expect(withoutId(own.text)).toEqual(withoutId(ofApi.body));
    }
  });

  test('many at once are answered, or rejected with a 503 over the bound', async () => {
    const many = { ...CHECK, identifier: 'many', limit: 1_000 };
    const results = await Promise.all(
      Array.from({ length: 2 * PENDING_COUNTER_OPERATIONS_MAX }, () => {
        return client.call('ratelimits.limit', many);
      }),
    );
    const counted = results.filter(({ status }) => status === 200);
    for (const rejected of results.filter(({ status }) => status !== 200)) {
      expect([rejected.status, messageOf(rejected)]).toEqual([
        503,
        'too many operations wait; nothing was changed',
      ]);
    }
    const look = { ...many, cost: 0 };
    const { remaining } = await server.ok('ratelimits.limit', look);
    expect(remaining).toBe(1_000 - counted.length);
  });
});
