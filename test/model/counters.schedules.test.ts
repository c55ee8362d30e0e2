/**
 * Counters in their table, on the real code: two threads in every order, three with up to three
 * interruptions; and threads that stop for ever at any point.
 */

import { expect, test, vi } from 'vitest';
import { DEDUCTION_OUTCOME, newDecision } from '../../src/core/decision.ts';
import { RULE } from '../../src/core/window-rules.ts';
import { lockAt } from '../../src/engine/memory/layout.ts';
import { gcra } from '../../src/engine/memory/windows/gcra.ts';
import { counterKey } from '../../src/engine/memory/windows/registry.ts';
import { newCells } from '../../src/engine/memory/windows/rule.ts';
import { type GuaranteeName, IS_LONG, recordMeasurement } from '../support/guarantees.ts';
import type { TestIdentity } from '../support/limiter-model.ts';
import {
  afterLockRecovery,
  assertHolds,
  attachTable,
  type CounterSetup,
  consume,
  countAllowed,
  type DecisionResult,
  decide,
  decideAction,
  decideBatchAction,
  deductAction,
  describeEnding,
  fixedWindow,
  hasOnlyKnownCounters,
  NEIGHBORS,
  NOW_MS,
  peek,
  prepareMemory,
  readCounter,
  SETUPS,
  slidingWindow,
  sweepAction,
  tableAction,
  testIdentity,
  usageNow,
  WINDOW,
  WINDOW_MS,
  X,
  Y,
} from './counter-model.ts';
import {
  type ExplorationResult,
  explore,
  type FinalState,
  type ModelMemory,
  type ModelThread,
} from './explorer.ts';

const EVERY_ORDER = Number.POSITIVE_INFINITY;
vi.setConfig({ testTimeout: 600_000 });

/** How often one of three threads is interrupted, at most. */
const PREEMPTIONS_OF_THREE = 3;
/** Where there are most orders, only the long form tries them in every setup. */
const isInQuickSet = (name: string) =>
  IS_LONG ||
  ['in a new window, sliding', 'as a newcomer in the place of an expired one'].includes(name);
const OLD = NOW_MS - 2 * WINDOW_MS;

/** Explores, and is to be summed up as one figure. */
class ExplorationSet {
  #states = 0;
  #endings = 0;

  explore(
    memory: ModelMemory,
    threads: ModelThread[],
    check: (ending: FinalState) => void,
  ): ExplorationResult {
    const isMortal = threads.some(({ isMortal }) => isMortal);
    const three = isMortal && !IS_LONG ? PREEMPTIONS_OF_THREE - 1 : PREEMPTIONS_OF_THREE;
    const preemptions = threads.length > 2 ? three : EVERY_ORDER;
    const explored = explore({ memories: [memory], threads, preemptions }, check);
    this.#states += explored.states;
    this.#endings += explored.endings;
    return explored;
  }

  /** The same on the last token of X, however it lies in the table. */
  inEverySetup(
    actors: (setup: CounterSetup) => ModelThread[],
    check: (ending: FinalState, setup: CounterSetup) => void,
    only: (name: string) => boolean = () => true,
  ): this {
    for (const [name, prepare] of Object.entries(SETUPS).filter(([name]) => only(name))) {
      const setup = prepare();
      try {
        this.explore(setup.memory, actors(setup), (ending) => check(ending, setup));
      } catch (error) {
        if (error instanceof Error) error.message = `${name}: ${error.message}`;
        throw error;
      }
    }
    return this;
  }

  record(promise: GuaranteeName, fault: string): void {
    expect(this.#endings).toBeGreaterThan(0);
    recordMeasurement(
      promise,
      fault,
      `${this.#states} states, ${this.#endings} endings`,
      '0 broken',
    );
  }
}

const factsOf = (ending: FinalState, id = X) => [describeEnding(ending), readCounter(ending, id)];

/** All threads come to their end, one check was admitted, and all is counted that has to be. */
function assertExact(ending: FinalState, { used }: CounterSetup, checks: number[], more = 0): void {
  assertHolds(ending.stuck.length === 0, 'all end', factsOf(ending));
  assertHolds(countAllowed(ending, ...checks) === 1, 'one is admitted', factsOf(ending));
  assertHolds(usageNow(ending, X) === used + 1 + more, 'all is counted', factsOf(ending));
}

test('of two checks for the last token one is admitted, and it is counted once', () => {
  new ExplorationSet()
    .inEverySetup(
      ({ parameters }) => [
        { run: decideAction(1, X, parameters) },
        { run: decideAction(2, X, parameters) },
      ],
      (ending, setup) => assertExact(ending, setup, [0, 1]),
    )
    .record('P1', 'two checks for the last token, every order');
});

test('two newcomers each have a counter, also where they differ in their duration only', () => {
  const trials = new ExplorationSet();
  const long = fixedWindow(1, 1, 2 * WINDOW_MS);
  for (const name of Object.keys(SETUPS).filter((name) => name.startsWith('as a newcomer'))) {
    for (const [id, terms] of [
      [Y, fixedWindow(1)],
      [X, long],
    ] as const) {
      const actors = [
        { run: decideAction(1, X, fixedWindow(1)) },
        { run: decideAction(2, id, terms) },
      ];
      trials.explore(SETUPS[name]().memory, actors, (ending) => {
        const used = [usageNow(ending, X), usageNow(ending, id, terms.durationMs)];
        assertHolds(countAllowed(ending, 0, 1) === 2, 'both are admitted', describeEnding(ending));
        assertHolds(used.join() === '1,1', 'both are counted', used);
      });
    }
  }
  trials.record('P2', 'two newcomers for one place, every order');
});

test('a check and a sweep: nothing is counted in a place that is emptied, nothing is lost', () => {
  new ExplorationSet()
    .inEverySetup(
      ({ parameters }) => [{ run: decideAction(1, X, parameters) }, { run: sweepAction(2) }],
      (ending, setup) => assertExact(ending, setup, [0]),
    )
    .record('P1', 'a check and a sweep, every order');
});

test('a deduction and a sweep: nothing is lost', () => {
  new ExplorationSet()
    .inEverySetup(
      ({ parameters }) => [{ run: deductAction(1, X, parameters) }, { run: sweepAction(2) }],
      (ending, { used }) => {
        assertHolds(
          ending.results[0] !== DEDUCTION_OUTCOME.windowEnded,
          'it is made',
          factsOf(ending),
        );
        assertHolds(usageNow(ending, X) === used + 1, 'it is counted', factsOf(ending));
      },
    )
    .record('P1', 'a deduction and a sweep, every order');
});

test('a check and a deduction are both counted, and the check sees it or comes before', () => {
  const trials = new ExplorationSet().inEverySetup(
    ({ parameters }) => [
      { run: decideAction(1, X, parameters) },
      { run: deductAction(2, X, parameters) },
    ],
    (ending, { used }) => {
      const all = used + 1 + countAllowed(ending, 0);
      assertHolds(ending.stuck.length === 0, 'all end', factsOf(ending));
      assertHolds(usageNow(ending, X) === all, 'all is counted', factsOf(ending));
    },
  );
  // In the window before, which is carried over.
  const { memory } = SETUPS['in a new window, sliding']();
  const late = deductAction(2, X, slidingWindow(3, 2), WINDOW - 1);
  trials.explore(
    memory,
    [{ run: decideAction(1, X, slidingWindow(3)) }, { run: late }],
    (ending) => {
      const { newest, current, previous } = readCounter(ending, X)!;
      const before = newest === WINDOW ? previous : current;
      assertHolds(before === 6, 'it is counted in its window', factsOf(ending));
      assertHolds(
        usageNow(ending, X) === countAllowed(ending, 0),
        'so is the check',
        factsOf(ending),
      );
    },
  );
  trials.record('P1', 'a check and a deduction, every order');
});

test('a check, and a refund or a reset: one comes before the other', () => {
  const trials = new ExplorationSet();
  const spent = prepareMemory((table) => consume(table, X, 5, NOW_MS));
  const check = { run: decideAction(1, X, fixedWindow(5, 2)) };
  const refund = tableAction(2, (table) => table.refund(X, NOW_MS, WINDOW, WINDOW_MS, 2));
  const outcomes = new Set<string>();
  const note = (ending: FinalState) => {
    outcomes.add([ending.results[1], countAllowed(ending, 0), usageNow(ending, X)].join());
  };
  trials.explore(spent, [check, { run: refund }], note);
  expect([...outcomes].sort()).toEqual(['2,0,3', '2,1,5']);
  outcomes.clear();
  const reset = tableAction(2, (table) => table.reset(X, NOW_MS, undefined));
  trials.explore(spent, [check, { run: reset }], note);
  expect([...outcomes].sort()).toEqual(['1,0,0', '1,1,2']);
  outcomes.clear();
  const deduction = { run: deductAction(1, X, fixedWindow(5)) };
  trials.explore(spent, [deduction, { run: reset }], note);
  expect([...outcomes].sort()).toEqual(['1,0,0', '1,0,1']);
  trials.record('P1', 'a check, and a refund or a reset, every order');
});

test('a look says of a counter that is being written what it was, or nothing', () => {
  const trials = new ExplorationSet();
  const writers = [decideAction, deductAction, (owner: number) => sweepAction(owner)];
  for (const writer of writers) {
    trials.inEverySetup(
      ({ parameters }) => [
        { run: tableAction(1, (table) => peek(table, X, parameters)) },
        { run: writer(2, X, parameters) },
      ],
      (ending, { parameters }) => {
        const answer = ending.results[0] as DecisionResult | undefined;
        if (answer === undefined) return;
        const isAsBefore = answer.allowed && answer.remaining === 0 && answer.window === WINDOW;
        assertHolds(isAsBefore, 'it is as before', parameters, factsOf(ending));
      },
      (name) => name.startsWith('in') || name.startsWith('two'),
    );
    // Where it would be refused before and behind, it is never admitted.
    trials.inEverySetup(
      ({ parameters }) => [
        {
          run: tableAction(1, (table) =>
            peek(table, X, { ...parameters, limit: parameters.limit - 1 }),
          ),
        },
        { run: writer(2, X, parameters) },
      ],
      (ending) => assertHolds(ending.results[0] === undefined, 'it is no answer', factsOf(ending)),
    );
  }
  trials.record('P1', 'a look while its counter is written, every order');
});

test('a look with an old time, while a window is opened, misses at most what was carried', () => {
  const trials = new ExplorationSet();
  const { memory } = SETUPS['in a new window, sliding']();
  // 4 were used in the window before, and 3 are carried there: 4 + 3 + 1, or 1 + 4 + 1 behind it.
  const answers = (limit: number) => {
    const seen = new Set<boolean>();
    const looks = tableAction(1, (table) =>
      peek(table, X, slidingWindow(limit), NOW_MS - WINDOW_MS),
    );
    trials.explore(
      memory,
      [{ run: looks }, { run: decideAction(2, X, slidingWindow(3)) }],
      ({ results }) => {
        seen.add(results[0] !== undefined);
      },
    );
    return [...seen].sort();
  };
  expect(answers(4)).toEqual([false]);
  expect(answers(5)).toEqual([false, true]);
  trials.record('P1', 'a look with an old time, every order');
});

test('a look admits what its counter has not only where that makes room for another', () => {
  const trials = new ExplorationSet();
  // Of two that meet in one place, the tag of one and words of the other.
  const strangers: TestIdentity[] = [
    { ...Y, h3: X.h3, h1: 77 },
    { ...X, h3: Y.h3 },
  ];
  const displaced = () =>
    prepareMemory((table) => {
      consume(table, X, 1, NOW_MS, 100);
      for (const id of NEIGHBORS.slice(1)) consume(table, id, 9, NOW_MS, 10);
    });
  const newcomer = tableAction(2, (table) => {
    table.decide(Y, 2, NOW_MS, fixedWindow(1), false, newDecision());
  });
  const instead = tableAction(2, (table) => {
    table.reset(X, NOW_MS, undefined);
    table.decide(Y, 2, NOW_MS, fixedWindow(1), false, newDecision());
  });
  const memories = [displaced(), prepareMemory((table) => consume(table, X, 1, NOW_MS, 100))];
  for (const [i, writer] of [newcomer, instead].entries()) {
    const looks = (id: TestIdentity): ModelThread => ({
      run: (world) => {
        const answer = peek(attachTable(world, 1), id, fixedWindow(1));
        if (answer === undefined) return;
        world.recordEvent((memories) =>
          readCounter({ memories }, X) === undefined ? 'gone' : 'there',
        );
      },
    });
    trials.explore(memories[i], [looks(X), { run: writer }], (ending) => {
      assertHolds(!ending.events.includes('there'), 'it is no answer', describeEnding(ending));
    });
    for (const stranger of strangers) {
      trials.explore(memories[i], [looks(stranger), { run: writer }], (ending) => {
        assertHolds(
          ending.events.length === 0,
          'who has no counter is not found',
          describeEnding(ending),
        );
      });
    }
  }
  trials.record('P1', 'a look while its counter makes room, every order');
});

test('checks together: no deadlock, all or nothing, and nobody sees a part', () => {
  const trials = new ExplorationSet();
  const [a, b] = [testIdentity(1, 0, 2), testIdentity(1, 1, 2)];
  const passed = (ending: FinalState, thread: number) => {
    assertHolds(ending.stuck.length === 0, 'all end', describeEnding(ending));
    return (ending.results[thread] as { passed: boolean }).passed;
  };
  // Newcomers, and counters that are there: one more token fits into each.
  for (const used of [0, 1]) {
    const terms = fixedWindow(used + 1);
    const counters = () =>
      prepareMemory((table) => {
        for (const id of used === 0 ? [] : [a, b]) consume(table, id, used, NOW_MS - 1);
      }, 2);
    const counted = (ending: FinalState) => [
      usageNow(ending, a) - used,
      usageNow(ending, b) - used,
    ];
    const [checkA, checkB] = [a, b].map((id) => ({ id, ...terms }));
    const both = { run: decideBatchAction(1, [checkA, checkB]) };

    const reverse = { run: decideBatchAction(2, [checkB, checkA]) };
    trials.explore(counters(), [both, reverse], (ending) => {
      assertHolds(passed(ending, 0) !== passed(ending, 1), 'one passes', describeEnding(ending));
      assertHolds(counted(ending).join() === '1,1', 'all of it is counted', counted(ending));
    });

    for (const [i, id] of [a, b].entries()) {
      trials.explore(counters(), [both, { run: decideAction(2, id, terms) }], (ending) => {
        assertHolds(
          passed(ending, 0) === (countAllowed(ending, 1) === 0),
          'one passes',
          describeEnding(ending),
        );
        const expected = [0, 1].map((n) => (passed(ending, 0) || n === i ? 1 : 0));
        const is = counted(ending);
        assertHolds(is.join() === expected.join(), 'all or nothing', is, describeEnding(ending));
      });
    }

    const [seeA, seeB] = [checkA, checkB].map((check) => ({ ...check, cost: 0 }));
    trials.explore(counters(), [both, { run: decideBatchAction(2, [seeB, seeA]) }], (ending) => {
      passed(ending, 0);
      const { remaining } = ending.results[1] as { remaining: number[] };
      assertHolds(remaining[0] === remaining[1], 'nobody sees a part', describeEnding(ending));
    });

    for (const [first, second] of [
      [a, b],
      [b, a],
    ]) {
      const seeing = { ...terms, cost: 0 };
      const oneByOne = tableAction(2, (table) => {
        return [decide(table, first, seeing), decide(table, second, seeing)];
      });
      trials.explore(counters(), [both, { run: oneByOne }], (ending) => {
        const [before, behind] = ending.results[1] as DecisionResult[];
        assertHolds(
          before.remaining >= behind.remaining,
          'nobody sees a part',
          describeEnding(ending),
        );
      });
    }
  }

  // The second finds no room, so the first is taken back.
  const full = prepareMemory((table) => {
    for (let h3 = 100; h3 < 116; h3++) {
      consume(table, testIdentity(h3, 1, 2), 1, NOW_MS, 1);
      decide(table, testIdentity(h3, 1, 2), fixedWindow(1));
    }
  }, 2);
  const both = {
    run: decideBatchAction(
      1,
      [a, b].map((id) => ({ id, ...fixedWindow(1) })),
    ),
  };
  trials.explore(full, [both, { run: decideAction(2, a, fixedWindow(1)) }], (ending) => {
    assertHolds(
      !passed(ending, 0) && countAllowed(ending, 1) === 1,
      'nothing is taken',
      describeEnding(ending),
    );
    assertHolds(usageNow(ending, a) === 1, 'it is counted', describeEnding(ending));
    assertHolds(usageNow(ending, b) === 0, 'nothing is left', describeEnding(ending));
  });
  trials.record('P1', 'checks together in opposite order, every order');
});

/** What a worker may be at when it dies. */
const WORK: Record<string, (owner: number, setup: CounterSetup) => ModelThread['run']> = {
  'a deduction': (owner, { parameters }) => deductAction(owner, X, parameters),
  'a deduction of a newcomer': (owner) => deductAction(owner, Y, fixedWindow(1)),
  'a sweep': (owner) => sweepAction(owner),
  'a reset': (owner) => tableAction(owner, (table) => table.reset(X, NOW_MS, undefined)),
};

/** @param again whether the next run does it again, as it does with what it finds in a ring */
const mortalThread = (name: string, setup: CounterSetup, again = true): ModelThread => ({
  run: WORK[name](2, setup),
  isMortal: true,
  restart: afterLockRecovery(2, again ? WORK[name](3, setup) : () => undefined),
});

test('a worker that dies over a deduction, at any point, leaves no less than was counted', () => {
  const trials = new ExplorationSet();
  for (const again of [true, false]) {
    trials.inEverySetup(
      (setup) => [
        { run: decideAction(1, X, setup.parameters) },
        mortalThread('a deduction', setup, again),
      ],
      (ending, { used }) => {
        assertHolds(ending.stuck.length === 0, 'all end', factsOf(ending));
        assertHolds(hasOnlyKnownCounters(ending), 'no half of a counter is found', factsOf(ending));
        const done = ending.deaths === 0 || again ? 1 : 0;
        const least = used + countAllowed(ending, 0) + done;
        const more = usageNow(ending, X) - least;
        assertHolds(more >= 0 && more <= ending.deaths, 'it is counted', more, factsOf(ending));
      },
      again ? isInQuickSet : undefined,
    );
  }
  trials.record('P1', 'a worker dies over a deduction, at every step');
});

test('a bucket of GCRA gives its last token once, and loses none when a worker dies', () => {
  const trials = new ExplorationSet();
  const bucket = { ...fixedWindow(10), rule: RULE.gcra };
  const usedTokens = (ending: FinalState) => {
    const cells = readCounter(ending, X, counterKey(RULE.gcra, WINDOW_MS));
    return gcra.usage(cells ?? newCells(), WINDOW_MS, NOW_MS).used;
  };
  const prepared = (limit: number, cost: number) =>
    prepareMemory((table) => {
      decide(table, X, { ...bucket, limit, cost });
    });
  const checks = [1, 2].map((owner) => ({ run: decideAction(owner, X, bucket) }));
  trials.explore(prepared(10, 9), checks, (ending) => {
    assertHolds(countAllowed(ending, 0, 1) === 1, 'one check is allowed', describeEnding(ending));
    assertHolds(usedTokens(ending) === 10, 'its token is counted', describeEnding(ending));
  });
  for (const limit of [10, 7]) {
    const deduct = (owner: number) => deductAction(owner, X, bucket, NOW_MS);
    const worker = { run: deduct(2), isMortal: true, restart: afterLockRecovery(2, deduct(3)) };
    // Three of seven tokens a second are five of ten, rounded up.
    const before = limit === 7 ? 5 : 3;
    trials.explore(prepared(limit, 3), [checks[0], worker], (ending) => {
      const more = usedTokens(ending) - before - countAllowed(ending, 0) - 1;
      // Less than a token is rounded up to one after each change of the limit.
      const most = ending.deaths + (limit === 7 ? 1 : 0);
      assertHolds(more >= 0 && more <= most, 'it is counted', more, describeEnding(ending));
    });
  }
  trials.record('P1', 'a bucket of GCRA, and a worker that dies over it, at every step');
});

test('a worker that dies over another counter or a sweep, at any point, does no harm', () => {
  const trials = new ExplorationSet();
  const newcomer = 'a deduction of a newcomer';
  for (const [name, again] of [
    [newcomer, true],
    [newcomer, false],
    ['a sweep', true],
  ] as const) {
    trials.inEverySetup(
      (setup) => [{ run: decideAction(1, X, setup.parameters) }, mortalThread(name, setup, again)],
      (ending, setup) => {
        assertHolds(hasOnlyKnownCounters(ending), 'no half of a counter is found', factsOf(ending));
        assertExact(ending, setup, [0]);
      },
      name === newcomer && again ? isInQuickSet : undefined,
    );
  }
  trials.record('P1', 'a worker dies over a newcomer or a sweep, at every step');
});

test('a worker that dies over a reset, at any point, leaves the counter or none', () => {
  new ExplorationSet()
    .inEverySetup(
      (setup) => [
        { run: decideAction(1, X, setup.parameters) },
        mortalThread('a reset', setup, false),
      ],
      (ending, { used }) => {
        assertHolds(hasOnlyKnownCounters(ending), 'no half of a counter is found', factsOf(ending));
        assertHolds(countAllowed(ending, 0) === 1, 'what fits is admitted', factsOf(ending));
        const is = usageNow(ending, X);
        assertHolds([0, 1, used + 1].includes(is), 'it is there or not', is, factsOf(ending));
      },
    )
    .record('P2', 'a worker dies over a reset, at every step');
});

test('an acceptor that stops for ever, at any point: nobody is admitted beyond the limit', () => {
  new ExplorationSet()
    .inEverySetup(
      ({ parameters }) => [
        { run: decideAction(1, X, parameters), isMortal: true },
        { run: decideAction(2, X, parameters) },
      ],
      (ending, { used }) => {
        const more = usageNow(ending, X) - used;
        assertHolds(
          countAllowed(ending, 0, 1) <= 1 && more <= 1,
          'no more than fits',
          factsOf(ending),
        );
        assertHolds(
          countAllowed(ending, 0, 1) <= more,
          'what was admitted is counted',
          factsOf(ending),
        );
        const isHeld = attachTable(ending).words[lockAt(0)] === 1;
        assertHolds(
          ending.stuck.length === 0 || isHeld,
          'only its lock stops others',
          factsOf(ending),
        );
        assertHolds(!isHeld || ending.deaths === 1, 'a lock is given back', factsOf(ending));
      },
    )
    .record('P1', 'an acceptor stops for ever, at every step');
});

/** The window of OLD is spent, and the counter has expired at NOW. */
const prepareExpiredCounter = () => prepareMemory((table) => consume(table, X, 3, OLD));

function assertWindowNotReopened(ending: FinalState, threads: number[]): void {
  for (const thread of threads) {
    const { allowed, window } = ending.results[thread] as DecisionResult;
    assertHolds(!allowed || window >= WINDOW, 'a spent window stays so', factsOf(ending));
  }
}

test('a thread that was stopped since it read the clock opens no spent window anew', () => {
  const trials = new ExplorationSet();
  const others = [
    sweepAction(2),
    decideAction(2, Y, fixedWindow(1)),
    deductAction(2, Y, fixedWindow(1)),
    decideBatchAction(2, [{ id: X, ...fixedWindow(1) }]),
    tableAction(2, (table) => table.reset(Y, NOW_MS, undefined)),
  ];
  for (const other of others) {
    for (const terms of [fixedWindow(3), slidingWindow(3)]) {
      const actors = [{ run: decideAction(1, X, terms, OLD) }, { run: other }];
      trials.explore(prepareExpiredCounter(), actors, (ending) =>
        assertWindowNotReopened(ending, [0]),
      );
    }
  }
  trials.record('P1', 'a thread with an old time, every order');
});

test('three checks for the last token: one is admitted', () => {
  new ExplorationSet()
    .inEverySetup(
      ({ parameters }) => [1, 2, 3].map((owner) => ({ run: decideAction(owner, X, parameters) })),
      (ending, setup) => assertExact(ending, setup, [0, 1, 2]),
      isInQuickSet,
    )
    .record('P1', 'three checks for the last token');
});

test('two checks for the last token and a sweep: one is admitted', () => {
  new ExplorationSet()
    .inEverySetup(
      ({ parameters }) => [
        { run: decideAction(1, X, parameters) },
        { run: decideAction(2, X, parameters) },
        { run: sweepAction(3) },
      ],
      (ending, setup) => assertExact(ending, setup, [0, 1]),
      (name) => IS_LONG || name.startsWith('two windows later'),
    )
    .record('P1', 'two checks and a sweep');
});

test('two checks, and a worker that dies over a deduction: no more than fits, none forgotten', () => {
  new ExplorationSet()
    .inEverySetup(
      (setup) => [
        { run: decideAction(1, X, setup.parameters) },
        mortalThread('a deduction', setup),
        { run: decideAction(4, X, setup.parameters) },
      ],
      (ending, { used }) => {
        assertHolds(ending.stuck.length === 0, 'all end', factsOf(ending));
        assertHolds(hasOnlyKnownCounters(ending), 'no half of a counter is found', factsOf(ending));
        const of = countAllowed(ending, 0, 2);
        const more = usageNow(ending, X) - used - of - 1;
        assertHolds(of <= 1, 'no more than fits', factsOf(ending));
        assertHolds(more >= 0 && more <= ending.deaths, 'it is counted', more, factsOf(ending));
      },
      (name) => IS_LONG || name === 'in a new window, sliding',
    )
    .record('P1', 'two checks, and a worker that dies over a deduction');
});

test('an old time, a sweep and a newcomer: no spent window is opened anew', () => {
  const trials = new ExplorationSet();
  const actors = [
    { run: decideAction(1, X, fixedWindow(3), OLD) },
    { run: sweepAction(2) },
    { run: decideAction(3, Y, fixedWindow(1)) },
  ];
  trials.explore(prepareExpiredCounter(), actors, (ending) => {
    assertWindowNotReopened(ending, [0]);
    assertHolds(usageNow(ending, Y) === 1, 'the newcomer is counted', factsOf(ending, Y));
  });
  trials.record('P1', 'an old time, a sweep and a newcomer');
});

test('three who decide together in a ring of orders: no deadlock, one passes', () => {
  const trials = new ExplorationSet();
  const ids = [0, 1, 2].map((group) => ({ id: testIdentity(1, group, 3), ...fixedWindow(1) }));
  const actors = [0, 1, 2].map((first) => {
    return { run: decideBatchAction(first + 1, [ids[first], ids[(first + 1) % 3]]) };
  });
  trials.explore(
    prepareMemory(() => {}, 3),
    actors,
    (ending) => {
      assertHolds(ending.stuck.length === 0, 'all end', describeEnding(ending));
      const passed = (ending.results as { passed: boolean }[]).filter(({ passed }) => passed);
      assertHolds(passed.length === 1, 'one passes', describeEnding(ending));
      const used = ids.reduce((sum, { id }) => sum + usageNow(ending, id), 0);
      assertHolds(used === 2, 'all or nothing', used, describeEnding(ending));
    },
  );
  trials.record('P1', 'three who decide together in a ring of orders');
});
