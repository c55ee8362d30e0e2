/**
 * The services of the main thread for the acceptors: the log, the writer, the shard workers, the
 * metrics and the handlers of acceptors' messages. This module is imported while the acceptors
 * load, since it and its packages (pino, piscina, prom-client) are half of all code that a start
 * loads.
 */

import { hostname } from 'node:os';
import type { Analytics } from '../analytics/analytics.ts';
import { OperationExecutor } from '../api/operation-executor.ts';
import type { OperationRequest } from '../api/operations/messages.ts';
import type { KeyRecord } from '../auth/keys.ts';
import {
  ANALYTICS_SEARCHED_TEXTS_OF_TURN,
  ANALYTICS_SEARCHES_MAX,
  CLOCK_TICK_MS,
} from '../core/constants.ts';
import { Hasher } from '../core/hash.ts';
import { type Log, openLog } from '../core/log.ts';
import { TurnBudget } from '../core/turn-budget.ts';
import { VERSION } from '../core/version.ts';
import type { EngineHost } from '../engine/engine.ts';
import { ShardWorkerHost } from '../engine/worker/host.ts';
import type { EventCollector } from '../events/event-collector.ts';
import { CapacityWatch } from '../observe/capacity-watch.ts';
import { CheckpointWatch } from '../observe/checkpoint-watch.ts';
import { ClusterWatch } from '../observe/cluster-watch.ts';
import { DebugLog } from '../observe/debug.ts';
import { FaultWatch, type FileFaults, type ReplicaStats } from '../observe/faults.ts';
import { LatencyHistory } from '../observe/latency-history.ts';
import { LeaseHorizonWatch } from '../observe/lease-horizon-watch.ts';
import { Metrics } from '../observe/metrics.ts';
import { UnknownFields } from '../observe/unknown-fields.ts';
import type { OverrideTables } from '../overrides/tables.ts';
import { RecentDecisions } from '../recent-decisions/reader.ts';
import { keyCreation } from '../registry/audit-entries.ts';
import { LocalLedger } from '../registry/ledger.ts';
import { OverrideExpiry } from '../registry/override-expiry.ts';
import { PolicyAuditor } from '../registry/policy-auditor.ts';
import { createPublisher, type Publication } from '../registry/publication.ts';
import type { SharedRegistry } from '../registry/shared/shared-registry.ts';
import { Writer } from '../registry/writer.ts';
import { totalOf, WORKER_STAT, type WorkerStatIndex } from '../shared-memory/stats.ts';
import type { AcceptorHandlers, Acceptors } from './acceptors.ts';
import { openAnalytics } from './analytics.ts';
import { DashboardLoader, dashboardOperations } from './dashboard.ts';
import type { DecisionThreadHandlers, DecisionThreads } from './decision-threads.ts';
import { DeletedCounters } from './deleted-counters.ts';
import { openEvents } from './events.ts';
import type { Foundation } from './foundation.ts';
import { Reloader } from './reload.ts';

const FIRST_KEY_RETRY_MS = 1_000;
const TICKS_PER_S = 1_000 / CLOCK_TICK_MS;

/** What follows if the store cannot be written, without and with a registry in Redis. */
const STORE_EFFECT = 'changes get a 503, and new namespaces wait in memory';
const REPLICA_EFFECT = 'its records are in Redis only';

function replicaStatsOf({ replicator, serverWatch }: SharedRegistry): ReplicaStats {
  const { version, ageMs, state } = replicator;
  return { version, ageMs, state, evicting: serverWatch.evicting };
}

export class Services {
  readonly log: Log;
  readonly threadHandlers: DecisionThreadHandlers;
  readonly acceptorHandlers: AcceptorHandlers;
  readonly auditor: PolicyAuditor;
  readonly reloader: Reloader;
  readonly #engine: EngineHost;
  readonly #analytics: Analytics | undefined;
  readonly #events: EventCollector | undefined;
  readonly #deletedCounters: DeletedCounters;
  readonly #watches: { close(): void }[];
  readonly #writer: Writer;
  readonly #expiry: OverrideExpiry;
  readonly #foundation: Foundation;
  #firstKeyTimer: NodeJS.Timeout | undefined;
  readonly #nowMs: () => number;
  readonly #clockTimer: NodeJS.Timeout;
  readonly #dashboard: DashboardLoader;

  /** Starts the shard workers. */
  constructor(
    foundation: Foundation,
    overrides: OverrideTables,
    threads: DecisionThreads,
    acceptors: Acceptors,
  ) {
    const { settings, uws, connections, listeners, store, shared, state, records, rls } =
      foundation;
    const { tls, reserved, admin } = listeners;
    const { registry, statsRows, usageRows, policies } = records;
    const { control, clock, clockPublisher, checkpointPlan } = state;
    const [acceptorStats, workerStats] = [control.allAcceptorStats(), control.allWorkerStats()];
    const nowMs = () => clock.nowMs();
    const log = openLog(settings.logLevel, settings.logFormat);
    process.on('SIGUSR1', () => log.info('SIGUSR1 is ignored: the inspector of Node stays closed'));
    const debug = new DebugLog(log, clock, settings.rootKey);
    debug.logSettings(settings);
    const send = (publication: Publication) => {
      if (publication.keys?.removed.length) this.#dashboard.endInvalidSessions();
      return threads.publish(publication);
    };
    const onDeleted = (keys: readonly string[], overrideIds: readonly string[]) => {
      usageRows.release(overrideIds);
      this.#analytics?.deleteOverrides(overrideIds);
      if (keys.length === 0) return;
      // Before its row may be used again: the figures so far are those of the deleted namespace.
      this.#analytics?.deleteNamespaces(keys);
      for (const key of keys) statsRows.release(key);
      this.#deletedCounters.remove(keys);
    };
    const { publish, publishEnds } = createPublisher(
      registry,
      statsRows,
      usageRows,
      overrides,
      send,
      onDeleted,
    );
    shared?.replica.publishWith(publish);
    const ledger = shared?.replicator ?? new LocalLedger(store);
    const writer = new Writer(registry, ledger, publish, log, nowMs);
    const gateways = { policies: () => policies.all, addresses: reserved.addresses.gateway };
    const analytics = openAnalytics(foundation, log);
    const unknownFields = new UnknownFields(control, log, (text) => debug.redactKeys(text));
    const usage = analytics ?? usageRows;
    const hasher = new Hasher(store.hashKey);
    const recentDecisions =
      state.recentDecisions && new RecentDecisions(state.recentDecisions, hasher, nowMs());
    const queries = { overrides, usage, analytics, recentDecisions };
    const turns = new TurnBudget(ANALYTICS_SEARCHED_TEXTS_OF_TURN, ANALYTICS_SEARCHES_MAX);
    const context = { registry, gateways, auditLog: store, ...queries, nowMs, turns };
    const { dashboardProxy } = settings;
    const executor = new OperationExecutor(
      writer,
      context,
      dashboardProxy?.roles,
      unknownFields.onUnknownFields,
    );
    this.log = log;
    this.#analytics = analytics;
    const events =
      state.events && openEvents(state.events, settings, foundation.directory.path, log);
    this.#events = events?.collector;
    this.auditor = new PolicyAuditor(registry, writer, log, nowMs);
    this.reloader = new Reloader({
      policies,
      tls,
      rls,
      threads,
      acceptors,
      auditor: this.auditor,
      log,
    });
    this.#writer = writer;
    const removeRecords = () => writer.removeEndedOverrides();
    this.#expiry = new OverrideExpiry({ registry, publishEnds, removeRecords, nowMs });
    this.#foundation = foundation;
    this.#nowMs = nowMs;
    const runOperation = (request: OperationRequest) => {
      return debug.runOperation(request, (it) => executor.execute(it));
    };
    this.threadHandlers = {
      onNamespace: (name) => writer.registerNamespace(name),
      onSketches: (announcement) => analytics?.addSketches(announcement),
      onFailure: (failure) => log.error(failure, 'a request failed'),
      onPublication: (version, publication) => debug.startPublication(version, publication),
      onLateActivation: (thread) => log.warn({ thread }, 'a thread has not activated a change yet'),
    };
    this.acceptorHandlers = {
      runOperation,
      onUnknownField: (field) => unknownFields.log(field),
      onDebugRecord: (acceptor, record) => debug.logAcceptorRecord(acceptor, record),
    };
    const connectWorker = (worker: number) => threads.openNotificationPorts(worker);
    const engine = new ShardWorkerHost(state.hostedEngine, control, connectWorker, log);
    this.#engine = engine;
    this.#deletedCounters = new DeletedCounters(engine, registry, store.hashKey);
    const latencyHistory = new LatencyHistory(acceptorStats, () => clock.monotonicMs());
    let ticks = 0;
    // It starts in the same turn as the supervisor's timer, which has the same interval, so that
    // one wake-up of the main thread serves all: a wake-up costs more than what is done.
    this.#clockTimer = setInterval(() => {
      clockPublisher.tick();
      this.#expiry.tick();
      events?.collector.tick();
      if (++ticks % TICKS_PER_S !== 0) return;
      latencyHistory.tick();
      faults.tick();
    }, CLOCK_TICK_MS);
    const replica = shared && (() => replicaStatsOf(shared));
    const metrics = new Metrics({
      control,
      engine,
      faults: () => admin.readiness().faults,
      clock: clockPublisher,
      registry,
      statsRows,
      namespaceTag: (key) => hasher.namespace(key)[0],
      ...(replica && { replica }),
      ...(analytics && { analytics }),
      ...(events && { events: events.file }),
      writer,
      policies,
      unknownFields,
      connectionsMax: connections.connectionsMax,
      capacity: settings.counters,
      slots: state.slots,
      fullTablePolicy: settings.onFull,
      uws,
      ...(rls && { rls }),
    });
    this.#dashboard = new DashboardLoader({
      control,
      engine,
      registry,
      statsRows,
      clock,
      latencyHistory,
      ...(analytics && { analytics }),
      readiness: () => admin.readiness(),
      shedChanges: () => writer.shedChanges,
      unknownFields,
      connectionsMax: connections.connectionsMax,
      capacity: settings.counters,
      operations: dashboardOperations(acceptors, runOperation),
      engineName: settings.engine,
      checkUrl: listeners.checkUrls.clientUrl,
      proxy: dashboardProxy,
      keepConnection: (socket) => admin.keepConnection(socket),
      log,
    });
    const loadPages = () => this.#dashboard.load();
    this.#watches = [new CapacityWatch(control, settings.counters, log)];
    const { cluster, holds } = engine.stats();
    if (cluster !== undefined) {
      const read = () => engine.stats().cluster ?? cluster;
      this.#watches.push(new ClusterWatch(control, read, log));
    }
    let checkpoints: CheckpointWatch | undefined;
    if (checkpointPlan !== undefined) {
      const { directory, intervalMs } = checkpointPlan;
      checkpoints = new CheckpointWatch(control, clock, directory, intervalMs, log);
      this.#watches.push(checkpoints);
    }
    let horizon: LeaseHorizonWatch | undefined;
    const failures = holds?.horizon;
    if (failures !== undefined) {
      horizon = new LeaseHorizonWatch(() => engine.stats().holds?.horizon ?? failures, log);
      this.#watches.push(horizon);
    }
    const storeEffect = shared === undefined ? STORE_EFFECT : REPLICA_EFFECT;
    const files = (): FileFaults => {
      const { path, writeError: error } = store;
      return {
        ...(error !== undefined && { store: { path, error, effect: storeEffect } }),
        checkpoints: checkpoints?.fault,
        lease_horizon: horizon?.fault,
        analytics: analytics?.fault,
        events: events?.file.fault,
      };
    };
    const faults = new FaultWatch({
      engine,
      ...(replica && { replica }),
      files,
      rulesFault: () => rls?.rules.fault,
      liveCounters: () => totalOf(workerStats, WORKER_STAT.liveCounters),
      capacity: settings.counters,
      ...(settings.redis && { onEngineDown: settings.redis.onEngineDown }),
      clock,
    });
    admin.sources = {
      ...{ engine, metrics, loadPages, faults },
      ...(replica && { replica }),
    };
  }

  /** Logs why a set of overrides was not compiled by its task. */
  logCompileFailure(err: Error): void {
    this.log.error(
      { err },
      'the override compile task failed; the main thread compiled the tables',
    );
  }

  /**
   * Stores the root key that this start has made and printed. If it cannot be stored in a registry
   * that machines share, the key is valid on this machine until it can.
   */
  async storeFirstKey(record: KeyRecord): Promise<void> {
    const { shared, records } = this.#foundation;
    const work = () => {
      records.registry.addKey(record);
      const at = this.#nowMs();
      records.registry.audit({ at, ...keyCreation(record), keyId: null, by: 'first start' });
      return {};
    };
    try {
      await this.#writer.submit(0, work);
    } catch (error) {
      if (shared === undefined) throw error;
      this.log.warn(`the first root key is not stored yet: ${(error as Error).message}`);
      const retry = () => void this.storeFirstKey(record);
      this.#firstKeyTimer = setTimeout(retry, FIRST_KEY_RETRY_MS);
    }
  }

  /** Follows the changes of other machines from now on, where there are any. */
  startReplication(): void {
    const { shared, state } = this.#foundation;
    const { engineData, control } = state;
    if (shared === undefined || engineData.engine !== 'redis') return;
    const total = (index: WorkerStatIndex) => totalOf(control.allWorkerStats(), index);
    const describe = () => ({
      host: hostname(),
      pid: process.pid,
      weir: VERSION,
      leasesHeld: total(WORKER_STAT.heldLeases),
      tokensHeld: total(WORKER_STAT.heldTokens),
      leasesGranted: total(WORKER_STAT.leasesGranted),
      leasesReturned: total(WORKER_STAT.leasesReturned),
    });
    shared.replicator.start({ machine: engineData.processId, describe });
  }

  /**
   * Drains the queues, and writes the last checkpoint, the new namespaces, the analytics and the
   * events. Called when the acceptors have ended.
   */
  async stop(): Promise<void> {
    this.#deletedCounters.close();
    this.#expiry.close();
    await this.#engine.drain();
    await this.#engine.stop();
    for (const watch of this.#watches) watch.close();
    clearTimeout(this.#firstKeyTimer);
    await this.#writer.flush();
    this.#analytics?.close();
    await this.#events?.close();
    clearInterval(this.#clockTimer);
  }
}
