/**
 * Explores schedules of machines that share one counter in Redis: small scenarios in every order of
 * events, and random schedules to their end. Machines run the code of the product. Redis is a model
 * of the scripts, which the tests in `test/system/redis/scripts` with `model` in their names compare
 * with the real ones.
 *
 * A scenario has two or three machines, one to five checks of each, limits from 1 to 6 units, leases
 * of up to 2 units, and the faults that it names, each at most once or twice. A unit is the smallest
 * limit with leases. Any message may be delivered
 * at any later time, or never. States are explored breadth first, up to a number of them; the
 * measurement says whether they are all.
 *
 * Each rule of the protocol that guards a guarantee is switched off once: the exploration must find
 * that a guarantee is then broken.
 */

import { expect, test, vi } from 'vitest';
import { LEASED_LIMIT_MIN } from '../../src/engine/redis/scripts/protocol-constants.ts';
import { IS_LONG, newSeed, recordMeasurement } from '../support/guarantees.ts';
import { seededRandom } from '../support/seeded-random.ts';
import { exploreLeases, followSchedule, walkLeases } from './lease-explorer.ts';
import type { GuardRule, LeaseDemand, Rules } from './lease-model.ts';
import type { Faults, LeaseScenario, ScenarioCheck } from './lease-world.ts';

vi.setConfig({ testTimeout: 3_600_000 });

const STATES = IS_LONG ? 60_000 : 500;
const WALKS = IS_LONG ? 2_000 : 20;
/** Enough for each mutation. */
const MUTATION_STATES = 60_000;
const MUTATION_WALKS = 400;

/** Tokens of a unit. */
const UNIT = LEASED_LIMIT_MIN;

/** A check, by units. */
const check = (cost = 1, limit = 2, more: Partial<ScenarioCheck> = {}): ScenarioCheck => ({
  ...{ cost: cost * UNIT, limit: limit * UNIT, isSliding: false, countsDenied: false },
  ...{ kind: 'sync', ...more },
});
const sliding = (cost = 1, limit = 2) => check(cost, limit, { isSliding: true });

/** Leases of up to two units. */
const SMALL: Partial<Rules> = {
  lease: ({ remaining, kept }: LeaseDemand) => Math.min(remaining, 2 * UNIT - kept),
  pauseTokens: () => 3 * UNIT,
  fenceSlackUs: 0,
};
/** Two checks of one machine, and one of another, for two tokens. */
const THREE = [[check(), check()], [check()]];
const FOUR = [THREE[0], THREE[0]];
/** Of a machine that is alone. */
const alone = (...checks: ScenarioCheck[]) => [checks, []];

/** Checks `THREE` in a window that does not end, unless told otherwise. */
function scenario(faults: Partial<Faults> = {}, more: Partial<LeaseScenario> = {}): LeaseScenario {
  const base = { durationMs: 24, tickMs: 6, ticks: 0, rules: SMALL, checks: THREE };
  return { ...base, faults, ...more };
}
/** Time for the end of a window, for a write-off, and for a recovery. */
const END = { tickMs: 12, ticks: 2 };
const WRITE_OFF = { durationMs: 48, tickMs: 12 };
const RECOVERY = { durationMs: 20_000 };

const SCENARIOS = {
  'messages in every order': scenario({}, { checks: FOUR }),
  'lost and late messages': scenario({ timeouts: 1 }),
  'repeated messages': scenario({ repeats: 1, timeouts: 1 }),
  'late answers': scenario({ timeouts: 2 }),
  'requests before a lease is used up': scenario({ prefetches: 1, timeouts: 1 }),
  'holders that are written off': scenario({}, { ...WRITE_OFF, ticks: 2 }),
  'a dead machine': scenario(
    { kills: 1 },
    { tickMs: 12, ticks: 1, checks: [[check()], [check(), check()]] },
  ),
  'a suspended machine, a write-off and the end of a window': scenario(
    { pauses: 1 },
    { ...END, checks: FOUR },
  ),
  'the end of a window': scenario({ prefetches: 1 }, { ...END, checks: FOUR }),
  'sliding windows': scenario(
    { prefetches: 1 },
    { ...END, checks: [[sliding(), sliding(), sliding()], [sliding()]] },
  ),
  'sliding windows that machines share': scenario(
    { prefetches: 1, timeouts: 1 },
    {
      ...{ ...END, rules: { ...SMALL, sharedTokens: () => UNIT } },
      checks: [[sliding(), sliding(), sliding()], [sliding()]],
    },
  ),
  'fixed and sliding windows': scenario(
    {},
    { ...END, checks: alone(sliding(), sliding(), check(), sliding()) },
  ),
  'usage that is carried over': scenario(
    {},
    { ...END, checks: alone(sliding(), sliding(), sliding(), sliding()) },
  ),
  'different limits': scenario(
    { timeouts: 1 },
    {
      checks: [
        [check(1, 3), check(1, 1)],
        [check(1, 1), check(1, 3)],
      ],
    },
  ),
  'counters whose slot is evicted': scenario({ evictions: 1, timeouts: 1 }),
  'checks that are withdrawn': scenario({ withdrawals: 1, timeouts: 1 }),
  'reserved tokens': scenario(
    { timeouts: 1 },
    { checks: [[check(), check(1, 2, { kind: 'reserve' })], [check()]] },
  ),
  'a refund': scenario({ refunds: 1, timeouts: 1 }),
  'a reset': scenario({ resets: 1, timeouts: 1 }),
  'a denial before a reset': scenario(
    { resets: 1, prefetches: 1 },
    { checks: [[check(1, 1)], [check(1, 1), check(1, 1)]] },
  ),
  'a denial before a refund': scenario(
    { refunds: 1, prefetches: 1 },
    { checks: [[check(1, 1)], [check(1, 1), check(1, 1)]] },
  ),
  'a denial before a holder that was written off returns': scenario(
    {},
    { ...WRITE_OFF, ticks: 1, checks: [[check()], [check(), check()]] },
  ),
  'a reset of one machine': scenario(
    { resets: 1, prefetches: 1 },
    { checks: alone(check(), check(), check(), check(), check()) },
  ),
  'usage of asynchronous checks': scenario(
    { timeouts: 1 },
    { checks: [[check(), check(1, 2, { kind: 'async' }), check()], [check()]] },
  ),
  'a failover to an old replica': scenario({ failovers: 1 }, RECOVERY),
  'a failover and late messages': scenario({ failovers: 1, timeouts: 1, repeats: 1 }, RECOVERY),
  'a new machine and a failover': scenario({ failovers: 1 }, { ...RECOVERY, newMachines: [1] }),
  'a machine that stops, its successor and a failover': scenario(
    { stops: 1, failovers: 1 },
    { ...RECOVERY, newMachines: [1] },
  ),
  'a machine that stops before a failover': scenario(
    { stops: 1, failovers: 1 },
    { ...RECOVERY, checks: [[check(1, 1)], [check(1, 1)]] },
  ),
  'counters that are deleted': scenario({ deletions: 1 }, RECOVERY),
  'counters that are deleted, and late messages': scenario(
    { deletions: 1, timeouts: 1, prefetches: 1 },
    { ...RECOVERY, checks: alone(...THREE[0]) },
  ),
  'counters that are deleted with the index': scenario(
    { deletions: 1 },
    { ...RECOVERY, losesIndex: true, checks: FOUR },
  ),
  'counters that are deleted, and repeated messages': scenario(
    { deletions: 1, repeats: 1, timeouts: 1 },
    RECOVERY,
  ),
  'counters that are deleted, and sliding windows': scenario(
    { deletions: 1, prefetches: 1 },
    { ...END, checks: [[sliding(), sliding(), sliding()], [sliding()]] },
  ),
  'a window before that is deleted': scenario(
    { deletions: 1 },
    {
      ...{ ticks: 4, checks: [[sliding(2)], [sliding(), sliding()]] },
      rules: { ...SMALL, lease: () => 0 },
    },
  ),
  'counters that are deleted, and a dead machine': scenario(
    { deletions: 1, kills: 1 },
    { ...RECOVERY, checks: [[check(1, 1)], [check(1, 1)]] },
  ),
  'counters that are deleted, and a dead machine that is not waited for': scenario(
    { deletions: 1, kills: 1 },
    {
      ...{ durationMs: 60_000, tickMs: 1_100, ticks: 1, checks: [[check()], [check()]] },
      rules: { ...SMALL, isAvailable: true },
    },
  ),
  'a suspended machine that a recovery does not wait for': scenario(
    { deletions: 1, pauses: 1 },
    {
      ...{ durationMs: 60_000, tickMs: 1_100, ticks: 1, checks: [[check()], [check(), check()]] },
      rules: { ...SMALL, isAvailable: true },
    },
  ),
  'a new machine that is not known to others yet': scenario(
    { timeouts: 1, prefetches: 1 },
    { ...RECOVERY, newMachines: [1], rules: { ...SMALL, isAvailable: true } },
  ),
  'a clock that is set': scenario(
    { clockSteps: 1 },
    { ...WRITE_OFF, ticks: 1, clockStepsMs: [-60, 60] },
  ),
  'a clock that is set back a moment after it was read': scenario(
    { clockSteps: 1 },
    { durationMs: 48, ticks: 1, clockStepsMs: [-60], checks: [[check()], [check()]] },
  ),
  'a clock that is set before a failover': scenario(
    { clockSteps: 1, failovers: 1 },
    { ...WRITE_OFF, clockStepsMs: [60] },
  ),
  'a recovery without a dead machine': scenario({ failovers: 1, kills: 1 }, RECOVERY),
  'a recovery that does not wait for a dead machine': scenario(
    { failovers: 1, kills: 1 },
    {
      ...{ durationMs: 60_000, tickMs: 10_100, ticks: 1, checks: [[check()], [check()]] },
      rules: { ...SMALL, isAvailable: true },
    },
  ),
  'a member that is removed and returns': scenario({ forgets: 1, timeouts: 1 }, RECOVERY),
  'a member that is removed before a failover': scenario(
    { forgets: 1, failovers: 1 },
    { ...RECOVERY, checks: [[check()], [check()]] },
  ),
  'three machines': scenario({ timeouts: 1 }, { checks: [[check()], [check()], [check()]] }),
  'machines that answer at once': scenario(
    {},
    {
      ...{ isPrompt: true, ticks: 3 },
      checks: [
        [check(1, 3), check(1, 3)],
        [check(1, 3), check(2, 3)],
      ],
    },
  ),
  'a machine that is busy while another waits': scenario(
    {},
    {
      ...{ isPrompt: true, ticks: 2, mostTries: 2 },
      checks: [[check(1, 6), check(1, 6), check(1, 6), check(1, 6)], [check(1, 6)]],
      rules: { ...SMALL, lease: ({ remaining }: LeaseDemand) => remaining },
    },
  ),
};
type ScenarioName = keyof typeof SCENARIOS;

/** Many checks and faults, for random schedules. */
const WIDE = scenario(
  {
    ...{ losses: 2, repeats: 2, timeouts: 2, prefetches: 3, withdrawals: 1 },
    ...{ pauses: 1, kills: 1 },
  },
  {
    ticks: 8,
    checks: [
      [check(1, 4), check(2, 3), check(1, 4), check(1, 4), check(1, 3)],
      [check(1, 3), check(1, 4), check(2, 4), check(1, 4)],
    ],
  },
);

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
const MUTATIONS: [rule: GuardRule, name: ScenarioName, found?: number | string][] = [
  ['checksSequence', 'repeated messages'],
  ['foldsOlderSlots', 'counters whose slot is evicted', 6],
  ['keepsWrittenOffTokens', 'holders that are written off'],
  ['isQuietAfterRecall', 'a machine that is busy while another waits', 7],
  ['waitsForReports', 'a failover to an old replica', 5],
  ['waitsForAcknowledgements', 'a new machine and a failover', 1],
  [
    'countsPresentedMembers',
    'a new machine and a failover',
    'arrive 0, arrive 1, contact 1, contact 0, snapshot, contact 1, send 1,' +
      ' deliver request 1/1, deliver answer 1/1, failover, contact 0, send 0,' +
      ' deliver request 0/1, deliver answer 0/1',
  ],
  [
    'keepsLeftMembers',
    'a machine that stops before a failover',
    'arrive 1, arrive 0, send 0, deliver request 0/1, deliver answer 0/1, stop 0,' +
      ' contact 1, failover, send 1, deliver request 1/1, contact 1, contact 1,' +
      ' deliver answer 1/1, contact 1, send 1, contact 1, deliver request 1/2,' +
      ' deliver answer 1/2, send 1, deliver request 1/3',
  ],
  ['waitsForOlderMembers', 'a new machine and a failover', 28],
  ['presentsMembers', 'a failover to an old replica', 21],
  [
    'settlesPreviousWithKept',
    'sliding windows',
    'arrive 0, send 0, arrive 1, deliver request 0/1, deliver answer 0/1, tick,' +
      ' prefetch 0, send 1, deliver request 1/1, send 0, deliver recall 0,' +
      ' deliver answer 1/1, arrive 0, arrive 0, tick, send 1, deliver request 0/2',
  ],
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
  ['checksSlidingLease', 'fixed and sliding windows', 1],
  ['keepsUnanswered', 'counters whose slot is evicted'],
  ['detectsLostRecords', 'counters that are deleted with the index'],
  ['looksIntoIndex', 'counters that are deleted'],
  ['verifiesPrevious', 'a window before that is deleted'],
  ['numbersReports', 'counters that are deleted, and repeated messages'],
  ['clockNeverRunsBack', 'a clock that is set'],
  ['followsSeenClock', 'a clock that is set before a failover', 2],
  [
    'waitsForPresentations',
    'a new machine and a failover',
    'contact 1, snapshot, contact 1, contact 0, snapshot, snapshot, arrive 1, contact 1,' +
      ' send 1, deliver request 1/1, failover, contact 0, deliver answer 1/1, arrive 0,' +
      ' send 0, contact 1, arrive 0, deliver request 0/1, deliver answer 0/1',
  ],
  ['fencesSeenWindows', 'a clock that is set before a failover', 8],
  [
    'clearsDenialsWhenWoken',
    'a denial before a reset',
    'arrive 0, send 0, arrive 1, send 1, deliver request 0/1, deliver answer 0/1,' +
      ' prefetch 0, send 0, deliver request 0/2, deliver request 1/1, deliver answer 0/2,' +
      ' deliver answer 1/1, reset, deliver reset 1, arrive 1',
  ],
  ['endsDenials', 'a denial before a refund', 33],
];

test.each(MUTATIONS)(
  'the exploration finds what breaks without the rule %s',
  (rule, name, found = 1) => {
    const base = SCENARIOS[name];
    const mutated = { ...base, rules: { ...base.rules, without: rule } };
    const explore = () => {
      // Where the model has changed, these may find nothing. Then the exploration does, slowly.
      if (typeof found === 'string') followSchedule(mutated, found.split(', '));
      else walkLeases(mutated, MUTATION_WALKS, seededRandom(found));
      exploreLeases(mutated, MUTATION_STATES);
    };
    expect(explore).toThrow(/in the schedule:/);
  },
);
