/** Operations that wait for the main thread are bounded, and do not delay other requests. */

import { describe, expect, test } from 'vitest';
import { addRecords } from '../support/store.ts';
import { useServer } from '../support/test-server.ts';

describe('operations', () => {
  const server = useServer({
    prepare: (store) => {
      addRecords(store, 'namespaces', [{ id: 'rlns_1', name: 'one', createdMs: 1 }]);
    },
  });

  test('count the questions of explanations, and answer each request', async () => {
    const fields = { namespace: 'one', identifier: 'user_1', limit: 5, duration: 1_000 };
    const explain = async () => {
      return (await server.call('ratelimits.explain', fields)).status;
    };
    const statuses = await Promise.all(Array.from({ length: 400 }, explain));
    // At most as many wait as the bound has room for: the others get a 503, or come later.
    const shed = statuses.filter((status) => status === 503).length;
    expect(statuses.filter((status) => status === 200).length).toBe(400 - shed);
    expect(shed).toBeLessThan(400);
    // Nothing is left in the count.
    expect(await explain()).toBe(200);
  });

  test('over the bound are rejected, and all others are executed', async () => {
    const statuses = await Promise.all(
      Array.from({ length: 600 }, async (_, i) => {
        const fields = { namespaceName: 'one', identifier: `user_${i}`, limit: 5, duration: 1_000 };
        return (await server.call('ratelimits.setOverride', fields)).status;
      }),
    );
    const done = statuses.filter((status) => status === 200).length;
    expect(statuses.filter((status) => status === 503).length).toBe(600 - done);
    expect(done).toBeGreaterThanOrEqual(200);
    expect(await server.metric('weir_overrides{kind="exact"}')).toBe(done);
  });
});
