import { expect, test } from 'vitest';
import { acquire, breakLock, release, tryAcquire } from '../../../src/engine/memory/lock.ts';

test('a lock carries its owner while it is held, and nothing when it is free', () => {
  const words = new Int32Array(new SharedArrayBuffer(64));
  acquire(words, 3, 7, () => {});
  expect([...words.slice(2, 5)]).toEqual([0, 7, 0]);
  release(words, 3);
  expect(words[3]).toBe(0);
});

test('a lock that is never released is an error after bounded waiting, and stays with its owner', () => {
  const words = new Int32Array(new SharedArrayBuffer(64));
  acquire(words, 0, 7, () => {});
  let waited = 0;
  expect(() => acquire(words, 0, 8, () => waited++)).toThrow('lock 0 is held by 7 for ever');
  expect(words[0]).toBe(7);
  // Who waits shows that it lives, many times a second.
  expect(waited).toBeGreaterThan(1_000);
});

test('a lock is broken for the thread that held it, and for no other', () => {
  const words = new Int32Array(new SharedArrayBuffer(64));
  acquire(words, 0, 7, () => {});
  expect(breakLock(words, 0, 8)).toBe(false);
  expect(tryAcquire(words, 0, 8)).toBe(false);
  expect(breakLock(words, 0, 7)).toBe(true);
  expect(tryAcquire(words, 0, 8)).toBe(true);
});
