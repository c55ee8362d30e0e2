/**
 * The main thread: the order of a start and of a stop. It decides no checks.
 *
 * Invalid settings, ports in use, and an unusable directory or store are found before the first
 * thread starts. `lifecycle.ts` says how a failure ends the process.
 */

import { helpText } from './config/help.ts';
import { type LoadedSettings, loadSettings } from './config/load.ts';
import { OverrideTables } from './overrides/tables.ts';
import { DataDirectory } from './registry/store/directory.ts';
import { SqliteStore } from './registry/store/sqlite.ts';
import type { RlsSettings } from './rls/config/settings.ts';
import { Acceptors } from './runtime/acceptors.ts';
import { reserveListeners } from './runtime/addresses.ts';
import { DecisionThreads } from './runtime/decision-threads.ts';
import { planConnections } from './runtime/descriptors.ts';
import {
  acceptorData,
  activePublication,
  type Foundation,
  threadData,
} from './runtime/foundation.ts';
import { closeInspector } from './runtime/inspector.ts';
import { Lifecycle } from './runtime/lifecycle.ts';
import { prepareProcess } from './runtime/process-setup.ts';
import { loadRecords } from './runtime/records.ts';
import type { Rls } from './runtime/rls.ts';
import { joinSharedRegistry } from './runtime/shared-registry.ts';
import { restoreSharedState } from './runtime/shared-state.ts';
import { logStartup, warnAboutMemory } from './runtime/startup-log.ts';
import { printStartupMessage } from './runtime/startup-message.ts';

/** @param args flags. Resolves at once for `--help`; a server runs until a signal ends it. */
export async function main(args: readonly string[]): Promise<void> {
  const lifecycle = new Lifecycle();
  const settings = loadSettings(args, process.env);
  lifecycle.settingsLoaded();
  if (settings === undefined) {
    process.stdout.write(helpText());
    return;
  }
  const stopSignal = lifecycle.stopSignal();
  const server = startServer(settings, lifecycle);
  reloadOnHangup(server);
  const { drain } = await server;
  await stopSignal;
  await drain();
  lifecycle.exit();
}

interface RunningServer {
  /** Reads policies and certificates again. */
  reload: () => Promise<void>;
  drain: () => Promise<void>;
}

async function startServer(settings: LoadedSettings, lifecycle: Lifecycle): Promise<RunningServer> {
  const uws = await prepareProcess();
  const rls = settings.rls && (await openRls(settings.rls));
  const connections = planConnections(settings);
  const listeners = await reserveListeners(settings);
  const directory = DataDirectory.open(settings.dataDir);
  const store = SqliteStore.open(directory);
  const shared = await joinSharedRegistry(settings, store);
  const state = restoreSharedState(settings, directory.path, store.hashKey);
  const acceptorStats = state.control.allAcceptorStats();
  const records = await loadRecords(settings, store, shared, acceptorStats, state.clock);
  await warnAboutMemory(settings);
  const foundation: Foundation = {
    ...{ settings, uws, connections, listeners, directory, store, shared, state, records, rls },
  };

  const compileTask = new URL('./compile.js', import.meta.url);
  // No task runs, and so none fails, before `warmUp` below.
  const overrides = new OverrideTables(store.hashKey, compileTask, (err) =>
    services.logCompileFailure(err),
  );
  const threads = new DecisionThreads(state.control, settings.unresponsiveMs);
  const acceptors = new Acceptors(threads, settings.acceptors);
  lifecycle.threadsStarting();
  const data = threadData(foundation, activePublication(foundation, overrides));
  acceptors.start(settings.acceptors, acceptorData(foundation, data));
  rls?.start(threads, settings.acceptors, data, listeners.reserved.rls!);
  // Loaded while the acceptors load.
  const { Services } = await import('./runtime/services.ts');
  const services = new Services(foundation, overrides, threads, acceptors);
  await threads.waitForStart(services.threadHandlers, async () => [
    await acceptors.listen(services.acceptorHandlers),
    ...((await rls?.listen()) ?? []),
  ]);
  services.startReplication();
  listeners.reserved.openSockets();
  rls?.watch(services.log);

  // A first key is stored after it was printed: a start that fails in between locks out no client.
  printStartupMessage(listeners, records.firstKey?.key);
  if (records.firstKey !== undefined) await services.storeFirstKey(records.firstKey.record);
  await services.auditor.recordChanges(records.policies.all);
  listeners.admin.state = 'ready';
  closeInspector();
  overrides.warmUp();
  logStartup(services.log, foundation);

  const drain = async () => {
    listeners.admin.state = 'draining';
    services.log.info('draining');
    listeners.reserved.removeSockets();
    rls?.close();
    await threads.drain(settings.drainMs);
    await services.stop();
    await shared?.close();
    await overrides.close();
    store.close();
    directory.close();
    listeners.admin.close();
    services.log.info('stopped');
  };
  return { reload: () => services.reloader.run(), drain };
}

/** Loads the code of the rate limit service only where it is on. */
async function openRls(settings: RlsSettings): Promise<Rls> {
  const { Rls } = await import('./runtime/rls.ts');
  return Rls.open(settings);
}

/** Reloads at each SIGHUP, one reload after the other, from the complete start on. */
function reloadOnHangup(server: Promise<RunningServer>): void {
  let lastReload: Promise<unknown> = server;
  process.on('SIGHUP', () => {
    lastReload = lastReload.then(async () => (await server).reload());
  });
}
