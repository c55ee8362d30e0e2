/**
 * The protocols of rings and bells, on the real code: two threads in every order, three with a
 * few interruptions.
 */

import type { MessagePort } from 'node:worker_threads';
import { expect, test, vi } from 'vitest';
import { DEDUCTION } from '../../src/counters/decision.ts';
import type { CounterTable } from '../../src/counters/table.ts';
import { BELL, WORK, WORKER_LANE_BYTES, type WorkerLane } from '../../src/lanes.ts';
import { openDoor, sleep } from '../../src/shards/bell.ts';
import { Handoff } from '../../src/shards/handoff.ts';
import { Inbox } from '../../src/shards/inbox.ts';
import { DOOR, KIND, LINK_BYTES, REPLY } from '../../src/shards/layout.ts';
import { Consumer, Producer, REPLIES, type RingShape } from '../../src/shards/ring.ts';
import type { Clock } from '../../src/time.ts';
import { figure, IS_LONG } from '../faults/promises.ts';
import {
  type Actor,
  type Ending,
  type Explored,
  explore,
  type Shared,
  type World,
} from '../support/schedules.ts';

vi.setConfig({ testTimeout: 600_000 });

/** How often one of three threads is interrupted: less often where one may die, in the quick form. */
const preemptionsOf = (actors: Actor[]) => {
  if (IS_LONG) return 3;
  return actors.some(({ isMortal }) => isMortal) ? 1 : 2;
};

/** Rings as small as they can be full: two items of one word. */
const SMALL: RingShape = { head: 0, tail: 1, first: 2, size: 2, itemWords: 1 };

/** The links of so many acceptors with a worker, and behind them the words of its lane. */
function memories(acceptors = 1): Shared[] {
  const links = Array.from({ length: acceptors }, () => new SharedArrayBuffer(LINK_BYTES));
  const lane = new SharedArrayBuffer(WORKER_LANE_BYTES);
  return [...links, lane].map((buffer) => ({ buffer, waits: 'notified' }));
}

const laneOf = ({ memories }: World) => memories[memories.length - 1].words;

function handoffOf(world: World, acceptor = 0): Handoff {
  return new Handoff(world.memories[acceptor], { words: laneOf(world) } as unknown as WorkerLane);
}

const put = (handoff: Handoff, kind: number, cost: number) => {
  handoff.put(kind, { h0: 0, h1: 0, h2: 0, h3: 1 }, 0, 0, {
    limit: 1,
    durationMs: 1_000,
    cost,
    isSliding: false,
  });
};

/** An acceptor that hands over deductions, of so much each. */
const handOver =
  (costs: number[], acceptor = 0) =>
  (world: World): void => {
    const handoff = handoffOf(world, acceptor);
    for (const cost of costs) {
      put(handoff, KIND.deduction, cost);
      handoff.ring();
    }
  };

/** A worker whose table only notes what is done; it ends when it has seen these entries. */
const worker =
  (lasts: number[]) =>
  (world: World): void => {
    const lane = laneOf(world);
    const left = new Set(lasts);
    const noted = (what: string, cost: number) => {
      world.event(`${what} ${cost}`);
      left.delete(cost);
    };
    const table = {
      deduct: (...[, , , , { cost }]: Parameters<CounterTable['deduct']>) => {
        noted('deducted', cost);
        return DEDUCTION.applied;
      },
      decide: (...[, , , { cost }]: Parameters<CounterTable['decide']>) => noted('decided', cost),
    } as unknown as CounterTable;
    const figures = {
      add: (index: number) => {
        if (index === WORK.repeated) world.event('repeated');
        if (index === WORK.lost) world.event('lost');
      },
    } as unknown as WorkerLane;
    const clock = { nowMs: () => 0 } as unknown as Clock;
    const inboxes = world.memories.slice(0, -1).map((link, acceptor) => {
      const door = { postMessage: () => world.send(acceptor) } as unknown as MessagePort;
      return new Inbox(link, () => table, clock, figures, door);
    });
    while (left.size > 0) {
      let served = 0;
      for (const inbox of inboxes) served += inbox.serve(8);
      if (served > 0) continue;
      sleep(lane, BELL, 1, () => inboxes.some((inbox) => !inbox.isEmpty()));
    }
  };

/** An acceptor that hands over two checks and goes on until both are answered. */
const askTwo =
  (costs: number[], acceptor = 0) =>
  (world: World): void => {
    const handoff = handoffOf(world, acceptor);
    const { words } = world.memories[acceptor];
    const replies = new Consumer(world.memories[acceptor], REPLIES);
    let heard = 0;
    const drain = () => {
      openDoor(words, DOOR);
      for (; !replies.isEmpty(); replies.done()) {
        world.event(`answer ${acceptor} ${words[replies.item() + REPLY.number]}`);
        heard++;
      }
    };
    drain();
    for (const cost of costs) put(handoff, KIND.fixedCheck, cost);
    handoff.ring();
    while (heard < costs.length) {
      world.receive(acceptor);
      drain();
    }
  };

function exploreAll(actors: Actor[], acceptors: number, check: (ending: Ending) => void): Explored {
  const bound = actors.length > 2 ? { preemptions: preemptionsOf(actors) } : {};
  return explore({ memories: memories(acceptors), actors, ...bound }, check);
}

const count = (events: readonly string[], what: string) =>
  events.filter((event) => event === what).length;

/** What a dying worker leaves: at least each entry once, and one more for each death at most. */
function expectAtMostOneMore({ events, stuck, deaths }: Ending, costs: number[], worker: number) {
  const done = costs.map((cost) => count(events, `deducted ${cost}`));
  const extra = done.reduce((sum, times) => sum + times, 0) - costs.length;
  const isKept =
    Math.min(...done) >= 1 &&
    extra <= deaths &&
    // What was done twice was counted as repeated.
    extra <= count(events, 'repeated') &&
    count(events, 'lost') === 0 &&
    // A worker that had nothing left to do may have died behind it: its successor finds none.
    (stuck.length === 0 || (deaths === 1 && stuck.length === 1 && stuck[0] === worker));
  if (!isKept) expect({ events, stuck, deaths }).toBe('kept');
  return extra;
}

function note(fault: string, { states, endings }: Explored): void {
  figure('P3', fault, `${states} states, ${endings} endings`, '0 broken');
}

test('a ring loses and repeats nothing, and is never written over', () => {
  const explored = exploreAll(
    [
      {
        run: ({ memories: [memory], event }) => {
          const producer = new Producer(memory, SMALL);
          for (let value = 1; value <= 4; value++) {
            if (!producer.hasRoom()) event(`full ${value}`);
            else {
              memory.words[producer.slot()] = value;
              producer.publish();
              event(`put ${value}`);
            }
          }
        },
      },
      {
        run: ({ memories: [memory], event }) => {
          const consumer = new Consumer(memory, SMALL);
          for (let looks = 0; looks < 4; looks++) {
            if (consumer.isEmpty()) continue;
            event(`took ${memory.words[consumer.item()]}`);
            consumer.done();
          }
        },
      },
    ],
    1,
    ({ events, memories: [{ words }], stuck }) => {
      const put = events.filter((event) => event.startsWith('put')).map((event) => event.slice(4));
      const took = events.filter((event) => event.startsWith('took')).map((e) => e.slice(5));
      expect(took).toEqual(put.slice(0, took.length));
      const depth = words[SMALL.head] - words[SMALL.tail];
      expect([stuck, depth]).toEqual([[], put.length - took.length]);
    },
  );
  expect(explored.endings).toBeGreaterThan(100);
  note('a ring, every order of two threads', explored);
});

test('a worker that goes to sleep while work comes is woken, in every order', () => {
  const actors = [{ run: handOver([1, 2]) }, { run: worker([2]) }];
  const explored = exploreAll(actors, 1, ({ events, stuck }) => {
    expect([stuck, events]).toEqual([[], ['deducted 1', 'deducted 2']]);
  });
  note('a worker that goes to sleep, every order of two threads', explored);
});

test('an acceptor hears of every answer, though it is told only when its door is open', () => {
  const actors = [{ run: askTwo([1, 2]) }, { run: worker([2]) }];
  const explored = exploreAll(actors, 1, ({ events, stuck }) => {
    const answers = events.filter((event) => event.startsWith('answer'));
    expect([stuck, answers]).toEqual([[], ['answer 0 0', 'answer 0 1']]);
  });
  note('answers of a worker, every order of two threads', explored);
});

test('a check that is taken back is decided by one of the two, never by both or none', () => {
  const outcomes = new Set<string>();
  const explored = exploreAll(
    [
      {
        run: (world) => {
          const handoff = handoffOf(world);
          put(handoff, KIND.fixedCheck, 1);
          put(handoff, KIND.fixedCheck, 2);
          handoff.ring();
          if (handoff.withdraw(0)) world.event('taken back 1');
        },
      },
      { run: worker([2]) },
    ],
    1,
    ({ events, stuck }) => {
      expect(stuck).toEqual([]);
      outcomes.add(events.toSorted().join(', '));
    },
  );
  expect([...outcomes].sort()).toEqual(['decided 1, decided 2', 'decided 2, taken back 1']);
  note('a check that is taken back, every order of two threads', explored);
});

test('a worker that dies at any step leaves at most one entry to be repeated, and loses none', () => {
  const mortal = { run: worker([2]), isMortal: true, successor: worker([2]) };
  let repeated = 0;
  const explored = exploreAll([{ run: handOver([1, 2]) }, mortal], 1, (ending) => {
    repeated += expectAtMostOneMore(ending, [1, 2], 1);
  });
  expect(repeated).toBeGreaterThan(0);
  note('a worker that dies over its ring, at every step', explored);
});

test('two acceptors and a worker that goes to sleep: it is woken for each', () => {
  const actors = [{ run: handOver([1]) }, { run: handOver([2], 1) }, { run: worker([1, 2]) }];
  const explored = exploreAll(actors, 2, ({ events, stuck }) => {
    expect([stuck, events.toSorted()]).toEqual([[], ['deducted 1', 'deducted 2']]);
  });
  note('two acceptors and a worker that sleeps, three threads', explored);
});

test('two acceptors hear of their answers, each of its own', () => {
  const actors = [{ run: askTwo([1]) }, { run: askTwo([2], 1) }, { run: worker([1, 2]) }];
  const explored = exploreAll(actors, 2, ({ events, stuck }) => {
    const answers = events.filter((event) => event.startsWith('answer'));
    expect([stuck, answers.toSorted()]).toEqual([[], ['answer 0 0', 'answer 1 0']]);
  });
  note('two acceptors and their answers, three threads', explored);
});

test('a worker that dies between two acceptors repeats one entry of one at most', () => {
  const mortal = { run: worker([1, 2]), isMortal: true, successor: worker([1, 2]) };
  const actors = [{ run: handOver([1]) }, { run: handOver([2], 1) }, mortal];
  let repeated = 0;
  const explored = exploreAll(actors, 2, (ending) => {
    repeated += expectAtMostOneMore(ending, [1, 2], 2);
  });
  expect(repeated).toBeGreaterThan(0);
  note('two acceptors and a worker that dies, three threads', explored);
});
