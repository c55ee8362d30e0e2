import { expect, test } from 'vitest';
import { acquire, release } from '../../src/counters/lock.ts';

test('a lock carries its owner while it is held, and nothing when it is free', () => {
  const words = new Int32Array(new SharedArrayBuffer(64));
  acquire(words, 3, 7);
  expect([...words.slice(2, 5)]).toEqual([0, 7, 0]);
  release(words, 3);
  expect(words[3]).toBe(0);
});

test('a lock that is never released is an error after bounded waiting, and stays with its owner', () => {
  const words = new Int32Array(new SharedArrayBuffer(64));
  acquire(words, 0, 7);
  expect(() => acquire(words, 0, 8)).toThrow('lock 0 is held by 7 for ever');
  expect(words[0]).toBe(7);
});
