/** The protocols of rings and bells, on the real code, in every order of two threads. */

import type { MessagePort } from 'node:worker_threads';
import { expect, test } from 'vitest';
import { DEDUCTION } from '../../src/counters/decision.ts';
import type { CounterTable } from '../../src/counters/table.ts';
import { BELL, WORK, type WorkerLane } from '../../src/lanes.ts';
import { openDoor, sleep } from '../../src/shards/bell.ts';
import { Handoff } from '../../src/shards/handoff.ts';
import { Inbox } from '../../src/shards/inbox.ts';
import { DOOR, KIND, REPLY } from '../../src/shards/layout.ts';
import { Consumer, Producer, REPLIES, type RingShape } from '../../src/shards/ring.ts';
import type { Clock } from '../../src/time.ts';
import { explore, type World } from '../support/schedules.ts';

/** Rings as small as they can be full: two items of one word. */
const SMALL: RingShape = { head: 0, tail: 1, first: 2, size: 2, itemWords: 1 };

function handoffOf(world: World): Handoff {
  return new Handoff(world, { words: world.lane } as unknown as WorkerLane);
}

const put = (handoff: Handoff, kind: number, cost: number) => {
  handoff.put(kind, { h0: 0, h1: 0, h2: 0, h3: 1 }, 0, 0, {
    limit: 1,
    durationMs: 1_000,
    cost,
    isSliding: false,
  });
};

/** An acceptor that hands over two deductions, of 1 and 2. */
function handOverTwo(world: World): void {
  const handoff = handoffOf(world);
  for (const cost of [1, 2]) {
    put(handoff, KIND.deduction, cost);
    handoff.ring();
  }
}

/** A worker whose table only notes what is done; it ends when it has seen the entry of `last`. */
function worker(world: World, last: number): void {
  let ended = false;
  const noted = (what: string, cost: number) => {
    world.event(`${what} ${cost}`);
    ended = cost === last;
  };
  const table = {
    deduct: (...[, , , , { cost }]: Parameters<CounterTable['deduct']>) => {
      noted('deducted', cost);
      return DEDUCTION.applied;
    },
    decide: (...[, , , { cost }]: Parameters<CounterTable['decide']>) => noted('decided', cost),
  } as unknown as CounterTable;
  const lane = {
    add: (index: number) => {
      if (index === WORK.repeated) world.event('repeated');
      if (index === WORK.lost) world.event('lost');
    },
  } as unknown as WorkerLane;
  const door = { postMessage: () => world.send() } as unknown as MessagePort;
  const clock = { nowMs: () => 0 } as unknown as Clock;
  const inbox = new Inbox(world, () => table, clock, lane, door);
  while (!ended) {
    if (inbox.serve(8) > 0) continue;
    sleep(world.lane, BELL, 1, () => !inbox.isEmpty());
  }
}

test('a ring loses and repeats nothing, and is never written over', () => {
  const { endings, states } = explore({
    threads: [
      (world) => {
        const producer = new Producer(world, SMALL);
        for (let value = 1; value <= 4; value++) {
          if (!producer.hasRoom()) world.event(`full ${value}`);
          else {
            world.words[producer.slot()] = value;
            producer.publish();
            world.event(`put ${value}`);
          }
        }
      },
      (world) => {
        const consumer = new Consumer(world, SMALL);
        for (let looks = 0; looks < 4; looks++) {
          if (consumer.isEmpty()) continue;
          world.event(`took ${world.words[consumer.item()]}`);
          consumer.done();
        }
      },
    ],
  });
  expect(endings.length).toBeGreaterThan(100);
  for (const { events, words, stuck } of endings) {
    const put = events.filter((event) => event.startsWith('put')).map((event) => event.slice(4));
    const took = events.filter((event) => event.startsWith('took')).map((event) => event.slice(5));
    expect(took).toEqual(put.slice(0, took.length));
    expect([stuck, words[SMALL.head] - (words[SMALL.tail] ?? 0)]).toEqual([
      [],
      put.length - took.length,
    ]);
  }
  console.info(`${states} states, ${endings.length} endings`);
});

test('a worker that goes to sleep while work comes is woken, in every order', () => {
  const { endings, states } = explore({
    threads: [handOverTwo, (world) => worker(world, 2)],
  });
  for (const { events, stuck } of endings) {
    expect(stuck).toEqual([]);
    expect(events).toEqual(['deducted 1', 'deducted 2']);
  }
  console.info(`${states} states, ${endings.length} endings`);
});

test('an acceptor hears of every answer, though it is told only when its door is open', () => {
  const { endings, states } = explore({
    threads: [
      (world) => {
        const handoff = handoffOf(world);
        const replies = new Consumer(world, REPLIES);
        let heard = 0;
        const drain = () => {
          openDoor(world.words, DOOR);
          for (; !replies.isEmpty(); replies.done()) {
            world.event(`answer ${world.words[replies.item() + REPLY.number]}`);
            heard++;
          }
        };
        drain();
        for (const cost of [1, 2]) put(handoff, KIND.fixedCheck, cost);
        handoff.ring();
        while (heard < 2) {
          world.receive();
          drain();
        }
      },
      (world) => worker(world, 2),
    ],
  });
  for (const { events, stuck } of endings) {
    expect(stuck).toEqual([]);
    expect(events.filter((event) => event.startsWith('answer'))).toEqual(['answer 0', 'answer 1']);
  }
  console.info(`${states} states, ${endings.length} endings`);
});

test('a check that is taken back is decided by one of the two, never by both or none', () => {
  const { endings, states } = explore({
    threads: [
      (world) => {
        const handoff = handoffOf(world);
        put(handoff, KIND.fixedCheck, 1);
        put(handoff, KIND.fixedCheck, 2);
        handoff.ring();
        if (handoff.withdraw(0)) world.event('taken back 1');
      },
      (world) => worker(world, 2),
    ],
  });
  const outcomes = new Set(endings.map(({ events }) => events.toSorted().join(', ')));
  expect([...outcomes].sort()).toEqual(['decided 1, decided 2', 'decided 2, taken back 1']);
  for (const { stuck } of endings) expect(stuck).toEqual([]);
  console.info(`${states} states, ${endings.length} endings`);
});

test('a worker that dies at any step leaves at most one entry to be repeated, and loses none', () => {
  const { endings, states } = explore({
    threads: [handOverTwo, (world) => worker(world, 2)],
    mortal: 1,
  });
  const count = (events: string[], what: string) => events.filter((event) => event === what).length;
  let repeated = 0;
  for (const { events, stuck, deaths } of endings) {
    const done = [1, 2].map((cost) => count(events, `deducted ${cost}`));
    const extra = done[0] + done[1] - 2;
    repeated += extra;
    expect(Math.min(...done)).toBeGreaterThanOrEqual(1);
    expect(extra).toBeLessThanOrEqual(deaths);
    // What was done twice was counted as repeated.
    expect(extra).toBeLessThanOrEqual(count(events, 'repeated'));
    expect(count(events, 'lost')).toBe(0);
    // A worker that had nothing left to do may have died behind it: its successor finds none.
    expect(stuck.length === 0 || (deaths === 1 && stuck[0] === 1)).toBe(true);
  }
  expect(repeated).toBeGreaterThan(0);
  console.info(`${states} states, ${endings.length} endings`);
});
