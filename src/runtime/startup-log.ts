/** What a start logs: warnings about its environment, what was loaded, and where weir serves. */

import type { LoadedSettings } from '../config/load.ts';
import { memoryLogFields } from '../config/memory-plan.ts';
import type { Log } from '../core/log.ts';
import type { DirectoryExposure } from '../core/ownership.ts';
import type { RestoreResult } from '../engine/memory/checkpoint/loader.ts';
import type { ListenAddresses } from '../server/listener.ts';
import type { InitialRecords } from './records.ts';
import type { ListenerUrls } from './startup-message.ts';

/**
 * Warns where memory at full use is near the limit. It is logged before the threads start, since
 * the kernel may kill a process that is out of memory.
 */
export async function warnAboutMemory(settings: LoadedSettings): Promise<void> {
  const { memory, counters, acceptors, workers, logLevel, logFormat } = settings;
  if (!memory.isNearLimit) return;
  const { openLog } = await import('../core/log.ts');
  const { source } = memory.limit;
  openLog(logLevel, logFormat).warn(
    { ...memoryLogFields(memory), source, counters, acceptors, workers },
    'memory at full use is near the limit or over it: raise the limit, or lower WEIR_COUNTERS,' +
      ' WEIR_ACCEPTORS or WEIR_WORKERS',
  );
}

export interface StartupFacts {
  settings: LoadedSettings;
  /** The limit of open files, where it is known, and the connections that it allows. */
  descriptors: number | undefined;
  connectionsMax: number;
  exposure: DirectoryExposure | undefined;
  records: InitialRecords;
  restored: RestoreResult;
  addresses: ListenAddresses;
  checkUrls: ListenerUrls;
  adminUrls: ListenerUrls;
  /** The package that uWebSockets.js comes from, with its version. */
  uws: string;
}

export function logStartup(log: Log, facts: StartupFacts): void {
  warnAboutEnvironment(log, facts);
  const { settings, records, restored, addresses, checkUrls, adminUrls, uws } = facts;
  const { registry, policies } = records;
  for (const sentence of restored.damageMessages) log.warn(sentence);
  if (restored.lostCounters > 0) {
    const { lostCounters } = restored;
    log.warn({ lostCounters }, 'counters of the last run did not fit into the table');
  }
  log.info(
    {
      namespaces: registry.namespaceCount,
      keys: registry.keys().length,
      overrides: registry.overrideCounts,
      counters: restored.counters,
    },
    'loaded',
  );
  const { socket, gateway } = addresses;
  log.info(
    {
      url: checkUrls.clientUrl ?? checkUrls.listenUrl,
      listening: checkUrls.listenUrl,
      admin: adminUrls.listenUrl,
      socket,
      gateway: gateway.port === undefined ? undefined : `${gateway.host}:${gateway.port}`,
      gatewaySocket: gateway.socket,
      policies: policies.path === undefined ? undefined : policies.all.length,
      acceptors: settings.acceptors,
      workers: settings.workers,
      decide: settings.decide,
      counters: settings.counters,
      ...memoryLogFields(settings.memory),
      uWebSockets: uws,
    },
    'serving',
  );
}

function warnAboutEnvironment(log: Log, facts: StartupFacts): void {
  const { settings, connectionsMax, descriptors, exposure } = facts;
  if (connectionsMax < settings.connections) {
    log.warn(
      { connections: connectionsMax, requested: settings.connections, descriptors },
      'the limit of open files allows fewer connections than requested',
    );
  }
  if (exposure !== undefined) {
    log.warn(
      exposure,
      'the data directory belongs to another user, and the group or others may read or write it:' +
        ' use it for weir alone, or give it to the user of weir with mode 0700',
    );
  }
}
