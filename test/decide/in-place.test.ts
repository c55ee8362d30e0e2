/** Asynchronous checks: answered at once, deducted by the shard workers. */

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { check, LASTING_MS, metric } from '../support/http.ts';
import {
  type Running,
  removeDirectory,
  startServer,
  temporaryDirectory,
  until,
} from '../support/server.ts';

describe('an asynchronous check', () => {
  let server: Running;
  const dataDir = temporaryDirectory();
  beforeAll(async () => {
    server = await startServer(dataDir, { args: ['--counters', '1024', '--acceptors', '1'] });
  });
  afterAll(async () => {
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    removeDirectory(dataDir);
  });

  test('is answered like any other, and deducted soon after', async () => {
    const body = { identifier: 'a', limit: 10, duration: LASTING_MS };
    const look = () => check(server.port, { ...body, cost: 0 });
    const { reset, ...answer } = await check(server.port, { ...body, cost: 4, async: true });
    expect(answer).toEqual({ success: true, limit: 10, remaining: 6 });
    expect(reset % LASTING_MS).toBe(0);
    await until('it is deducted', async () => (await look()).remaining === 6);
    expect(await check(server.port, { ...body, cost: 7, async: true })).toMatchObject({
      success: false,
      remaining: 6,
    });
    expect(await check(server.port, { ...body, cost: 0, async: true })).toMatchObject({
      success: true,
      remaining: 6,
    });
    expect(await look()).toMatchObject({ remaining: 6 });
    expect(await metric(server.adminUrl, 'weir_deductions_total{outcome="applied"}')).toBe(1);
    expect(await metric(server.adminUrl, 'weir_deduction_tokens_total{outcome="applied"}')).toBe(4);
  });

  test('that is admitted in the last moment of a window is counted in that one', async () => {
    const body = { identifier: 'b', limit: 1_000, duration: 1_000 };
    const admitted = new Map<number, number>();
    for (let i = 0; i < 300; i++) {
      const { reset } = await check(server.port, { ...body, async: true });
      admitted.set(reset, (admitted.get(reset) ?? 0) + 1);
      // What a window shows as used was admitted in it.
      const look = await check(server.port, { ...body, cost: 0 });
      expect(1_000 - look.remaining).toBeLessThanOrEqual(admitted.get(look.reset) ?? 0);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    expect(admitted.size).toBeGreaterThan(1);
  });
});
