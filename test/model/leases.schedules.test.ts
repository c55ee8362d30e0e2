/**
 * Explores schedules of machines that share one counter in Redis: small scenarios in every order of
 * events, and random schedules to their end. Machines and the script are models; the tests in
 * `test/system/redis/scripts` with `model` in their names compare the latter with the real scripts.
 *
 * A scenario has two or three machines, one to five checks of each, limits from 1 to 6, leases of up
 * to 2 tokens, and the faults that it names, each at most once or twice. Any message may be delivered
 * at any later time, or never. States are explored breadth first, up to a number of them; the
 * measurement says whether they are all.
 *
 * Each rule of the protocol that guards a guarantee is switched off once: the exploration must find
 * that a guarantee is then broken.
 */

import { expect, test, vi } from 'vitest';
import { IS_LONG, newSeed, recordMeasurement } from '../support/guarantees.ts';
import { seededRandom } from '../support/seeded-random.ts';
import { exploreLeases, followSchedule, walkLeases } from './lease-explorer.ts';
import type { LeaseDemand } from './lease-model.ts';
import type { LeaseScenario, Rules, ScenarioCheck } from './lease-world.ts';

vi.setConfig({ testTimeout: 3_600_000 });

const STATES = IS_LONG ? 600_000 : 500;
const WALKS = IS_LONG ? 20_000 : 20;
/** Enough for each mutation. */
const MUTATION_STATES = 60_000;
const MUTATION_WALKS = 400;

const check = (cost = 1, limit = 2, more: Partial<ScenarioCheck> = {}): ScenarioCheck => ({
  ...{ cost, limit, isSliding: false, countsDenied: false, kind: 'sync', ...more },
});
const sliding = (cost = 1, limit = 2) => check(cost, limit, { isSliding: true });

/** Leases of up to two tokens, for every limit. */
const SMALL: Partial<Rules> = {
  smallestLeasedLimit: 1,
  lease: ({ remaining, kept }: LeaseDemand) => Math.min(remaining, 2 - kept),
  fenceSlackUs: 0,
};
const LONG_WINDOW_MS = 20_000;
const BASE = { durationMs: 24, tickMs: 6, ticks: 0, rules: SMALL };
/** Two checks of one machine, and one of another, for two tokens. */
const THREE = [[check(), check()], [check()]];

const SCENARIOS = {
  'messages in every order': { ...BASE, checks: [THREE[0], THREE[0]] },
  'lost and late messages': { ...BASE, checks: THREE, faults: { timeouts: 1 } },
  'repeated messages': { ...BASE, checks: THREE, faults: { repeats: 1, timeouts: 1 } },
  'late answers': { ...BASE, checks: THREE, faults: { timeouts: 2 } },
  'requests before a lease is used up': {
    ...{ ...BASE, checks: THREE, faults: { prefetches: 1, timeouts: 1 } },
  },
  'holders that are written off': {
    ...{ ...BASE, durationMs: 48, tickMs: 12, ticks: 2, checks: [[check(), check()], [check()]] },
  },
  'a dead machine': {
    ...{ ...BASE, tickMs: 12, ticks: 1, checks: [[check()], [check(), check()]] },
    faults: { kills: 1 },
  },
  'a suspended machine, a write-off and the end of a window': {
    ...{ ...BASE, tickMs: 12, ticks: 2, checks: [THREE[0], THREE[0]], faults: { pauses: 1 } },
  },
  'the end of a window': {
    ...{ ...BASE, tickMs: 12, ticks: 2, checks: [THREE[0], THREE[0]], faults: { prefetches: 1 } },
  },
  'sliding windows': {
    ...{ ...BASE, tickMs: 12, ticks: 2, checks: [[sliding(), sliding(), sliding()], [sliding()]] },
    faults: { prefetches: 1 },
  },
  'fixed and sliding windows': {
    ...{ ...BASE, tickMs: 12, ticks: 2 },
    checks: [[sliding(), sliding(), check(), sliding()], []],
  },
  'usage that is carried over': {
    ...{ ...BASE, tickMs: 12, ticks: 2 },
    checks: [[sliding(), sliding(), sliding(), sliding()], []],
  },
  'different limits': {
    ...{
      ...BASE,
      checks: [
        [check(1, 3), check(1, 1)],
        [check(1, 1), check(1, 3)],
      ],
    },
    faults: { timeouts: 1 },
  },
  'counters whose slot is evicted': {
    ...{ ...BASE, checks: THREE, faults: { evictions: 1, timeouts: 1 } },
  },
  'checks that are withdrawn': {
    ...{ ...BASE, checks: THREE, faults: { withdrawals: 1, timeouts: 1 } },
  },
  'reserved tokens': {
    ...{ ...BASE, checks: [[check(), check(1, 2, { kind: 'reserve' })], [check()]] },
    faults: { timeouts: 1 },
  },
  'a refund': { ...BASE, checks: THREE, faults: { refunds: 1, timeouts: 1 } },
  'a reset': { ...BASE, checks: THREE, faults: { resets: 1, timeouts: 1 } },
  'a denial before a reset': {
    ...{ ...BASE, checks: [[check(1, 1)], [check(1, 1), check(1, 1)]] },
    faults: { resets: 1, prefetches: 1 },
  },
  'a denial before a refund': {
    ...{ ...BASE, checks: [[check(1, 1)], [check(1, 1), check(1, 1)]] },
    faults: { refunds: 1, prefetches: 1 },
  },
  'a denial before a holder that was written off returns': {
    ...{ ...BASE, durationMs: 48, tickMs: 12, ticks: 1, checks: [[check()], [check(), check()]] },
  },
  'a reset of one machine': {
    ...{ ...BASE, checks: [[check(), check(), check(), check(), check()], []] },
    faults: { resets: 1, prefetches: 1 },
  },
  'usage of asynchronous checks': {
    ...{ ...BASE, checks: [[check(), check(1, 2, { kind: 'async' }), check()], [check()]] },
    faults: { timeouts: 1 },
  },
  'a failover to an old replica': {
    ...{ ...BASE, durationMs: LONG_WINDOW_MS, checks: THREE, faults: { failovers: 1 } },
  },
  'a failover and late messages': {
    ...{ ...BASE, durationMs: LONG_WINDOW_MS, checks: THREE },
    faults: { failovers: 1, timeouts: 1, repeats: 1 },
  },
  'a new machine and a failover': {
    ...{ ...BASE, durationMs: LONG_WINDOW_MS, checks: THREE, newMachines: [1] },
    faults: { failovers: 1 },
  },
  'a machine that stops, its successor and a failover': {
    ...{ ...BASE, durationMs: LONG_WINDOW_MS, checks: THREE, newMachines: [1] },
    faults: { stops: 1, failovers: 1 },
  },
  'a machine that stops before a failover': {
    ...{ ...BASE, durationMs: LONG_WINDOW_MS, checks: [[check(1, 1)], [check(1, 1)]] },
    faults: { stops: 1, failovers: 1 },
  },
  'counters that are deleted': {
    ...{ ...BASE, durationMs: LONG_WINDOW_MS, checks: THREE, faults: { deletions: 1 } },
  },
  'counters that are deleted, and late messages': {
    ...{ ...BASE, durationMs: LONG_WINDOW_MS, checks: [THREE[0], []] },
    faults: { deletions: 1, timeouts: 1, prefetches: 1 },
  },
  'a clock that is set': {
    ...{ ...BASE, durationMs: 48, tickMs: 12, ticks: 1, checks: [[check(), check()], [check()]] },
    ...{ clockStepsMs: [-60, 60], faults: { clockSteps: 1 } },
  },
  'a clock that is set back a moment after it was read': {
    ...{ ...BASE, durationMs: 48, tickMs: 6, ticks: 1, checks: [[check()], [check()]] },
    ...{ clockStepsMs: [-60], faults: { clockSteps: 1 } },
  },
  'a clock that is set before a failover': {
    ...{ ...BASE, durationMs: 48, tickMs: 12, ticks: 0, checks: [[check(), check()], [check()]] },
    ...{ clockStepsMs: [60], faults: { clockSteps: 1, failovers: 1 } },
  },
  'a recovery without a dead machine': {
    ...{ ...BASE, durationMs: LONG_WINDOW_MS, checks: THREE },
    faults: { failovers: 1, kills: 1 },
  },
  'a recovery that does not wait for a dead machine': {
    ...{ ...BASE, durationMs: 60_000, tickMs: 10_100, ticks: 1, checks: [[check()], [check()]] },
    rules: { ...SMALL, isAvailable: true },
    faults: { failovers: 1, kills: 1 },
  },
  'a member that is removed and returns': {
    ...{ ...BASE, durationMs: LONG_WINDOW_MS, checks: THREE, faults: { forgets: 1, timeouts: 1 } },
  },
  'a member that is removed before a failover': {
    ...{ ...BASE, durationMs: LONG_WINDOW_MS, checks: [[check()], [check()]] },
    faults: { forgets: 1, failovers: 1 },
  },
  'three machines': { ...BASE, checks: [[check()], [check()], [check()]], faults: { timeouts: 1 } },
  'machines that answer at once': {
    ...{ ...BASE, isPrompt: true, ticks: 3 },
    checks: [
      [check(1, 3), check(1, 3)],
      [check(1, 3), check(2, 3)],
    ],
  },
  'a machine that is busy while another waits': {
    ...{ ...BASE, isPrompt: true, ticks: 2, mostTries: 2 },
    checks: [[check(1, 6), check(1, 6), check(1, 6), check(1, 6)], [check(1, 6)]],
    rules: { ...SMALL, lease: ({ remaining }: LeaseDemand) => remaining },
  },
} satisfies Record<string, LeaseScenario>;
type ScenarioName = keyof typeof SCENARIOS;

/** Many checks and faults, for random schedules. */
const WIDE: LeaseScenario = {
  ...{ ...BASE, ticks: 8 },
  checks: [
    [check(1, 4), check(2, 3), check(1, 4), check(1, 4), check(1, 3)],
    [check(1, 3), check(1, 4), check(2, 4), check(1, 4)],
  ],
  faults: {
    ...{ losses: 2, repeats: 2, timeouts: 2, prefetches: 3, withdrawals: 1 },
    ...{ pauses: 1, kills: 1 },
  },
};

test.each(Object.entries<LeaseScenario>(SCENARIOS))(
  '%s: no limit is exceeded, no proven denial is false, and no token is lost',
  (name, scenario) => {
    const { states, endings, isComplete } = exploreLeases(scenario, STATES);
    expect(states).toBeGreaterThan(20);
    const seed = newSeed();
    const steps = walkLeases(scenario, WALKS, seededRandom(seed));
    const all = isComplete ? `all ${states} states` : `${states} states`;
    const trials = `${all}, ${endings} endings, ${steps} random steps (seed ${seed})`;
    recordMeasurement('P1', `leases: ${name}`, trials, '0 broken');
  },
);

test('random schedules with many faults exceed no limit', () => {
  const seed = newSeed();
  const steps = walkLeases(WIDE, 4 * WALKS, seededRandom(seed));
  recordMeasurement(
    'P1',
    'leases: many faults',
    `${steps} random steps (seed ${seed})`,
    '0 broken',
  );
});

/** With a seed of random schedules that find it early, or a schedule that the exploration found. */
const MUTATIONS: [rule: keyof Rules, name: ScenarioName, found?: number | string][] = [
  ['checksSequence', 'repeated messages'],
  ['foldsOlderSlots', 'counters whose slot is evicted', 6],
  ['keepsWrittenOffTokens', 'holders that are written off'],
  ['isQuietAfterRecall', 'a machine that is busy while another waits', 7],
  ['waitsForReports', 'a failover to an old replica', 5],
  ['waitsForAcknowledgements', 'a new machine and a failover', 26],
  ['countsPresentedMembers', 'a new machine and a failover', 12],
  [
    'keepsLeftMembers',
    'a machine that stops before a failover',
    'arrive 0, send 0, arrive 1, deliver request 0/1, deliver answer 0/1, drain 0,' +
      ' deliver request 0/2, deliver answer 0/2, stop 0, contact 1, failover, contact 1, send 1,' +
      ' deliver request 1/1, deliver answer 1/1',
  ],
  ['waitsForOlderMembers', 'a new machine and a failover', 28],
  ['presentsMembers', 'a failover to an old replica', 21],
  ['settlesPreviousWithKept', 'sliding windows', 13],
  [
    'subtractsBase',
    'a reset of one machine',
    'arrive 0, arrive 0, send 0, arrive 0, deliver request 0/1, deliver answer 0/1, send 0,' +
      ' deliver request 0/2, deliver answer 0/2, reset, deliver reset 0, arrive 0, prefetch 0,' +
      ' deliver request 0/3, deliver answer 0/3, send 0, arrive 0',
  ],
  ['provesDenials', 'machines that answer at once'],
  ['subtractsCarriedFromLeases', 'usage that is carried over', 8],
  ['takesLease', 'messages in every order'],
  ['ignoresOtherAnswers', 'late answers', 2],
  ['deadlineFromSending', 'the end of a window', 3],
  ['keepsReserved', 'reserved tokens', 2],
  ['checksLeaseLimit', 'different limits', 6],
  ['checksSlidingLease', 'fixed and sliding windows', 12],
  ['keepsUnanswered', 'counters whose slot is evicted'],
  ['doubtsOwnTokens', 'reserved tokens'],
  ['detectsLostRecords', 'counters that are deleted'],
  ['clockNeverRunsBack', 'a clock that is set'],
  ['followsSeenClock', 'a clock that is set before a failover', 2],
  ['waitsForPresentations', 'a new machine and a failover', 22],
  ['fencesSeenWindows', 'a clock that is set before a failover', 8],
  [
    'clearsDenialsWhenWoken',
    'a denial before a reset',
    'arrive 0, send 0, arrive 1, send 1, deliver request 0/1, deliver answer 0/1, prefetch 0,' +
      ' deliver request 0/2, deliver request 1/1, deliver answer 0/2, deliver answer 1/1, reset,' +
      ' deliver reset 1, arrive 1',
  ],
  ['endsDenials', 'a denial before a refund', 33],
];

test.each(MUTATIONS)(
  'the exploration finds what breaks without the rule %s',
  (rule, name, found = 1) => {
    const scenario: LeaseScenario = SCENARIOS[name];
    const mutated = { ...scenario, rules: { ...scenario.rules, [rule]: false } };
    const explore = () => {
      // Where the model has changed, these may find nothing. Then the exploration does, slowly.
      if (typeof found === 'string') followSchedule(mutated, found.split(', '));
      else walkLeases(mutated, MUTATION_WALKS, seededRandom(found));
      exploreLeases(mutated, MUTATION_STATES);
    };
    expect(explore).toThrow(/in the schedule:/);
  },
);
