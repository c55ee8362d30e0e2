/**
 * Tests that load both cores, or inject faults under load, run one file at a time. All others mostly
 * wait, and run two to four files in parallel.
 */

import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import GuaranteeReporter from './support/guarantee-reporter.ts';
import { IS_LONG } from './support/guarantees.ts';
import { IS_OUTSIDE_LONG, IS_SHORTENED } from './support/test-scale.ts';

const HEAVY = [
  'test/engine/*/*contention.test.ts',
  'test/server/override-activation.test.ts',
  'test/server/listener.test.ts',
  'test/server/multi-limit.test.ts',
  'test/server/operations.test.ts',
  'test/observe/metrics.test.ts',
  'test/runtime/slow-acceptors.test.ts',
  'test/runtime/shutdown.test.ts',
];

/**
 * Faults on real processes, and explorations of thread schedules. `npm test` runs a quick set,
 * `npm run test:faults` runs all of them.
 */
const FAULTS = ['test/faults/**/*.test.ts', 'test/model/**/*.test.ts'];
/** Fault tests that need load, or measure the effect of a fault under load. */
const FAULTS_UNDER_LOAD = [
  ...[
    'analytics',
    'client-aborts',
    'system-clock',
    'connections',
    'exactness',
    'overload',
    'identifier-flood',
  ],
  ...['exactness', 'machine-faults', 'redis-faults', 'topologies'].map((of) => `cluster-${of}`),
  ...['signals', 'worker-deaths', 'restart', 'stop-during-boot', 'tls-reload', 'unread-responses'],
].map((name) => `test/faults/${name}.test.ts`);

/** Floods, and tests with programs that Debian does not provide: a short form, or all of it. */
const OUTSIDE = ['test/outside/**/*.test.ts'];

/**
 * Files whose result does not depend on Node: other programs, the interleavings of a model, scripts
 * of Redis, generated texts and pages, the rules of counters and of the API. `.ci/run` runs them on
 * its first Node only.
 */
const SAME_ON_EVERY_NODE = [
  ...['docs/*', 'examples/*', 'gateways/*', 'model/*', 'engine/redis/scripts/*', 'tidy'],
  ...['check', 'config', 'gateway', 'keys', 'package', 'print', 'reset'].map(
    (of) => `commands/${of}`,
  ),
  ...['observe/grafana/*', 'observe/rules/*', 'analytics/*', 'commands/top', 'commands/stats'],
  ...['algorithm', 'audit', 'corrections', 'explain', 'keys', 'overrides'].map((of) => `api/${of}`),
  ...['batch', 'batch-full-table', 'table', 'windows/*'].map((of) => `engine/memory/${of}`),
  ...['registry/shared/*', 'runtime/shared-registry', 'engine/redis/recovery-outcomes'],
  ...['core/file-ownership', 'commands/cluster', 'commands/overrides', 'overrides/*'],
  ...['deploy/*', 'release/*', 'redis/acl', 'redis/servers', 'engine/redis/lease-contention'],
  ...['cluster-*', 'recovery', 'system-clock', 'connections', 'disk', 'overload'].map(
    (of) => `faults/${of}`,
  ),
  'outside/!(memory-limit|operator-session)',
].map((name) => `test/${name}.test.ts`);
const EXCLUDED = IS_SHORTENED ? SAME_ON_EVERY_NODE : [];

/** Other tests that `npm run test:faults` runs with more trials. */
const LONGER = [
  'test/api/common/body-scanner.test.ts',
  'test/engine/redis/cluster.test.ts',
  'test/engine/redis/lease-contention.test.ts',
  'test/server/override-activation.test.ts',
  'test/server/listener.test.ts',
  'test/runtime/shutdown.test.ts',
];

/** Pages and gateways wait for processes and windows: more files than cores run in parallel. */
const LIGHT_WORKERS = 4;
const OUTSIDE_WORKERS = IS_OUTSIDE_LONG ? 1 : 3;

/** Files that run long beside others in their project. They start first: none runs alone at the end. */
const LONGEST = [
  ...['docs/pages', 'examples/cluster', 'gateways/node-frameworks', 'docs/openapi-examples'],
  ...['redis/connection', 'registry/shared/replicator', 'runtime/shared-registry'],
  ...['core/file-ownership', 'commands/check', 'model/leases.schedules'],
  ...['outside/first-start', 'outside/gateway-pages'],
].map((name) => `/test/${name}.test.ts`);

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const isLong = ({ moduleId }: TestSpecification) => {
      return LONGEST.some((path) => moduleId.endsWith(path));
    };
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))];
  }
}

const HTTP = ['test/server/**/*.test.ts'];
/**
 * The older uWebSockets.js, which servers load on platforms without their own package. It has a
 * binary for each Node: on the second one, tests show that it loads and behaves alike.
 */
const UWS_PACK = { env: { WEIR_TEST_UWS: 'uws-pack' } };

const timeouts = {
  testTimeout: 60_000,
  hookTimeout: 30_000,
  // As long as `waitUntil`; the default of a second is too short for a busy machine.
  expect: { poll: { timeout: 20_000 } },
};

export default defineConfig({
  test: {
    reporters: ['default', new GuaranteeReporter()],
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        test: {
          ...timeouts,
          name: 'light',
          include: ['test/**/*.test.ts'],
          exclude: [...HEAVY, ...FAULTS, ...OUTSIDE, ...EXCLUDED],
          maxWorkers: LIGHT_WORKERS,
          sequence: { groupOrder: 1 },
        },
      },
      {
        test: {
          ...timeouts,
          ...UWS_PACK,
          name: 'uws-pack',
          include: IS_SHORTENED ? ['test/server/uws-behaviour.test.ts'] : HTTP,
          exclude: HEAVY,
          maxWorkers: LIGHT_WORKERS,
          sequence: { groupOrder: 1 },
        },
      },
      {
        test: {
          ...timeouts,
          ...UWS_PACK,
          name: 'uws-pack heavy',
          include: HEAVY.filter((path) => path.startsWith('test/server/')),
          exclude: IS_SHORTENED ? HEAVY : [],
          maxWorkers: 1,
          sequence: { groupOrder: 2 },
        },
      },
      {
        test: {
          ...timeouts,
          name: 'heavy',
          include: HEAVY,
          exclude: EXCLUDED,
          maxWorkers: 1,
          sequence: { groupOrder: 2 },
        },
      },
      {
        test: {
          ...timeouts,
          name: 'faults',
          include: IS_LONG ? [...FAULTS, ...LONGER] : FAULTS,
          exclude: [...FAULTS_UNDER_LOAD, ...EXCLUDED],
          maxWorkers: IS_LONG ? 1 : 2,
          sequence: { groupOrder: 3 },
        },
      },
      {
        test: {
          ...timeouts,
          name: 'faults under load',
          include: FAULTS_UNDER_LOAD,
          exclude: EXCLUDED,
          maxWorkers: 1,
          sequence: { groupOrder: 4 },
        },
      },
      {
        test: {
          ...timeouts,
          name: 'outside',
          include: OUTSIDE,
          exclude: EXCLUDED,
          maxWorkers: OUTSIDE_WORKERS,
          sequence: { groupOrder: 5 },
        },
      },
    ],
  },
});
