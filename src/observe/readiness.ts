/**
 * The answer of /readyz. A server that decides checks is ready, also where it is degraded: a
 * balancer that took out all degraded servers would take out all of them together when Redis
 * fails. A server that has never been ready and is not known to the other machines yet is not
 * ready: Redis grants it no tokens.
 */

import type { EngineStats } from '../engine/engine.ts';
import type { Fault, FaultReason, PastFault, ReplicaStats } from './faults.ts';

export type ServerState = 'starting' | 'ready' | 'draining';

export interface Readiness {
  isReady: boolean;
  /** The faults for which the server is degraded. */
  faults: readonly FaultReason[];
  body: {
    status: ServerState | 'joining' | 'degraded';
    /** Why the server is degraded, each in sentences. */
    reasons?: string[];
    /** The one that ended last is the first. Absent without any. */
    pastFaults?: PastFault[];
    workers?: { wanted: number; running: number; replaced: number };
    redis?: { connected: boolean; joined: boolean; recovering: boolean; machines: number };
    registry?: { state: ReplicaStats['state']; version: number };
  };
}

/**
 * @param faults that exist now, and those that have ended
 * @param wasReady whether an earlier answer said ready or degraded
 */
export function readinessOf(
  state: ServerState,
  stats: EngineStats | undefined,
  replica: ReplicaStats | undefined,
  { current, past }: { current: readonly Fault[]; past: PastFault[] },
  wasReady: boolean,
): Readiness {
  if (stats === undefined) {
    return { isReady: state === 'ready', faults: [], body: { status: state } };
  }
  const { workers, cluster } = stats;
  const isConnected = cluster?.connections.every((isOpen) => isOpen) ?? true;
  const details = {
    ...(past.length > 0 && { pastFaults: past }),
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
  if (state !== 'ready') return { isReady: false, faults: [], body: { status: state, ...details } };
  // Without Redis a machine cannot join. It is degraded then, and decides without Redis.
  if (cluster && !cluster.hasJoined && isConnected && !wasReady) {
    return { isReady: false, faults: [], body: { status: 'joining', ...details } };
  }
  if (current.length === 0) {
    return { isReady: true, faults: [], body: { status: 'ready', ...details } };
  }
  const reasons = current.map(({ text }) => text);
  return {
    isReady: true,
    faults: current.map(({ reason }) => reason),
    body: { status: 'degraded', reasons, ...details },
  };
}
