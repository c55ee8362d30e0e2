/**
 * Asynchronous checks on several servers with one Redis, at a multiple of the limit, and what their
 * windows have allowed. The rates are set, so a slow server shows as checks that were not sent.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { readMetrics, sendCheck } from '../../support/http.ts';
import { callOperation } from '../../support/operations.ts';
import { type ServerProcess, waitUntil } from '../../support/server.ts';
import { type PacedStream, sendPaced } from './paced-traffic.ts';
import { prepareCheck } from './traffic.ts';

export interface AsyncLimit {
  limit: number;
  durationMs: number;
}

export interface AsyncLoad {
  limits: readonly AsyncLimit[];
  /** Checks per limit, in all. */
  load: number;
  /** Whole windows of each limit. */
  windows: number;
}

export interface AsyncWindows extends AsyncLimit {
  /** Whole windows under load. */
  windows: number;
  /** Allowed tokens in parts of the limit. */
  mean: number;
  least: number;
  worst: number;
  /** The most that one server has allowed in a window, in parts of the limit. */
  worstOfOne: number;
}

export interface AsyncReport {
  rows: AsyncWindows[];
  checks: number;
  seconds: number;
  /** Checks that were due, and not sent. */
  skipped: number;
  redisCallsPerCheck: number;
  /** Of many inspections, which Redis answers through the shard worker, with delays of the client. */
  slowestRoundTripMs: number;
}

const PROBE_INTERVAL_MS = 5;
let identifiers = 0;

export async function runAsyncLoad(
  servers: readonly ServerProcess[],
  { limits, load, windows }: AsyncLoad,
): Promise<AsyncReport> {
  const cases = limits.map(({ limit, durationMs }, id) => {
    const identifier = `async_${identifiers++}`;
    const body = { identifier, limit, duration: durationMs, cost: 1, async: true };
    return { limit, durationMs, body, check: prepareCheck(id, body) };
  });
  // By limit, window and server.
  const allowed = cases.map(() => new Map<number, number[]>());
  const record = (id: number, reset: number, server: number, cost: number) => {
    const byServer = allowed[id].get(reset) ?? servers.map(() => 0);
    byServer[server] += cost;
    allowed[id].set(reset, byServer);
  };
  for (const [i, { port }] of servers.entries()) {
    for (const [id, { body }] of cases.entries()) record(id, await openCounter(port, body), i, 1);
  }
  const callsBefore = await countRedisCalls(servers);
  let isOver = false;
  const probes = servers.map(({ port }) => probe(port, () => isOver));
  const fromMs = Date.now();
  const ends = Promise.all(
    servers.map(({ port }, server) => {
      const streams: PacedStream[] = cases.map(({ check, limit, durationMs }) => {
        return { check, perSecond: (load * limit * 1_000) / durationMs / servers.length };
      });
      return sendPaced({
        port,
        streams,
        durationMs: (windows + 1) * Math.max(...limits.map((one) => one.durationMs)),
        onDecision: ({ id, cost }, isAllowed, reset) => {
          record(id, reset, server, isAllowed ? cost : 0);
        },
      });
    }),
  );
  const sent = await ends.finally(() => {
    isOver = true;
  });
  const untilMs = Date.now();
  const slowest = await Promise.all(probes);
  const calls = (await countRedisCalls(servers)) - callsBefore;
  const rows = cases.map(({ limit, durationMs }, id) => {
    const whole = [...allowed[id]].filter(([reset]) => {
      return reset - durationMs >= fromMs && reset <= untilMs;
    });
    const sums = whole.map(([, byServer]) => {
      return byServer.reduce((sum, tokens) => sum + tokens, 0) / limit;
    });
    return {
      ...{ limit, durationMs, windows: sums.length },
      mean: sums.reduce((sum, share) => sum + share, 0) / sums.length,
      least: Math.min(...sums),
      worst: Math.max(...sums),
      worstOfOne: Math.max(...whole.flatMap(([, byServer]) => byServer)) / limit,
    };
  });
  const checks = sent.reduce((sum, one) => sum + one.sent, 0);
  return {
    rows,
    checks,
    seconds: (untilMs - fromMs) / 1_000,
    skipped: sent.reduce((sum, { skipped }) => sum + skipped, 0),
    redisCallsPerCheck: calls / checks,
    slowestRoundTripMs: Math.max(...slowest),
  };
}

/**
 * Has a server allow the first check of a counter. It waits for a worker, so no other check may be
 * sent behind it, and a busy machine may decide it without Redis, which opens no counter.
 * @returns the end of its window
 */
export async function openCounter(port: number, body: object): Promise<number> {
  let end = 0;
  await waitUntil('a server has a counter', async () => {
    const { success, reset } = await sendCheck(port, body);
    end = reset;
    return success;
  });
  return end;
}

/**
 * Inspects a counter again and again.
 * @returns the slowest inspection, with the delay of the timer before it, ms
 */
async function probe(port: number, isOver: () => boolean): Promise<number> {
  let slowestMs = 0;
  while (!isOver()) {
    const startMs = performance.now();
    await sleep(PROBE_INTERVAL_MS);
    const inspection = callOperation(port, 'ratelimits.inspect', { identifier: 'never checked' });
    // A failure took as long as weir waits for Redis.
    await inspection.catch(() => {});
    slowestMs = Math.max(slowestMs, performance.now() - startMs - PROBE_INTERVAL_MS);
  }
  return slowestMs;
}

async function countRedisCalls(servers: readonly ServerProcess[]): Promise<number> {
  let calls = 0;
  for (const { adminUrl } of servers) {
    for (const [name, value] of await readMetrics(adminUrl)) {
      if (name.startsWith('weir_redis_calls_total')) calls += value;
    }
  }
  return calls;
}
