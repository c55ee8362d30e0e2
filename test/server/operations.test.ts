/** Operations that wait for the main thread are bounded, and do not delay other requests. */

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { IMPORT_MAX_BYTES } from '../../src/core/constants.ts';
import { errorIn, readMetric, sendRequest } from '../support/http.ts';
import { callOperation } from '../support/operations.ts';
import {
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from '../support/server.ts';
import { addKey, addRecords, withStore } from '../support/store.ts';

describe('operations', () => {
  const dataDir = temporaryDirectory();
  let server: ServerProcess;
  let key = '';
  beforeAll(async () => {
    withStore(dataDir, (store) => {
      addRecords(store, 'namespaces', [{ id: 'rlns_1', name: 'one', createdMs: 1 }]);
      key = addKey(store, { permissions: ['ratelimit.rlns_1.limit'] });
    });
    server = await startServer(dataDir, { args: ['--acceptors', '1', '--counters', '1024'] });
  });
  afterAll(async () => {
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    removeDirectory(dataDir);
  });

  test('of any key, however many and large, block neither the memory nor the main thread', async () => {
    const rss = () => readMetric(server.adminUrl, 'process_resident_memory_bytes');
    const before = await rss();
    // As many values as possible for their bytes.
    const items = '{},'.repeat((IMPORT_MAX_BYTES - 100) / 3);
    const body = `{"overrides":[${items}{}]}`;
    const headers = { Authorization: `Bearer ${key}` };
    const path = '/v1/ratelimits.importOverrides';
    let going = true;
    const rounds = [1, 2, 3];
    const flood = (async () => {
      const statuses: number[] = [];
      for (const _ of rounds) {
        const all = Array.from({ length: 60 }, () =>
          sendRequest(server.port, { path, headers, body }),
        );
        for (const response of await Promise.all(all)) {
          statuses.push(response.status);
          if (response.status !== 503) continue;
          expect(response.headers['retry-after']).toBe('1');
          expect(errorIn(response).message).toContain('too many operations are queued');
        }
      }
      going = false;
      return statuses;
    })();
    let most = 0;
    let looks = 0;
    while (going) {
      expect((await fetch(`${server.adminUrl}/livez`)).status).toBe(200);
      most = Math.max(most, await rss());
      looks++;
    }
    const statuses = await flood;
    console.info(`operations: ${Math.round((most - before) / 2 ** 20)} MiB more, ${looks} looks`);
    // The accepted operations were read, and are invalid.
    expect(new Set(statuses)).toEqual(new Set([400, 503]));
    expect(looks).toBeGreaterThan(rounds.length);
    expect(most - before).toBeLessThan(800 * 2 ** 20);
    const override = { namespaceName: 'one', identifier: 'abc', limit: 5, duration: 1_000 };
    expect((await callOperation(server.port, 'ratelimits.setOverride', override)).status).toBe(200);
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
    // One is from the test before.
    expect(await readMetric(server.adminUrl, 'weir_overrides{kind="exact"}')).toBe(done + 1);
  });
});
