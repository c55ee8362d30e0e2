/**
 * Tests that load both cores, or strike while they are loaded, run one after the other; all others
 * two at a time, for they mostly wait.
 */

import { defineConfig } from 'vitest/config';
import { IS_LONG } from './faults/promises.ts';
import PromiseTable from './faults/reporter.ts';

const HEAVY = [
  'test/counters/*contention.test.ts',
  'test/http/in-force.test.ts',
  'test/http/listener.test.ts',
  'test/http/many.test.ts',
  'test/http/operations.test.ts',
  'test/observe/metrics.test.ts',
  'test/supervise/*.test.ts',
];

/**
 * Faults of all kinds on real processes, and orders of threads: a quick set of them, or all of
 * `npm run test:faults`.
 */
const FAULTS = ['test/faults/**/*.test.ts', 'test/**/schedules.test.ts'];

/** What is tried more often there as well, though it is no fault. */
const LONGER = [
  'test/api/scan.test.ts',
  'test/http/in-force.test.ts',
  'test/http/listener.test.ts',
  'test/supervise/life.test.ts',
];

const timeouts = { testTimeout: 60_000, hookTimeout: 30_000 };

export default defineConfig({
  test: {
    reporters: ['default', new PromiseTable()],
    projects: [
      {
        test: {
          ...timeouts,
          name: 'light',
          include: ['test/**/*.test.ts'],
          exclude: [...HEAVY, ...FAULTS],
          maxWorkers: 2,
          sequence: { groupOrder: 1 },
        },
      },
      {
        test: {
          ...timeouts,
          name: 'heavy',
          include: HEAVY,
          maxWorkers: 1,
          sequence: { groupOrder: 2 },
        },
      },
      {
        test: {
          ...timeouts,
          name: 'faults',
          include: IS_LONG ? [...FAULTS, ...LONGER] : FAULTS,
          maxWorkers: 1,
          sequence: { groupOrder: 3 },
        },
      },
    ],
  },
});
