/**
 * Counters in their table, on the real code: two threads in every order, three with up to three
 * interruptions; and threads that stop for ever at any point.
 */

import { expect, test, vi } from 'vitest';
import { DEDUCTION, newDecision } from '../../src/counters/decision.ts';
import { lockOf } from '../../src/counters/layout.ts';
import { figure, IS_LONG, type PromiseName } from '../faults/promises.ts';
import {
  admitted,
  counterOf,
  decide,
  decides,
  decidesTogether,
  deducts,
  does,
  fixed,
  identity,
  isNobodyElse,
  look,
  must,
  NOW,
  OTHERS,
  prepared,
  SETUPS,
  type Setup,
  sliding,
  spend,
  sweeps,
  type Told,
  tableOf,
  thenAgain,
  told,
  usedNow,
  WINDOW,
  WINDOW_MS,
  X,
  Y,
} from '../support/counter-schedules.ts';
import {
  type Actor,
  type Ending,
  type Explored,
  explore,
  type Shared,
} from '../support/schedules.ts';
import type { Made } from '../support/together.ts';

const EVERY_ORDER = Number.POSITIVE_INFINITY;
vi.setConfig({ testTimeout: 600_000 });

/** How often one of three threads is interrupted, at most. */
const THREE = 3;
/** Where there are most orders, only the long form tries them in every setup. */
const isTried = (name: string) =>
  IS_LONG ||
  ['in a new window, sliding', 'as a newcomer in the place of an expired one'].includes(name);
const OLD = NOW - 2 * WINDOW_MS;

/** Explores, and is to be summed up as one figure. */
class Trials {
  #states = 0;
  #endings = 0;

  of(memory: Shared, actors: Actor[], check: (ending: Ending) => void): Explored {
    const isMortal = actors.some(({ isMortal }) => isMortal);
    const three = isMortal && !IS_LONG ? THREE - 1 : THREE;
    const preemptions = actors.length > 2 ? three : EVERY_ORDER;
    const explored = explore({ memories: [memory], actors, preemptions }, check);
    this.#states += explored.states;
    this.#endings += explored.endings;
    return explored;
  }

  /** The same on the last token of X, however it lies in the table. */
  inEverySetup(
    actors: (setup: Setup) => Actor[],
    check: (ending: Ending, setup: Setup) => void,
    only: (name: string) => boolean = () => true,
  ): this {
    for (const [name, prepare] of Object.entries(SETUPS).filter(([name]) => only(name))) {
      const setup = prepare();
      try {
        this.of(setup.memory, actors(setup), (ending) => check(ending, setup));
      } catch (error) {
        if (error instanceof Error) error.message = `${name}: ${error.message}`;
        throw error;
      }
    }
    return this;
  }

  note(promise: PromiseName, fault: string): void {
    expect(this.#endings).toBeGreaterThan(0);
    figure(promise, fault, `${this.#states} states, ${this.#endings} endings`, '0 broken');
  }
}

const seen = (ending: Ending, id = X) => [told(ending), counterOf(ending, id)];

/** All threads come to their end, one check was admitted, and all is counted that has to be. */
function mustBeExact(ending: Ending, { used }: Setup, checks: number[], more = 0): void {
  must(ending.stuck.length === 0, 'all end', seen(ending));
  must(admitted(ending, ...checks) === 1, 'one is admitted', seen(ending));
  must(usedNow(ending, X) === used + 1 + more, 'all is counted', seen(ending));
}

test('of two checks for the last token one is admitted, and it is counted once', () => {
  new Trials()
    .inEverySetup(
      ({ terms }) => [{ run: decides(1, X, terms) }, { run: decides(2, X, terms) }],
      (ending, setup) => mustBeExact(ending, setup, [0, 1]),
    )
    .note('P1', 'two checks for the last token, every order');
});

test('two newcomers each have a counter, also where they differ in their duration only', () => {
  const trials = new Trials();
  const long = fixed(1, 1, 2 * WINDOW_MS);
  for (const name of Object.keys(SETUPS).filter((name) => name.startsWith('as a newcomer'))) {
    for (const [id, terms] of [
      [Y, fixed(1)],
      [X, long],
    ] as const) {
      const actors = [{ run: decides(1, X, fixed(1)) }, { run: decides(2, id, terms) }];
      trials.of(SETUPS[name]().memory, actors, (ending) => {
        const used = [usedNow(ending, X), usedNow(ending, id, terms.durationMs)];
        must(admitted(ending, 0, 1) === 2, 'both are admitted', told(ending));
        must(used.join() === '1,1', 'both are counted', used);
      });
    }
  }
  trials.note('P2', 'two newcomers for one place, every order');
});

test('a check and a sweep: nothing is counted in a place that is emptied, nothing is lost', () => {
  new Trials()
    .inEverySetup(
      ({ terms }) => [{ run: decides(1, X, terms) }, { run: sweeps(2) }],
      (ending, setup) => mustBeExact(ending, setup, [0]),
    )
    .note('P1', 'a check and a sweep, every order');
});

test('a deduction and a sweep: nothing is lost', () => {
  new Trials()
    .inEverySetup(
      ({ terms }) => [{ run: deducts(1, X, terms) }, { run: sweeps(2) }],
      (ending, { used }) => {
        must(ending.results[0] !== DEDUCTION.past, 'it is made', seen(ending));
        must(usedNow(ending, X) === used + 1, 'it is counted', seen(ending));
      },
    )
    .note('P1', 'a deduction and a sweep, every order');
});

test('a check and a deduction are both counted, and the check sees it or comes before', () => {
  const trials = new Trials().inEverySetup(
    ({ terms }) => [{ run: decides(1, X, terms) }, { run: deducts(2, X, terms) }],
    (ending, { used }) => {
      const all = used + 1 + admitted(ending, 0);
      must(ending.stuck.length === 0, 'all end', seen(ending));
      must(usedNow(ending, X) === all, 'all is counted', seen(ending));
    },
  );
  // In the window before, which is carried over.
  const { memory } = SETUPS['in a new window, sliding']();
  const late = deducts(2, X, sliding(3, 2), WINDOW - 1);
  trials.of(memory, [{ run: decides(1, X, sliding(3)) }, { run: late }], (ending) => {
    const { newest, current, previous } = counterOf(ending, X)!;
    const before = newest === WINDOW ? previous : current;
    must(before === 6, 'it is counted in its window', seen(ending));
    must(usedNow(ending, X) === admitted(ending, 0), 'so is the check', seen(ending));
  });
  trials.note('P1', 'a check and a deduction, every order');
});

test('a check, and a refund or a reset: one comes before the other', () => {
  const trials = new Trials();
  const spent = prepared((table) => spend(table, X, 5, NOW));
  const check = { run: decides(1, X, fixed(5, 2)) };
  const refund = does(2, (table) => table.refund(X, NOW, WINDOW, WINDOW_MS, 2));
  const outcomes = new Set<string>();
  const note = (ending: Ending) => {
    outcomes.add([ending.results[1], admitted(ending, 0), usedNow(ending, X)].join());
  };
  trials.of(spent, [check, { run: refund }], note);
  expect([...outcomes].sort()).toEqual(['2,0,3', '2,1,5']);
  outcomes.clear();
  const reset = does(2, (table) => table.reset(X, NOW, undefined));
  trials.of(spent, [check, { run: reset }], note);
  expect([...outcomes].sort()).toEqual(['1,0,0', '1,1,2']);
  outcomes.clear();
  const deduction = { run: deducts(1, X, fixed(5)) };
  trials.of(spent, [deduction, { run: reset }], note);
  expect([...outcomes].sort()).toEqual(['1,0,0', '1,0,1']);
  trials.note('P1', 'a check, and a refund or a reset, every order');
});

test('a look says of a counter that is being written what it was, or nothing', () => {
  const trials = new Trials();
  const writers = [decides, deducts, (owner: number) => sweeps(owner)];
  for (const writer of writers) {
    trials.inEverySetup(
      ({ terms }) => [
        { run: does(1, (table) => look(table, X, terms)) },
        { run: writer(2, X, terms) },
      ],
      (ending, { terms }) => {
        const answer = ending.results[0] as Told | undefined;
        if (answer === undefined) return;
        const isAsBefore = answer.admitted && answer.remaining === 0 && answer.window === WINDOW;
        must(isAsBefore, 'it is as before', terms, seen(ending));
      },
      (name) => name.startsWith('in') || name.startsWith('two'),
    );
    // Where it would be refused before and behind, it is never admitted.
    trials.inEverySetup(
      ({ terms }) => [
        { run: does(1, (table) => look(table, X, { ...terms, limit: terms.limit - 1 })) },
        { run: writer(2, X, terms) },
      ],
      (ending) => must(ending.results[0] === undefined, 'it is no answer', seen(ending)),
    );
  }
  trials.note('P1', 'a look while its counter is written, every order');
});

test('a look with an old time, while a window is opened, misses at most what was carried', () => {
  const trials = new Trials();
  const { memory } = SETUPS['in a new window, sliding']();
  // 4 were used in the window before, and 3 are carried there: 4 + 3 + 1, or 1 + 4 + 1 behind it.
  const answers = (limit: number) => {
    const seen = new Set<boolean>();
    const looks = does(1, (table) => look(table, X, sliding(limit), NOW - WINDOW_MS));
    trials.of(memory, [{ run: looks }, { run: decides(2, X, sliding(3)) }], ({ results }) => {
      seen.add(results[0] !== undefined);
    });
    return [...seen].sort();
  };
  expect(answers(4)).toEqual([false]);
  expect(answers(5)).toEqual([false, true]);
  trials.note('P1', 'a look with an old time, every order');
});

test('a look admits what its counter has not only where that makes room for another', () => {
  const trials = new Trials();
  // Of two that meet in one place, the tag of one and words of the other.
  const strangers: Made[] = [
    { ...Y, h3: X.h3, h1: 77 },
    { ...X, h3: Y.h3 },
  ];
  const displaced = () =>
    prepared((table) => {
      spend(table, X, 1, NOW, 100);
      for (const id of OTHERS.slice(1)) spend(table, id, 9, NOW, 10);
    });
  const newcomer = does(2, (table) => {
    table.decide(Y, 2, NOW, fixed(1), false, newDecision());
  });
  const instead = does(2, (table) => {
    table.reset(X, NOW, undefined);
    table.decide(Y, 2, NOW, fixed(1), false, newDecision());
  });
  const memories = [displaced(), prepared((table) => spend(table, X, 1, NOW, 100))];
  for (const [i, writer] of [newcomer, instead].entries()) {
    const looks = (id: Made): Actor => ({
      run: (world) => {
        const answer = look(tableOf(world, 1), id, fixed(1));
        if (answer === undefined) return;
        world.event((memories) => (counterOf({ memories }, X) === undefined ? 'gone' : 'there'));
      },
    });
    trials.of(memories[i], [looks(X), { run: writer }], (ending) => {
      must(!ending.events.includes('there'), 'it is no answer', told(ending));
    });
    for (const stranger of strangers) {
      trials.of(memories[i], [looks(stranger), { run: writer }], (ending) => {
        must(ending.events.length === 0, 'who has no counter is not found', told(ending));
      });
    }
  }
  trials.note('P1', 'a look while its counter makes room, every order');
});

test('checks together: no deadlock, all or nothing, and nobody sees a part', () => {
  const trials = new Trials();
  const [a, b] = [identity(1, 0, 2), identity(1, 1, 2)];
  const passed = (ending: Ending, thread: number) => {
    must(ending.stuck.length === 0, 'all end', told(ending));
    return (ending.results[thread] as { passed: boolean }).passed;
  };
  // Newcomers, and counters that are there: one more token fits into each.
  for (const used of [0, 1]) {
    const terms = fixed(used + 1);
    const counters = () =>
      prepared((table) => {
        for (const id of used === 0 ? [] : [a, b]) spend(table, id, used, NOW - 1);
      }, 2);
    const counted = (ending: Ending) => [usedNow(ending, a) - used, usedNow(ending, b) - used];
    const [checkA, checkB] = [a, b].map((id) => ({ id, ...terms }));
    const both = { run: decidesTogether(1, [checkA, checkB]) };

    const reverse = { run: decidesTogether(2, [checkB, checkA]) };
    trials.of(counters(), [both, reverse], (ending) => {
      must(passed(ending, 0) !== passed(ending, 1), 'one passes', told(ending));
      must(counted(ending).join() === '1,1', 'all of it is counted', counted(ending));
    });

    for (const [i, id] of [a, b].entries()) {
      trials.of(counters(), [both, { run: decides(2, id, terms) }], (ending) => {
        must(passed(ending, 0) === (admitted(ending, 1) === 0), 'one passes', told(ending));
        const expected = [0, 1].map((n) => (passed(ending, 0) || n === i ? 1 : 0));
        const is = counted(ending);
        must(is.join() === expected.join(), 'all or nothing', is, told(ending));
      });
    }

    const [seeA, seeB] = [checkA, checkB].map((check) => ({ ...check, cost: 0 }));
    trials.of(counters(), [both, { run: decidesTogether(2, [seeB, seeA]) }], (ending) => {
      passed(ending, 0);
      const { remaining } = ending.results[1] as { remaining: number[] };
      must(remaining[0] === remaining[1], 'nobody sees a part', told(ending));
    });

    for (const [first, second] of [
      [a, b],
      [b, a],
    ]) {
      const seeing = { ...terms, cost: 0 };
      const oneByOne = does(2, (table) => {
        return [decide(table, first, seeing), decide(table, second, seeing)];
      });
      trials.of(counters(), [both, { run: oneByOne }], (ending) => {
        const [before, behind] = ending.results[1] as Told[];
        must(before.remaining >= behind.remaining, 'nobody sees a part', told(ending));
      });
    }
  }

  // The second finds no room, so the first is taken back.
  const full = prepared((table) => {
    for (let h3 = 100; h3 < 116; h3++) {
      spend(table, identity(h3, 1, 2), 1, NOW, 1);
      decide(table, identity(h3, 1, 2), fixed(1));
    }
  }, 2);
  const both = {
    run: decidesTogether(
      1,
      [a, b].map((id) => ({ id, ...fixed(1) })),
    ),
  };
  trials.of(full, [both, { run: decides(2, a, fixed(1)) }], (ending) => {
    must(!passed(ending, 0) && admitted(ending, 1) === 1, 'nothing is taken', told(ending));
    must(usedNow(ending, a) === 1, 'it is counted', told(ending));
    must(usedNow(ending, b) === 0, 'nothing is left', told(ending));
  });
  trials.note('P1', 'checks together in opposite order, every order');
});

/** What a worker may be at when it dies. */
const WORK: Record<string, (owner: number, setup: Setup) => Actor['run']> = {
  'a deduction': (owner, { terms }) => deducts(owner, X, terms),
  'a deduction of a newcomer': (owner) => deducts(owner, Y, fixed(1)),
  'a sweep': (owner) => sweeps(owner),
  'a reset': (owner) => does(owner, (table) => table.reset(X, NOW, undefined)),
};

/** @param again whether the next run does it again, as it does with what it finds in a ring */
const dies = (name: string, setup: Setup, again = true): Actor => ({
  run: WORK[name](2, setup),
  isMortal: true,
  successor: thenAgain(2, again ? WORK[name](3, setup) : () => undefined),
});

test('a worker that dies over a deduction, at any point, leaves no less than was counted', () => {
  const trials = new Trials();
  for (const again of [true, false]) {
    trials.inEverySetup(
      (setup) => [{ run: decides(1, X, setup.terms) }, dies('a deduction', setup, again)],
      (ending, { used }) => {
        must(ending.stuck.length === 0, 'all end', seen(ending));
        must(isNobodyElse(ending), 'no half of a counter is found', seen(ending));
        const done = ending.deaths === 0 || again ? 1 : 0;
        const least = used + admitted(ending, 0) + done;
        const more = usedNow(ending, X) - least;
        must(more >= 0 && more <= ending.deaths, 'it is counted', more, seen(ending));
      },
      again ? isTried : undefined,
    );
  }
  trials.note('P1', 'a worker dies over a deduction, at every step');
});

test('a worker that dies over another counter or a sweep, at any point, does no harm', () => {
  const trials = new Trials();
  const newcomer = 'a deduction of a newcomer';
  for (const [name, again] of [
    [newcomer, true],
    [newcomer, false],
    ['a sweep', true],
  ] as const) {
    trials.inEverySetup(
      (setup) => [{ run: decides(1, X, setup.terms) }, dies(name, setup, again)],
      (ending, setup) => {
        must(isNobodyElse(ending), 'no half of a counter is found', seen(ending));
        mustBeExact(ending, setup, [0]);
      },
      name === newcomer && again ? isTried : undefined,
    );
  }
  trials.note('P1', 'a worker dies over a newcomer or a sweep, at every step');
});

test('a worker that dies over a reset, at any point, leaves the counter or none', () => {
  new Trials()
    .inEverySetup(
      (setup) => [{ run: decides(1, X, setup.terms) }, dies('a reset', setup, false)],
      (ending, { used }) => {
        must(isNobodyElse(ending), 'no half of a counter is found', seen(ending));
        must(admitted(ending, 0) === 1, 'what fits is admitted', seen(ending));
        const is = usedNow(ending, X);
        must([0, 1, used + 1].includes(is), 'it is there or not', is, seen(ending));
      },
    )
    .note('P2', 'a worker dies over a reset, at every step');
});

test('an acceptor that stops for ever, at any point: nobody is admitted beyond the limit', () => {
  new Trials()
    .inEverySetup(
      ({ terms }) => [{ run: decides(1, X, terms), isMortal: true }, { run: decides(2, X, terms) }],
      (ending, { used }) => {
        const more = usedNow(ending, X) - used;
        must(admitted(ending, 0, 1) <= 1 && more <= 1, 'no more than fits', seen(ending));
        must(admitted(ending, 0, 1) <= more, 'what was admitted is counted', seen(ending));
        const isHeld = tableOf(ending).words[lockOf(0)] === 1;
        must(ending.stuck.length === 0 || isHeld, 'only its lock stops others', seen(ending));
        must(!isHeld || ending.deaths === 1, 'a lock is given back', seen(ending));
      },
    )
    .note('P1', 'an acceptor stops for ever, at every step');
});

/** The window of OLD is spent, and the counter has expired at NOW. */
const spentLongAgo = () => prepared((table) => spend(table, X, 3, OLD));

function mustNotOpenAnew(ending: Ending, threads: number[]): void {
  for (const thread of threads) {
    const { admitted, window } = ending.results[thread] as Told;
    must(!admitted || window >= WINDOW, 'a spent window stays so', seen(ending));
  }
}

test('a thread that was stopped since it read the clock opens no spent window anew', () => {
  const trials = new Trials();
  const others = [
    sweeps(2),
    decides(2, Y, fixed(1)),
    deducts(2, Y, fixed(1)),
    decidesTogether(2, [{ id: X, ...fixed(1) }]),
    does(2, (table) => table.reset(Y, NOW, undefined)),
  ];
  for (const other of others) {
    for (const terms of [fixed(3), sliding(3)]) {
      const actors = [{ run: decides(1, X, terms, OLD) }, { run: other }];
      trials.of(spentLongAgo(), actors, (ending) => mustNotOpenAnew(ending, [0]));
    }
  }
  trials.note('P1', 'a thread with an old time, every order');
});

test('three checks for the last token: one is admitted', () => {
  new Trials()
    .inEverySetup(
      ({ terms }) => [1, 2, 3].map((owner) => ({ run: decides(owner, X, terms) })),
      (ending, setup) => mustBeExact(ending, setup, [0, 1, 2]),
      isTried,
    )
    .note('P1', 'three checks for the last token');
});

test('two checks for the last token and a sweep: one is admitted', () => {
  new Trials()
    .inEverySetup(
      ({ terms }) => [
        { run: decides(1, X, terms) },
        { run: decides(2, X, terms) },
        { run: sweeps(3) },
      ],
      (ending, setup) => mustBeExact(ending, setup, [0, 1]),
      (name) => IS_LONG || name.startsWith('two windows later'),
    )
    .note('P1', 'two checks and a sweep');
});

test('two checks, and a worker that dies over a deduction: no more than fits, none forgotten', () => {
  new Trials()
    .inEverySetup(
      (setup) => [
        { run: decides(1, X, setup.terms) },
        dies('a deduction', setup),
        { run: decides(4, X, setup.terms) },
      ],
      (ending, { used }) => {
        must(ending.stuck.length === 0, 'all end', seen(ending));
        must(isNobodyElse(ending), 'no half of a counter is found', seen(ending));
        const of = admitted(ending, 0, 2);
        const more = usedNow(ending, X) - used - of - 1;
        must(of <= 1, 'no more than fits', seen(ending));
        must(more >= 0 && more <= ending.deaths, 'it is counted', more, seen(ending));
      },
      (name) => IS_LONG || name === 'in a new window, sliding',
    )
    .note('P1', 'two checks, and a worker that dies over a deduction');
});

test('an old time, a sweep and a newcomer: no spent window is opened anew', () => {
  const trials = new Trials();
  const actors = [
    { run: decides(1, X, fixed(3), OLD) },
    { run: sweeps(2) },
    { run: decides(3, Y, fixed(1)) },
  ];
  trials.of(spentLongAgo(), actors, (ending) => {
    mustNotOpenAnew(ending, [0]);
    must(usedNow(ending, Y) === 1, 'the newcomer is counted', seen(ending, Y));
  });
  trials.note('P1', 'an old time, a sweep and a newcomer');
});

test('three who decide together in a ring of orders: no deadlock, one passes', () => {
  const trials = new Trials();
  const ids = [0, 1, 2].map((group) => ({ id: identity(1, group, 3), ...fixed(1) }));
  const actors = [0, 1, 2].map((first) => {
    return { run: decidesTogether(first + 1, [ids[first], ids[(first + 1) % 3]]) };
  });
  trials.of(
    prepared(() => {}, 3),
    actors,
    (ending) => {
      must(ending.stuck.length === 0, 'all end', told(ending));
      const passed = (ending.results as { passed: boolean }[]).filter(({ passed }) => passed);
      must(passed.length === 1, 'one passes', told(ending));
      const used = ids.reduce((sum, { id }) => sum + usedNow(ending, id), 0);
      must(used === 2, 'all or nothing', used, told(ending));
    },
  );
  trials.note('P1', 'three who decide together in a ring of orders');
});
