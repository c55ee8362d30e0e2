/**
 * The three levels of tests, told apart by folder: `npm test` runs the project `tests`, `npm run
 * test:system` the projects `system`, and `npm run test:long` the projects `long`.
 */

import { readdirSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { defineConfig, type Plugin } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import GuaranteeReporter from './support/levels/guarantee-reporter.ts';
import LevelReporter from './support/levels/level-reporter.ts';
import ResultsReporter from './support/levels/results-reporter.ts';

/** A file for the results as JSON, from which the runs of several levels are counted. */
const { TEST_JSON } = process.env;

const SYSTEM = 'test/system/**/*.test.ts';
const LONG = 'test/long/**/*.test.ts';

/** They set variables for the modules that they import, so nothing else may have loaded these. */
const OTHER_MODES = [
  'test/system/redis/cases.test.ts',
  'test/system/redis/rls.test.ts',
  'test/system/uws-pack.test.ts',
];

/** They load both cores, so they run after the other system tests, and fewer at a time. */
const FAULTS = 'test/system/faults/*.test.ts';
const FAULT_WORKERS = 3;

/** Files of the other levels that have a long form: WEIR_TEST_LONG gives them more trials. */
const WITH_LONG_FORM = readdirSync('test', { recursive: true, encoding: 'utf8' })
  .filter((path) => path.endsWith('.test.ts') && !path.startsWith('long/'))
  .map((path) => `test/${path}`)
  .filter((path) => /\b(trialCount|IS_LONG)\b/.test(readFileSync(path, 'utf8')));

/** System tests mostly wait for other programs: more files than cores run in parallel. */
const SYSTEM_WORKERS = 4;

/** Files that run long beside others. They start first: none runs alone at the end. */
const LONGEST = [
  ...['pages/gateways', 'pages/first-pages', 'pages/first-start', 'pages/example-cluster'],
  ...['pages/examples', 'gateways/node-frameworks', 'browser/dashboard', 'redis/connection'],
  ...['redis/replicator', 'redis/cluster-command', 'redis/cases', 'uws-pack'],
  ...['faults/cluster-losses', 'faults/cluster-redis-faults', 'faults/cluster-machine-faults'],
  ...['faults/stop-during-boot', 'faults/recovery', 'faults/disk', 'faults/idle-connections'],
  ...['faults/acceptor-failures', 'faults/worker-deaths', 'faults/starvation'],
  ...['faults/abandoned-holds', 'faults/hold-worker-deaths', 'pages/reservations'],
].map((name) => `/test/system/${name}.test.ts`);

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const isLong = ({ moduleId }: TestSpecification) => {
      return LONGEST.some((path) => moduleId.endsWith(path));
    };
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))];
  }
}

/** Scripts of Redis are texts, as in the bundles of `npm run build`. */
const luaFiles: Plugin = {
  name: 'lua-files',
  enforce: 'pre',
  load: (path) => {
    if (!path.endsWith('.lua')) return undefined;
    return `export default ${JSON.stringify(readFileSync(path, 'utf8'))}`;
  },
};
const plugins = [luaFiles];

const timeouts = {
  testTimeout: 60_000,
  hookTimeout: 60_000,
  // As long as `waitUntil`; the default of a second is too short for a busy machine.
  expect: { poll: { timeout: 20_000 } },
};

/** Files share the processes that run them: loading the sources is most of the time of a unit. */
const shared = { ...timeouts, isolate: false };
const first = { ...shared, maxWorkers: Math.min(4, availableParallelism() + 1) };
const system = { ...shared, maxWorkers: SYSTEM_WORKERS, sequence: { groupOrder: 1 } };

export default defineConfig({
  test: {
    reporters: [
      'default',
      new GuaranteeReporter(),
      new LevelReporter(),
      ...(TEST_JSON === undefined ? [] : [new ResultsReporter({ outputFile: TEST_JSON })]),
    ],
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        plugins,
        test: { ...first, name: 'tests', include: ['test/**/*.test.ts'], exclude: [SYSTEM, LONG] },
      },
      { plugins, test: { ...system, name: 'system modes', include: OTHER_MODES, isolate: true } },
      {
        plugins,
        test: {
          ...system,
          name: 'system',
          include: [SYSTEM],
          exclude: [FAULTS, ...OTHER_MODES],
        },
      },
      {
        plugins,
        test: {
          ...shared,
          name: 'system faults',
          include: [FAULTS],
          maxWorkers: FAULT_WORKERS,
          sequence: { groupOrder: 2 },
        },
      },
      {
        plugins,
        test: { ...timeouts, name: 'long', include: [LONG, ...WITH_LONG_FORM], maxWorkers: 1 },
      },
    ],
  },
});
