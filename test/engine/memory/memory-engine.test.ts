/** Asynchronous checks: decided at once, and deducted by the shard workers. */

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { LONGEST_WINDOW_MS, readMetric, sendCheck } from '../../support/http.ts';
import {
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
  waitUntil,
} from '../../support/server.ts';

describe('an asynchronous check', () => {
  let server: ServerProcess;
  const dataDir = temporaryDirectory();
  beforeAll(async () => {
    server = await startServer(dataDir, { args: ['--counters', '1024', '--acceptors', '1'] });
  });
  afterAll(async () => {
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    removeDirectory(dataDir);
  });

  test('is decided like any other, and deducted later', async () => {
    const body = { identifier: 'a', limit: 10, duration: LONGEST_WINDOW_MS };
    const sendZeroCost = () => sendCheck(server.port, { ...body, cost: 0 });
    const { reset, ...response } = await sendCheck(server.port, { ...body, cost: 4, async: true });
    expect(response).toEqual({ success: true, limit: 10, remaining: 6 });
    expect(reset % LONGEST_WINDOW_MS).toBe(0);
    await waitUntil('it is deducted', async () => (await sendZeroCost()).remaining === 6);
    expect(await sendCheck(server.port, { ...body, cost: 7, async: true })).toMatchObject({
      success: false,
      remaining: 6,
    });
    expect(await sendCheck(server.port, { ...body, cost: 0, async: true })).toMatchObject({
      success: true,
      remaining: 6,
    });
    expect(await sendZeroCost()).toMatchObject({ remaining: 6 });
    expect(await readMetric(server.adminUrl, 'weir_deductions_total{outcome="applied"}')).toBe(1);
    expect(
      await readMetric(server.adminUrl, 'weir_deduction_tokens_total{outcome="applied"}'),
    ).toBe(4);
  });

  test('that is allowed at the end of a window is counted in that window', async () => {
    const body = { identifier: 'b', limit: 1_000, duration: 1_000 };
    const allowed = new Map<number, number>();
    for (let i = 0; i < 300; i++) {
      const { reset } = await sendCheck(server.port, { ...body, async: true });
      allowed.set(reset, (allowed.get(reset) ?? 0) + 1);
      // The usage of a window was allowed in it.
      const now = await sendCheck(server.port, { ...body, cost: 0 });
      expect(1_000 - now.remaining).toBeLessThanOrEqual(allowed.get(now.reset) ?? 0);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    expect(allowed.size).toBeGreaterThan(1);
  });
});
