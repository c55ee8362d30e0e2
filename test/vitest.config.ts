/**
 * Tests that load both cores, or strike while they are loaded, run one after the other; all others
 * three or two at a time, for they mostly wait.
 */

import { defineConfig } from 'vitest/config';
import GuaranteeReporter from './support/guarantee-reporter.ts';
import { IS_LONG } from './support/guarantees.ts';
import { IS_SHORTENED } from './support/test-scale.ts';

const HEAVY = [
  'test/engine/memory/*contention.test.ts',
  'test/server/override-activation.test.ts',
  'test/server/listener.test.ts',
  'test/server/multi-limit.test.ts',
  'test/server/operations.test.ts',
  'test/observe/metrics.test.ts',
  'test/runtime/slow-acceptors.test.ts',
  'test/runtime/shutdown.test.ts',
];

/**
 * Faults of all kinds on real processes, and orders of threads: a quick set of them, or all of
 * `npm run test:faults`.
 */
const FAULTS = ['test/faults/**/*.test.ts', 'test/model/**/*.test.ts'];
/** Of these, the ones whose faults need load, and which measure what becomes of it. */
const FAULTS_UNDER_LOAD = [
  ...['client-aborts', 'system-clock', 'connections', 'exactness', 'overload', 'identifier-flood'],
  ...['signals', 'worker-deaths', 'restart', 'stop-during-boot', 'tls-reload', 'unread-responses'],
].map((name) => `test/faults/${name}.test.ts`);

/** Tests with programs that are no part of any Debian, and floods: a short form, or all of it. */
const OUTSIDE = ['test/outside/**/*.test.ts'];

/** What takes its time however little is tried, and does not depend on the Node. */
const LASTING = [
  ...['recovery', 'system-clock', 'connections', 'disk', 'overload'].map((of) => `faults/${of}`),
  ...['caddy', 'haproxy', 'nginx'].map((of) => `gateways/${of}`),
  ...['envoy', 'gateway-floods', 'python-clients', 'first-start'].map((of) => `outside/${of}`),
].map((name) => `test/${name}.test.ts`);
const LEFT_OUT = IS_SHORTENED ? LASTING : [];

/** What is tried more often there as well, though it is no fault. */
const LONGER = [
  'test/api/body-scanner.test.ts',
  'test/server/override-activation.test.ts',
  'test/server/listener.test.ts',
  'test/runtime/shutdown.test.ts',
];

const HTTP = ['test/server/**/*.test.ts'];
/** The older uWebSockets.js, which platforms without a package of their own load. */
const UWS_PACK = { env: { WEIR_TEST_UWS: 'uws-pack' } };

const timeouts = { testTimeout: 60_000, hookTimeout: 30_000 };

export default defineConfig({
  test: {
    reporters: ['default', new GuaranteeReporter()],
    projects: [
      {
        test: {
          ...timeouts,
          name: 'light',
          include: ['test/**/*.test.ts'],
          exclude: [...HEAVY, ...FAULTS, ...OUTSIDE, ...LEFT_OUT],
          maxWorkers: 3,
          sequence: { groupOrder: 1 },
        },
      },
      {
        test: {
          ...timeouts,
          ...UWS_PACK,
          name: 'uws-pack',
          include: HTTP,
          exclude: HEAVY,
          maxWorkers: 3,
          sequence: { groupOrder: 1 },
        },
      },
      {
        test: {
          ...timeouts,
          ...UWS_PACK,
          name: 'uws-pack heavy',
          include: HEAVY.filter((path) => path.startsWith('test/server/')),
          exclude: LEFT_OUT,
          maxWorkers: 1,
          sequence: { groupOrder: 2 },
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
          exclude: [...FAULTS_UNDER_LOAD, ...LEFT_OUT],
          maxWorkers: IS_LONG ? 1 : 2,
          sequence: { groupOrder: 3 },
        },
      },
      {
        test: {
          ...timeouts,
          name: 'faults under load',
          include: FAULTS_UNDER_LOAD,
          exclude: LEFT_OUT,
          maxWorkers: 1,
          sequence: { groupOrder: 4 },
        },
      },
      {
        test: {
          ...timeouts,
          name: 'outside',
          include: OUTSIDE,
          exclude: LEFT_OUT,
          // Missing packages are installed before the tests of a file are collected.
          maxWorkers: 1,
          sequence: { groupOrder: 5 },
        },
      },
    ],
  },
});
