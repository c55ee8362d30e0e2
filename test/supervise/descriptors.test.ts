import { expect, test } from 'vitest';
import { DESCRIPTORS_KEPT, DESCRIPTORS_KEPT_FOR_THREAD } from '../../src/limits.ts';
import { connectionsWithin, descriptorLimit } from '../../src/supervise/descriptors.ts';

test('connections are as many as asked for, or as descriptors are left for them', () => {
  const kept = DESCRIPTORS_KEPT + 3 * DESCRIPTORS_KEPT_FOR_THREAD;
  expect(connectionsWithin(1_000_000, 10_000, 3)).toBe(10_000);
  expect(connectionsWithin(10_000 + kept, 10_000, 3)).toBe(10_000);
  expect(connectionsWithin(9_999 + kept, 10_000, 3)).toBe(9_999);
  expect(connectionsWithin(kept + 1, 10_000, 3)).toBe(1);
  expect(() => connectionsWithin(kept, 10_000, 3)).toThrow(`${kept} files (ulimit -n)`);
  expect(connectionsWithin(undefined, 10_000, 3)).toBe(10_000);
});

test.runIf(process.platform === 'linux')('the limit is that of the process', () => {
  expect(descriptorLimit()).toBeGreaterThan(100);
});
