import { expect, test } from 'vitest';
import { clusterStatsOf } from '../../../src/engine/redis/cluster-stats.ts';
import {
  allocateEngineState,
  BREAKER,
  EngineState,
} from '../../../src/engine/redis/engine-state.ts';

test('a machine has joined when all workers have, and recovers while one of them does', () => {
  const state = new EngineState(allocateEngineState(2, 64));
  state.setJoined(0, true);
  expect(clusterStatsOf(state, true)).toEqual({
    connections: [true, true],
    hasJoined: false,
    isRecovering: false,
    isExact: true,
    machines: 1,
  });
  state.setJoined(1, true);
  state.setRecovering(1, true);
  state.setBreaker(0, BREAKER.open);
  state.setMachineCount(3);
  expect(clusterStatsOf(state, false)).toEqual({
    connections: [false, true],
    hasJoined: true,
    isRecovering: true,
    isExact: false,
    machines: 3,
  });
});
