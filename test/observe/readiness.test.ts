import { describe, expect, test } from 'vitest';
import type { ClusterStats, EngineStats } from '../../src/engine/engine.ts';
import { type ReplicaStats, readinessOf, type ServerState } from '../../src/observe/readiness.ts';

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

function answer(
  stats: EngineStats | undefined,
  options: { state?: ServerState; replica?: ReplicaStats; wasReady?: boolean } = {},
): [isReady: boolean, status: string, reasons: number] {
  const { state = 'ready', replica, wasReady = false } = options;
  const { isReady, body } = readinessOf(state, stats, replica, [], wasReady);
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

  test('stays, degraded, while a shard worker is replaced', () => {
    const stats = { ...MEMORY, workers: { configured: 2, running: 1, replaced: 3 } };
    expect(readinessOf('ready', stats, undefined, [], false)).toEqual({
      isReady: true,
      body: {
        status: 'degraded',
        reasons: ['shard workers that are being replaced: 1 of 2'],
        workers: { wanted: 2, running: 1, replaced: 3 },
      },
    });
  });

  test('stays, degraded, while a file cannot be written', () => {
    const effect = 'the last checkpoint is 34 s old';
    const faults = [{ path: '/data', error: 'ENOSPC', effect }];
    const { isReady, body } = readinessOf('ready', MEMORY, undefined, faults, true);
    expect([isReady, body.status, body.reasons]).toEqual([
      true,
      'degraded',
      ['disk: /data cannot be written (ENOSPC); the last checkpoint is 34 s old'],
    ]);
  });

  test('shows Redis and the registry where they are used', () => {
    const replica = { version: 7, ageMs: 20, state: 'current', evicting: [] } as const;
    expect(readinessOf('ready', withCluster(), replica, [], false).body).toEqual({
      status: 'ready',
      workers: { wanted: 2, running: 2, replaced: 0 },
      redis: { connected: true, joined: true, recovering: false, machines: 3 },
      registry: { state: 'current', version: 7 },
    });
  });

  test('stays, degraded, with a Redis that may delete keys, and names it', () => {
    const evicting = ['a:6379: allkeys-lru', 'b:6379: volatile-ttl'];
    const replica = { version: 7, ageMs: 20, state: 'current', evicting } as const;
    const { isReady, body } = readinessOf('ready', withCluster(), replica, [], false);
    expect([isReady, body.status, body.reasons]).toEqual([
      true,
      'degraded',
      [
        'Redis deletes keys when it is full: set maxmemory-policy noeviction' +
          ' (a:6379: allkeys-lru, b:6379: volatile-ttl)',
      ],
    ]);
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
