/**
 * The parts of a start that exist before its first thread. Each part is a step of `main.ts`.
 */

import { mainRoutes } from '../api/operations/main-operations.ts';
import type { LoadedSettings } from '../config/load.ts';
import type { DecisionThreadData } from '../decision-thread/messages.ts';
import type { OverrideTables } from '../overrides/tables.ts';
import { initialPublication, type Publication } from '../registry/publication.ts';
import type { SharedRegistry } from '../registry/shared/shared-registry.ts';
import type { DataDirectory } from '../registry/store/directory.ts';
import type { SqliteStore } from '../registry/store/sqlite.ts';
import type { AcceptorData } from '../server/messages.ts';
import type { Listeners } from './addresses.ts';
import type { ConnectionPlan } from './descriptors.ts';
import type { InitialRecords } from './records.ts';
import type { Rls } from './rls.ts';
import type { SharedState } from './shared-state.ts';

export interface Foundation {
  settings: LoadedSettings;
  /** The package that uWebSockets.js comes from, with its version. */
  uws: string;
  connections: ConnectionPlan;
  listeners: Listeners;
  directory: DataDirectory;
  store: SqliteStore;
  /** Undefined for the memory engine. */
  shared: SharedRegistry | undefined;
  state: SharedState;
  records: InitialRecords;
  /** Undefined where the rate limit service is off. */
  rls: Rls | undefined;
}

/** The data that every decision thread is started with. */
export function threadData(
  { store, state }: Foundation,
  publication: Publication,
): Omit<DecisionThreadData, 'index'> {
  return {
    control: state.controlBuffer,
    engine: state.engineData,
    hashKey: store.hashKey,
    events: state.events,
    recentDecisions: state.recentDecisions,
    activePublication: publication,
  };
}

/** The data that every acceptor is started with. */
export function acceptorData(
  { settings, connections, listeners }: Foundation,
  thread: Omit<DecisionThreadData, 'index'>,
): Omit<AcceptorData, 'index'> {
  return {
    ...thread,
    addresses: listeners.reserved.addresses,
    tls: listeners.tls?.files,
    connectionsMax: connections.connectionsMax,
    url: listeners.checkUrls.clientUrl ?? '',
    isPublicUrl: settings.publicUrl !== undefined,
    mainRoutes: mainRoutes(),
    isReportingErrors: settings.logLevel === 'debug',
  };
}

/** What is active on each decision thread from its first check on. */
export function activePublication(
  { state, records }: Foundation,
  overrides: OverrideTables,
): Publication {
  const { registry, statsRows, usageRows, policies } = records;
  return {
    ...initialPublication(registry, statsRows, usageRows, overrides, state.clock.nowMs()),
    policies: policies.all,
  };
}
