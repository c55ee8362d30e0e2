/**
 * The metrics at /metrics, for Prometheus. Nothing is counted here: on a scrape they are read from
 * what the threads count in their lanes, so every figure is true as of a moment ago, and what was
 * counted before the scrape is in it.
 */

import type { Control } from '../control.ts';
import type { OnFull } from '../counters/decision.ts';
import { ERRORS, type ErrorCode } from '../errors.ts';
import { type AcceptorLane, COUNT, totalOf, WORK } from '../lanes.ts';
import type { Registry } from '../registry/registry.ts';
import type { Writer } from '../registry/writer.ts';
import { ENTRIES, ringDepth } from '../shards/ring.ts';
import type { ShardWorkers } from '../shards/supervisor.ts';
import type { ClockKeeper } from '../time.ts';
import { VERSION } from '../version.ts';
import { decisionSeries } from './decision-series.ts';
import { Durations } from './durations.ts';
import { type Sample, Series } from './series.ts';

export interface MetricSources {
  control: Control;
  /** By acceptor and worker. */
  links: SharedArrayBuffer[][];
  workers: ShardWorkers;
  clock: ClockKeeper;
  registry: Registry;
  writer: Writer;
  /** How many may be open at once. */
  connections: number;
  capacity: number;
  slots: number;
  onFull: OnFull;
  /** The package that uWebSockets.js comes from, with its version. */
  uws: string;
}

export class Metrics {
  readonly contentType: string;
  readonly #series = new Series();
  readonly #acceptors: AcceptorLane[];

  constructor(sources: MetricSources) {
    this.contentType = this.#series.contentType;
    this.#acceptors = sources.control.acceptorLanes();
    decisionSeries(this.#series, this.#acceptors, sources.registry);
    this.#answers(sources);
    this.#table(sources);
    this.#checkpoints(sources);
    this.#rings(sources);
    this.#records(sources);
    this.#process(sources);
  }

  text(): Promise<string> {
    return this.#series.text();
  }

  #answers({ writer, connections }: MetricSources): void {
    this.#series.register(
      new Durations(
        () => this.#acceptors.map((lane) => lane.durations),
        () => this.#sum((lane) => lane.durationSumMs),
      ),
    );
    this.#series.counter(
      'weir_errors_total',
      'Requests answered with an error, by HTTP status and code.',
      ['status', 'code'],
      () =>
        (Object.keys(ERRORS) as ErrorCode[]).map((code): Sample => {
          const [status] = ERRORS[code].status.split(' ');
          return [{ status, code }, this.#sum((lane) => lane.errors(code))];
        }),
    );
    this.#series.value('weir_connections', 'Connections open to the acceptors.', () =>
      this.#sum((lane) => lane.connections),
    );
    this.#series.value(
      'weir_connections_capacity',
      'Connections that may be open at once.',
      () => connections,
    );
    const shed = (index: number) => totalOf(this.#acceptors, index);
    this.#series.counter('weir_shed_total', 'What was not served, by the bound.', ['bound'], () => [
      [{ bound: 'connections' }, shed(COUNT.shedConnections)],
      [{ bound: 'bodies' }, shed(COUNT.shedBodies)],
      [{ bound: 'operations' }, shed(COUNT.shedOperations)],
      [{ bound: 'changes' }, writer.shed],
      [{ bound: 'unread' }, shed(COUNT.shedUnread)],
    ]);
  }

  #table({ control, capacity, slots, onFull }: MetricSources): void {
    const workers = control.workerLanes();
    const work = (index: number) => totalOf(workers, index);
    this.#series.value('weir_counters_live', 'Live counters in the last sweep.', () =>
      work(WORK.live),
    );
    this.#series.value(
      'weir_counters_capacity',
      'Live counters held without evicting one.',
      () => capacity,
    );
    this.#series.value('weir_table_slots', 'Slots of the table.', () => slots);
    this.#series.total('weir_expired_counters_total', 'Expired counters removed.', () =>
      work(WORK.swept),
    );
    this.#series.total(
      'weir_live_evictions_total',
      'Live counters that made room for a newcomer: limits are exact while this is 0.',
      () => totalOf(this.#acceptors, COUNT.liveEvictions) + work(WORK.liveEvictions),
    );
    this.#series.counter(
      'weir_full_table_answers_total',
      'Checks for which there was no room, by what WEIR_ON_FULL had them answered.',
      ['answer'],
      () => [[{ answer: onFull }, totalOf(this.#acceptors, COUNT.fullTable)]],
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
      outcomes(WORK.applied, WORK.past, WORK.noRoom),
    );
    this.#series.counter(
      'weir_deduction_tokens_total',
      'The tokens of those deductions.',
      ['outcome'],
      outcomes(WORK.appliedTokens, WORK.pastTokens, WORK.noRoomTokens),
    );
    this.#series.total('weir_worker_decisions_total', 'Checks decided by shard workers.', () =>
      work(WORK.decided),
    );
    this.#series.total(
      'weir_entries_repeated_total',
      'Ring entries that a shard worker had in hand when it died, done again by its successor.',
      () => work(WORK.repeated),
    );
    this.#series.total(
      'weir_entries_lost_total',
      'Ring entries given up, since two shard workers died over them.',
      () => work(WORK.lost),
    );
  }

  #checkpoints({ control, clock }: MetricSources): void {
    const workers = control.workerLanes();
    const counter = (name: string, help: string, index: number) => {
      this.#series.total(name, help, () => totalOf(workers, index));
    };
    counter('weir_checkpoints_total', 'Checkpoints of a shard written.', WORK.checkpoints);
    counter(
      'weir_checkpoint_failures_total',
      'Checkpoints of a shard that could not be written.',
      WORK.checkpointFailures,
    );
    this.#series.gauge(
      'weir_checkpoint_age_seconds',
      'What was decided longer ago is in a file; absent until that is so of all shards.',
      [],
      () => {
        const atMs = Math.min(...workers.map((lane) => lane.counted(WORK.checkpointedMs)));
        return atMs === 0 ? [] : [[{}, (clock.nowMs() - atMs) / 1e3]];
      },
    );
  }

  #rings({ links, workers }: MetricSources): void {
    const words = links.map((row) => row.map((link) => new Int32Array(link)));
    this.#series.gauge(
      'weir_ring_entries',
      'Entries that wait in the rings, by shard worker.',
      ['worker'],
      () =>
        Array.from({ length: workers.wanted }, (_, worker): Sample => {
          const depth = words.reduce((sum, row) => sum + ringDepth(row[worker], ENTRIES), 0);
          return [{ worker }, depth];
        }),
    );
    const counter = (name: string, help: string, index: number) => {
      this.#series.total(name, help, () => totalOf(this.#acceptors, index));
    };
    counter('weir_ring_checks_total', 'Checks put into the rings.', COUNT.handedOver);
    counter('weir_ring_deductions_total', 'Deductions put into the rings.', COUNT.deductions);
    counter('weir_ring_deduction_tokens_total', 'Their tokens.', COUNT.deductedTokens);
    counter(
      'weir_ring_full_total',
      'Checks decided in place because a ring was full or its worker late.',
      COUNT.ringFull,
    );
    counter(
      'weir_ring_taken_back_total',
      'Checks taken back from a late worker and decided in place.',
      COUNT.takenBack,
    );
    counter(
      'weir_unheard_answers_total',
      'Checks whose client had gone before the answer came back.',
      COUNT.unheard,
    );
    this.#series.value(
      'weir_workers_running',
      'Shard workers that run and show that they live.',
      () => workers.running,
    );
    this.#series.total(
      'weir_workers_replaced_total',
      'Runs of shard workers that failed, or failed to begin, and were followed by another.',
      () => workers.replaced,
    );
  }

  #records({ registry, writer }: MetricSources): void {
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
    this.#series.value('weir_keys', 'API keys.', () => registry.keys().length);
    this.#series.value('weir_namespaces', 'Namespaces.', () => registry.namespaceCount);
    this.#series.total(
      'weir_write_rounds_total',
      'Rounds in which changes were written, each one transaction and one publication.',
      () => writer.rounds,
    );
    const count = (name: string, help: string, index: number) => {
      this.#series.total(name, help, () => totalOf(this.#acceptors, index));
    };
    count(
      'weir_overridden_checks_total',
      'Checks whose limit was that of an override.',
      COUNT.overridden,
    );
    count('weir_refunds_total', 'Refunds.', COUNT.refunds);
    count('weir_refunded_tokens_total', 'Tokens given back.', COUNT.refundedTokens);
    count('weir_counters_reset_total', 'Counters removed by resets.', COUNT.countersReset);
  }

  #process({ clock, uws }: MetricSources): void {
    const build = { version: VERSION, node: process.versions.node, uws };
    this.#series.gauge(
      'weir_build_info',
      'Always 1. The labels name the versions of weir, of Node and of uWebSockets.js.',
      Object.keys(build),
      () => [[build, 1]],
    );
    this.#series.value(
      'weir_clock_offset_seconds',
      "How far weir's time is ahead of the system's.",
      () => clock.offsetMs() / 1e3,
    );
    this.#series.value('process_resident_memory_bytes', 'Resident memory.', () =>
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

  #sum(read: (lane: AcceptorLane) => number): number {
    return this.#acceptors.reduce((sum, lane) => sum + read(lane), 0);
  }
}
