/** Operations that wait for the main thread are bounded, and do not delay other requests. */

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readMetric } from '../support/http.ts';
import { callOperation } from '../support/operations.ts';
import {
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from '../support/server.ts';
import { addRecords, withStore } from '../support/store.ts';

describe('operations', () => {
  const dataDir = temporaryDirectory();
  let server: ServerProcess;
  beforeAll(async () => {
    withStore(dataDir, (store) => {
      addRecords(store, 'namespaces', [{ id: 'rlns_1', name: 'one', createdMs: 1 }]);
    });
    server = await startServer(dataDir, { args: ['--acceptors', '1', '--counters', '1024'] });
  });
  afterAll(async () => {
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    removeDirectory(dataDir);
  });

  test('count the questions of explanations, and answer each request', async () => {
    const fields = { namespace: 'one', identifier: 'user_1', limit: 5, duration: 1_000 };
    const explain = async () => {
      return (await callOperation(server.port, 'ratelimits.explain', fields)).status;
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
        return (await callOperation(server.port, 'ratelimits.setOverride', fields)).status;
      }),
    );
    const done = statuses.filter((status) => status === 200).length;
    expect(statuses.filter((status) => status === 503).length).toBe(600 - done);
    expect(done).toBeGreaterThanOrEqual(200);
    expect(await readMetric(server.adminUrl, 'weir_overrides{kind="exact"}')).toBe(done);
  });
});
