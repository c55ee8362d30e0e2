/**
 * Makes the snapshots of the dashboard from the stats blocks of all threads. It keeps the totals of
 * the last snapshot, from which the figures of an interval follow.
 */

import { ERRORS, type ErrorCode } from '../../core/errors.ts';
import { figuresOf } from '../../core/figures.ts';
import { OTHER_NAMESPACE } from '../../core/namespace.ts';
import type { EngineHost } from '../../engine/engine.ts';
import type { Registry } from '../../registry/registry.ts';
import type { StatsRows } from '../../registry/stats-rows.ts';
import type { Clock } from '../../shared-memory/clock.ts';
import type { Control } from '../../shared-memory/control.ts';
import {
  ACCEPTOR_STAT,
  type AcceptorStats,
  checkpointedUntilMs,
  NAMESPACE_STAT,
  totalOf,
  WORKER_STAT,
  type WorkerStats,
} from '../../shared-memory/stats.ts';
import { isNearlyFull } from '../faults.ts';
import type { LatencyHistory } from '../latency-history.ts';
import { type NamespaceCounts, namespaceCounts } from '../namespace-counts.ts';
import type { Readiness } from '../readiness.ts';
import type { UnknownFields } from '../unknown-fields.ts';
import type { Count, Health, NamespaceFigures, RedisFigures, Snapshot } from './snapshot.ts';

export interface SamplerSources {
  control: Control;
  engine: Pick<EngineHost, 'stats'>;
  registry: Registry;
  statsRows: StatsRows;
  clock: Clock;
  latencyHistory: Pick<LatencyHistory, 'spans'>;
  readiness: () => Readiness;
  /** Changes that the writer has rejected because too many were pending. */
  shedChanges: () => number;
  unknownFields: Pick<UnknownFields, 'requests'>;
  connectionsMax: number;
  /** Live counters that the table holds without an eviction. */
  capacity: number;
}

const SHED_STATS = [
  ACCEPTOR_STAT.shedConnections,
  ACCEPTOR_STAT.shedBodies,
  ACCEPTOR_STAT.shedOperations,
  ACCEPTOR_STAT.shedUnreadResponses,
  ACCEPTOR_STAT.shedPipelined,
  ACCEPTOR_STAT.shedLists,
];

/** Totals by name. The difference to those of the snapshot before is what is recent. */
class Totals {
  readonly #values = new Map<string, number>();
  readonly #before: Totals | undefined;

  constructor(before: Totals | undefined) {
    this.#before = before;
  }

  /** @returns what was added since the snapshot before; 0 where there was none */
  recent(name: string, total: number): number {
    this.#values.set(name, total);
    if (this.#before === undefined) return 0;
    return Math.max(0, total - (this.#before.#values.get(name) ?? 0));
  }

  count(name: string, total: number): Count {
    return { total, recent: this.recent(name, total) };
  }

  /** Forgets the snapshot before, so that snapshots form no chain. */
  withoutBefore(): Totals {
    const totals = new Totals(undefined);
    for (const [name, total] of this.#values) totals.#values.set(name, total);
    return totals;
  }
}

export class Sampler {
  readonly #sources: SamplerSources;
  readonly #acceptors: AcceptorStats[];
  readonly #workers: WorkerStats[];
  #last: { totals: Totals; monotonicMs: number } | undefined;

  constructor(sources: SamplerSources) {
    this.#sources = sources;
    this.#acceptors = sources.control.allAcceptorStats();
    this.#workers = sources.control.allWorkerStats();
  }

  /** The next snapshot has no recent figures. */
  reset(): void {
    this.#last = undefined;
  }

  sample(): Snapshot {
    const { clock } = this.#sources;
    const monotonicMs = clock.monotonicMs();
    const totals = new Totals(this.#last?.totals);
    const intervalMs = this.#last === undefined ? 0 : monotonicMs - this.#last.monotonicMs;
    const redis = this.#redis(totals);
    const snapshot: Snapshot = {
      at: clock.nowMs(),
      intervalMs,
      namespaces: this.#namespaces(totals),
      latency: this.#histogram(totals, 'latency', this.#acceptors, (stats) => stats.latencyCounts),
      latencySpans: this.#sources.latencyHistory.spans(),
      health: this.#health(totals),
      ...(redis && { redis }),
    };
    this.#last = { totals: totals.withoutBefore(), monotonicMs };
    return snapshot;
  }

  #namespaces(totals: Totals): NamespaceFigures[] {
    const { registry, statsRows } = this.#sources;
    // As in the metrics, so that a snapshot is bounded.
    const figures = namespaceCounts(statsRows).map((counts): NamespaceFigures => {
      const { name } = counts;
      const id = registry.namespaceByName(name)?.id;
      return { ...(id !== undefined && { id }), name, ...this.#figures(totals, counts) };
    });
    return figures.filter(({ name, total }) => {
      return name !== OTHER_NAMESPACE || Object.values(total).some((count) => count > 0);
    });
  }

  #figures(totals: Totals, { name, total: totalOf }: NamespaceCounts) {
    const total = figuresOf((figure) => totalOf(NAMESPACE_STAT[figure]));
    const recent = figuresOf((figure) => {
      return totals.recent(`namespace ${figure} ${name}`, total[figure]);
    });
    return { total, recent };
  }

  #histogram<Stats>(
    totals: Totals,
    name: string,
    threads: readonly Stats[],
    countsOf: (stats: Stats) => Float64Array,
  ): number[] {
    const all = threads.map(countsOf);
    return Array.from(all[0], (_, bucket) => {
      const total = all.reduce((sum, counts) => sum + counts[bucket], 0);
      return totals.recent(`${name} ${bucket}`, total);
    });
  }

  #health(totals: Totals): Health {
    const { engine, connectionsMax, capacity, clock, readiness } = this.#sources;
    const { shedChanges, unknownFields } = this.#sources;
    const { queueDepths, workers, cluster } = engine.stats();
    const { status, reasons = [], pastFaults = [] } = readiness().body;
    const [acceptors, shards] = [this.#acceptors, this.#workers];
    const until = checkpointedUntilMs(shards);
    const hasCheckpoint = cluster === undefined && until !== 0;
    const evictions =
      totalOf(acceptors, ACCEPTOR_STAT.liveEvictions) + totalOf(shards, WORKER_STAT.liveEvictions);
    const shed = SHED_STATS.reduce((sum, stat) => sum + totalOf(acceptors, stat), shedChanges());
    const withUnknownFields = unknownFields.requests().reduce((sum, [, count]) => sum + count, 0);
    const failures = totalOf(shards, WORKER_STAT.checkpointFailures);
    const live = totalOf(shards, WORKER_STAT.liveCounters);
    return {
      status,
      reasons,
      pastFaults,
      counters: { live, capacity, isNearlyFull: isNearlyFull(live, capacity) },
      evictions: totals.count('evictions', evictions),
      fullTableDecisions: totals.count(
        'full table',
        totalOf(acceptors, ACCEPTOR_STAT.fullTableDecisions),
      ),
      queues: queueDepths,
      acceptors: this.#sources.control.httpStats().length,
      workers: {
        wanted: workers.configured,
        running: workers.running,
        replaced: workers.replaced,
      },
      ...(hasCheckpoint && { checkpointAgeMs: Math.max(0, clock.nowMs() - until) }),
      checkpointFailures: totals.count('checkpoint failures', failures),
      errors: this.#errors(totals),
      shed: totals.count('shed', shed),
      unknownFields: totals.count('unknown fields', withUnknownFields),
      connections: {
        open: this.#sources.control
          .httpStats()
          .reduce((sum, { connections }) => sum + connections, 0),
        max: connectionsMax,
      },
      memoryBytes: process.memoryUsage.rss(),
    };
  }

  #errors(totals: Totals): Record<string, Count> {
    const counts = (Object.keys(ERRORS) as ErrorCode[]).map((code) => {
      const total = this.#acceptors.reduce((sum, stats) => sum + stats.errorCount(code), 0);
      return [code, totals.count(`error ${code}`, total)] as const;
    });
    return Object.fromEntries(counts.filter(([, { total }]) => total > 0));
  }

  #redis(totals: Totals): RedisFigures | undefined {
    const { cluster } = this.#sources.engine.stats();
    if (cluster === undefined) return undefined;
    const workers = this.#workers;
    const withoutRedis =
      totalOf(this.#acceptors, ACCEPTOR_STAT.engineDownAllowed) +
      totalOf(this.#acceptors, ACCEPTOR_STAT.engineDownDenied);
    const granted = totalOf(workers, WORKER_STAT.leasesGranted);
    const failures = totalOf(workers, WORKER_STAT.redisCallFailures);
    return {
      connected: cluster.connections,
      machines: cluster.machines,
      leasesHeld: totalOf(workers, WORKER_STAT.heldLeases),
      tokensHeld: totalOf(workers, WORKER_STAT.heldTokens),
      leasesGranted: totals.count('leases granted', granted),
      calls: {
        ...totals.count('calls', totalOf(workers, WORKER_STAT.redisCalls)),
        failures: totals.count('call failures', failures),
        latency: this.#histogram(totals, 'call', workers, (stats) => stats.callLatencyCounts),
      },
      withoutRedis: totals.count('without Redis', withoutRedis),
    };
  }
}
