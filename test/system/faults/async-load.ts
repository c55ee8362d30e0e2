/**
 * Asynchronous checks on several servers with one Redis, at a multiple of the limit, and what their
 * windows have allowed. The rates are set, so a slow server shows as checks that were not sent.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { readMetrics, sendCheck } from '../../support/http.ts';
import { callOperation } from '../../support/operations.ts';
import { type ServerProcess, waitUntil } from '../../support/server.ts';
import { openConnections, RESPONSE_TIMEOUT_MS } from './http-connections.ts';
import { type PreparedCheck, prepareCheck } from './traffic.ts';

interface AsyncLimit {
  limit: number;
  durationMs: number;
}

interface AsyncLoad {
  limits: readonly AsyncLimit[];
  /** Checks per limit, in all. */
  load: number;
  /** Whole windows of each limit. */
  windows: number;
}

interface AsyncWindows extends AsyncLimit {
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
      const streams = cases.map(({ check, limit, durationMs }) => {
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

const TICK_MS = 5;
/** Checks that are due while so many are unanswered are not sent: the server is too slow. */
const UNANSWERED_MAX = 2_000;

interface PacedOptions {
  port: number;
  streams: readonly { check: PreparedCheck; perSecond: number }[];
  durationMs: number;
  onDecision: (check: PreparedCheck, isAllowed: boolean, reset: number) => void;
}

/**
 * Sends checks at set rates on one connection, without waiting for responses: an open loop. Checks
 * that are due at the same time share a packet, so that thousands per second cost a client little.
 * @returns how many were sent, and how many were due and not sent
 * @throws if a response is no decision, or does not come
 */
export async function sendPaced(options: PacedOptions): Promise<{ sent: number; skipped: number }> {
  const { port, streams, durationMs, onDecision } = options;
  const [connection] = openConnections(port, 1);
  const unanswered: PreparedCheck[] = [];
  const done = streams.map(() => 0);
  let [sent, skipped, passedMs] = [0, 0, 0];
  const takeResponses = () => {
    for (const { status, body } of connection.responses.splice(0)) {
      const check = unanswered.shift();
      if (check === undefined || status !== 200) throw new Error(`${status} ${body}`);
      const { success, reset } = JSON.parse(body);
      onDecision(check, success, reset);
    }
  };
  const startMs = performance.now();
  while (passedMs < durationMs) {
    await sleep(TICK_MS);
    passedMs = Math.min(performance.now() - startMs, durationMs);
    takeResponses();
    const packet: Buffer[] = [];
    for (const [i, { check, perSecond }] of streams.entries()) {
      const due = Math.floor((passedMs * perSecond) / 1_000);
      for (; done[i] < due; done[i]++) {
        if (unanswered.length >= UNANSWERED_MAX) {
          skipped++;
          continue;
        }
        unanswered.push(check);
        packet.push(check.bytes);
      }
    }
    sent += packet.length;
    connection.socket.write(Buffer.concat(packet));
  }
  await connection.waitFor(unanswered.length, RESPONSE_TIMEOUT_MS);
  takeResponses();
  connection.socket.destroy();
  if (unanswered.length > 0) throw new Error(`${unanswered.length} without a response`);
  return { sent, skipped };
}
