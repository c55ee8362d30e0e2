/** Asynchronous checks: answered at once, deducted by the shard workers, whatever happens to them. */

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { RING_ENTRIES } from '../../src/limits.ts';
import { deathsOf, inWords, startFaulty } from '../support/faults.ts';
import { check, LASTING_MS, metric, metrics, requestBytes } from '../support/http.ts';
import { converse, random, type Tally, tallyOf } from '../support/load.ts';
import { scaled } from '../support/scale.ts';
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

describe('under load, with shard workers that die', () => {
  const CONNECTIONS = 32;
  const CHECKS = scaled(131_072);
  const ACCEPTORS = 2;
  const COSTS = [1, 1, 2, 3];
  const COST_MAX = 3;
  /** Identifiers with room for all, and a window that does not end: what is used is looked at. */
  const ROOMY = 200;
  /** Identifiers with a limit and windows of a second. */
  const TIGHT = 8;
  const TIGHT_LIMIT = 2_000;

  const bodyOf = (id: number) =>
    id < ROOMY
      ? { identifier: `roomy_${id}`, limit: 100_000_000, duration: LASTING_MS }
      : { identifier: `tight_${id}`, limit: TIGHT_LIMIT, duration: 1_000 };
  const requests = Array.from({ length: ROOMY + TIGHT }, (_, id) =>
    COSTS.map((cost) =>
      requestBytes({ body: JSON.stringify({ ...bodyOf(id), cost, async: true }) }),
    ),
  );

  test('every token is deducted once, but for what a dying worker had in hand', async () => {
    const dataDir = temporaryDirectory();
    const args = ['--acceptors', String(ACCEPTORS), '--workers', '1', '--counters', '16384'];
    const server = await startFaulty(dataDir, args, 200);
    const tallies = new Map<string, Tally>();
    let tokens = 0;
    await Promise.all(
      Array.from({ length: CONNECTIONS }, (_, i) => {
        const next = random(i + 1);
        return converse<[number, number]>({
          port: server.port,
          checks: CHECKS,
          depth: 16,
          next: () => [next(8) === 0 ? ROOMY + next(TIGHT) : next(ROOMY), next(COSTS.length)],
          bytes: ([id, cost]) => requests[id][cost],
          record: ([id, cost], admitted, reset) => {
            if (!admitted) return;
            tokens += COSTS[cost];
            tallyOf(tallies, `${id}/${reset}`).admitted += COSTS[cost];
          },
        });
      }),
    );
    await until('the rings are empty', async () => {
      return (await metric(server.adminUrl, 'weir_ring_entries{worker="0"}')) === 0;
    });
    // Only now: the figures of one scrape are read one after the other.
    const measured = await metrics(server.adminUrl);
    const figure = (name: string) => measured.get(name)!;
    const [repeated, lost] = ['repeated', 'lost'].map((what) => {
      return figure(`weir_entries_${what}_total`);
    });

    // By identifier, what was admitted is what is used, but for entries in the hand of the dead.
    let extra = 0;
    for (let id = 0; id < ROOMY; id++) {
      const { limit, remaining, reset } = await check(server.port, { ...bodyOf(id), cost: 0 });
      const admitted = tallyOf(tallies, `${id}/${reset}`).admitted;
      extra += Math.abs(limit - remaining - admitted);
    }
    expect(extra).toBeLessThanOrEqual((repeated + lost) * COST_MAX);

    // By all, over window boundaries: what was handed over is what was taken out.
    const outcomes = ['applied', 'past', 'no_room'];
    const sum = (name: string) =>
      outcomes.reduce((n, outcome) => n + figure(`${name}{outcome="${outcome}"}`), 0);
    const entries = sum('weir_deductions_total') - figure('weir_ring_deductions_total');
    const difference =
      sum('weir_deduction_tokens_total') - figure('weir_ring_deduction_tokens_total');
    expect(entries).toBeGreaterThanOrEqual(-lost - repeated);
    expect(entries).toBeLessThanOrEqual(repeated);
    expect(Math.abs(difference)).toBeLessThanOrEqual((repeated + lost) * COST_MAX);

    // Beyond a limit no more is admitted than the rings hold.
    const bound = ACCEPTORS * RING_ENTRIES * COST_MAX + lost * COST_MAX;
    let most = 0;
    let windows = 0;
    for (const [key, { admitted }] of tallies) {
      if (Number(key.split('/')[0]) < ROOMY) continue;
      windows++;
      most = Math.max(most, admitted - TIGHT_LIMIT);
    }
    expect(most).toBeLessThanOrEqual(bound);
    expect(windows).toBeGreaterThan(scaled(TIGHT * 3));

    const deaths = deathsOf(server);
    expect(tokens).toBeGreaterThan(scaled(1_000_000));
    expect(deaths.total).toBeGreaterThan(scaled(10));
    expect(repeated + lost).toBeLessThanOrEqual(deaths.total);
    // A worker that hung left its rings to fill.
    expect(figure('weir_ring_full_total')).toBeGreaterThan(0);
    expect(await server.stop()).toMatchObject({ code: 0 });
    removeDirectory(dataDir);
    console.info(
      `${tokens} tokens admitted, ${figure('weir_ring_deduction_tokens_total')} handed over,` +
        ` ${figure('weir_ring_full_total')} checks found a full ring; ${inWords(deaths)};` +
        ` ${repeated} entries repeated, ${lost} lost; ${extra} tokens of the lasting windows and` +
        ` ${difference} of all deducted too often; most beyond a limit of ${TIGHT_LIMIT}:` +
        ` ${most} (bound ${bound}) in ${windows} windows`,
    );
  }, 180_000);
});
