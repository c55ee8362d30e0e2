import { expect, test } from 'vitest';
import { RESERVED_DESCRIPTORS, RESERVED_DESCRIPTORS_PER_THREAD } from '../../src/core/constants.ts';
import { descriptorLimit, fitConnections } from '../../src/runtime/descriptors.ts';

test('connections are as many as asked for, or as descriptors are left for them', () => {
  const kept = RESERVED_DESCRIPTORS + 3 * RESERVED_DESCRIPTORS_PER_THREAD;
  expect(fitConnections(1_000_000, 10_000, 3)).toBe(10_000);
  expect(fitConnections(10_000 + kept, 10_000, 3)).toBe(10_000);
  expect(fitConnections(9_999 + kept, 10_000, 3)).toBe(9_999);
  expect(fitConnections(kept + 1, 10_000, 3)).toBe(1);
  expect(() => fitConnections(kept, 10_000, 3)).toThrow(`${kept} files (ulimit -n)`);
  expect(fitConnections(undefined, 10_000, 3)).toBe(10_000);
});

test.runIf(process.platform === 'linux')('the limit is that of the process', () => {
  expect(descriptorLimit()).toBeGreaterThan(100);
});
