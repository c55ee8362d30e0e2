/** Asynchronous checks over HTTP: decided at once, and deducted by the shard workers. */

import { expect, test } from 'vitest';
import { useDataDirectory } from '../../support/data-directory.ts';
import { LONGEST_WINDOW_MS, readMetric, sendCheck } from '../../support/http.ts';
import { waitUntil } from '../../support/server.ts';

const own = useDataDirectory(['--counters', '1024', '--acceptors', '1', '--workers', '1']);

test('an asynchronous check is decided like any other, and deducted later', async () => {
  const server = await own.start();
  const body = { identifier: 'a', limit: 10, duration: LONGEST_WINDOW_MS };
  const send = async (cost: number, async: boolean) => {
    const { reset, ...response } = await sendCheck(server.port, { ...body, cost, async });
    expect(reset % LONGEST_WINDOW_MS).toBe(0);
    return response;
  };
  expect(await send(4, true)).toEqual({ success: true, limit: 10, remaining: 6 });
  await waitUntil('it is deducted', async () => (await send(0, false)).remaining === 6);
  expect(await send(7, true)).toMatchObject({ success: false, remaining: 6 });
  expect(await send(0, true)).toMatchObject({ success: true, remaining: 6 });
  const deducted = (what: string) => {
    return readMetric(server.adminUrl, `weir_${what}_total{outcome="applied"}`);
  };
  expect([await deducted('deductions'), await deducted('deduction_tokens')]).toEqual([1, 4]);
  expect(await server.stop()).toEqual({ code: 0, signal: null });
});
