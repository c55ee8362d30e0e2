/** What a start logs: warnings about its environment, what was loaded, and where weir serves. */

import type { LoadedSettings } from '../config/load.ts';
import { memoryLogFields } from '../config/memory-plan.ts';
import { INFIX_OVERRIDES_MAX } from '../core/constants.ts';
import type { Log } from '../core/log.ts';
import { horizonPath } from '../engine/holds/horizon-file.ts';
import type { LeaseHorizonData } from '../engine/holds/lease-horizon.ts';
import type { RestoreResult } from '../engine/memory/checkpoint/loader.ts';
import { describeTarget, parseRedisUrl } from '../redis/url.ts';
import type { Registry } from '../registry/registry.ts';
import { isoTime } from '../shared-memory/clock.ts';
import type { Foundation } from './foundation.ts';

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

export function logStartup(log: Log, foundation: Foundation): void {
  warnAboutEnvironment(log, foundation);
  const { settings, uws, listeners, records } = foundation;
  const { restored, hasUnusedCheckpoints, engineData } = foundation.state;
  const { registry, policies } = records;
  const { checkUrls, adminUrls } = listeners;
  const { socket, gateway } = listeners.reserved.addresses;
  const { rls } = listeners.reserved;
  if (restored !== undefined) logRestored(log, restored);
  if (engineData.engine === 'memory' && engineData.leaseHorizon !== undefined) {
    warnAboutLostLeases(log, engineData.leaseHorizon, foundation.state.clock.nowMs());
  }
  if (hasUnusedCheckpoints) {
    log.info(
      'counters are in Redis: those of the memory engine in the data directory are not used',
    );
  }
  warnAboutPatterns(log, registry);
  log.info(
    {
      namespaces: registry.namespaceCount,
      keys: registry.keys().length,
      overrides: registry.overrideCounts,
      counters: restored?.counters,
    },
    'loaded',
  );
  log.info(
    {
      url: checkUrls.clientUrl ?? checkUrls.listenUrl,
      listening: checkUrls.listenUrl,
      admin: adminUrls.listenUrl,
      socket,
      gateway: gateway.port === undefined ? undefined : `${gateway.host}:${gateway.port}`,
      gatewaySocket: gateway.socket,
      rls: rls?.port === undefined ? undefined : `${rls.host}:${rls.port}`,
      rlsSocket: rls?.socket,
      rlsJson: rls?.jsonPort === undefined ? undefined : `${rls.host}:${rls.jsonPort}`,
      rlsDomains: foundation.rls?.rules.initial.domains.length,
      policies: policies.path === undefined ? undefined : policies.all.length,
      acceptors: settings.acceptors,
      workers: settings.workers,
      engine: settings.engine,
      machine: engineData.engine === 'redis' ? engineData.processId : undefined,
      redis: settings.redis && describeTarget(parseRedisUrl(settings.redis.redisUrl)),
      decide: settings.redis === undefined ? settings.decide : undefined,
      counters: settings.counters,
      ...memoryLogFields(settings.memory),
      uWebSockets: uws,
    },
    'serving',
  );
}

/** An earlier version may have stored more patterns than this one accepts. */
function warnAboutPatterns(log: Log, registry: Registry): void {
  const most = INFIX_OVERRIDES_MAX;
  const namespaces = registry.namespacesOverInfixCount(most);
  const patterns = registry.infixScopeCount;
  if (namespaces.length === 0 && patterns <= most) return;
  log.warn(
    { most, ...(namespaces.length > 0 && { namespaces }), ...(patterns > most && { patterns }) },
    'more overrides have text between wildcards than a namespace may have: all of them apply, but' +
      ' a check may take longer than 1 ms, and no further ones are accepted',
  );
}

function logRestored(log: Log, { damageMessages, lostCounters, lostHolds }: RestoreResult): void {
  for (const sentence of damageMessages) log.warn(sentence);
  if (lostCounters > 0) {
    log.warn({ lostCounters }, 'counters of the last run were lost: no slot, or an invalid entry');
  }
  if (lostHolds > 0) {
    const reason = 'WEIR_HOLDS is lower now, or an invalid entry';
    log.warn({ lostHolds }, `reservations and leases of the last run were lost: ${reason}`);
  }
}

function warnAboutLostLeases(
  log: Log,
  { directory, waitUntilMs }: LeaseHorizonData,
  nowMs: number,
): void {
  if (waitUntilMs <= nowMs) return;
  log.warn(
    { until: isoTime(waitUntilMs), file: horizonPath(directory) },
    'weir crashed in its last run, and the leases that it lost may still be live: every' +
      ' acquire is denied until they have ended (WEIR_ON_LOST_LEASES is wait)',
  );
}

function warnAboutEnvironment(log: Log, foundation: Foundation): void {
  const { settings, connections, directory, records } = foundation;
  const { connectionsMax, descriptors } = connections;
  const { exposure } = directory;
  if (connectionsMax < settings.connections) {
    log.warn(
      { connections: connectionsMax, requested: settings.connections, descriptors },
      'the limit of open files allows fewer connections than requested',
    );
  }
  for (const warning of records.policies.warnings) log.warn(warning);
  if (exposure !== undefined) {
    log.warn(
      exposure,
      'the data directory belongs to another user, and the group or others may read or write it:' +
        ' use it for weir alone, or give it to the user of weir with mode 0700',
    );
  }
}
