/**
 * The metrics at /metrics, for Prometheus. Nothing is counted here: each scrape reads the
 * statistics of all threads. A value is right as of a moment ago, and includes every event that was
 * counted before the scrape began.
 */

import type { FullTablePolicy } from '../core/decision.ts';
import { ERRORS, type ErrorCode } from '../core/errors.ts';
import { VERSION } from '../core/version.ts';
import type { EngineHost } from '../engine/engine.ts';
import type { Registry } from '../registry/registry.ts';
import type { Writer } from '../registry/writer.ts';
import type { ClockPublisher } from '../shared-memory/clock.ts';
import type { Control } from '../shared-memory/control.ts';
import {
  ACCEPTOR_STAT,
  type AcceptorStatIndex,
  type AcceptorStats,
  LATENCY_BOUNDS_US,
  totalOf,
  WORKER_STAT,
  type WorkerStatIndex,
  type WorkerStats,
} from '../shared-memory/stats.ts';
import { registerDecisionSeries } from './decision-series.ts';
import { MetricSeries, type Sample } from './series.ts';

interface MetricSources {
  control: Control;
  engine: Pick<EngineHost, 'stats'>;
  clock: ClockPublisher;
  registry: Registry;
  writer: Writer;
  /** Connections that may be open at once. */
  connectionsMax: number;
  /** Live counters that the table holds without an eviction. */
  capacity: number;
  slots: number;
  fullTablePolicy: FullTablePolicy;
  /** The package that uWebSockets.js comes from, with its version. */
  uws: string;
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
    registerDecisionSeries(this.#series, this.#acceptors, sources.registry);
    this.#registerRequests(sources);
    this.#registerTable(sources);
    this.#registerCheckpoints(sources);
    this.#registerQueues(sources);
    this.#registerRecords(sources);
    this.#registerProcess(sources);
  }

  text(): Promise<string> {
    return this.#series.text();
  }

  #registerRequests({ writer, connectionsMax }: MetricSources): void {
    this.#series.histogram(
      'weir_check_duration_seconds',
      'Time from the last byte of a request of checks to its response.',
      LATENCY_BOUNDS_US.map((us) => us / 1e6),
      () => {
        const counts = Array.from({ length: LATENCY_BOUNDS_US.length + 1 }, () => 0);
        for (const stats of this.#acceptors) {
          for (const [bucket, count] of stats.latencyCounts.entries()) counts[bucket] += count;
        }
        return { counts, sum: this.#sum((stats) => stats.latencySumMs) / 1e3 };
      },
    );
    this.#series.counter(
      'weir_errors_total',
      'Requests answered with an error, by HTTP status and code.',
      ['status', 'code'],
      () =>
        (Object.keys(ERRORS) as ErrorCode[]).map((code): Sample => {
          const [status] = ERRORS[code].status.split(' ');
          return [{ status, code }, this.#sum((stats) => stats.errorCount(code))];
        }),
    );
    this.#series.unlabeledGauge('weir_connections', 'Open connections to the acceptors.', () =>
      this.#sum((stats) => stats.connections),
    );
    this.#series.unlabeledGauge(
      'weir_connections_capacity',
      'Connections that may be open at once.',
      () => connectionsMax,
    );
    this.#series.counter(
      'weir_shed_total',
      'Overload rejections, by the bound that was reached.',
      ['reason'],
      () => [
        [{ reason: 'connections' }, this.#acceptorTotal(ACCEPTOR_STAT.shedConnections)],
        [{ reason: 'bodies' }, this.#acceptorTotal(ACCEPTOR_STAT.shedBodies)],
        [{ reason: 'operations' }, this.#acceptorTotal(ACCEPTOR_STAT.shedOperations)],
        [{ reason: 'changes' }, writer.shedChanges],
        [{ reason: 'unread_responses' }, this.#acceptorTotal(ACCEPTOR_STAT.shedUnreadResponses)],
      ],
    );
  }

  #registerTable({ capacity, slots, fullTablePolicy }: MetricSources): void {
    this.#series.unlabeledGauge('weir_counters_live', 'Live counters in the last sweep.', () =>
      this.#workerTotal(WORKER_STAT.liveCounters),
    );
    this.#series.unlabeledGauge(
      'weir_counters_capacity',
      'Live counters that the table holds without an eviction.',
      () => capacity,
    );
    this.#series.unlabeledGauge('weir_table_slots', 'Slots of the table.', () => slots);
    this.#workerCounter(
      'weir_expired_counters_total',
      'Expired counters removed.',
      WORKER_STAT.expiredCountersRemoved,
    );
    this.#series.unlabeledCounter(
      'weir_live_evictions_total',
      'Live counters evicted to insert a new counter. Limits are exact while this is 0.',
      () =>
        this.#acceptorTotal(ACCEPTOR_STAT.liveEvictions) +
        this.#workerTotal(WORKER_STAT.liveEvictions),
    );
    this.#series.counter(
      'weir_full_table_decisions_total',
      'Checks without a slot for their counter, by the decision that WEIR_ON_FULL made.',
      ['decision'],
      () => [
        [{ decision: fullTablePolicy }, this.#acceptorTotal(ACCEPTOR_STAT.fullTableDecisions)],
      ],
    );
  }

  #registerCheckpoints({ clock }: MetricSources): void {
    this.#workerCounter(
      'weir_checkpoints_total',
      'Checkpoints of a shard written.',
      WORKER_STAT.checkpoints,
    );
    this.#workerCounter(
      'weir_checkpoint_failures_total',
      'Checkpoints of a shard that could not be written.',
      WORKER_STAT.checkpointFailures,
    );
    this.#series.gauge(
      'weir_checkpoint_age_seconds',
      'Decisions older than this are in a file. Absent until each shard has a checkpoint.',
      [],
      () => {
        const untilMs = Math.min(
          ...this.#workers.map((stats) => stats.get(WORKER_STAT.checkpointedUntilMs)),
        );
        return untilMs === 0 ? [] : [[{}, (clock.nowMs() - untilMs) / 1e3]];
      },
    );
  }

  #registerQueues({ engine }: MetricSources): void {
    this.#series.gauge(
      'weir_queue_entries',
      'Entries that wait in the queues, by shard worker.',
      ['worker'],
      () => engine.stats().queueDepths.map((depth, worker): Sample => [{ worker }, depth]),
    );
    this.#acceptorCounter(
      'weir_queue_checks_total',
      'Checks put into the queues.',
      ACCEPTOR_STAT.queuedChecks,
    );
    this.#acceptorCounter(
      'weir_queue_deductions_total',
      'Deductions put into the queues.',
      ACCEPTOR_STAT.deductions,
    );
    this.#acceptorCounter(
      'weir_queue_deduction_tokens_total',
      'Tokens of the deductions put into the queues.',
      ACCEPTOR_STAT.deductedTokens,
    );
    this.#acceptorCounter(
      'weir_queue_full_total',
      'Checks decided in place because a queue was full. This includes checks that were decided' +
        ' in place because the worker was late.',
      ACCEPTOR_STAT.queueFull,
    );
    this.#acceptorCounter(
      'weir_queue_withdrawn_total',
      'Checks withdrawn from a late worker and decided in place.',
      ACCEPTOR_STAT.withdrawnChecks,
    );
    this.#acceptorCounter(
      'weir_undelivered_responses_total',
      'Checks whose client disconnected before the response.',
      ACCEPTOR_STAT.undeliveredResponses,
    );
    this.#registerDeductions();
    this.#workerCounter(
      'weir_worker_decisions_total',
      'Checks decided by shard workers.',
      WORKER_STAT.decisions,
    );
    this.#workerCounter(
      'weir_queue_entries_repeated_total',
      'Queue entries that a shard worker had claimed when it died, processed again by the next.',
      WORKER_STAT.entriesRepeated,
    );
    this.#workerCounter(
      'weir_queue_entries_lost_total',
      'Queue entries dropped because two shard workers died while they processed them.',
      WORKER_STAT.entriesLost,
    );
    this.#series.unlabeledGauge(
      'weir_workers_running',
      'Shard workers that run and are responsive.',
      () => engine.stats().workers.running,
    );
    this.#series.unlabeledCounter(
      'weir_workers_replaced_total',
      'Runs of shard workers that failed, or failed to start, and were followed by another.',
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
      'Deductions of asynchronous checks, by outcome: applied, dropped because their window had' +
        ' ended, or dropped because the table was full.',
      ['outcome'],
      byOutcome(
        WORKER_STAT.deductionsApplied,
        WORKER_STAT.deductionsWindowEnded,
        WORKER_STAT.deductionsFull,
      ),
    );
    this.#series.counter(
      'weir_deduction_tokens_total',
      'Tokens of the deductions of asynchronous checks, by outcome.',
      ['outcome'],
      byOutcome(
        WORKER_STAT.deductionTokensApplied,
        WORKER_STAT.deductionTokensWindowEnded,
        WORKER_STAT.deductionTokensFull,
      ),
    );
  }

  #registerRecords({ registry, writer }: MetricSources): void {
    this.#series.gauge(
      'weir_overrides',
      'Overrides, by kind: without a wildcard and with one.',
      ['kind'],
      () => {
        return Object.entries(registry.overrideCounts).map(([kind, count]): Sample => {
          return [{ kind }, count];
        });
      },
    );
    this.#series.unlabeledGauge('weir_keys', 'API keys.', () => registry.keys().length);
    this.#series.unlabeledGauge('weir_namespaces', 'Namespaces.', () => registry.namespaceCount);
    this.#series.unlabeledCounter(
      'weir_write_transactions_total',
      'Transactions that wrote changes, each followed by one publication.',
      () => writer.groupCommits,
    );
    this.#acceptorCounter(
      'weir_overridden_checks_total',
      'Checks whose limit came from an override.',
      ACCEPTOR_STAT.overriddenChecks,
    );
    this.#acceptorCounter('weir_refunds_total', 'Refunds.', ACCEPTOR_STAT.refunds);
    this.#acceptorCounter(
      'weir_refunded_tokens_total',
      'Tokens refunded.',
      ACCEPTOR_STAT.refundedTokens,
    );
    this.#acceptorCounter(
      'weir_counters_reset_total',
      'Counters removed by resets.',
      ACCEPTOR_STAT.countersReset,
    );
  }

  #registerProcess({ clock, uws }: MetricSources): void {
    const build = { version: VERSION, node: process.versions.node, uws };
    this.#series.gauge(
      'weir_build_info',
      'Always 1. The labels name the versions of weir, Node and uWebSockets.js.',
      Object.keys(build),
      () => [[build, 1]],
    );
    this.#series.unlabeledGauge(
      'weir_clock_offset_seconds',
      "How far weir's time is ahead of the system clock.",
      () => clock.offsetMs() / 1e3,
    );
    this.#series.unlabeledGauge('process_resident_memory_bytes', 'Resident memory.', () =>
      process.memoryUsage.rss(),
    );
    this.#series.unlabeledCounter(
      'process_cpu_seconds_total',
      'User and system time of all threads.',
      () => {
        const { user, system } = process.cpuUsage();
        return (user + system) / 1e6;
      },
    );
  }

  #acceptorCounter(name: string, help: string, index: AcceptorStatIndex): void {
    this.#series.unlabeledCounter(name, help, () => this.#acceptorTotal(index));
  }

  #workerCounter(name: string, help: string, index: WorkerStatIndex): void {
    this.#series.unlabeledCounter(name, help, () => this.#workerTotal(index));
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
