import { expect, test } from 'vitest';
import {
  allocateEngineState,
  BREAKER,
  EngineState,
} from '../../../src/engine/redis/engine-state.ts';
import { testIdentity } from '../../support/lease-tables.ts';

test('each worker has words of its own, and all threads see them', () => {
  const buffer = allocateEngineState(3, 1);
  const [writer, reader] = [new EngineState(buffer), new EngineState(buffer)];
  expect(reader.workerCount).toBe(3);
  writer.setBreaker(1, BREAKER.open);
  writer.setRecovering(2, true);
  writer.setJoined(0, true);
  const seen = [0, 1, 2].map((worker) => {
    return [reader.isDown(worker), reader.isRecovering(worker), reader.hasJoined(worker)];
  });
  expect(seen).toEqual([
    [false, false, true],
    [true, false, false],
    [false, true, false],
  ]);
  writer.setBreaker(1, BREAKER.closed);
  expect(reader.isDown(1)).toBe(false);
});

test('there is at least one machine', () => {
  const state = new EngineState(allocateEngineState(1, 1));
  expect(state.machineCount).toBe(1);
  state.setMachineCount(5);
  expect(state.machineCount).toBe(5);
});

test('the time of Redis lies between two bounds, for each bucket', () => {
  const state = new EngineState(allocateEngineState(1, 64));
  const [id, other] = [testIdentity(6), testIdentity(7)];
  expect([state.bucketOf(id), state.bucketOf(other), state.bucketOf({ ...id, h3: -1 })]).toEqual([
    7, 8, 63,
  ]);
  state.setLocalClock(1_700_000_000_000, 400);
  expect(state.redisMs(id.h3, 500)).toBe(1_700_000_000_100);
  state.setClock(7, 1_600_000_000_000.25, 0.5);
  for (const atMs of [0, 10.5, 10.75, 11.9]) {
    // Redis may show any time from the offset to the offset with the uncertainty.
    const [earliest, latest] = [1_600_000_000_000.25 + atMs, 1_600_000_000_000.75 + atMs];
    expect(state.redisMs(id.h3, atMs)).toBe(Math.floor(earliest));
    expect(state.redisMsAtMost(id.h3, atMs)).toBeGreaterThanOrEqual(latest);
    expect(state.redisMsAtMost(id.h3, atMs)).toBeLessThanOrEqual(latest + 2);
  }
  expect(state.redisMs(other.h3, 500)).toBe(1_700_000_000_100);
});

test('a buffer of another size, or with a number of buckets that is no power of two, is refused', () => {
  expect(() => new EngineState(allocateEngineState(2, 48))).toThrow('48 buckets');
  const buffer = allocateEngineState(2, 64);
  new Int32Array(buffer)[0] = 3;
  expect(() => new EngineState(buffer)).toThrow('for 3 workers and 64 buckets');
});
