/**
 * Explores schedules of threads on one counter table, with the real code: two threads in every
 * order, three threads with up to three preemptions. Threads may also stop forever at any step.
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
  assertEnding,
  attachTable,
  type CounterSetup,
  consume,
  countAllowed,
  type DecisionResult,
  decide,
  decideAction,
  decideBatchAction,
  deductAction,
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

/** The maximum number of preemptions in schedules of three threads. */
const PREEMPTIONS_OF_THREE = 3;
/** Tests with the most schedules explore every setup only in the long form. */
const isInQuickSet = (name: string) =>
  IS_LONG ||
  ['in a new window, sliding', 'as a new counter in the slot of an expired one'].includes(name);
const OLD = NOW_MS - 2 * WINDOW_MS;

/** Several explorations that are recorded as one measurement. */
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

  /** Explores with one token of X left, in every setup of the table. */
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

/** All threads end, one check is allowed, and all usage is counted. */
function assertExact(ending: FinalState, { used }: CounterSetup, checks: number[], more = 0): void {
  assertEnding(ending, {
    'all threads end': ending.stuck.length === 0,
    'one check is allowed': countAllowed(ending, ...checks) === 1,
    'all usage is counted': usageNow(ending, X) === used + 1 + more,
  });
}

test('of two checks for the last token one is allowed, and its cost is counted once', () => {
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

test('two new counters get a slot each, also if only their durations differ', () => {
  const trials = new ExplorationSet();
  const long = fixedWindow(1, 1, 2 * WINDOW_MS);
  for (const name of Object.keys(SETUPS).filter((name) => name.startsWith('as a new counter'))) {
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
        assertEnding(ending, {
          'both are allowed': countAllowed(ending, 0, 1) === 2,
          'both are counted': used.join() === '1,1',
        });
      });
    }
  }
  trials.record('P2', 'two new counters for one slot, every order');
});

test('a check and a sweep: no cost is counted in a removed counter, and no usage is lost', () => {
  new ExplorationSet()
    .inEverySetup(
      ({ parameters }) => [{ run: decideAction(1, X, parameters) }, { run: sweepAction(2) }],
      (ending, setup) => assertExact(ending, setup, [0]),
    )
    .record('P1', 'a check and a sweep, every order');
});

test('a deduction and a sweep: the deduction is applied and counted', () => {
  new ExplorationSet()
    .inEverySetup(
      ({ parameters }) => [{ run: deductAction(1, X, parameters) }, { run: sweepAction(2) }],
      (ending, { used }) => {
        assertEnding(ending, {
          'the deduction is applied': ending.results[0] !== DEDUCTION_OUTCOME.windowEnded,
          'the deduction is counted': usageNow(ending, X) === used + 1,
        });
      },
    )
    .record('P1', 'a deduction and a sweep, every order');
});

test('a check and a deduction are both counted, in either order', () => {
  const trials = new ExplorationSet().inEverySetup(
    ({ parameters }) => [
      { run: decideAction(1, X, parameters) },
      { run: deductAction(2, X, parameters) },
    ],
    (ending, { used }) => {
      const all = used + 1 + countAllowed(ending, 0);
      assertEnding(ending, {
        'all threads end': ending.stuck.length === 0,
        'all usage is counted': usageNow(ending, X) === all,
      });
    },
  );
  // A deduction in the previous window, whose usage carries over.
  const { memory } = SETUPS['in a new window, sliding']();
  const late = deductAction(2, X, slidingWindow(3, 2), WINDOW - 1);
  trials.explore(
    memory,
    [{ run: decideAction(1, X, slidingWindow(3)) }, { run: late }],
    (ending) => {
      const { newest, current, previous } = readCounter(ending, X)!;
      const before = newest === WINDOW ? previous : current;
      assertEnding(ending, {
        'the deduction is counted in its window': before === 6,
        'the check is counted in its window': usageNow(ending, X) === countAllowed(ending, 0),
      });
    },
  );
  trials.record('P1', 'a check and a deduction, every order');
});

test('a check and a refund or reset have a result of one of their two orders', () => {
  const trials = new ExplorationSet();
  const exhausted = prepareMemory((table) => consume(table, X, 5, NOW_MS));
  const check = { run: decideAction(1, X, fixedWindow(5, 2)) };
  const refund = tableAction(2, (table) =>
    table.refund(X, RULE.fixed, WINDOW_MS, WINDOW, 2, NOW_MS),
  );
  const outcomes = new Set<string>();
  const addOutcome = (ending: FinalState) => {
    outcomes.add([ending.results[1], countAllowed(ending, 0), usageNow(ending, X)].join());
  };
  trials.explore(exhausted, [check, { run: refund }], addOutcome);
  expect([...outcomes].sort()).toEqual(['2,0,3', '2,1,5']);
  outcomes.clear();
  const reset = tableAction(2, (table) => table.reset(X, NOW_MS, undefined));
  trials.explore(exhausted, [check, { run: reset }], addOutcome);
  expect([...outcomes].sort()).toEqual(['1,0,0', '1,1,2']);
  outcomes.clear();
  const deduction = { run: deductAction(1, X, fixedWindow(5)) };
  trials.explore(exhausted, [deduction, { run: reset }], addOutcome);
  expect([...outcomes].sort()).toEqual(['1,0,0', '1,0,1']);
  trials.record('P1', 'a check and a refund or reset, every order');
});

test('a peek during a write returns the decision from before the write, or none', () => {
  const trials = new ExplorationSet();
  const writers = [decideAction, deductAction, (owner: number) => sweepAction(owner)];
  for (const writer of writers) {
    trials.inEverySetup(
      ({ parameters }) => [
        { run: tableAction(1, (table) => peek(table, X, parameters)) },
        { run: writer(2, X, parameters) },
      ],
      (ending) => {
        const answer = ending.results[0] as DecisionResult | undefined;
        if (answer === undefined) return;
        const isAsBefore = answer.allowed && answer.remaining === 0 && answer.window === WINDOW;
        assertEnding(ending, { 'the decision is from before the write': isAsBefore });
      },
      (name) => name.startsWith('in') || name.startsWith('two'),
    );
    // A check that is denied before and after the write gets no decision.
    trials.inEverySetup(
      ({ parameters }) => [
        {
          run: tableAction(1, (table) =>
            peek(table, X, { ...parameters, limit: parameters.limit - 1 }),
          ),
        },
        { run: writer(2, X, parameters) },
      ],
      (ending) =>
        assertEnding(ending, { 'the peek returns no decision': ending.results[0] === undefined }),
    );
  }
  trials.record('P1', 'a peek while its counter is written, every order');
});

test('a peek with an old time while a window starts misses at most the carried usage', () => {
  const trials = new ExplorationSet();
  const { memory } = SETUPS['in a new window, sliding']();
  // The old window has 4 used and 3 carried: 4 + 3 + 1 before the write, 1 + 4 + 1 after it.
  const answers = (limit: number) => {
    const seen = new Set<boolean>();
    const peekAction = tableAction(1, (table) =>
      peek(table, X, slidingWindow(limit), NOW_MS - WINDOW_MS),
    );
    trials.explore(
      memory,
      [{ run: peekAction }, { run: decideAction(2, X, slidingWindow(3)) }],
      ({ results }) => {
        seen.add(results[0] !== undefined);
      },
    );
    return [...seen].sort();
  };
  expect(answers(4)).toEqual([false]);
  expect(answers(5)).toEqual([false, true]);
  trials.record('P1', 'a peek with an old time, every order');
});

test('a peek allows a check of an exhausted identifier only once its counter is removed', () => {
  const trials = new ExplorationSet();
  // Identities that mix the tag of one counter with the hash words of another in its slot.
  const mixedIdentities: TestIdentity[] = [
    { ...Y, h3: X.h3, h1: 77 },
    { ...X, h3: Y.h3 },
  ];
  const prepareEviction = () =>
    prepareMemory((table) => {
      consume(table, X, 1, NOW_MS, 100);
      for (const id of NEIGHBORS.slice(1)) consume(table, id, 9, NOW_MS, 10);
    });
  const evicting = tableAction(2, (table) => {
    table.decide(Y, 2, NOW_MS, fixedWindow(1), false, newDecision());
  });
  const replacing = tableAction(2, (table) => {
    table.reset(X, NOW_MS, undefined);
    table.decide(Y, 2, NOW_MS, fixedWindow(1), false, newDecision());
  });
  const memories = [prepareEviction(), prepareMemory((table) => consume(table, X, 1, NOW_MS, 100))];
  for (const [i, writer] of [evicting, replacing].entries()) {
    const peekAction = (id: TestIdentity): ModelThread => ({
      run: (world) => {
        const answer = peek(attachTable(world, 1), id, fixedWindow(1));
        if (answer === undefined) return;
        world.recordEvent((memories) =>
          readCounter({ memories }, X) === undefined ? 'removed' : 'stored',
        );
      },
    });
    trials.explore(memories[i], [peekAction(X), { run: writer }], (ending) => {
      assertEnding(ending, { 'the peek returns no decision': !ending.events.includes('stored') });
    });
    for (const mixed of mixedIdentities) {
      trials.explore(memories[i], [peekAction(mixed), { run: writer }], (ending) => {
        assertEnding(ending, {
          'an identity without a counter is not found': ending.events.length === 0,
        });
      });
    }
  }
  trials.record('P1', 'a peek while its counter is evicted, every order');
});

test('batches never deadlock, count all or nothing, and no check sees a part of one', () => {
  const trials = new ExplorationSet();
  const [a, b] = [testIdentity(1, 0, 2), testIdentity(1, 1, 2)];
  const passed = (ending: FinalState, thread: number) => {
    assertEnding(ending, { 'all threads end': ending.stuck.length === 0 });
    return (ending.results[thread] as { passed: boolean }).passed;
  };
  // New counters and existing ones: each has one token left.
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
      assertEnding(ending, {
        'one batch or check passes': passed(ending, 0) !== passed(ending, 1),
        'the whole batch is counted': counted(ending).join() === '1,1',
      });
    });

    for (const [i, id] of [a, b].entries()) {
      trials.explore(counters(), [both, { run: decideAction(2, id, terms) }], (ending) => {
        assertEnding(ending, {
          'one batch or check passes': passed(ending, 0) === (countAllowed(ending, 1) === 0),
        });
        const expected = [0, 1].map((n) => (passed(ending, 0) || n === i ? 1 : 0));
        const is = counted(ending);
        assertEnding(ending, { 'all or nothing is counted': is.join() === expected.join() });
      });
    }

    const [seeA, seeB] = [checkA, checkB].map((check) => ({ ...check, cost: 0 }));
    trials.explore(counters(), [both, { run: decideBatchAction(2, [seeB, seeA]) }], (ending) => {
      passed(ending, 0);
      const { remaining } = ending.results[1] as { remaining: number[] };
      assertEnding(ending, { 'no check sees a part of the batch': remaining[0] === remaining[1] });
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
        const [before, after] = ending.results[1] as DecisionResult[];
        assertEnding(ending, {
          'no check sees a part of the batch': before.remaining >= after.remaining,
        });
      });
    }
  }

  // The second counter finds no slot, so the first is removed again.
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
    assertEnding(ending, {
      'the batch is denied': !passed(ending, 0) && countAllowed(ending, 1) === 1,
      'the single check is counted': usageNow(ending, a) === 1,
      'the batch counts nothing': usageNow(ending, b) === 0,
    });
  });
  trials.record('P1', 'batches with opposite orders of counters, every order');
});

/** The operations during which a worker may die. */
const WORK: Record<string, (owner: number, setup: CounterSetup) => ModelThread['run']> = {
  'a deduction': (owner, { parameters }) => deductAction(owner, X, parameters),
  'a deduction of a new counter': (owner) => deductAction(owner, Y, fixedWindow(1)),
  'a sweep': (owner) => sweepAction(owner),
  'a reset': (owner) => tableAction(owner, (table) => table.reset(X, NOW_MS, undefined)),
};

/** @param again whether the restarted worker repeats the operation, as with a queue entry */
const mortalThread = (name: string, setup: CounterSetup, again = true): ModelThread => ({
  run: WORK[name](2, setup),
  isMortal: true,
  restart: afterLockRecovery(2, again ? WORK[name](3, setup) : () => undefined),
});

test('a worker that dies during a deduction, at any step, loses no counted usage', () => {
  const trials = new ExplorationSet();
  for (const again of [true, false]) {
    trials.inEverySetup(
      (setup) => [
        { run: decideAction(1, X, setup.parameters) },
        mortalThread('a deduction', setup, again),
      ],
      (ending, { used }) => {
        const deducted = ending.deaths === 0 || again ? 1 : 0;
        const minimum = used + countAllowed(ending, 0) + deducted;
        const more = usageNow(ending, X) - minimum;
        assertEnding(ending, {
          'all threads end': ending.stuck.length === 0,
          'no partial counter is found': hasOnlyKnownCounters(ending),
          'all usage is counted, at most once more per death': more >= 0 && more <= ending.deaths,
        });
      },
      again ? isInQuickSet : undefined,
    );
  }
  trials.record('P1', 'a worker dies during a deduction, at every step');
});

test('a GCRA counter allows its last token once, and loses no usage when a worker dies', () => {
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
    assertEnding(ending, {
      'one check is allowed': countAllowed(ending, 0, 1) === 1,
      'the allowed token is counted': usedTokens(ending) === 10,
    });
  });
  for (const limit of [10, 7]) {
    const deduct = (owner: number) => deductAction(owner, X, bucket, NOW_MS);
    const worker = { run: deduct(2), isMortal: true, restart: afterLockRecovery(2, deduct(3)) };
    // 3 of 7 tokens per second equal 5 of 10 tokens, rounded up.
    const before = limit === 7 ? 5 : 3;
    trials.explore(prepared(limit, 3), [checks[0], worker], (ending) => {
      const more = usedTokens(ending) - before - countAllowed(ending, 0) - 1;
      // A change of the limit rounds a fraction of a token up to one token.
      const most = ending.deaths + (limit === 7 ? 1 : 0);
      assertEnding(ending, {
        'all usage is counted, at most once more per death': more >= 0 && more <= most,
      });
    });
  }
  trials.record('P1', 'a GCRA counter, and a worker that dies during a deduction, at every step');
});

test('a worker that dies while it inserts a counter or sweeps, at any step, changes no other counter', () => {
  const trials = new ExplorationSet();
  const insertion = 'a deduction of a new counter';
  for (const [name, again] of [
    [insertion, true],
    [insertion, false],
    ['a sweep', true],
  ] as const) {
    trials.inEverySetup(
      (setup) => [{ run: decideAction(1, X, setup.parameters) }, mortalThread(name, setup, again)],
      (ending, setup) => {
        assertEnding(ending, { 'no partial counter is found': hasOnlyKnownCounters(ending) });
        assertExact(ending, setup, [0]);
      },
      name === insertion && again ? isInQuickSet : undefined,
    );
  }
  trials.record('P1', 'a worker dies during an insert or a sweep, at every step');
});

test('a worker that dies during a reset, at any step, leaves the whole counter or none', () => {
  new ExplorationSet()
    .inEverySetup(
      (setup) => [
        { run: decideAction(1, X, setup.parameters) },
        mortalThread('a reset', setup, false),
      ],
      (ending, { used }) => {
        const is = usageNow(ending, X);
        assertEnding(ending, {
          'no partial counter is found': hasOnlyKnownCounters(ending),
          'a check within the limit is allowed': countAllowed(ending, 0) === 1,
          'the old counter is kept or removed as a whole': [0, 1, used + 1].includes(is),
        });
      },
    )
    .record('P2', 'a worker dies during a reset, at every step');
});

test('an acceptor that stops forever, at any step, lets no check exceed the limit', () => {
  new ExplorationSet()
    .inEverySetup(
      ({ parameters }) => [
        { run: decideAction(1, X, parameters), isMortal: true },
        { run: decideAction(2, X, parameters) },
      ],
      (ending, { used }) => {
        const more = usageNow(ending, X) - used;
        const isHeld = attachTable(ending).words[lockAt(0)] === 1;
        assertEnding(ending, {
          'the limit holds': countAllowed(ending, 0, 1) <= 1 && more <= 1,
          'every allowed check is counted': countAllowed(ending, 0, 1) <= more,
          'only its lock blocks other threads': ending.stuck.length === 0 || isHeld,
          'a live thread releases its lock': !isHeld || ending.deaths === 1,
        });
      },
    )
    .record('P1', 'an acceptor stops forever, at every step');
});

/** The window at OLD is exhausted, and the counter has expired at NOW_MS. */
const prepareExpiredCounter = () => prepareMemory((table) => consume(table, X, 3, OLD));

function assertWindowNotReopened(ending: FinalState, threads: number[]): void {
  for (const thread of threads) {
    const { allowed, window } = ending.results[thread] as DecisionResult;
    assertEnding(ending, { 'an exhausted window allows no check': !allowed || window >= WINDOW });
  }
}

test('a thread that was suspended after reading the clock reopens no exhausted window', () => {
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

test('of three checks for the last token one is allowed', () => {
  new ExplorationSet()
    .inEverySetup(
      ({ parameters }) => [1, 2, 3].map((owner) => ({ run: decideAction(owner, X, parameters) })),
      (ending, setup) => assertExact(ending, setup, [0, 1, 2]),
      isInQuickSet,
    )
    .record('P1', 'three checks for the last token');
});

test('of two checks for the last token during a sweep one is allowed', () => {
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

test('two checks and a worker that dies during a deduction: the limit holds, no usage is lost', () => {
  new ExplorationSet()
    .inEverySetup(
      (setup) => [
        { run: decideAction(1, X, setup.parameters) },
        mortalThread('a deduction', setup),
        { run: decideAction(4, X, setup.parameters) },
      ],
      (ending, { used }) => {
        const allowed = countAllowed(ending, 0, 2);
        const more = usageNow(ending, X) - used - allowed - 1;
        assertEnding(ending, {
          'all threads end': ending.stuck.length === 0,
          'no partial counter is found': hasOnlyKnownCounters(ending),
          'the limit holds': allowed <= 1,
          'all usage is counted, at most once more per death': more >= 0 && more <= ending.deaths,
        });
      },
      (name) => IS_LONG || name === 'in a new window, sliding',
    )
    .record('P1', 'two checks, and a worker that dies during a deduction');
});

test('a check with an old time, a sweep and an insert reopen no exhausted window', () => {
  const trials = new ExplorationSet();
  const actors = [
    { run: decideAction(1, X, fixedWindow(3), OLD) },
    { run: sweepAction(2) },
    { run: decideAction(3, Y, fixedWindow(1)) },
  ];
  trials.explore(prepareExpiredCounter(), actors, (ending) => {
    assertWindowNotReopened(ending, [0]);
    assertEnding(ending, { 'the new counter is counted': usageNow(ending, Y) === 1 });
  });
  trials.record('P1', 'a check with an old time, a sweep and an insert');
});

test('three batches with a cycle of counters: no deadlock, and one batch passes', () => {
  const trials = new ExplorationSet();
  const ids = [0, 1, 2].map((group) => ({ id: testIdentity(1, group, 3), ...fixedWindow(1) }));
  const actors = [0, 1, 2].map((first) => {
    return { run: decideBatchAction(first + 1, [ids[first], ids[(first + 1) % 3]]) };
  });
  trials.explore(
    prepareMemory(() => {}, 3),
    actors,
    (ending) => {
      const results = ending.results as ({ passed: boolean } | undefined)[];
      assertEnding(ending, {
        'all threads end': ending.stuck.length === 0,
        'one batch passes': results.filter((result) => result?.passed).length === 1,
        'all or nothing is counted':
          ids.reduce((sum, { id }) => sum + usageNow(ending, id), 0) === 2,
      });
    },
  );
  trials.record('P1', 'three batches with a cycle of counters');
});
