/**
 * The metrics at /metrics, for Prometheus. Nothing is counted here: each scrape reads the
 * statistics of all threads. A value is right as of a moment ago, and includes every event that was
 * counted before the scrape began.
 */

import type { Analytics } from '../analytics/analytics.ts';
import type { FullTablePolicy } from '../core/decision.ts';
import { ERRORS, type ErrorCode } from '../core/errors.ts';
import { VERSION } from '../core/version.ts';
import type { EngineHost } from '../engine/engine.ts';
import type { EventFile } from '../events/event-file.ts';
import type { Registry } from '../registry/registry.ts';
import type { StatsRows } from '../registry/stats-rows.ts';
import type { Writer } from '../registry/writer.ts';
import { type ClockPublisher, systemMs } from '../shared-memory/clock.ts';
import type { Control } from '../shared-memory/control.ts';
import {
  ACCEPTOR_STAT,
  type AcceptorStatIndex,
  type AcceptorStats,
  checkpointedUntilMs,
  totalOf,
  WORKER_STAT,
  type WorkerStatIndex,
  type WorkerStats,
} from '../shared-memory/stats.ts';
import { registerClusterSeries } from './cluster-series.ts';
import { registerDecisionSeries } from './decision-series.ts';
import { FAULT_REASONS, type FaultReason, type ReplicaStats } from './faults.ts';
import { registerHoldSeries } from './hold-series.ts';
import type { CounterName } from './metric-declarations.ts';
import { type RlsSources, registerRlsSeries } from './rls-series.ts';
import { LATENCY_BOUNDS_S, MetricSeries, type Sample, sumOfBuckets } from './series.ts';
import type { UnknownFields } from './unknown-fields.ts';

interface MetricSources {
  control: Control;
  engine: Pick<EngineHost, 'stats'>;
  /** The faults for which the server is degraded. */
  faults: () => readonly FaultReason[];
  clock: ClockPublisher;
  registry: Registry;
  statsRows: StatsRows;
  /** The first word of the hash state of a namespace, by its key. */
  namespaceTag: (key: string) => number;
  /** Where the registry is in Redis. */
  replica?: () => ReplicaStats;
  /** Undefined with WEIR_ANALYTICS=off. */
  analytics?: Pick<Analytics, 'failures'>;
  /** Where decisions become events. */
  events?: Pick<EventFile, 'written' | 'failed'>;
  writer: Writer;
  policies: { all: readonly unknown[]; loadedMs: number };
  unknownFields: Pick<UnknownFields, 'requests'>;
  /** Connections that may be open at once. */
  connectionsMax: number;
  /** Live counters that the table holds without an eviction. */
  capacity: number;
  slots: number;
  fullTablePolicy: FullTablePolicy;
  /** The package that uWebSockets.js comes from, with its version. */
  uws: string;
  /** Where the rate limit service is on. */
  rls?: Omit<RlsSources, 'threads'>;
}

export class Metrics {
  readonly contentType: string;
  readonly #series = new MetricSeries();
  readonly #acceptors: AcceptorStats[];
  readonly #workers: WorkerStats[];

  constructor(sources: MetricSources) {
    this.contentType = this.#series.contentType;
    this.#acceptors = sources.control.allAcceptorStats();
    this.#workers = sources.control.allWorkerStats();
    this.#registerHealth(sources);
    registerDecisionSeries(this.#series, this.#acceptors, sources.statsRows);
    this.#registerRequests(sources);
    this.#registerTable(sources);
    this.#registerHolds(sources);
    this.#registerCheckpoints(sources);
    this.#registerQueues(sources);
    this.#registerCluster(sources);
    this.#registerAnalytics(sources);
    this.#registerRecords(sources);
    this.#registerProcess(sources);
    const { rls, control } = sources;
    if (rls) registerRlsSeries(this.#series, { ...rls, threads: control.rlsStats() });
  }

  text(): Promise<string> {
    return this.#series.text();
  }

  #registerHealth({ faults }: MetricSources): void {
    this.#series.gauge('weir_degraded', () => {
      const existing = faults();
      return FAULT_REASONS.map((reason) => [{ reason }, existing.includes(reason) ? 1 : 0]);
    });
  }

  #registerRequests(sources: MetricSources): void {
    const { writer, unknownFields, connectionsMax, control } = sources;
    const acceptors = control.httpStats();
    this.#series.histogram('weir_check_duration_seconds', LATENCY_BOUNDS_S, () => {
      const counts = sumOfBuckets(this.#acceptors.map((stats) => stats.latencyCounts));
      return { counts, sum: this.#sum((stats) => stats.latencySumMs) / 1e3 };
    });
    this.#series.counter('weir_errors_total', () =>
      (Object.keys(ERRORS) as ErrorCode[]).map((code): Sample => {
        const [status] = ERRORS[code].status.split(' ');
        return [{ status, code }, this.#sum((stats) => stats.errorCount(code))];
      }),
    );
    this.#series.counter('weir_unknown_field_requests_total', () =>
      unknownFields.requests().map(([operation, requests]): Sample => [{ operation }, requests]),
    );
    this.#series.unlabeledGauge('weir_connections', () => {
      return acceptors.reduce((sum, { connections }) => sum + connections, 0);
    });
    this.#series.unlabeledGauge('weir_connections_capacity', () => connectionsMax);
    this.#series.counter('weir_shed_total', () => [
      [{ reason: 'connections' }, this.#acceptorTotal(ACCEPTOR_STAT.shedConnections)],
      [{ reason: 'bodies' }, this.#acceptorTotal(ACCEPTOR_STAT.shedBodies)],
      [{ reason: 'operations' }, this.#acceptorTotal(ACCEPTOR_STAT.shedOperations)],
      [{ reason: 'changes' }, writer.shedChanges],
      [{ reason: 'unread_responses' }, this.#acceptorTotal(ACCEPTOR_STAT.shedUnreadResponses)],
      [{ reason: 'pipelined' }, this.#acceptorTotal(ACCEPTOR_STAT.shedPipelined)],
      [{ reason: 'lists' }, this.#acceptorTotal(ACCEPTOR_STAT.shedLists)],
    ]);
  }

  #registerTable({ capacity, slots, fullTablePolicy }: MetricSources): void {
    this.#series.unlabeledGauge('weir_counters_live', () =>
      this.#workerTotal(WORKER_STAT.liveCounters),
    );
    this.#series.unlabeledGauge('weir_counters_capacity', () => capacity);
    this.#series.unlabeledGauge('weir_table_slots', () => slots);
    this.#workerCounter('weir_expired_counters_total', WORKER_STAT.expiredCountersRemoved);
    this.#series.unlabeledCounter(
      'weir_live_evictions_total',
      () =>
        this.#acceptorTotal(ACCEPTOR_STAT.liveEvictions) +
        this.#workerTotal(WORKER_STAT.liveEvictions),
    );
    this.#series.counter('weir_full_table_decisions_total', () => [
      [{ decision: fullTablePolicy }, this.#acceptorTotal(ACCEPTOR_STAT.fullTableDecisions)],
    ]);
  }

  #registerHolds({ engine, fullTablePolicy }: MetricSources): void {
    const { holds } = engine.stats();
    registerHoldSeries(this.#series, {
      acceptors: this.#acceptors,
      workers: this.#workers,
      stats: holds && (() => engine.stats().holds ?? holds),
      whenFull: fullTablePolicy,
    });
  }

  #registerCheckpoints({ clock }: MetricSources): void {
    this.#workerCounter('weir_checkpoints_total', WORKER_STAT.checkpoints);
    this.#workerCounter('weir_checkpoint_failures_total', WORKER_STAT.checkpointFailures);
    this.#series.gauge('weir_checkpoint_age_seconds', () => {
      const untilMs = checkpointedUntilMs(this.#workers);
      return untilMs === 0 ? [] : [[{}, (clock.nowMs() - untilMs) / 1e3]];
    });
  }

  #registerQueues({ engine }: MetricSources): void {
    this.#series.gauge('weir_queue_entries', () =>
      engine.stats().queueDepths.map((depth, worker): Sample => [{ worker }, depth]),
    );
    this.#acceptorCounter('weir_queue_checks_total', ACCEPTOR_STAT.queuedChecks);
    this.#acceptorCounter('weir_queue_deductions_total', ACCEPTOR_STAT.deductions);
    this.#acceptorCounter('weir_queue_deduction_tokens_total', ACCEPTOR_STAT.deductedTokens);
    this.#acceptorCounter('weir_queue_full_total', ACCEPTOR_STAT.queueFull);
    this.#acceptorCounter('weir_queue_withdrawn_total', ACCEPTOR_STAT.withdrawnChecks);
    this.#acceptorCounter('weir_undelivered_responses_total', ACCEPTOR_STAT.undeliveredResponses);
    this.#registerDeductions();
    this.#workerCounter('weir_worker_decisions_total', WORKER_STAT.decisions);
    this.#workerCounter('weir_queue_entries_repeated_total', WORKER_STAT.entriesRepeated);
    this.#workerCounter('weir_queue_entries_lost_total', WORKER_STAT.entriesLost);
    this.#series.unlabeledGauge('weir_workers_running', () => engine.stats().workers.running);
    this.#series.unlabeledCounter(
      'weir_workers_replaced_total',
      () => engine.stats().workers.replaced,
    );
  }

  #registerDeductions(): void {
    const byOutcome = (
      applied: WorkerStatIndex,
      windowEnded: WorkerStatIndex,
      tableFull: WorkerStatIndex,
    ) => {
      return (): Sample[] => [
        [{ outcome: 'applied' }, this.#workerTotal(applied)],
        [{ outcome: 'window_ended' }, this.#workerTotal(windowEnded)],
        [{ outcome: 'table_full' }, this.#workerTotal(tableFull)],
      ];
    };
    this.#series.counter(
      'weir_deductions_total',
      byOutcome(
        WORKER_STAT.deductionsApplied,
        WORKER_STAT.deductionsWindowEnded,
        WORKER_STAT.deductionsFull,
      ),
    );
    this.#series.counter(
      'weir_deduction_tokens_total',
      byOutcome(
        WORKER_STAT.deductionTokensApplied,
        WORKER_STAT.deductionTokensWindowEnded,
        WORKER_STAT.deductionTokensFull,
      ),
    );
  }

  #registerAnalytics({ analytics, events }: MetricSources): void {
    this.#series.unlabeledCounter(
      'weir_analytics_write_failures_total',
      () => analytics?.failures ?? 0,
    );
    this.#series.counter('weir_events_total', () => {
      const dropped = (events?.failed ?? 0) + this.#acceptorTotal(ACCEPTOR_STAT.droppedEvents);
      return [
        [{ outcome: 'written' }, events?.written ?? 0],
        [{ outcome: 'dropped' }, dropped],
      ];
    });
  }

  #registerRecords({ registry, writer, policies }: MetricSources): void {
    this.#series.unlabeledGauge('weir_policies', () => policies.all.length);
    this.#series.unlabeledGauge(
      'weir_policies_loaded_timestamp_seconds',
      () => policies.loadedMs / 1e3,
    );
    this.#series.gauge('weir_overrides', () => {
      return Object.entries(registry.overrideCounts).map(([kind, count]): Sample => {
        return [{ kind }, count];
      });
    });
    this.#series.unlabeledGauge('weir_keys', () => registry.keys().length);
    this.#series.unlabeledGauge('weir_namespaces', () => registry.namespaceCount);
    this.#series.unlabeledCounter('weir_write_transactions_total', () => writer.groupCommits);
    this.#acceptorCounter('weir_overridden_checks_total', ACCEPTOR_STAT.overriddenChecks);
    this.#acceptorCounter('weir_refunds_total', ACCEPTOR_STAT.refunds);
    this.#acceptorCounter('weir_refunded_tokens_total', ACCEPTOR_STAT.refundedTokens);
    this.#acceptorCounter('weir_counters_reset_total', ACCEPTOR_STAT.countersReset);
  }

  #registerCluster({ engine, replica, statsRows, namespaceTag }: MetricSources): void {
    const { cluster } = engine.stats();
    if (cluster === undefined) return;
    registerClusterSeries(this.#series, {
      acceptors: this.#acceptors,
      workers: this.#workers,
      cluster: () => engine.stats().cluster ?? cluster,
      replica,
      rows: statsRows,
      namespaceTag,
    });
  }

  #registerProcess({ clock, uws }: MetricSources): void {
    const startedS = (systemMs() - process.uptime() * 1e3) / 1e3;
    this.#series.unlabeledGauge('process_start_time_seconds', () => startedS);
    const build = { version: VERSION, node: process.versions.node, uws };
    this.#series.gauge('weir_build_info', () => [[build, 1]]);
    this.#series.unlabeledGauge('weir_clock_offset_seconds', () => clock.offsetMs() / 1e3);
    this.#series.unlabeledGauge('process_resident_memory_bytes', () => process.memoryUsage.rss());
    this.#series.unlabeledCounter('process_cpu_seconds_total', () => {
      const { user, system } = process.cpuUsage();
      return (user + system) / 1e6;
    });
  }

  #acceptorCounter(name: CounterName, index: AcceptorStatIndex): void {
    this.#series.unlabeledCounter(name, () => this.#acceptorTotal(index));
  }

  #workerCounter(name: CounterName, index: WorkerStatIndex): void {
    this.#series.unlabeledCounter(name, () => this.#workerTotal(index));
  }

  #acceptorTotal(index: AcceptorStatIndex): number {
    return totalOf(this.#acceptors, index);
  }

  #workerTotal(index: WorkerStatIndex): number {
    return totalOf(this.#workers, index);
  }

  #sum(read: (stats: AcceptorStats) => number): number {
    return this.#acceptors.reduce((sum, stats) => sum + read(stats), 0);
  }
}
