/**
 * Series of the engine that shares its counters with other machines through Redis. They exist only
 * with that engine: a server with the engine in memory has none of them.
 */

import { OTHER_NAMESPACE } from '../core/namespace.ts';
import type { ClusterStats } from '../engine/engine.ts';
import { REDIS_ERROR_KINDS } from '../redis/errors.ts';
import type { StatsRows } from '../registry/stats-rows.ts';
import {
  ACCEPTOR_STAT,
  type AcceptorStats,
  totalOf,
  WORKER_STAT,
  type WorkerStatIndex,
  type WorkerStats,
} from '../shared-memory/stats.ts';
import type { ReplicaStats } from './faults.ts';
import type { CounterName } from './metric-declarations.ts';
import { namedOwners } from './namespace-counts.ts';
import { LATENCY_BOUNDS_S, type MetricSeries, type Sample, sumOfBuckets } from './series.ts';

interface ClusterSources {
  acceptors: readonly AcceptorStats[];
  workers: readonly WorkerStats[];
  cluster: () => ClusterStats;
  replica: (() => ReplicaStats) | undefined;
  rows: StatsRows;
  /** The first word of the hash state of a namespace, by its key. */
  namespaceTag: (key: string) => number;
}

const WORKER_COUNTERS = {
  weir_redis_breaker_openings_total: WORKER_STAT.breakerOpenings,
  weir_redis_calls_total: WORKER_STAT.redisCalls,
  weir_redis_call_failures_total: WORKER_STAT.redisCallFailures,
  weir_token_requests_total: WORKER_STAT.tokenRequests,
  weir_leases_granted_total: WORKER_STAT.leasesGranted,
  weir_leased_tokens_total: WORKER_STAT.leasedTokens,
  weir_leases_returned_total: WORKER_STAT.leasesReturned,
  weir_returned_tokens_total: WORKER_STAT.returnedTokens,
  weir_leases_recalled_total: WORKER_STAT.leasesRecalled,
  weir_leases_written_off_total: WORKER_STAT.leasesWrittenOff,
} as const satisfies Partial<Record<CounterName, WorkerStatIndex>>;

export function registerClusterSeries(
  series: MetricSeries,
  { acceptors, workers, cluster, replica, rows, namespaceTag }: ClusterSources,
): void {
  series.gauge('weir_redis_connected', () => {
    return cluster().connections.map((isConnected, worker) => [{ worker }, isConnected ? 1 : 0]);
  });
  for (const [name, index] of Object.entries(WORKER_COUNTERS)) {
    series.unlabeledCounter(name as keyof typeof WORKER_COUNTERS, () => totalOf(workers, index));
  }
  series.counter('weir_redis_errors_total', () => {
    return REDIS_ERROR_KINDS.map((kind) => {
      return [{ kind }, workers.reduce((sum, stats) => sum + stats.callErrors(kind), 0)];
    });
  });
  series.histogram('weir_redis_call_duration_seconds', LATENCY_BOUNDS_S, () => {
    const counts = sumOfBuckets(workers.map((stats) => stats.callLatencyCounts));
    return { counts, sum: workers.reduce((sum, stats) => sum + stats.callLatencySumMs, 0) / 1e3 };
  });
  series.counter('weir_engine_down_decisions_total', () => [
    [{ outcome: 'allowed' }, totalOf(acceptors, ACCEPTOR_STAT.engineDownAllowed)],
    [{ outcome: 'denied' }, totalOf(acceptors, ACCEPTOR_STAT.engineDownDenied)],
  ]);
  series.counter('weir_unproven_denials_total', () => {
    const joining = totalOf(acceptors, ACCEPTOR_STAT.joiningDenials);
    return [
      [{ cause: 'recall' }, totalOf(workers, WORKER_STAT.unprovenDenials)],
      [{ cause: 'write_off' }, totalOf(acceptors, ACCEPTOR_STAT.doubtedDenials)],
      [{ cause: 'shared' }, totalOf(acceptors, ACCEPTOR_STAT.sharedDenials)],
      [{ cause: 'recovery' }, totalOf(workers, WORKER_STAT.recoveryDenials)],
      [{ cause: 'joining' }, joining],
      [
        { cause: 'without_redis' },
        Math.max(0, totalOf(acceptors, ACCEPTOR_STAT.engineDownDenied) - joining),
      ],
    ];
  });
  let mostOfOthers = 0;
  series.counter('weir_tokens_possibly_over_limit_total', () => {
    let others = totalOf(workers, WORKER_STAT.openedWindowTokens);
    const named = namedOwners(rows).map(({ name: namespace, key }): Sample => {
      const tag = namespaceTag(key);
      const tokens = workers.reduce((sum, stats) => sum + stats.openedTokensOf(tag), 0);
      others -= tokens;
      return [{ namespace }, tokens];
    });
    // A counter must not fall, also when a namespace is named that was one of the others.
    mostOfOthers = Math.max(mostOfOthers, others);
    return [...named, [{ namespace: OTHER_NAMESPACE }, mostOfOthers]];
  });
  series.unlabeledGauge('weir_cluster_machines', () => cluster().machines);
  series.unlabeledGauge('weir_cluster_joined', () => (cluster().hasJoined ? 1 : 0));
  series.unlabeledGauge('weir_cluster_recovering', () => (cluster().isRecovering ? 1 : 0));
  // Each shard worker sees every recovery, unless it was started later.
  const mostOf = (index: WorkerStatIndex) => Math.max(...workers.map((stats) => stats.get(index)));
  series.counter('weir_recoveries_total', () => [
    [{ outcome: 'complete' }, mostOf(WORKER_STAT.recoveriesComplete)],
    [{ outcome: 'incomplete' }, mostOf(WORKER_STAT.recoveriesIncomplete)],
  ]);
  series.unlabeledGauge('weir_redis_clock_lag_seconds', () => {
    return mostOf(WORKER_STAT.clockLagMs) / 1e3;
  });
  series.unlabeledGauge('weir_redis_clock_offset_seconds', () => {
    const offsets = workers.map((stats) => stats.get(WORKER_STAT.clockOffsetMs));
    const largest = offsets.reduce((most, one) => (Math.abs(one) > Math.abs(most) ? one : most));
    return largest / 1e3;
  });
  series.gauge('weir_registry_version', () => {
    return replica === undefined ? [] : [[{}, replica().version]];
  });
  series.gauge('weir_registry_age_seconds', () => {
    return replica === undefined ? [] : [[{}, replica().ageMs / 1e3]];
  });
}
