/**
 * The main thread: the order of a start and of a stop. It decides no checks.
 *
 * What can be wrong from outside (settings, ports, directory, store) is found before the first
 * thread starts. `lifecycle.ts` says how a failure ends the process.
 */

import { helpText } from './config/help.ts';
import { type LoadedSettings, loadSettings } from './config/load.ts';
import { OverrideTables } from './overrides/tables.ts';
import { logAudit } from './registry/audit-entries.ts';
import { initialPublication } from './registry/publication.ts';
import { DataDirectory } from './registry/store/directory.ts';
import { SqliteStore } from './registry/store/sqlite.ts';
import { Acceptors } from './runtime/acceptors.ts';
import { openAdminPort, ReservedAddresses } from './runtime/addresses.ts';
import { descriptorLimit, fitConnections } from './runtime/descriptors.ts';
import { closeInspector } from './runtime/inspector.ts';
import { Lifecycle } from './runtime/lifecycle.ts';
import { prepareProcess } from './runtime/process-setup.ts';
import { loadRecords } from './runtime/records.ts';
import { restoreSharedState } from './runtime/shared-state.ts';
import { logStartup, warnAboutMemory } from './runtime/startup-log.ts';
import { listenerUrls, printStartupMessage } from './runtime/startup-message.ts';
import { TlsCertificate } from './runtime/tls.ts';

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
  const descriptors = descriptorLimit();
  const threads = settings.acceptors + settings.workers;
  const connectionsMax = fitConnections(descriptors, settings.connections, threads);

  const tls = TlsCertificate.open(settings);
  const reserved = await ReservedAddresses.reserve(settings);
  const { addresses } = reserved;
  const { admin, adminPort } = await openAdminPort(settings);
  const scheme = tls === undefined ? 'http' : 'https';
  const checkUrls = listenerUrls(scheme, addresses.host, addresses.port, settings.publicUrl);
  const adminUrls = listenerUrls('http', settings.adminHost, adminPort);

  const directory = DataDirectory.open(settings.dataDir);
  const store = SqliteStore.open(directory);
  const state = restoreSharedState(settings, directory.path, store.hashKey);
  const records = loadRecords(settings, store, state.clock.nowMs());
  const { registry, policies, firstKey } = records;
  await warnAboutMemory(settings);

  const compileTask = new URL('./compile.js', import.meta.url);
  const overrides = new OverrideTables(store.hashKey, compileTask, (err) => {
    const message = 'the task that compiles overrides failed; the main thread compiled them';
    services.log.error({ err }, message);
  });
  const acceptors = new Acceptors(state.control);
  lifecycle.threadsStarting();
  acceptors.start({
    addresses,
    tls: tls?.files,
    connectionsMax,
    url: checkUrls.clientUrl ?? '',
    control: state.controlBuffer,
    engine: {
      decide: settings.decide,
      fullTablePolicy: settings.onFull,
      tables: state.tables,
      channels: state.channels,
    },
    hashKey: store.hashKey,
    isReportingErrors: settings.logLevel === 'debug',
    activePublication: { ...initialPublication(registry, overrides), policies: policies.all },
  });
  // Loaded while the acceptors load.
  const { Services } = await import('./runtime/services.ts');
  const services = new Services({
    ...{ settings, tls, addresses, connectionsMax, store, state, records, overrides, acceptors },
    ...{ admin, uws },
  });
  const { log } = services;
  await acceptors.listen(services.handlers);
  reserved.openSockets();

  // The key is printed before it is stored, so that a start that fails in between locks out no one.
  const selfSignedCert = tls?.isSelfSigned ? tls.files.cert : undefined;
  const { socket } = addresses;
  printStartupMessage({ checkUrls, adminUrls, socket, firstKey, selfSignedCert });
  if (firstKey !== undefined) logAudit(log, registry.commit(store));
  await services.auditor.recordChanges(policies.all);
  admin.state = 'ready';
  closeInspector();
  overrides.warmUp();
  const { exposure } = directory;
  const { restored } = state;
  logStartup(log, {
    ...{ settings, descriptors, connectionsMax, exposure, records, restored, addresses },
    ...{ checkUrls, adminUrls, uws },
  });

  const drain = async () => {
    admin.state = 'draining';
    log.info('draining');
    reserved.removeSockets();
    await acceptors.drain(settings.drainMs);
    await services.stop();
    await overrides.close();
    store.close();
    directory.close();
    admin.close();
    log.info('stopped');
  };
  return { reload: () => services.reloader.run(), drain };
}

/** Reloads at each SIGHUP, one reload after the other, from the complete start on. */
function reloadOnHangup(server: Promise<RunningServer>): void {
  let lastReload: Promise<unknown> = server;
  process.on('SIGHUP', () => {
    lastReload = lastReload.then(async () => (await server).reload());
  });
}
