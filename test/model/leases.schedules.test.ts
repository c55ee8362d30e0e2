/**
 * Explores schedules of machines that share one counter in Redis: small scenarios in every order of
 * events, breadth first up to a number of states, and random schedules to their end. Machines and
 * the script are models; `test/engine/redis/scripts/model.test.ts` compares the latter with the real
 * script.
 *
 * Each rule of the protocol that guards a guarantee is switched off once: the exploration must find
 * that a guarantee is then broken.
 */

import { expect, test, vi } from 'vitest';
import { IS_LONG, newSeed, recordMeasurement } from '../support/guarantees.ts';
import { seededRandom } from '../support/seeded-random.ts';
import { exploreLeases, walkLeases } from './lease-explorer.ts';
import type { LeaseDemand } from './lease-model.ts';
import type { LeaseScenario, Rules, ScenarioCheck } from './lease-world.ts';

vi.setConfig({ testTimeout: 3_600_000 });

const STATES = IS_LONG ? 400_000 : 4_000;
const WALKS = IS_LONG ? 100_000 : 1_000;
/** Enough for each mutation. */
const MUTATION_STATES = 60_000;
const MUTATION_WALKS = 5_000;

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
  'lost messages and answers': { ...BASE, checks: THREE, faults: { losses: 1, timeouts: 1 } },
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

const MUTATIONS: [keyof Rules, ScenarioName][] = [
  ['checksSequence', 'repeated messages'],
  ['foldsOlderSlots', 'counters whose slot is evicted'],
  ['keepsWrittenOffTokens', 'holders that are written off'],
  ['isQuietAfterRecall', 'a machine that is busy while another waits'],
  ['waitsForReports', 'a failover to an old replica'],
  ['waitsForAcknowledgements', 'a new machine and a failover'],
  ['countsPresentedMembers', 'a new machine and a failover'],
  ['waitsForOlderMembers', 'a new machine and a failover'],
  ['presentsMembers', 'a failover to an old replica'],
  ['settlesPreviousWithKept', 'sliding windows'],
  ['subtractsBase', 'a reset of one machine'],
  ['provesDenials', 'machines that answer at once'],
  ['subtractsCarriedFromLeases', 'usage that is carried over'],
  ['takesLease', 'messages in every order'],
  ['ignoresOtherAnswers', 'late answers'],
  ['deadlineFromSending', 'the end of a window'],
  ['keepsReserved', 'reserved tokens'],
  ['checksLeaseLimit', 'different limits'],
  ['checksSlidingLease', 'fixed and sliding windows'],
  ['keepsUnanswered', 'counters whose slot is evicted'],
  ['doubtsOwnTokens', 'reserved tokens'],
];

test.each(MUTATIONS)('the exploration finds what breaks without the rule %s', (rule, name) => {
  const scenario: LeaseScenario = SCENARIOS[name];
  const mutated = { ...scenario, rules: { ...scenario.rules, [rule]: false } };
  const explore = () => {
    // Random schedules find long ones much earlier. Always the same: they find it or they do not.
    walkLeases(mutated, MUTATION_WALKS, seededRandom(1));
    exploreLeases(mutated, MUTATION_STATES);
  };
  expect(explore).toThrow(/in the schedule:/);
});
