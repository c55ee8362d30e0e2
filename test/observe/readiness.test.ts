import { describe, expect, test } from 'vitest';
import type { ClusterStats, EngineStats } from '../../src/engine/engine.ts';
import { FaultWatch, type PastFault, type ReplicaStats } from '../../src/observe/faults.ts';
import { readinessOf, type ServerState } from '../../src/observe/readiness.ts';

const MEMORY: EngineStats = {
  queueDepths: [0, 0],
  workers: { configured: 2, running: 2, replaced: 0 },
};
const CLUSTER: ClusterStats = {
  connections: [true, true],
  hasJoined: true,
  isRecovering: false,
  isExact: false,
  machines: 3,
};
const withCluster = (changed: Partial<ClusterStats> = {}): EngineStats => {
  return { ...MEMORY, cluster: { ...CLUSTER, ...changed } };
};

function faultsOf(stats: EngineStats, replica: ReplicaStats | undefined) {
  return new FaultWatch({
    engine: { stats: () => stats },
    ...(replica && { replica: () => replica }),
    files: () => ({}),
    rulesFault: () => undefined,
    liveCounters: () => 0,
    capacity: 1_000,
    onEngineDown: 'local',
    clock: { nowMs: () => 0, monotonicMs: () => 0 },
  }).current();
}

function answer(
  stats: EngineStats | undefined,
  options: { state?: ServerState; replica?: ReplicaStats; wasReady?: boolean } = {},
): [isReady: boolean, status: string, reasons: number] {
  const { state = 'ready', replica, wasReady = false } = options;
  const faults = stats === undefined ? [] : faultsOf(stats, replica);
  const { isReady, body } = readinessOf(
    state,
    stats,
    replica,
    { current: faults, past: [] },
    wasReady,
  );
  return [isReady, body.status, body.reasons?.length ?? 0];
}

describe('readiness', () => {
  test('is that of the process before and after it serves, whatever its engine says', () => {
    for (const stats of [undefined, MEMORY, withCluster(), withCluster({ hasJoined: false })]) {
      for (const state of ['starting', 'draining'] as const) {
        expect(answer(stats, { state })).toEqual([false, state, 0]);
      }
    }
    expect(answer(undefined)).toEqual([true, 'ready', 0]);
    expect(answer(MEMORY)).toEqual([true, 'ready', 0]);
  });

  test('stays, degraded, with a fault, which it names, also when it has ended', () => {
    const stats = { ...MEMORY, workers: { configured: 2, running: 1, replaced: 3 } };
    const current = [
      { reason: 'workers_missing', text: '1 of 2 shard workers do not run.' },
    ] as const;
    const past = [
      { reason: 'store', cause: 'the store cannot be written', start: 1_000, end: 4_000 },
    ] satisfies PastFault[];
    expect(readinessOf('ready', stats, undefined, { current, past }, false)).toEqual({
      isReady: true,
      faults: ['workers_missing'],
      body: {
        status: 'degraded',
        reasons: ['1 of 2 shard workers do not run.'],
        pastFaults: past,
        workers: { wanted: 2, running: 1, replaced: 3 },
      },
    });
  });

  test('shows Redis and the registry where they are used', () => {
    const replica = { version: 7, ageMs: 20, state: 'current', evicting: [] } as const;
    expect(
      readinessOf('ready', withCluster(), replica, { current: [], past: [] }, false).body,
    ).toEqual({
      status: 'ready',
      workers: { wanted: 2, running: 2, replaced: 0 },
      redis: { connected: true, joined: true, recovering: false, machines: 3 },
      registry: { state: 'current', version: 7 },
    });
  });

  const down = { connections: [false, false] };
  const replica = { version: 7, ageMs: 9_000, state: 'unreachable', evicting: [] } as const;
  const diverged = { ...replica, state: 'diverged' } as const;
  test.each<[string, Partial<ClusterStats>, Parameters<typeof answer>[1], boolean, string, number]>(
    [
      [
        'waits until the other machines know this one',
        { hasJoined: false },
        {},
        false,
        'joining',
        0,
      ],
      // A balancer would take out all machines.
      ['stays when all join again', { hasJoined: false }, { wasReady: true }, true, 'degraded', 1],
      [
        'does not wait for a Redis that is down',
        { ...down, hasJoined: false },
        {},
        true,
        'degraded',
        1,
      ],
      ['stays without Redis', { connections: [true, false] }, {}, true, 'degraded', 1],
      ['stays during a recovery', { isRecovering: true }, {}, true, 'degraded', 1],
      ['stays without a registry', {}, { replica }, true, 'degraded', 1],
      ['stays with another registry', {}, { replica: diverged }, true, 'degraded', 1],
      ['has all reasons', { ...down, isRecovering: true }, { replica }, true, 'degraded', 3],
    ],
  )('%s', (_what, cluster, options, isReady, status, reasons) => {
    expect(answer(withCluster(cluster), options)).toEqual([isReady, status, reasons]);
  });
});
