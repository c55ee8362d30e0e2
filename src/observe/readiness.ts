/**
 * The answer of /readyz. A server that decides checks is ready, also where it is degraded: a
 * balancer that took out all degraded servers would take out all of them together when Redis
 * fails. A server that has never been ready and is not known to the other machines yet is not
 * ready: Redis grants it no tokens.
 */

import type { FileFault } from '../core/failure-log.ts';
import type { EngineStats } from '../engine/engine.ts';

/** The copy of the registry that this machine has, and the Redis in which the registry is. */
export interface ReplicaStats {
  version: number;
  /** Time since this machine last read the version in Redis. */
  ageMs: number;
  /** `diverged`: Redis has other records than this machine, which it must not replace. */
  state: 'current' | 'unreachable' | 'diverged';
  /** Servers that may delete keys, and must not (WEIR_REDIS_EVICTION), each with its policy. */
  evicting: readonly string[];
}

export type ServerState = 'starting' | 'ready' | 'draining';

export interface Readiness {
  isReady: boolean;
  body: {
    status: ServerState | 'joining' | 'degraded';
    /** Why the server is degraded. */
    reasons?: string[];
    workers?: { wanted: number; running: number; replaced: number };
    redis?: { connected: boolean; joined: boolean; recovering: boolean; machines: number };
    registry?: { state: ReplicaStats['state']; version: number };
  };
}

/**
 * @param faults files that cannot be written
 * @param wasReady whether an earlier answer said ready or degraded
 * @param rulesFault why changed rules of the rate limit service are not in use
 */
export function readinessOf(
  state: ServerState,
  stats: EngineStats | undefined,
  replica: ReplicaStats | undefined,
  faults: readonly FileFault[],
  wasReady: boolean,
  rulesFault?: string,
): Readiness {
  if (stats === undefined) return { isReady: state === 'ready', body: { status: state } };
  const { workers, cluster } = stats;
  const isConnected = cluster?.connections.every((isOpen) => isOpen) ?? true;
  const details = {
    workers: { wanted: workers.configured, running: workers.running, replaced: workers.replaced },
    ...(cluster && {
      redis: {
        connected: isConnected,
        joined: cluster.hasJoined,
        recovering: cluster.isRecovering,
        machines: cluster.machines,
      },
    }),
    ...(replica && { registry: { state: replica.state, version: replica.version } }),
  };
  if (state !== 'ready') return { isReady: false, body: { status: state, ...details } };
  // Without Redis a machine cannot join. It is degraded then, and decides without Redis.
  if (cluster && !cluster.hasJoined && isConnected && !wasReady) {
    return { isReady: false, body: { status: 'joining', ...details } };
  }
  const reasons = reasonsOf(stats, replica, faults);
  if (rulesFault !== undefined) reasons.push(`rate limit service: old rules apply: ${rulesFault}`);
  if (reasons.length === 0) return { isReady: true, body: { status: 'ready', ...details } };
  return { isReady: true, body: { status: 'degraded', reasons, ...details } };
}

/** Of a recovery that is exact. */
export const CLOSED_REASON =
  'Redis lost usage: counters are closed until all machines have reported; weir cluster status ' +
  'shows the machines, and weir cluster forget removes one that does not come back';

function reasonsOf(
  { workers, cluster }: EngineStats,
  replica: ReplicaStats | undefined,
  faults: readonly FileFault[],
): string[] {
  const { configured, running } = workers;
  const reasons: string[] = [];
  if (running < configured) {
    reasons.push(`shard workers that are being replaced: ${configured - running} of ${configured}`);
  }
  if (cluster !== undefined) {
    const { connections, hasJoined, isRecovering, isExact } = cluster;
    const failed = connections.filter((isConnected) => !isConnected).length;
    if (failed > 0) {
      const which = `${failed} of ${connections.length} shard workers`;
      reasons.push(`Redis does not respond to ${which}: WEIR_ON_ENGINE_DOWN decides their checks`);
    } else if (!hasJoined) {
      reasons.push('the other machines do not know this one: Redis grants it no tokens');
    }
    if (isRecovering) {
      reasons.push(isExact ? CLOSED_REASON : 'Redis lost usage: the machines restore it');
    }
  }
  if (replica?.state === 'unreachable') {
    reasons.push('the registry in Redis does not respond: changes are rejected, others not seen');
  } else if (replica?.state === 'diverged') {
    reasons.push('the registry in Redis has other records: changes are rejected; see the log');
  }
  if (replica !== undefined && replica.evicting.length > 0) {
    const servers = replica.evicting.join(', ');
    reasons.push(
      `Redis deletes keys when it is full: set maxmemory-policy noeviction (${servers})`,
    );
  }
  for (const { path, error, effect } of faults) {
    reasons.push(`disk: ${path} cannot be written (${error}); ${effect}`);
  }
  return reasons;
}
