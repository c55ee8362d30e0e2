/** More identifiers than there is room for, at full rate: who is forgotten, and what grows. */

import { Worker } from 'node:worker_threads';
import { describe, expect, test } from 'vitest';
import { useDataDirectory } from '../support/data-directory.ts';
import { IS_LONG, recordMeasurement, trialCount } from '../support/guarantees.ts';
import { LONGEST_WINDOW_MS, readMetric, sendCheck, sendRequest } from '../support/http.ts';
import { DECIDE_MODES, type ServerProcess } from '../support/server.ts';
import { expectCleanStop } from '../support/server-health.ts';
import { type PreparedCheck, prepareCheck, Traffic } from '../support/traffic.ts';

const COUNTERS = IS_LONG ? 65_536 : 2_048;
const CONNECTIONS = 32;
const DEPTH = { 'in-place': 16, worker: 1 } as const;
/** Clients whose treatment is looked at before and after. */
const CLIENTS = 100;
const LIMITS = [1, 1_000];

const own = useDataDirectory([]);

interface SprayOptions {
  namespace: (n: number) => string;
  limit: number;
  cost?: number;
  /** Only so many different ones, for comparison. */
  identifiers?: number;
  /** How often each identifier asks in a row. */
  times?: number;
  mode?: keyof typeof DEPTH;
}

const DIGITS = 9;

/** Makes checks of numbered identifiers, each a copy with another number. */
function numberedChecks(
  limit: number,
  cost: number,
): (namespace: string, n: number) => PreparedCheck {
  const templates = new Map<string, PreparedCheck>();
  return (namespace, n) => {
    let template = templates.get(namespace);
    if (template === undefined) {
      const identifier = `s_${'#'.repeat(DIGITS)}`;
      template = prepareCheck(0, {
        namespace,
        identifier,
        cost,
        limit,
        duration: LONGEST_WINDOW_MS,
      });
      templates.set(namespace, template);
    }
    const bytes = Buffer.from(template.bytes);
    bytes.write(String(n).padStart(DIGITS, '0'), bytes.indexOf('#'), 'latin1');
    return { id: n, cost, bytes };
  };
}

/** Asks for so many identifiers that nobody has asked for before. */
let sprayed = 0;
async function spray(server: ServerProcess, count: number, spray: SprayOptions): Promise<Traffic> {
  const { namespace, limit, cost = 1, times = 1, mode = 'in-place' } = spray;
  const { identifiers = Number.POSITIVE_INFINITY } = spray;
  const first = sprayed;
  const askFor = numberedChecks(limit, cost);
  const asks: PreparedCheck[] = [];
  const nextCheck = () => {
    if (asks.length === 0) {
      const n = sprayed++;
      const ask = askFor(namespace(n - first), n % identifiers);
      for (let i = 0; i < times; i++) asks.push(ask);
    }
    return asks.pop()!;
  };
  const packets = Math.ceil((count * times) / DEPTH[mode]);
  const traffic = new Traffic({
    port: server.port,
    connections: CONNECTIONS,
    checksPerPacket: DEPTH[mode],
    seed: 1,
    checks: packets * DEPTH[mode],
    nextCheck,
  });
  await traffic.ended;
  expect([traffic.unanswered, traffic.connectionErrors, [...traffic.errors]]).toEqual([0, [], []]);
  return traffic;
}

/** How long checks of others take meanwhile, one after the other. */
async function probeDuring(server: ServerProcess, load: () => Promise<unknown>): Promise<string> {
  const body = {
    namespace: 'probe',
    identifier: 'p',
    limit: 1e9,
    duration: LONGEST_WINDOW_MS,
    cost: 1,
  };
  const workerData = { port: server.port, bytes: prepareCheck(0, body).bytes };
  const worker = new Worker(new URL('../support/latency-probe.thread.mjs', import.meta.url), {
    workerData,
  });
  await load();
  const [took]: number[][] = await new Promise((resolve) => {
    worker.on('message', (all) => resolve([all]));
    worker.postMessage('enough');
  });
  const at = (share: number) => took[Math.floor((took.length - 1) * share)]?.toFixed(1);
  return `p50 ${at(0.5)} ms, p99 ${at(0.99)} ms`;
}

const start = (mode: keyof typeof DEPTH = 'in-place') => {
  const threads = ['--acceptors', '2', '--workers', '1', '--decide', mode];
  return own.start({ args: [...threads, '--counters', String(COUNTERS)] });
};

const TEN_TIMES = `${10 * COUNTERS} identifiers for ${COUNTERS} counters`;

/** The table is the same, whoever decides. */
const SPRAYED = IS_LONG ? DECIDE_MODES : DECIDE_MODES.slice(0, 1);

describe.each(SPRAYED)(
  'decided %s, sprayed with ten times more identifiers than counters:',
  (mode) => {
    test('who is being refused stays refused, by limits of 1 and of 1 000', async () => {
      const server = await start(mode);
      const refused = LIMITS.flatMap((limit) =>
        Array.from({ length: CLIENTS }, (_, i) => ({
          namespace: i % 2 === 0 ? 'mine' : 'sprayed',
          identifier: `refused_${limit}_${i}`,
          limit,
          duration: LONGEST_WINDOW_MS,
        })),
      );
      for (const body of refused) {
        expect((await sendCheck(server.port, { ...body, cost: body.limit })).success).toBe(true);
        expect((await sendCheck(server.port, body)).success).toBe(false);
      }
      const few = { namespace: () => 'sprayed', identifiers: 10, limit: 1e9, mode };
      const without = await probeDuring(server, () => spray(server, 10 * COUNTERS, few));
      const beside = await probeDuring(server, async () => {
        for (const limit of LIMITS) {
          await spray(server, 5 * COUNTERS, { namespace: () => 'sprayed', limit, mode });
        }
      });
      let forgotten = 0;
      for (const body of refused) if ((await sendCheck(server.port, body)).success) forgotten++;
      const evicted = await readMetric(server.adminUrl, 'weir_live_evictions_total');
      const fault = `spraying, ${mode}`;
      const tried = TEN_TIMES;
      recordMeasurement(
        'P1',
        fault,
        tried,
        `${forgotten} of ${refused.length} refused clients let in again`,
      );
      recordMeasurement('P7', fault, tried, `others: ${beside}; by few identifiers ${without}`);
      expect(evicted).toBeGreaterThan(6 * COUNTERS);
      expect(forgotten).toBe(0);
      await expectCleanStop(server);
    }, 300_000);
  },
);

describe('sprayed with ten times more identifiers than counters,', () => {
  test.each(LIMITS)(
    'one namespace cannot make another refuse newcomers: limit %i',
    async (limit) => {
      const server = await start();
      // All of them are refused once, so that none is forgotten for another of them.
      const each = { namespace: () => 'crowd', limit, cost: limit, times: 2 };
      await spray(server, 10 * COUNTERS, each);
      const full = 'weir_full_table_decisions_total{decision="deny"}';
      expect(await readMetric(server.adminUrl, full)).toBeGreaterThan(COUNTERS);
      let lockedOut = 0;
      const newcomers = trialCount(500, 5_000);
      for (let i = 0; i < newcomers; i++) {
        const body = {
          namespace: 'others',
          identifier: `new_${i}`,
          limit: 5,
          duration: LONGEST_WINDOW_MS,
        };
        if (!(await sendCheck(server.port, body)).success) lockedOut++;
      }
      const tried = `${TEN_TIMES}, limit ${limit}`;
      recordMeasurement(
        'P2',
        'one namespace fills the table',
        tried,
        `${lockedOut} of ${newcomers} newcomers of another refused`,
      );
      expect(lockedOut).toBe(0);
      await expectCleanStop(server);
    },
    300_000,
  );

  test('whoever stays one token under the limit gets no second budget for less than a full table', async () => {
    const server = await start();
    const LIMIT = 1_000;
    const body = { namespace: 'sly', identifier: 'sly', limit: LIMIT, duration: LONGEST_WINDOW_MS };
    await sendCheck(server.port, { ...body, cost: LIMIT - 1 });
    const isForgotten = async () => {
      return (await sendCheck(server.port, { ...body, cost: 0 })).remaining > 1;
    };
    // Sprayed counters that have used less go before: whatever their number.
    await spray(server, 10 * COUNTERS, { namespace: () => 'sly', limit: LIMIT });
    expect(await isForgotten()).toBe(false);
    // Those that have used all of a limit of 1 go after it; they have to fill the table first.
    const step = COUNTERS / 32;
    let needed = 0;
    while (!(await isForgotten()) && needed < 10 * COUNTERS) {
      await spray(server, step, { namespace: () => 'sly', limit: 1 });
      needed += step;
    }
    const tried = `${TEN_TIMES} of the same limit`;
    recordMeasurement(
      'P1',
      'one token under the limit, spraying',
      tried,
      `0 second budgets; one of ${LIMIT} for ${needed} exhausted counters of a limit of 1`,
    );
    expect(needed).toBeGreaterThanOrEqual(COUNTERS);
    await expectCleanStop(server);
  }, 300_000);

  test('a process grows no further', async () => {
    const server = await start();
    const rss = async () => {
      // Of all that is about to be collected something is left, now more, now less.
      let least = Number.POSITIVE_INFINITY;
      for (let i = 0; i < 5; i++) {
        await new Promise((resolve) => setTimeout(resolve, 100));
        least = Math.min(least, await readMetric(server.adminUrl, 'process_resident_memory_bytes'));
      }
      return least;
    };
    const slots = await readMetric(server.adminUrl, 'weir_table_slots');
    const [filled, more] = [trialCount(10, 15) * COUNTERS, trialCount(20, 153) * COUNTERS];
    const namespace = (n: number) => `ns_${n % 7}`;
    await spray(server, filled, { namespace, limit: 10 });
    const before = await rss();
    await spray(server, more, { namespace, limit: 10 });
    const after = await rss();
    const growth = (100 * (after - before)) / before;
    const mib = (before / 2 ** 20).toFixed(0);
    const tried = `${filled} identifiers, then ${more} more`;
    recordMeasurement('P7', 'distinct identifiers', tried, `${growth.toFixed(1)} % on ${mib} MiB`);
    expect(await readMetric(server.adminUrl, 'weir_table_slots')).toBe(slots);
    expect(growth).toBeLessThan(IS_LONG ? 2 : 25);
    expect((await sendRequest(server.port, { path: '/nowhere' })).status).toBe(404);
    await expectCleanStop(server);
  }, 1_200_000);
});
