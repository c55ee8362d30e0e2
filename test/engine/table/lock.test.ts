import { afterEach, expect, test, vi } from 'vitest';
import { type Lock, lockAt } from '../../../src/engine/table/layout.ts';
import { acquire, breakLock, release, tryAcquire } from '../../../src/engine/table/lock.ts';

const FIRST = 0 as Lock;
afterEach(() => {
  vi.restoreAllMocks();
});

test('a lock holds its owner, and 0 when it is free', () => {
  const words = new Int32Array(new SharedArrayBuffer(64));
  acquire(words, 3 as Lock, 7, () => {});
  expect([...words.slice(2, 5)]).toEqual([0, 7, 0]);
  release(words, 3 as Lock);
  expect(words[3]).toBe(0);
});

test('a lock that is never released fails the wait after a bound, and stays with its owner', () => {
  const words = new Int32Array(new SharedArrayBuffer(1024));
  const lock = lockAt(2);
  acquire(words, lock, 7, () => {});
  // Each wait is over at once: the bound is a number of waits.
  const wait = vi.spyOn(Atomics, 'wait').mockReturnValue('timed-out');
  let waited = 0;
  expect(() => acquire(words, lock, 8, () => waited++)).toThrow(
    'a lock in shared memory (word 44) is still held by acceptor 6 after 3 s',
  );
  expect(words[lock]).toBe(7);
  // The thread calls back before each wait, which is often enough for heartbeats.
  expect(wait).toHaveBeenCalledTimes(30_000);
  expect(wait).toHaveBeenCalledWith(expect.anything(), lock, 7, 0.1);
  expect(waited).toBe(30_000);
});

test('a lock is broken for the thread that held it, and for no other', () => {
  const words = new Int32Array(new SharedArrayBuffer(64));
  acquire(words, FIRST, 7, () => {});
  expect(breakLock(words, FIRST, 8)).toBe(false);
  expect(tryAcquire(words, FIRST, 8)).toBe(false);
  expect(breakLock(words, FIRST, 7)).toBe(true);
  expect(tryAcquire(words, FIRST, 8)).toBe(true);
});
