/**
 * The metrics at /metrics, for Prometheus. Nothing is counted here: on a scrape they are read from
 * what the threads count in their lanes, so every figure is true as of a moment ago, and what was
 * counted before the scrape is in it.
 */

import type { FullTablePolicy } from '../core/decision.ts';
import { ERRORS, type ErrorCode } from '../core/errors.ts';
import { VERSION } from '../core/version.ts';
import { CHECK_QUEUE, queueDepth } from '../engine/worker/queue.ts';
import type { ShardWorkerSupervisor } from '../engine/worker/supervisor.ts';
import type { Registry } from '../registry/registry.ts';
import type { Writer } from '../registry/writer.ts';
import type { ClockPublisher } from '../shared-memory/clock.ts';
import type { Control } from '../shared-memory/control.ts';
import { ACCEPTOR_STAT, type AcceptorStats, totalOf, WORKER_STAT } from '../shared-memory/stats.ts';
import { registerDecisionSeries } from './decision-series.ts';
import { DurationHistogram } from './duration-histogram.ts';
import { MetricSeries, type Sample } from './series.ts';

export interface MetricSources {
  control: Control;
  /** By acceptor and worker. */
  channels: SharedArrayBuffer[][];
  workers: ShardWorkerSupervisor;
  clock: ClockPublisher;
  registry: Registry;
  writer: Writer;
  /** How many may be open at once. */
  connections: number;
  capacity: number;
  slots: number;
  onFull: FullTablePolicy;
  /** The package that uWebSockets.js comes from, with its version. */
  uws: string;
}

export class Metrics {
  readonly contentType: string;
  readonly #series = new MetricSeries();
  readonly #acceptors: AcceptorStats[];

  constructor(sources: MetricSources) {
    this.contentType = this.#series.contentType;
    this.#acceptors = sources.control.allAcceptorStats();
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

  #registerRequests({ writer, connections }: MetricSources): void {
    this.#series.register(
      new DurationHistogram(
        () => this.#acceptors.map((lane) => lane.latencyCounts),
        () => this.#sum((lane) => lane.latencySumMs),
      ),
    );
    this.#series.counter(
      'weir_errors_total',
      'Requests answered with an error, by HTTP status and code.',
      ['status', 'code'],
      () =>
        (Object.keys(ERRORS) as ErrorCode[]).map((code): Sample => {
          const [status] = ERRORS[code].status.split(' ');
          return [{ status, code }, this.#sum((lane) => lane.errorCount(code))];
        }),
    );
    this.#series.unlabeledGauge('weir_connections', 'Connections open to the acceptors.', () =>
      this.#sum((lane) => lane.connections),
    );
    this.#series.unlabeledGauge(
      'weir_connections_capacity',
      'Connections that may be open at once.',
      () => connections,
    );
    const shed = (index: number) => totalOf(this.#acceptors, index);
    this.#series.counter('weir_shed_total', 'What was not served, by the bound.', ['bound'], () => [
      [{ bound: 'connections' }, shed(ACCEPTOR_STAT.shedConnections)],
      [{ bound: 'bodies' }, shed(ACCEPTOR_STAT.shedBodies)],
      [{ bound: 'operations' }, shed(ACCEPTOR_STAT.shedOperations)],
      [{ bound: 'changes' }, writer.shedChanges],
      [{ bound: 'unread' }, shed(ACCEPTOR_STAT.shedUnreadResponses)],
    ]);
  }

  #registerTable({ control, capacity, slots, onFull }: MetricSources): void {
    const workers = control.allWorkerStats();
    const work = (index: number) => totalOf(workers, index);
    this.#series.unlabeledGauge('weir_counters_live', 'Live counters in the last sweep.', () =>
      work(WORKER_STAT.liveCounters),
    );
    this.#series.unlabeledGauge(
      'weir_counters_capacity',
      'Live counters held without evicting one.',
      () => capacity,
    );
    this.#series.unlabeledGauge('weir_table_slots', 'Slots of the table.', () => slots);
    this.#series.unlabeledCounter('weir_expired_counters_total', 'Expired counters removed.', () =>
      work(WORKER_STAT.expiredCountersRemoved),
    );
    this.#series.unlabeledCounter(
      'weir_live_evictions_total',
      'Live counters that made room for a newcomer: limits are exact while this is 0.',
      () => totalOf(this.#acceptors, ACCEPTOR_STAT.liveEvictions) + work(WORKER_STAT.liveEvictions),
    );
    this.#series.counter(
      'weir_full_table_answers_total',
      'Checks for which there was no room, by what WEIR_ON_FULL had them answered.',
      ['answer'],
      () => [[{ answer: onFull }, totalOf(this.#acceptors, ACCEPTOR_STAT.fullTableDecisions)]],
    );
    const outcomes = (applied: number, past: number, noRoom: number) => (): Sample[] => [
      [{ outcome: 'applied' }, work(applied)],
      [{ outcome: 'past' }, work(past)],
      [{ outcome: 'no_room' }, work(noRoom)],
    ];
    this.#series.counter(
      'weir_deductions_total',
      'Deductions of asynchronous checks by what became of them: applied, too late for their' +
        ' window, or without room for their counter.',
      ['outcome'],
      outcomes(
        WORKER_STAT.deductionsApplied,
        WORKER_STAT.deductionsWindowEnded,
        WORKER_STAT.deductionsFull,
      ),
    );
    this.#series.counter(
      'weir_deduction_tokens_total',
      'The tokens of those deductions.',
      ['outcome'],
      outcomes(
        WORKER_STAT.deductionTokensApplied,
        WORKER_STAT.deductionTokensWindowEnded,
        WORKER_STAT.deductionTokensFull,
      ),
    );
    this.#series.unlabeledCounter(
      'weir_worker_decisions_total',
      'Checks decided by shard workers.',
      () => work(WORKER_STAT.decisions),
    );
    this.#series.unlabeledCounter(
      'weir_entries_repeated_total',
      'Ring entries that a shard worker had in hand when it died, done again by its successor.',
      () => work(WORKER_STAT.entriesRepeated),
    );
    this.#series.unlabeledCounter(
      'weir_entries_lost_total',
      'Ring entries given up, since two shard workers died over them.',
      () => work(WORKER_STAT.entriesLost),
    );
  }

  #registerCheckpoints({ control, clock }: MetricSources): void {
    const workers = control.allWorkerStats();
    const counter = (name: string, help: string, index: number) => {
      this.#series.unlabeledCounter(name, help, () => totalOf(workers, index));
    };
    counter('weir_checkpoints_total', 'Checkpoints of a shard written.', WORKER_STAT.checkpoints);
    counter(
      'weir_checkpoint_failures_total',
      'Checkpoints of a shard that could not be written.',
      WORKER_STAT.checkpointFailures,
    );
    this.#series.gauge(
      'weir_checkpoint_age_seconds',
      'What was decided longer ago is in a file; absent until that is so of all shards.',
      [],
      () => {
        const atMs = Math.min(...workers.map((lane) => lane.get(WORKER_STAT.checkpointedUntilMs)));
        return atMs === 0 ? [] : [[{}, (clock.nowMs() - atMs) / 1e3]];
      },
    );
  }

  #registerQueues({ channels, workers }: MetricSources): void {
    const words = channels.map((row) => row.map((link) => new Int32Array(link)));
    this.#series.gauge(
      'weir_ring_entries',
      'Entries that wait in the rings, by shard worker.',
      ['worker'],
      () =>
        Array.from({ length: workers.workerCount }, (_, worker): Sample => {
          const depth = words.reduce((sum, row) => sum + queueDepth(row[worker], CHECK_QUEUE), 0);
          return [{ worker }, depth];
        }),
    );
    const counter = (name: string, help: string, index: number) => {
      this.#series.unlabeledCounter(name, help, () => totalOf(this.#acceptors, index));
    };
    counter('weir_ring_checks_total', 'Checks put into the rings.', ACCEPTOR_STAT.queuedChecks);
    counter(
      'weir_ring_deductions_total',
      'Deductions put into the rings.',
      ACCEPTOR_STAT.deductions,
    );
    counter('weir_ring_deduction_tokens_total', 'Their tokens.', ACCEPTOR_STAT.deductedTokens);
    counter(
      'weir_ring_full_total',
      'Checks decided in place because a ring was full or its worker late.',
      ACCEPTOR_STAT.queueFull,
    );
    counter(
      'weir_ring_taken_back_total',
      'Checks taken back from a late worker and decided in place.',
      ACCEPTOR_STAT.withdrawnChecks,
    );
    counter(
      'weir_unheard_answers_total',
      'Checks whose client had gone before the answer came back.',
      ACCEPTOR_STAT.undeliveredResponses,
    );
    this.#series.unlabeledGauge(
      'weir_workers_running',
      'Shard workers that run and show that they live.',
      () => workers.runningCount,
    );
    this.#series.unlabeledCounter(
      'weir_workers_replaced_total',
      'Runs of shard workers that failed, or failed to begin, and were followed by another.',
      () => workers.replacementCount,
    );
  }

  #registerRecords({ registry, writer }: MetricSources): void {
    this.#series.gauge(
      'weir_overrides',
      'Overrides, without a wildcard and with one.',
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
      'weir_write_rounds_total',
      'Rounds in which changes were written, each one transaction and one publication.',
      () => writer.groupCommits,
    );
    const count = (name: string, help: string, index: number) => {
      this.#series.unlabeledCounter(name, help, () => totalOf(this.#acceptors, index));
    };
    count(
      'weir_overridden_checks_total',
      'Checks whose limit was that of an override.',
      ACCEPTOR_STAT.overriddenChecks,
    );
    count('weir_refunds_total', 'Refunds.', ACCEPTOR_STAT.refunds);
    count('weir_refunded_tokens_total', 'Tokens given back.', ACCEPTOR_STAT.refundedTokens);
    count('weir_counters_reset_total', 'Counters removed by resets.', ACCEPTOR_STAT.countersReset);
  }

  #registerProcess({ clock, uws }: MetricSources): void {
    const build = { version: VERSION, node: process.versions.node, uws };
    this.#series.gauge(
      'weir_build_info',
      'Always 1. The labels name the versions of weir, of Node and of uWebSockets.js.',
      Object.keys(build),
      () => [[build, 1]],
    );
    this.#series.unlabeledGauge(
      'weir_clock_offset_seconds',
      "How far weir's time is ahead of the system's.",
      () => clock.offsetMs() / 1e3,
    );
    this.#series.unlabeledGauge('process_resident_memory_bytes', 'Resident memory.', () =>
      process.memoryUsage.rss(),
    );
    this.#series.counter(
      'process_cpu_seconds_total',
      'User and system time of all threads.',
      [],
      () => {
        const { user, system } = process.cpuUsage();
        return [[{}, (user + system) / 1e6]];
      },
    );
  }

  #sum(read: (lane: AcceptorStats) => number): number {
    return this.#acceptors.reduce((sum, lane) => sum + read(lane), 0);
  }
}
