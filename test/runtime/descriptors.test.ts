import { expect, test } from 'vitest';
import { RESERVED_DESCRIPTORS, RESERVED_DESCRIPTORS_PER_THREAD } from '../../src/core/constants.ts';
import { descriptorLimit, fitConnections } from '../../src/runtime/descriptors.ts';

test('connections are as many as requested, or fewer where descriptors are left for fewer', () => {
  const reserved = RESERVED_DESCRIPTORS + 3 * RESERVED_DESCRIPTORS_PER_THREAD;
  expect(fitConnections(1_000_000, 10_000, 3)).toBe(10_000);
  expect(fitConnections(10_000 + reserved, 10_000, 3)).toBe(10_000);
  expect(fitConnections(9_999 + reserved, 10_000, 3)).toBe(9_999);
  expect(fitConnections(reserved + 1, 10_000, 3)).toBe(1);
  expect(() => fitConnections(reserved, 10_000, 3)).toThrow(
    `above ${reserved}, which weir reserves for itself; got ${reserved}`,
  );
  expect(fitConnections(undefined, 10_000, 3)).toBe(10_000);
});

test.runIf(process.platform === 'linux')('the limit of the process is read', () => {
  expect(descriptorLimit()).toBeGreaterThan(100);
});
