/**
 * Runs several servers on one Redis, each behind a proxy that delays its connections, under load
 * from concurrent clients, and replays all answers: by window, what was allowed and denied.
 *
 * A check that Redis does not answer in time is denied here (WEIR_ON_ENGINE_DOWN=deny): then no
 * window may exceed its limit, on a slow machine neither, and the metrics count what was denied
 * without proof.
 */

import { type DelayProxy, startDelayProxy } from './delay-proxy.ts';
import { readMetrics } from './http.ts';
import { Ledger } from './ledger.ts';
import type { RedisServer } from './redis.ts';
import {
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
  waitUntil,
} from './server.ts';
import { type PreparedCheck, prepareCheck, Traffic } from './traffic.ts';

export interface ClusterLoad {
  /** By identifier. */
  limits: readonly number[];
  durationMs: number;
  costs: readonly number[];
  /** Sliding windows have no exact ledger: the identifiers use fixed windows. */
  connectionsPerServer: number;
  checksPerServer: number;
  seed: number;
  /** Chooses an identifier. Default: each as often. */
  nextId?: (below: (n: number) => number) => number;
}

export interface ClusterReport {
  decisions: number;
  windows: number;
  /** Tokens that windows allowed above their limit. */
  overAdmission: number;
  /** Windows that denied a cost which fitted into them. */
  falseDenials: number;
  /** Denials that Redis did not prove, or did not answer. */
  unprovenDenials: number;
  withoutRedis: number;
  /** Of the windows that denied a check: allowed tokens in parts of the limit, least and mean. */
  leastUtilisation: number;
  meanUtilisation: number;
  /** Checks that waited for Redis, in parts of all. */
  waited: number;
  tokenRequestsPerCheck: number;
  errors: string[];
  violations: string[];
}

export interface RunningCluster {
  redis: RedisServer;
  servers: ServerProcess[];
  proxies: DelayProxy[];
  run: (load: ClusterLoad) => Promise<ClusterReport>;
  close: () => Promise<void>;
}

const ARGS = ['--acceptors', '1', '--workers', '1', '--counters', '65536'];

/** Starts servers that all have joined. The caller closes Redis. */
export async function startServers(
  redis: RedisServer,
  count: number,
  options: { delayMs?: number; jitterMs?: number; env?: Record<string, string> } = {},
): Promise<RunningCluster> {
  const { delayMs = 0, jitterMs = 0, env = {} } = options;
  const servers: ServerProcess[] = [];
  const proxies: DelayProxy[] = [];
  const directories: string[] = [];
  const close = async () => {
    for (const { child } of servers) child.kill('SIGKILL');
    await Promise.all(servers.map(({ exited }) => exited));
    await Promise.all(proxies.map((proxy) => proxy.close()));
    for (const directory of directories) removeDirectory(directory);
  };
  try {
    for (let i = 0; i < count; i++) {
      const proxy = await startDelayProxy(redis.port, { delayMs, jitterMs });
      proxies.push(proxy);
      const directory = temporaryDirectory();
      directories.push(directory);
      const url = `redis://127.0.0.1:${proxy.port}`;
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
  return { redis, servers, proxies, run: (load) => runLoad(servers, load), close };
}

async function runLoad(servers: ServerProcess[], load: ClusterLoad): Promise<ClusterReport> {
  const { limits, durationMs, costs, seed, nextId = (below) => below(limits.length) } = load;
  const checks = limits.map((limit, id) => {
    return costs.map((cost) => {
      return prepareCheck(id, { identifier: `cluster_${id}`, cost, limit, duration: durationMs });
    });
  });
  const before = await sumMetrics(servers);
  const ledger = new Ledger((id) => limits[id]);
  const allowed = new Map<string, number>();
  const exhausted = new Set<string>();
  const record = ({ id, cost }: PreparedCheck, isAllowed: boolean, reset: number) => {
    const at = `${id} ${reset}`;
    if (isAllowed) allowed.set(at, (allowed.get(at) ?? 0) + cost);
    else exhausted.add(at);
  };
  const traffics = servers.map(({ port }, i) => {
    return new Traffic({
      ...{ port, connections: load.connectionsPerServer, checksPerPacket: 1, ledger },
      ...{ seed: seed + 1_000 * i, checks: load.checksPerServer, onDecision: record },
      nextCheck: (below) => checks[nextId(below)][below(costs.length)],
    });
  });
  await Promise.all(traffics.map(({ ended }) => ended));
  const after = await sumMetrics(servers);
  const counted = (name: keyof Sums) => after[name] - before[name];
  const { decisions, windows, falseDenials, violations } = ledger.report();
  let overAdmission = 0;
  for (const [at, tokens] of allowed) {
    overAdmission += Math.max(0, tokens - limits[Number(at.split(' ')[0])]);
  }
  const shares = [...exhausted].map((at) => {
    return (allowed.get(at) ?? 0) / limits[Number(at.split(' ')[0])];
  });
  return {
    ...{ decisions, windows, overAdmission, falseDenials, violations },
    unprovenDenials: counted('unproven'),
    withoutRedis: counted('withoutRedis'),
    leastUtilisation: Math.min(1, ...shares),
    meanUtilisation: shares.reduce((sum, share) => sum + share, 0) / Math.max(1, shares.length),
    waited: counted('queued') / decisions,
    tokenRequestsPerCheck: counted('requests') / decisions,
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
}

/** Metrics of all servers, over all of their labels. */
async function sumMetrics(servers: readonly ServerProcess[]): Promise<Sums> {
  const sums = { requests: 0, unproven: 0, queued: 0, withoutRedis: 0 };
  for (const { adminUrl } of servers) {
    for (const [name, value] of await readMetrics(adminUrl)) {
      if (name.startsWith('weir_token_requests_total')) sums.requests += value;
      if (name.startsWith('weir_unproven_denials_total')) sums.unproven += value;
      if (name.startsWith('weir_queue_checks_total')) sums.queued += value;
      if (name.startsWith('weir_engine_down_decisions_total')) sums.withoutRedis += value;
    }
  }
  return sums;
}
