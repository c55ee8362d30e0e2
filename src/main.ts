/**
 * The main thread: boot order and signals, nothing else. It serves no checks.
 *
 * A failure before the first acceptor starts ends the process with one sentence and a code of
 * `exit.ts`; a later one ends it by SIGKILL. What could be wrong from outside (settings, ports,
 * directory, store) is found before.
 */

import { Service } from './api/service.ts';
import { keyCreation, logAudit } from './audit/entries.ts';
import { PolicyAuditor } from './audit/policies.ts';
import { configuredRecord, makeKey, rootRecord } from './auth/keys.ts';
import { hostNames } from './config/faults.ts';
import { helpText } from './config/help.ts';
import { type Loaded, loadSettings } from './config/load.ts';
import { inMiB } from './config/memory-plan.ts';
import { allocateControl, Control } from './control.ts';
import { allocateTable, attachTable } from './counters/buffer.ts';
import { keyWordsOf } from './counters/checkpoint.ts';
import { GROUP_SLOTS, groupsPerShard } from './counters/layout.ts';
import { LastRun } from './counters/restore.ts';
import { StartError } from './errors.ts';
import { EXIT, type ExitCode } from './exit.ts';
import { addressesOf, greet } from './greeting.ts';
import { inlineMore } from './inlining.ts';
import {
  CLOCK_AHEAD_MAX_MS,
  CLOCK_TICK_MS,
  HEAD_MAX_BYTES,
  SHARDS,
  SLOTS_PER_COUNTER,
} from './limits.ts';
import { Admin } from './observe/admin.ts';
import { OverrideTables } from './overrides/tables.ts';
import { Policies } from './policies/policies.ts';
import { inForce, publisher } from './registry/publication.ts';
import { Registry } from './registry/registry.ts';
import { Writer } from './registry/writer.ts';
import { allocateLink } from './shards/ring.ts';
import { DataDirectory } from './store/directory.ts';
import { SqliteStore } from './store/sqlite.ts';
import { Acceptors } from './supervise/acceptors.ts';
import { connectionsWithin, descriptorLimit } from './supervise/descriptors.ts';
import { dieAtOnce, say } from './supervise/fatal.ts';
import { closeInspector } from './supervise/inspector.ts';
import { needPort, TakenPlaces } from './supervise/places.ts';
import { Reload } from './supervise/reload.ts';
import { Tls } from './supervise/tls.ts';
import { Clock, ClockKeeper, systemMs } from './time.ts';

/** How a failure ends the process: politely until there are acceptors that an exit would abort. */
let end = (sentence: string, code: ExitCode): never => {
  say(sentence);
  process.exit(code);
};

/** @param args flags; runs until a signal ends it */
export async function main(args: readonly string[]): Promise<void> {
  // Until the settings are known, nothing but them can be wrong.
  let code: ExitCode = EXIT.USAGE;
  process.on('uncaughtException', (error) => {
    if (error instanceof StartError) end(error.message, error.exitCode ?? code);
    end(`the main thread failed: ${error.stack}`, EXIT.CANNOT_SERVE);
  });
  const settings = loadSettings(args, process.env);
  code = EXIT.CANNOT_SERVE;
  if (settings === undefined) {
    process.stdout.write(helpText());
    return;
  }
  // A signal that comes while acceptors start is obeyed when they have; before, there is no need.
  const signal = new Promise<void>((resolve) => {
    const obey = () => (end === dieAtOnce ? resolve() : process.exit(0));
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

interface Serving {
  /** Takes over what may change while it serves. */
  reload: () => Promise<void>;
  /** Ends the process, in peace. */
  stop: () => Promise<void>;
}

async function serve(settings: Loaded): Promise<Serving> {
  process.umask(0o077);
  // Read by the addon when it loads, from the real environment, which only this thread has.
  process.env.UWS_HTTP_MAX_HEADERS_SIZE = String(HEAD_MAX_BYTES);
  const { UWS_PACKAGE: uWebSockets } = await import('./http/uws.ts');
  inlineMore();

  const descriptors = descriptorLimit();
  const threads = settings.acceptors + settings.workers;
  const connections = connectionsWithin(descriptors, settings.connections, threads);

  const tls = Tls.open(settings);
  const taken = await TakenPlaces.take(settings);
  const { host, port, socket, gateway } = taken.places;
  const { adminHost, adminHosts } = settings;
  const admin = new Admin([adminHost, ...(adminHosts === undefined ? [] : hostNames(adminHosts))]);
  const adminListens = admin.listen(adminHost, settings.adminPort);
  const setting = 'WEIR_ADMIN_PORT';
  const adminPort = await needPort(setting, adminHost, settings.adminPort, adminListens);

  const directory = DataDirectory.open(settings.dataDir);
  const store = SqliteStore.open(directory);

  const controlBuffer = allocateControl(settings.acceptors, settings.workers);
  const control = new Control(controlBuffer);
  const key = keyWordsOf(store.hashKey);
  const lastRun = new LastRun(directory.path, key, systemMs() + CLOCK_AHEAD_MAX_MS);
  const clockKeeper = new ClockKeeper(control, lastRun.atMs);
  const clock = new Clock(control);
  const nowMs = () => clock.nowMs();
  const groups = groupsPerShard(settings.counters * SLOTS_PER_COUNTER, SHARDS);
  const tables = Array.from({ length: SHARDS }, (_, shard) => allocateTable(shard, groups));
  const restored = lastRun.into(tables.map(attachTable), clock.nowMs());
  const links = Array.from({ length: settings.acceptors }, (_row, acceptor) => {
    return Array.from({ length: settings.workers }, (_, worker) => allocateLink(acceptor, worker));
  });

  const registry = new Registry(store);
  const policies = new Policies(settings.file);
  for (const { namespace } of policies.all) registry.needNamespace(namespace, nowMs());
  registry.settle(store);
  const { rootKey } = settings;
  if (rootKey !== undefined) {
    registry.configure(configuredRecord(rootKey, nowMs(), store.hashKey));
  }
  const firstKey = registry.keys().length === 0 ? makeKey() : undefined;
  if (firstKey !== undefined) {
    const record = rootRecord(firstKey, 'first root key', nowMs());
    registry.addKey(record);
    registry.audit({ at: nowMs(), ...keyCreation(record), keyId: null, by: 'first start' });
  }

  const scheme = tls === undefined ? 'http' : 'https';
  const serves = addressesOf(scheme, host, port, settings.publicUrl);
  const adminServes = addressesOf('http', adminHost, adminPort);
  // Before the threads that may be too many: the kernel may kill a process that is out of memory.
  if (settings.memory.isTight) await warnOfMemory(settings);
  const acceptors = new Acceptors(control, {
    namespace: (name) => writer.register(name),
    failure: (failure) => log.error(failure, 'a request failed'),
    operation: (request) => debug.operation(request, (asked) => service.do(asked)),
    debug: (acceptor, record) => debug.acceptor(acceptor, record),
    publication: (version, publication) => debug.publication(version, publication),
    late: (acceptor) => log.warn({ acceptor }, 'an acceptor has not activated a change yet'),
  });
  const compileTask = new URL('./compile.js', import.meta.url);
  const overrides = new OverrideTables(store.hashKey, compileTask, (error) => {
    log.error({ err: error }, 'the task that compiles overrides failed; done on the main thread');
  });
  end = dieAtOnce;
  const { onFull, decide } = settings;
  acceptors.start({
    places: taken.places,
    tls: tls?.files,
    connections,
    url: serves.common ?? '',
    control: controlBuffer,
    tables,
    links,
    decide,
    hashKey: store.hashKey,
    onFull,
    reportsErrors: settings.logLevel === 'debug',
    inForce: { ...inForce(registry, overrides), policies: policies.all },
  });

  // While the acceptors load, so does what they need not wait for: half of all there is to load.
  const { openLog } = await import('./observe/log.ts');
  const { ShardWorkers } = await import('./shards/supervisor.ts');
  const { CapacityWatch } = await import('./shards/capacity.ts');
  const { CheckpointWatch } = await import('./shards/checkpoint-watch.ts');
  const { Metrics } = await import('./observe/metrics.ts');
  const { DebugLog } = await import('./observe/debug.ts');
  const log = openLog(settings.logLevel, settings.logFormat);
  process.on('SIGUSR1', () => log.info('SIGUSR1 is ignored: the inspector of Node stays closed'));
  const debug = new DebugLog(log, clock, settings.rootKey);
  debug.settings(settings);
  const publish = publisher(registry, overrides, (publication) => acceptors.publish(publication));
  const writer = new Writer(registry, store, publish, log, nowMs);
  const gateways = { policies: () => policies.all, places: gateway };
  const auditor = new PolicyAuditor(registry, writer, log, nowMs);
  const reload = new Reload(policies, tls, acceptors, auditor, log);
  const service = new Service(registry, writer, gateways, store, nowMs);
  const checkpoints = { directory: directory.path, everyMs: settings.checkpointMs, key };
  const workers = new ShardWorkers(
    { control: controlBuffer, tables, links, onFull, checkpoints },
    control,
    (worker) => (decide === 'worker' ? acceptors.doors(worker) : []),
    log,
  );
  // In the turn in which the workers begin to be watched, as often: then one waking does for both.
  const clockTimer = setInterval(() => clockKeeper.tick(), CLOCK_TICK_MS);
  const metrics = new Metrics({
    control,
    links,
    workers,
    clock: clockKeeper,
    registry,
    writer,
    connections,
    capacity: settings.counters,
    slots: groups * GROUP_SLOTS * SHARDS,
    onFull,
    uws: uWebSockets,
  });
  admin.observed = { workers, metrics };
  const capacity = new CapacityWatch(control, settings.counters, log);
  const checkpointWatch = new CheckpointWatch(control, directory.path, settings.checkpointMs, log);
  await acceptors.listen();
  taken.open();

  // Printed first and kept then: a start that breaks off in between has locked nobody out.
  const trusted = tls?.isSelfSigned ? tls.files.cert : undefined;
  greet({ checks: serves, admin: adminServes, socket, firstKey, trusted });
  if (firstKey !== undefined) logAudit(log, registry.settle(store));
  await auditor.note(policies.all);
  admin.state = 'ready';
  closeInspector();
  overrides.warmUp();
  if (connections < settings.connections) {
    const asked = settings.connections;
    log.warn(
      { connections, asked, descriptors },
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
  const { counters: live, noRoom, damage } = restored;
  for (const sentence of damage) log.warn(sentence);
  if (noRoom > 0) log.warn({ noRoom }, 'counters of the last run found no room');
  log.info({ ...loaded, overrides: registry.overrideCounts, counters: live }, 'loaded');
  const served = {
    url: serves.common ?? serves.listening,
    listening: serves.listening,
    admin: adminServes.listening,
    socket,
    gateway: gateway.port === undefined ? undefined : `${gateway.host}:${gateway.port}`,
    gatewaySocket: gateway.socket,
    policies: policies.path === undefined ? undefined : policies.all.length,
    acceptors: settings.acceptors,
    workers: workers.wanted,
  };
  log.info({ ...served, decide, counters, ...inMiB(settings.memory), uWebSockets }, 'serving');

  const stop = async () => {
    admin.state = 'draining';
    log.info('draining');
    taken.remove();
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

async function warnOfMemory(loaded: Loaded) {
  const { memory, counters, acceptors, workers, logLevel, logFormat } = loaded;
  const { openLog } = await import('./observe/log.ts');
  const { source } = memory.limit;
  openLog(logLevel, logFormat).warn(
    { ...inMiB(memory), source, counters, acceptors, workers },
    'memory at full use is near the limit or over it: raise the limit, or lower WEIR_COUNTERS,' +
      ' WEIR_ACCEPTORS or WEIR_WORKERS',
  );
}
