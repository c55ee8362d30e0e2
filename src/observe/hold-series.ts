/**
 * Series of reservations, concurrency leases and repeated requests. Only an engine with the records
 * in its memory knows how many are live.
 */

import type { FullTablePolicy } from '../core/decision.ts';
import type { HoldStats } from '../engine/engine.ts';
import {
  ACCEPTOR_STAT,
  type AcceptorStats,
  totalOf,
  WORKER_STAT,
  type WorkerStats,
} from '../shared-memory/stats.ts';
import type { MetricSeries } from './series.ts';

interface HoldSources {
  acceptors: readonly AcceptorStats[];
  workers: readonly WorkerStats[];
  /** Of an engine with the records in its memory. */
  stats: (() => HoldStats) | undefined;
  whenFull: FullTablePolicy;
}

export function registerHoldSeries(
  series: MetricSeries,
  { acceptors, workers, stats, whenFull }: HoldSources,
): void {
  if (stats !== undefined) registerLiveHolds(series, stats);
  series.unlabeledCounter('weir_reservations_total', () => {
    return totalOf(acceptors, ACCEPTOR_STAT.reservations);
  });
  series.unlabeledCounter('weir_reservation_commits_total', () => {
    return totalOf(acceptors, ACCEPTOR_STAT.commits);
  });
  series.unlabeledCounter('weir_late_commits_total', () => {
    return totalOf(acceptors, ACCEPTOR_STAT.lateCommits);
  });
  series.unlabeledCounter('weir_reservation_cancellations_total', () => {
    return totalOf(acceptors, ACCEPTOR_STAT.cancellations);
  });
  series.unlabeledCounter('weir_lease_releases_total', () => {
    return totalOf(acceptors, ACCEPTOR_STAT.concurrencyLeasesReleased);
  });
  series.unlabeledCounter('weir_expired_holds_total', () => {
    return totalOf(workers, WORKER_STAT.holdsExpired);
  });
  series.counter('weir_full_hold_decisions_total', () => [
    [{ decision: whenFull }, totalOf(acceptors, ACCEPTOR_STAT.fullHoldDecisions)],
  ]);
  series.unlabeledCounter('weir_repeated_requests_total', () => {
    return totalOf(acceptors, ACCEPTOR_STAT.repeatedRequests);
  });
}

function registerLiveHolds(series: MetricSeries, stats: () => HoldStats): void {
  series.unlabeledGauge('weir_holds_capacity', () => stats().capacity);
  series.gauge('weir_holds_live', () => {
    const { reservations, leases } = stats();
    return [
      [{ kind: 'reservation' }, reservations],
      [{ kind: 'lease' }, leases],
    ];
  });
  series.gauge('weir_held_tokens', () => {
    const { reservedTokens, leasedTokens } = stats();
    return [
      [{ kind: 'reservation' }, reservedTokens],
      [{ kind: 'lease' }, leasedTokens],
    ];
  });
  series.unlabeledGauge('weir_lease_wait_seconds', () => stats().leaseWaitMs / 1e3);
}
