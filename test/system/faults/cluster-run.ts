/**
 * Runs several servers on one Redis under load from concurrent clients, and replays all answers: by
 * window, what was allowed, and which denials were certainly false. Each server may have a proxy
 * that delays its connections to Redis.
 *
 * A check that Redis does not answer in time is denied here (WEIR_ON_ENGINE_DOWN=deny): then no
 * window may exceed its limit, on a slow machine neither, and the metrics count what was denied
 * without proof.
 */

import { readMetrics } from '../../support/http.ts';
import type { RedisServer } from '../../support/programs/redis.ts';
import { CheckLog, quantile, type Replay, replay } from '../../support/replay.ts';
import {
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
  waitUntil,
} from '../../support/server.ts';
import { type DelayProxy, startDelayProxy } from '../redis/delay-proxy.ts';
import { type PreparedCheck, prepareCheck, Traffic } from './traffic.ts';

export interface ClusterLoad {
  /** By identifier. */
  limits: readonly number[];
  durationMs: number;
  costs: readonly number[];
  /** Sliding windows have no exact ledger: the identifiers use fixed windows. */
  connectionsPerServer: number;
  /** Default: no end; the load ends with `during`. */
  checksPerServer?: number;
  /** Happens under the load, which ends with it. */
  during?: () => Promise<void>;
  seed: number;
  /** Chooses an identifier. Default: each as often. */
  nextId?: (below: (n: number) => number) => number;
}

export interface ClusterReport extends Omit<Replay, 'timesMs' | 'waitsMs'> {
  /** Denials that Redis did not prove, or did not answer. */
  unprovenDenials: number;
  withoutRedis: number;
  /** Denials by a Redis that waited for the reports of machines. */
  recoveryDenials: number;
  /** Leases of machines that did not answer. Redis then denies as if their tokens were used. */
  writtenOff: number;
  /** Checks that waited for Redis, in parts of all. */
  waited: number;
  /** The p99 of the slowest checks, as many as have waited: a client does not see which did. */
  waitP99Ms: number;
  tokenRequestsPerCheck: number;
  errors: string[];
}

export interface RunningCluster {
  servers: ServerProcess[];
  proxies: DelayProxy[];
  run: (load: ClusterLoad) => Promise<ClusterReport>;
  close: () => Promise<void>;
}

interface StartOptions {
  /** One way, between each server and Redis. */
  delayMs?: number;
  jitterMs?: number;
  env?: Record<string, string>;
}

const ARGS = ['--acceptors', '1', '--workers', '1', '--counters', '65536'];

/** Starts servers that all have joined, each behind a proxy. The caller closes Redis. */
export async function startServers(
  redis: RedisServer,
  count: number,
  { delayMs = 0, jitterMs = 0, env = {} }: StartOptions = {},
): Promise<RunningCluster> {
  const proxies: DelayProxy[] = [];
  const closeProxies = () => Promise.all(proxies.map((proxy) => proxy.close()));
  try {
    for (let i = 0; i < count; i++) {
      proxies.push(await startDelayProxy(redis.port, { delayMs, jitterMs }));
    }
    const urls = proxies.map(({ port }) => `redis://127.0.0.1:${port}`);
    const cluster = await startServersAt(urls, env);
    const close = async () => {
      await cluster.close();
      await closeProxies();
    };
    return { ...cluster, proxies, close };
  } catch (error) {
    await closeProxies();
    throw error;
  }
}

/**
 * Starts servers that all have joined.
 * @param urls of Redis, by server
 */
export async function startServersAt(
  urls: readonly string[],
  env: Record<string, string> = {},
): Promise<RunningCluster> {
  const servers: ServerProcess[] = [];
  const directories: string[] = [];
  const close = async () => {
    for (const { child } of servers) child.kill('SIGKILL');
    await Promise.all(servers.map(({ exited }) => exited));
    for (const directory of directories) removeDirectory(directory);
  };
  try {
    for (const url of urls) {
      const directory = temporaryDirectory();
      directories.push(directory);
      const variables = { WEIR_ENGINE: 'redis', WEIR_REDIS_URL: url, WEIR_ON_ENGINE_DOWN: 'deny' };
      servers.push(await startServer(directory, { args: ARGS, env: { ...variables, ...env } }));
    }
    for (const { adminUrl, stderr } of servers) {
      await waitUntil(`it is ready: ${stderr()}`, async () => {
        const { status } = (await (await fetch(`${adminUrl}/readyz`)).json()) as { status: string };
        return status === 'ready';
      });
    }
  } catch (error) {
    await close();
    throw error;
  }
  return { servers, proxies: [], run: (load) => runLoad(servers, load), close };
}

/** What a failed expectation of a report prints. */
export function describeReport(report: ClusterReport): string {
  const { violations, certainlyFalse, unprovenDenials, withoutRedis, recoveryDenials, writtenOff } =
    report;
  const counts = { certainlyFalse, unprovenDenials, withoutRedis, recoveryDenials, writtenOff };
  return `${JSON.stringify(counts)} ${violations.join()}`;
}

async function runLoad(servers: ServerProcess[], load: ClusterLoad): Promise<ClusterReport> {
  const { limits, durationMs, costs, seed, nextId = (below) => below(limits.length) } = load;
  const checks = limits.map((limit, id) => {
    return costs.map((cost) => {
      return prepareCheck(id, { identifier: `cluster_${id}`, cost, limit, duration: durationMs });
    });
  });
  const before = await sumMetrics(servers);
  const log = new CheckLog();
  const onDecision = (
    { id, cost }: PreparedCheck,
    isAllowed: boolean,
    reset: number,
    _connection: number,
    sentMs: number,
  ) => log.add(id, reset, cost, isAllowed, sentMs, performance.now());
  const traffics = servers.map(({ port }, i) => {
    return new Traffic({
      ...{ port, connections: load.connectionsPerServer, checksPerPacket: 1, onDecision },
      ...{ seed: seed + 1_000 * i, checks: load.checksPerServer ?? Number.POSITIVE_INFINITY },
      nextCheck: (below) => checks[nextId(below)][below(costs.length)],
    });
  });
  if (load.during !== undefined) {
    await load.during();
    await Promise.all(traffics.map((traffic) => traffic.stop()));
  }
  await Promise.all(traffics.map(({ ended }) => ended));
  const after = await sumMetrics(servers);
  const counted = (name: keyof Sums) => after[name] - before[name];
  const { timesMs, waitsMs: _, ...replayed } = replay([log.rows()], (id) => limits[id]);
  const queued = counted('queued');
  return {
    ...replayed,
    unprovenDenials: counted('unproven'),
    withoutRedis: counted('withoutRedis'),
    recoveryDenials: counted('recoveryDenials'),
    writtenOff: counted('writtenOff'),
    waited: queued / replayed.decisions,
    waitP99Ms: quantile(timesMs, 1 - (0.01 * queued) / replayed.decisions),
    tokenRequestsPerCheck: counted('requests') / replayed.decisions,
    errors: traffics.flatMap(({ errors, connectionErrors, unanswered }) => [
      ...[...errors].map(([status, count]) => `${count} responses with ${status}`),
      ...connectionErrors,
      ...(unanswered > 0 ? [`${unanswered} without a response`] : []),
    ]),
  };
}

interface Sums {
  requests: number;
  unproven: number;
  queued: number;
  withoutRedis: number;
  recoveryDenials: number;
  writtenOff: number;
}

/** Metrics of all servers, over all of their labels. */
async function sumMetrics(servers: readonly ServerProcess[]): Promise<Sums> {
  const sums: Sums = {
    ...{ requests: 0, queued: 0 },
    ...{ unproven: 0, withoutRedis: 0, recoveryDenials: 0, writtenOff: 0 },
  };
  for (const { adminUrl } of servers) {
    for (const [name, value] of await readMetrics(adminUrl)) {
      if (name.startsWith('weir_token_requests_total')) sums.requests += value;
      if (name.startsWith('weir_unproven_denials_total')) sums.unproven += value;
      if (name.startsWith('weir_queue_checks_total')) sums.queued += value;
      if (name.startsWith('weir_engine_down_decisions_total')) sums.withoutRedis += value;
      if (name.startsWith('weir_recovery_denials_total')) sums.recoveryDenials += value;
      if (name.startsWith('weir_leases_written_off_total')) sums.writtenOff += value;
    }
  }
  return sums;
}
