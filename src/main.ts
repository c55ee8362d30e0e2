/**
 * The main thread: boot order and signals, nothing else. It serves no checks.
 *
 * A failure before the first acceptor starts ends the process with one sentence and a code of
 * `exit.ts`; a later one ends it by SIGKILL. What could be wrong from outside (settings, ports,
 * directory, store) is found before.
 */

import { Service } from './api/service.ts';
import { configuredKeyRecord, makeKey, rootKeyRecord } from './auth/keys.ts';
import { helpText } from './config/help.ts';
import { type LoadedSettings, loadSettings } from './config/load.ts';
import { memoryLogFields } from './config/memory-plan.ts';
import { Policies } from './config/policy-source.ts';
import { parseHostNames } from './config/validators.ts';
import {
  CLOCK_AHEAD_MAX_MS,
  CLOCK_TICK_MS,
  REQUEST_HEAD_MAX_BYTES,
  SHARDS,
  SLOTS_PER_COUNTER,
} from './core/constants.ts';
import { StartError } from './core/errors.ts';
import { EXIT, type ExitCode } from './core/exit.ts';
import { killProcess, printError } from './core/fatal.ts';
import { fingerprintOf } from './engine/memory/checkpoint/format.ts';
import { CheckpointLoader } from './engine/memory/checkpoint/loader.ts';
import { GROUP_SLOTS, groupsPerShard } from './engine/memory/layout.ts';
import { allocateTable, attachTable } from './engine/memory/table-memory.ts';
import { allocateChannel } from './engine/worker/queue.ts';
import { AdminServer } from './observe/admin.ts';
import { OverrideTables } from './overrides/tables.ts';
import { keyCreation, logAudit } from './registry/audit-entries.ts';
import { PolicyAuditor } from './registry/policy-auditor.ts';
import { createPublisher, initialPublication } from './registry/publication.ts';
import { Registry } from './registry/registry.ts';
import { DataDirectory } from './registry/store/directory.ts';
import { SqliteStore } from './registry/store/sqlite.ts';
import { Writer } from './registry/writer.ts';
import { Acceptors } from './runtime/acceptors.ts';
import { ReservedAddresses, requirePort } from './runtime/addresses.ts';
import { descriptorLimit, fitConnections } from './runtime/descriptors.ts';
import { raiseInliningLimits } from './runtime/inlining.ts';
import { closeInspector } from './runtime/inspector.ts';
import { Reloader } from './runtime/reload.ts';
import { listenerUrls, printStartupMessage } from './runtime/startup-message.ts';
import { TlsCertificate } from './runtime/tls.ts';
import { Clock, ClockPublisher, systemMs } from './shared-memory/clock.ts';
import { allocateControl, Control } from './shared-memory/control.ts';

/** How a failure ends the process: politely until there are acceptors that an exit would abort. */
let terminate = (sentence: string, code: ExitCode): never => {
  printError(sentence);
  process.exit(code);
};

/** @param args flags; runs until a signal ends it */
export async function main(args: readonly string[]): Promise<void> {
  // Until the settings are known, nothing but them can be wrong.
  let code: ExitCode = EXIT.USAGE;
  process.on('uncaughtException', (error) => {
    if (error instanceof StartError) terminate(error.message, error.exitCode ?? code);
    terminate(`the main thread failed: ${error.stack}`, EXIT.CANNOT_SERVE);
  });
  const settings = loadSettings(args, process.env);
  code = EXIT.CANNOT_SERVE;
  if (settings === undefined) {
    process.stdout.write(helpText());
    return;
  }
  // A signal that comes while acceptors start is obeyed when they have; before, there is no need.
  const signal = new Promise<void>((resolve) => {
    const obey = () => (terminate === killProcess ? resolve() : process.exit(0));
    process.on('SIGTERM', obey);
    process.on('SIGINT', obey);
  });
  const serving = serve(settings);
  let reloading: Promise<unknown> = serving;
  process.on('SIGHUP', () => {
    reloading = reloading.then(async () => (await serving).reload());
  });
  const { stop } = await serving;
  await signal;
  await stop();
}

interface RunningServer {
  /** Takes over what may change while it serves. */
  reload: () => Promise<void>;
  /** Ends the process, in peace. */
  stop: () => Promise<void>;
}

async function serve(settings: LoadedSettings): Promise<RunningServer> {
  process.umask(0o077);
  // Read by the addon when it loads, from the real environment, which only this thread has.
  process.env.UWS_HTTP_MAX_HEADERS_SIZE = String(REQUEST_HEAD_MAX_BYTES);
  const { UWS_PACKAGE: uWebSockets } = await import('./server/uws.ts');
  raiseInliningLimits();

  const descriptors = descriptorLimit();
  const threads = settings.acceptors + settings.workers;
  const connectionsMax = fitConnections(descriptors, settings.connections, threads);

  const tls = TlsCertificate.open(settings);
  const taken = await ReservedAddresses.reserve(settings);
  const { host, port, socket, gateway } = taken.addresses;
  const { adminHost, adminHosts } = settings;
  const admin = new AdminServer([
    adminHost,
    ...(adminHosts === undefined ? [] : parseHostNames(adminHosts)),
  ]);
  const adminListens = admin.listen(adminHost, settings.adminPort);
  const setting = 'WEIR_ADMIN_PORT';
  const adminPort = await requirePort(setting, adminHost, settings.adminPort, adminListens);

  const directory = DataDirectory.open(settings.dataDir);
  const store = SqliteStore.open(directory);

  const controlBuffer = allocateControl(settings.acceptors, settings.workers);
  const control = new Control(controlBuffer);
  const key = fingerprintOf(store.hashKey);
  const lastRun = new CheckpointLoader(directory.path, key, systemMs() + CLOCK_AHEAD_MAX_MS);
  const clockKeeper = new ClockPublisher(control, lastRun.latestStartedMs);
  const clock = new Clock(control);
  const nowMs = () => clock.nowMs();
  const groups = groupsPerShard(settings.counters * SLOTS_PER_COUNTER, SHARDS);
  const tables = Array.from({ length: SHARDS }, (_, shard) => allocateTable(shard, groups));
  const restored = lastRun.restoreInto(tables.map(attachTable), clock.nowMs());
  const channels = Array.from({ length: settings.acceptors }, (_row, acceptor) => {
    return Array.from({ length: settings.workers }, (_, worker) =>
      allocateChannel(acceptor, worker),
    );
  });

  const registry = new Registry(store);
  const policies = new Policies(settings.file);
  for (const { namespace } of policies.all) registry.ensureNamespace(namespace, nowMs());
  registry.commit(store);
  const { rootKey } = settings;
  if (rootKey !== undefined) {
    registry.addConfiguredKey(configuredKeyRecord(rootKey, nowMs(), store.hashKey));
  }
  const firstKey = registry.keys().length === 0 ? makeKey() : undefined;
  if (firstKey !== undefined) {
    const record = rootKeyRecord(firstKey, 'first root key', nowMs());
    registry.addKey(record);
    registry.audit({ at: nowMs(), ...keyCreation(record), keyId: null, by: 'first start' });
  }

  const scheme = tls === undefined ? 'http' : 'https';
  const serves = listenerUrls(scheme, host, port, settings.publicUrl);
  const adminServes = listenerUrls('http', adminHost, adminPort);
  // Before the threads that may be too many: the kernel may kill a process that is out of memory.
  if (settings.memory.isNearLimit) await warnAboutMemory(settings);
  const acceptors = new Acceptors(control, {
    onNamespace: (name) => writer.registerNamespace(name),
    onFailure: (failure) => log.error(failure, 'a request failed'),
    runOperation: (request) => debug.runOperation(request, (asked) => service.execute(asked)),
    onDebugRecord: (acceptor, record) => debug.logAcceptorRecord(acceptor, record),
    onPublication: (version, publication) => debug.startPublication(version, publication),
    onLateActivation: (acceptor) =>
      log.warn({ acceptor }, 'an acceptor has not activated a change yet'),
  });
  const compileTask = new URL('./compile.js', import.meta.url);
  const overrides = new OverrideTables(store.hashKey, compileTask, (error) => {
    log.error({ err: error }, 'the task that compiles overrides failed; done on the main thread');
  });
  terminate = killProcess;
  const { onFull: fullTablePolicy, decide } = settings;
  acceptors.start({
    addresses: taken.addresses,
    tls: tls?.files,
    connectionsMax,
    url: serves.clientUrl ?? '',
    control: controlBuffer,
    tables,
    channels,
    decide,
    hashKey: store.hashKey,
    fullTablePolicy,
    isReportingErrors: settings.logLevel === 'debug',
    activePublication: { ...initialPublication(registry, overrides), policies: policies.all },
  });

  // While the acceptors load, so does what they need not wait for: half of all there is to load.
  const { openLog } = await import('./core/log.ts');
  const { ShardWorkerSupervisor } = await import('./engine/worker/supervisor.ts');
  const { CapacityWatch } = await import('./observe/capacity-watch.ts');
  const { CheckpointWatch } = await import('./observe/checkpoint-watch.ts');
  const { Metrics } = await import('./observe/metrics.ts');
  const { viewOf } = await import('./observe/engine-view.ts');
  const { DebugLog } = await import('./observe/debug.ts');
  const log = openLog(settings.logLevel, settings.logFormat);
  process.on('SIGUSR1', () => log.info('SIGUSR1 is ignored: the inspector of Node stays closed'));
  const debug = new DebugLog(log, clock, settings.rootKey);
  debug.logSettings(settings);
  const publish = createPublisher(registry, overrides, (publication) =>
    acceptors.publish(publication),
  );
  const writer = new Writer(registry, store, publish, log, nowMs);
  const gateways = { policies: () => policies.all, addresses: gateway };
  const auditor = new PolicyAuditor(registry, writer, log, nowMs);
  const reload = new Reloader(policies, tls, acceptors, auditor, log);
  const service = new Service(registry, writer, gateways, store, nowMs);
  const checkpointPlan = {
    directory: directory.path,
    intervalMs: settings.checkpointMs,
    keyFingerprint: key,
  };
  const workers = new ShardWorkerSupervisor(
    { control: controlBuffer, tables, channels, fullTablePolicy, checkpointPlan },
    control,
    (worker) => (decide === 'worker' ? acceptors.openNotificationPorts(worker) : []),
    log,
  );
  // In the turn in which the workers begin to be watched, as often: then one waking does for both.
  const clockTimer = setInterval(() => clockKeeper.tick(), CLOCK_TICK_MS);
  const metrics = new Metrics({
    control,
    engine: viewOf(workers, channels),
    clock: clockKeeper,
    registry,
    writer,
    connectionsMax,
    capacity: settings.counters,
    slots: groups * GROUP_SLOTS * SHARDS,
    fullTablePolicy,
    uws: uWebSockets,
  });
  admin.sources = { workers, metrics };
  const capacity = new CapacityWatch(control, settings.counters, log);
  const checkpointWatch = new CheckpointWatch(control, directory.path, settings.checkpointMs, log);
  await acceptors.listen();
  taken.openSockets();

  // Printed first and kept then: a start that breaks off in between has locked nobody out.
  const selfSignedCert = tls?.isSelfSigned ? tls.files.cert : undefined;
  printStartupMessage({
    checkUrls: serves,
    adminUrls: adminServes,
    socket,
    firstKey,
    selfSignedCert,
  });
  if (firstKey !== undefined) logAudit(log, registry.commit(store));
  await auditor.recordChanges(policies.all);
  admin.state = 'ready';
  closeInspector();
  overrides.warmUp();
  if (connectionsMax < settings.connections) {
    const requested = settings.connections;
    log.warn(
      { connections: connectionsMax, requested, descriptors },
      'the limit of open files allows fewer connections',
    );
  }
  if (directory.exposure !== undefined) {
    log.warn(
      directory.exposure,
      'the data directory belongs to another user, and the group or others may read or write it:' +
        ' use it for weir alone, or give it to the user of weir with mode 0700',
    );
  }
  const { counters } = settings;
  const loaded = { namespaces: registry.namespaceCount, keys: registry.keys().length };
  const { counters: live, lostCounters, damageMessages } = restored;
  for (const sentence of damageMessages) log.warn(sentence);
  if (lostCounters > 0)
    log.warn({ lostCounters }, 'counters of the last run did not fit into the table');
  log.info({ ...loaded, overrides: registry.overrideCounts, counters: live }, 'loaded');
  const served = {
    url: serves.clientUrl ?? serves.listenUrl,
    listening: serves.listenUrl,
    admin: adminServes.listenUrl,
    socket,
    gateway: gateway.port === undefined ? undefined : `${gateway.host}:${gateway.port}`,
    gatewaySocket: gateway.socket,
    policies: policies.path === undefined ? undefined : policies.all.length,
    acceptors: settings.acceptors,
    workers: workers.workerCount,
  };
  log.info(
    { ...served, decide, counters, ...memoryLogFields(settings.memory), uWebSockets },
    'serving',
  );

  const stop = async () => {
    admin.state = 'draining';
    log.info('draining');
    taken.removeSockets();
    await acceptors.drain(settings.drainMs);
    await workers.stop();
    capacity.close();
    checkpointWatch.close();
    writer.flush();
    await overrides.close();
    clearInterval(clockTimer);
    store.close();
    directory.close();
    admin.close();
    log.info('stopped');
    process.exit(0);
  };
  return { reload: () => reload.run(), stop };
}

async function warnAboutMemory(loaded: LoadedSettings) {
  const { memory, counters, acceptors, workers, logLevel, logFormat } = loaded;
  const { openLog } = await import('./core/log.ts');
  const { source } = memory.limit;
  openLog(logLevel, logFormat).warn(
    { ...memoryLogFields(memory), source, counters, acceptors, workers },
    'memory at full use is near the limit or over it: raise the limit, or lower WEIR_COUNTERS,' +
      ' WEIR_ACCEPTORS or WEIR_WORKERS',
  );
}
