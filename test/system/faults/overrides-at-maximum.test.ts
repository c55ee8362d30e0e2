/** As many overrides as are allowed: the memory of publications, and the time of a check. */

import { expect, test, vi } from 'vitest';
import { WILDCARD_OVERRIDES_MAX } from '../../../src/core/constants.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { IS_LONG, trialCount } from '../../support/guarantees.ts';
import { errorIn, LONGEST_WINDOW_MS, readMetric } from '../../support/http.ts';
import { callOperation, callOperationOk } from '../../support/operations.ts';
import { overrideId } from '../../support/override-model.ts';
import { ROOT_KEY } from '../../support/server.ts';
import { addRecords, withStore } from '../../support/store.ts';

vi.setConfig({ testTimeout: 240_000 });

const own = useDataDirectory(['--counters', '1024', '--acceptors', '2']);

/** Writes overrides of the namespace "many" to the store of a server that is not started yet. */
function addOverrides(count: number, identifierOf: (i: number) => string): void {
  const fields = { limit: 5, durationMs: 1_000, isAsync: false, createdMs: 1, scope: 'rlns_1' };
  withStore(own.dataDir, (store) => {
    addRecords(store, 'namespaces', [{ id: 'rlns_1', name: 'many', createdMs: 1 }]);
    const overrides = Array.from({ length: count }, (_, i) => {
      return { ...fields, id: overrideId(i), identifier: identifierOf(i) };
    });
    addRecords(store, 'overrides', overrides);
  });
}

const PUBLICATIONS = trialCount(300, 10_000);
/** A few publications whose buffers are not reused would exceed both. */
const GROWTH_MOST = IS_LONG ? 1.1 : 1.3;

test(`${PUBLICATIONS} publications with 100 000 overrides do not grow the memory`, async () => {
  addOverrides(99_000, (i) => (i < 98_000 ? `user_${i}` : `user_${i}_*`));
  const server = await own.start();
  const metric = (name: string) => readMetric(server.adminUrl, name);
  const rss = () => metric('process_resident_memory_bytes');
  const publish = async (from: number, to: number) => {
    for (let i = from; i < to; i++) {
      const identifier = i % 10 === 0 ? `user_${98_000 + (i % 1_000)}_*` : `user_${i}`;
      const fields = { namespaceName: 'many', identifier, limit: 10 + i };
      const duration = LONGEST_WINDOW_MS;
      await callOperationOk(server.port, 'ratelimits.setOverride', { ...fields, duration });
    }
  };
  // The heap grows to its usual size first.
  const tenth = Math.floor(PUBLICATIONS / 10);
  await publish(0, 2 * tenth);
  const before = await rss();
  const marks: number[] = [];
  for (let part = 2; part < 10; part++) {
    await publish(part * tenth, (part + 1) * tenth);
    marks.push((await rss()) / before);
  }
  expect(await metric('weir_write_transactions_total')).toBe(10 * tenth);
  expect(Math.min(...marks.slice(4))).toBeLessThan(GROWTH_MOST);
  expect(await server.stop()).toEqual({ code: 0, signal: null });
});

test('a thread that reads 100 checks under patterns of an earlier version counts as responsive', async () => {
  // They are more than this version accepts. They share prefix, suffix and infixes, and the text
  // has nearly all of each.
  addOverrides(WILDCARD_OVERRIDES_MAX, (i) => {
    return `*${'a'.repeat(50 + (i % 100))}ba${'a'.repeat(i / 100)}*`;
  });
  const server = await own.start({ args: ['--acceptors', '1', '--counters', '1024'] });
  const text = `${'a'.repeat(49)}b`.repeat(10);
  const checks = Array.from({ length: 100 }, (_, i) => {
    return { namespace: 'many', identifier: `${text}${i}`, limit: 250, duration: 2_592_000_000 };
  });
  const one = { namespaceName: 'many', limit: 5, duration: 1_000 };
  const set = (identifier: string) => {
    return callOperation(server.port, 'ratelimits.setOverride', { ...one, identifier });
  };
  expect(errorIn(await set('more*')).message).toContain(`${WILDCARD_OVERRIDES_MAX} overrides with`);
  expect((await set('without a wildcard')).status).toBe(200);
  // It may take longer than the other clients of the tests wait for a response.
  const response = await fetch(`${server.url}/v2/ratelimit.multiLimit`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${ROOT_KEY}`, 'Content-Type': 'application/json' },
    body: JSON.stringify(checks),
  });
  expect(response.status).toBe(200);
  expect(await response.json()).toMatchObject({ data: { passed: true } });
  expect(await server.stop()).toEqual({ code: 0, signal: null });
});
