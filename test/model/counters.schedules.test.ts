/**
 * Explores schedules of threads on one counter table, with the real code: two threads in every
 * order, three threads with up to three preemptions. Threads may also stop forever at any step.
 */

import { expect, test, vi } from 'vitest';
import { DEDUCTION_OUTCOME, newDecision } from '../../src/core/decision.ts';
import { RULE } from '../../src/core/window-rules.ts';
import { lockAt } from '../../src/engine/table/layout.ts';
import { gcra } from '../../src/engine/windows/gcra.ts';
import { counterKey } from '../../src/engine/windows/registry.ts';
import { newCells } from '../../src/engine/windows/rule.ts';
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
  removeNamespaceAction,
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
import { explore, type FinalState, type ModelMemory, type ModelThread } from './explorer.ts';

const EVERY_ORDER = Number.POSITIVE_INFINITY;
vi.setConfig({ testTimeout: 600_000 });

/** The maximum number of preemptions in schedules of three threads. */
const PREEMPTIONS_OF_THREE = 3;
/** Tests with the most schedules explore every setup only in the long form. */
const isInQuickSet = (name: string) =>
  IS_LONG ||
  ['in a new window, sliding', 'as a new counter in the slot of an expired one'].includes(name);
const OLD = NOW_MS - 2 * WINDOW_MS;

/** A thread, or what it runs. */
type Actor = ModelThread | ModelThread['run'];

class ExplorationSet {
  #states = 0;
  #endings = 0;

  explore(memory: ModelMemory, actors: Actor[], check: (ending: FinalState) => void): void {
    const threads = actors.map((actor) => (typeof actor === 'function' ? { run: actor } : actor));
    const isMortal = threads.some((thread: ModelThread) => thread.isMortal);
    const three = isMortal && !IS_LONG ? PREEMPTIONS_OF_THREE - 1 : PREEMPTIONS_OF_THREE;
    const preemptions = threads.length > 2 ? three : EVERY_ORDER;
    const explored = explore({ memories: [memory], threads, preemptions }, check);
    this.#states += explored.states;
    this.#endings += explored.endings;
  }

  /** Explores with one token of X left, in every setup of the table. */
  inEverySetup(
    actors: (setup: CounterSetup) => Actor[],
    check: (ending: FinalState, setup: CounterSetup) => void,
    only: (name: string) => boolean = () => true,
  ): void {
    for (const [name, prepare] of Object.entries(SETUPS).filter(([name]) => only(name))) {
      const setup = prepare();
      try {
        this.explore(setup.memory, actors(setup), (ending) => check(ending, setup));
      } catch (error) {
        if (error instanceof Error) error.message = `${name}: ${error.message}`;
        throw error;
      }
    }
  }

  get result(): string {
    expect(this.#endings).toBeGreaterThan(0);
    return `${this.#states} states, ${this.#endings} endings`;
  }
}

/** A test of several explorations, which are recorded as one measurement. */
function schedules(
  name: string,
  runAll: (trials: ExplorationSet) => void,
  promise: GuaranteeName = 'P1',
): void {
  test(name, () => {
    const trials = new ExplorationSet();
    runAll(trials);
    recordMeasurement(promise, name, trials.result, '0 broken');
  });
}

/** All threads end, one check is allowed, and all usage is counted. */
function assertExact(ending: FinalState, { used }: CounterSetup, checks: number[]): void {
  assertEnding(ending, {
    'all threads end': ending.stuck.length === 0,
    'one check is allowed': countAllowed(ending, ...checks) === 1,
    'all usage is counted': usageNow(ending, X) === used + 1,
  });
}

schedules('of two checks for the last token one is allowed and counted', (trials) => {
  trials.inEverySetup(
    ({ parameters }) => [decideAction(1, X, parameters), decideAction(2, X, parameters)],
    (ending, setup) => assertExact(ending, setup, [0, 1]),
  );
});

schedules(
  'two new counters get a slot each',
  (trials) => {
    const long = fixedWindow(1, 1, 2 * WINDOW_MS);
    for (const name of Object.keys(SETUPS).filter((name) => name.startsWith('as a new counter'))) {
      for (const [id, terms] of [
        [Y, fixedWindow(1)],
        [X, long],
      ] as const) {
        const actors = [decideAction(1, X, fixedWindow(1)), decideAction(2, id, terms)];
        trials.explore(SETUPS[name]().memory, actors, (ending) => {
          const used = [usageNow(ending, X), usageNow(ending, id, terms.durationMs)];
          assertEnding(ending, {
            'both are allowed': countAllowed(ending, 0, 1) === 2,
            'both are counted': used.join() === '1,1',
          });
        });
      }
    }
  },
  'P2',
);

schedules('a deduction and a sweep: the deduction is applied and counted', (trials) => {
  trials.inEverySetup(
    ({ parameters }) => [deductAction(1, X, parameters), sweepAction(2)],
    (ending, { used }) => {
      assertEnding(ending, {
        'the deduction is applied': ending.results[0] !== DEDUCTION_OUTCOME.windowEnded,
        'the deduction is counted': usageNow(ending, X) === used + 1,
      });
    },
  );
});

schedules('the removal of another namespace changes no decision and no counter', (trials) => {
  trials.inEverySetup(
    ({ parameters }) => [
      decideAction(1, X, parameters),
      deductAction(2, Y, fixedWindow(5)),
      removeNamespaceAction(Y),
    ],
    (ending, { used }) => {
      assertEnding(ending, {
        'no partial counter is found': hasOnlyKnownCounters(ending),
        'the check is counted':
          usageNow(ending, X) === used + Number(countAllowed(ending, 0) === 1),
        'the check within the limit is allowed': countAllowed(ending, 0) === 1,
        'a counter of the namespace is left or removed as a whole': [0, 1].includes(
          usageNow(ending, Y),
        ),
      });
    },
    isInQuickSet,
  );
});

schedules('the removal of a namespace leaves a late check of it whole, or removes it', (trials) => {
  trials.inEverySetup(
    ({ parameters }) => [decideAction(1, X, parameters), removeNamespaceAction(X)],
    (ending, { used }) => {
      const is = usageNow(ending, X);
      assertEnding(ending, {
        'no partial counter is found': hasOnlyKnownCounters(ending),
        'the check is allowed': countAllowed(ending, 0) === 1,
        'its counter is left or removed as a whole': [0, 1, used + 1].includes(is),
      });
    },
  );
});

schedules('a check, and a deduction in the window before it, are both counted', (trials) => {
  const { memory } = SETUPS['in a new window, sliding']();
  const late = deductAction(2, X, slidingWindow(3, 2), WINDOW - 1);
  trials.explore(memory, [decideAction(1, X, slidingWindow(3)), late], (ending) => {
    const { newest, current, previous } = readCounter(ending, X)!;
    assertEnding(ending, {
      'the deduction is counted in its window': (newest === WINDOW ? previous : current) === 6,
      'the check is counted in its window': usageNow(ending, X) === countAllowed(ending, 0),
    });
  });
});

schedules('a check and a refund or reset have the result of one order', (trials) => {
  const exhausted = prepareMemory((table) => consume(table, X, 5, NOW_MS));
  const check = decideAction(1, X, fixedWindow(5, 2));
  const refund = tableAction(2, (table) =>
    table.refund(X, RULE.fixed, WINDOW_MS, WINDOW, 2, NOW_MS),
  );
  const outcomes = new Set<string>();
  const addOutcome = (ending: FinalState) => {
    outcomes.add([ending.results[1], countAllowed(ending, 0), usageNow(ending, X)].join());
  };
  trials.explore(exhausted, [check, refund], addOutcome);
  expect([...outcomes].sort()).toEqual(['2,0,3', '2,1,5']);
  outcomes.clear();
  const reset = tableAction(2, (table) => table.reset(X, NOW_MS, undefined));
  trials.explore(exhausted, [check, reset], addOutcome);
  expect([...outcomes].sort()).toEqual(['1,0,0', '1,1,2']);
  outcomes.clear();
  const deduction = deductAction(1, X, fixedWindow(5));
  trials.explore(exhausted, [deduction, reset], addOutcome);
  expect([...outcomes].sort()).toEqual(['1,0,0', '1,0,1']);
});

schedules('a peek during a write is from before the write, or has no result', (trials) => {
  const writers = [decideAction, deductAction, (owner: number) => sweepAction(owner)];
  for (const writer of writers) {
    trials.inEverySetup(
      ({ parameters }) => [
        tableAction(1, (table) => peek(table, X, parameters)),
        writer(2, X, parameters),
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
        tableAction(1, (table) => peek(table, X, { ...parameters, limit: parameters.limit - 1 })),
        writer(2, X, parameters),
      ],
      (ending) =>
        assertEnding(ending, { 'the peek returns no decision': ending.results[0] === undefined }),
    );
  }
});

schedules('a peek with an old time misses at most the carried usage', (trials) => {
  const { memory } = SETUPS['in a new window, sliding']();
  // The old window has 4 used and 3 carried: 4 + 3 + 1 before the write, 1 + 4 + 1 after it.
  const answers = (limit: number) => {
    const seen = new Set<boolean>();
    const peekAction = tableAction(1, (table) =>
      peek(table, X, slidingWindow(limit), NOW_MS - WINDOW_MS),
    );
    trials.explore(memory, [peekAction, decideAction(2, X, slidingWindow(3))], ({ results }) => {
      seen.add(results[0] !== undefined);
    });
    return [...seen].sort();
  };
  expect(answers(4)).toEqual([false]);
  expect(answers(5)).toEqual([false, true]);
});

schedules('a peek allows no check of an exhausted counter until it is removed', (trials) => {
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
    trials.explore(memories[i], [peekAction(X), writer], (ending) => {
      assertEnding(ending, { 'the peek returns no decision': !ending.events.includes('stored') });
    });
    for (const mixed of mixedIdentities) {
      trials.explore(memories[i], [peekAction(mixed), writer], (ending) => {
        assertEnding(ending, {
          'an identity without a counter is not found': ending.events.length === 0,
        });
      });
    }
  }
});

schedules('batches count all or nothing, and no check sees a part of one', (trials) => {
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
    const both = decideBatchAction(1, [checkA, checkB]);

    const reverse = decideBatchAction(2, [checkB, checkA]);
    trials.explore(counters(), [both, reverse], (ending) => {
      assertEnding(ending, {
        'one batch or check passes': passed(ending, 0) !== passed(ending, 1),
        'the whole batch is counted': counted(ending).join() === '1,1',
      });
    });

    for (const [i, id] of [a, b].entries()) {
      trials.explore(counters(), [both, decideAction(2, id, terms)], (ending) => {
        assertEnding(ending, {
          'one batch or check passes': passed(ending, 0) === (countAllowed(ending, 1) === 0),
        });
        const expected = [0, 1].map((n) => (passed(ending, 0) || n === i ? 1 : 0));
        const is = counted(ending);
        assertEnding(ending, { 'all or nothing is counted': is.join() === expected.join() });
      });
    }

    const [seeA, seeB] = [checkA, checkB].map((check) => ({ ...check, cost: 0 }));
    trials.explore(counters(), [both, decideBatchAction(2, [seeB, seeA])], (ending) => {
      passed(ending, 0);
      const { remaining } = ending.results[1] as { remaining: number[] };
      assertEnding(ending, {
        'no check sees a part of the batch': remaining[0] === remaining[1],
      });
    });

    for (const [first, second] of [
      [a, b],
      [b, a],
    ]) {
      const seeing = { ...terms, cost: 0 };
      const oneByOne = tableAction(2, (table) => {
        return [decide(table, first, seeing), decide(table, second, seeing)];
      });
      trials.explore(counters(), [both, oneByOne], (ending) => {
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
  const checks = [a, b].map((id) => ({ id, ...fixedWindow(1) }));
  const both = decideBatchAction(1, checks);
  trials.explore(full, [both, decideAction(2, a, fixedWindow(1))], (ending) => {
    assertEnding(ending, {
      'the batch is denied': !passed(ending, 0) && countAllowed(ending, 1) === 1,
      'the single check is counted': usageNow(ending, a) === 1,
      'the batch counts nothing': usageNow(ending, b) === 0,
    });
  });
});

/** The operations during which a worker may die. */
const WORK: Record<string, (owner: number, setup: CounterSetup) => ModelThread['run']> = {
  'a deduction': (owner, { parameters }) => deductAction(owner, X, parameters),
  'a deduction of a new counter': (owner) => deductAction(owner, Y, fixedWindow(1)),
  'a sweep': (owner) => sweepAction(owner),
  'a reset': (owner) => tableAction(owner, (table) => table.reset(X, NOW_MS, undefined)),
};

/**
 * A worker that may also live: its test is one of both threads without a fault, too.
 * @param again whether the restarted worker repeats the operation, as with a queue entry
 */
const mortalThread = (name: string, setup: CounterSetup, again = true): ModelThread => ({
  run: WORK[name](2, setup),
  isMortal: true,
  restart: afterLockRecovery(2, again ? WORK[name](3, setup) : () => undefined),
});

schedules('a worker that dies during a deduction loses no counted usage', (trials) => {
  for (const again of [true, false]) {
    trials.inEverySetup(
      (setup) => [decideAction(1, X, setup.parameters), mortalThread('a deduction', setup, again)],
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
});

schedules('a GCRA counter allows its last token once, also if a worker dies', (trials) => {
  const bucket = { ...fixedWindow(10), rule: RULE.gcra };
  const usedTokens = (ending: FinalState) => {
    const cells = readCounter(ending, X, counterKey(RULE.gcra, WINDOW_MS));
    return gcra.usage(cells ?? newCells(), WINDOW_MS, NOW_MS).used;
  };
  const prepared = (limit: number, cost: number) =>
    prepareMemory((table) => {
      decide(table, X, { ...bucket, limit, cost });
    });
  const checks = [1, 2].map((owner) => decideAction(owner, X, bucket));
  trials.explore(prepared(10, 9), checks, (ending) => {
    assertEnding(ending, {
      'one check is allowed': countAllowed(ending, 0, 1) === 1,
      'the allowed token is counted': usedTokens(ending) === 10,
    });
  });
  for (const limit of [10, 7]) {
    const deduct = (owner: number) => deductAction(owner, X, bucket, NOW_MS);
    const worker = { run: deduct(2), isMortal: true, restart: afterLockRecovery(2, deduct(3)) };
    trials.explore(prepared(limit, 3), [checks[0], worker], (ending) => {
      const more = usedTokens(ending) - 3 - countAllowed(ending, 0) - 1;
      // A death while the limit changes leaves the larger one: 3 tokens of 7 are then 5 of 10.
      const most = ending.deaths * (limit === 7 ? 3 : 1);
      assertEnding(ending, {
        'all usage is counted, at most once more per death': more >= 0 && more <= most,
      });
    });
  }
});

schedules('a worker that dies during an insert or a sweep changes nothing else', (trials) => {
  const insertion = 'a deduction of a new counter';
  for (const [name, again] of [
    [insertion, true],
    [insertion, false],
    ['a sweep', true],
  ] as const) {
    trials.inEverySetup(
      (setup) => [decideAction(1, X, setup.parameters), mortalThread(name, setup, again)],
      (ending, setup) => {
        assertEnding(ending, { 'no partial counter is found': hasOnlyKnownCounters(ending) });
        assertExact(ending, setup, [0]);
      },
      name === insertion && again ? isInQuickSet : undefined,
    );
  }
});

schedules(
  'a worker that dies during a reset leaves the counter or none',
  (trials) => {
    trials.inEverySetup(
      (setup) => [decideAction(1, X, setup.parameters), mortalThread('a reset', setup, false)],
      (ending, { used }) => {
        const is = usageNow(ending, X);
        assertEnding(ending, {
          'no partial counter is found': hasOnlyKnownCounters(ending),
          'a check within the limit is allowed': countAllowed(ending, 0) === 1,
          'the old counter is kept or removed as a whole': [0, 1, used + 1].includes(is),
        });
      },
    );
  },
  'P2',
);

schedules('an acceptor that stops forever lets no check exceed the limit', (trials) => {
  trials.inEverySetup(
    ({ parameters }) => [
      { run: decideAction(1, X, parameters), isMortal: true },
      decideAction(2, X, parameters),
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
  );
});

schedules('a thread with an old time reopens no exhausted window', (trials) => {
  const others = [
    sweepAction(2),
    decideAction(2, Y, fixedWindow(1)),
    deductAction(2, Y, fixedWindow(1)),
    decideBatchAction(2, [{ id: X, ...fixedWindow(1) }]),
    tableAction(2, (table) => table.reset(Y, NOW_MS, undefined)),
  ];
  for (const other of others) {
    for (const terms of [fixedWindow(3), slidingWindow(3)]) {
      const actors = [decideAction(1, X, terms, OLD), other];
      const expired = prepareMemory((table) => consume(table, X, 3, OLD));
      trials.explore(expired, actors, (ending) => {
        const { allowed, window } = ending.results[0] as DecisionResult;
        assertEnding(ending, {
          'an exhausted window allows no check': !allowed || window >= WINDOW,
        });
      });
    }
  }
});

schedules('of three checks for the last token one is allowed', (trials) => {
  trials.inEverySetup(
    ({ parameters }) => [1, 2, 3].map((owner) => decideAction(owner, X, parameters)),
    (ending, setup) => assertExact(ending, setup, [0, 1, 2]),
    isInQuickSet,
  );
});

schedules('two checks, and a worker that dies: the limit holds, no usage is lost', (trials) => {
  trials.inEverySetup(
    (setup) => [
      decideAction(1, X, setup.parameters),
      mortalThread('a deduction', setup),
      decideAction(4, X, setup.parameters),
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
  );
});
