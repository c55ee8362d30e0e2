/**
 * The protocols of rings and bells, on the real code: two threads in every order, three with a
 * few interruptions.
 */

import type { MessagePort } from 'node:worker_threads';
import { expect, test, vi } from 'vitest';
import { DEDUCTION_OUTCOME } from '../../src/core/decision.ts';
import { NO_BURST, RULE } from '../../src/core/window-rules.ts';
import type { CounterTable } from '../../src/engine/memory/table.ts';
import { CheckQueueConsumer } from '../../src/engine/worker/check-queue-consumer.ts';
import { CheckQueueProducer } from '../../src/engine/worker/check-queue-producer.ts';
import {
  CHANNEL_BYTES,
  ENTRY_KIND,
  NOTIFICATION_FLAG,
  REPLY,
} from '../../src/engine/worker/layout.ts';
import {
  QueueConsumer,
  type QueueLayout,
  QueueProducer,
  REPLY_QUEUE,
} from '../../src/engine/worker/queue.ts';
import { requestNotification, sleep } from '../../src/engine/worker/wake-up.ts';
import type { Clock } from '../../src/shared-memory/clock.ts';
import {
  WAKE_UP_FLAG,
  WORKER_STAT,
  WORKER_STATS_BYTES,
  type WorkerStats,
} from '../../src/shared-memory/stats.ts';
import { IS_LONG, recordMeasurement } from '../support/guarantees.ts';
import {
  type ExplorationResult,
  explore,
  type FinalState,
  type ModelMemory,
  type ModelThread,
  type ThreadContext,
} from './explorer.ts';

vi.setConfig({ testTimeout: 600_000 });

/** How often one of three threads is interrupted: less often where one may die, in the quick form. */
const preemptionsOf = (actors: ModelThread[]) => {
  if (IS_LONG) return 3;
  return actors.some(({ isMortal }) => isMortal) ? 1 : 2;
};

/** Rings as small as they can be full: two items of one word. */
const SMALL: QueueLayout = { head: 0, tail: 1, firstItem: 2, capacity: 2, itemWords: 1 };

/** The links of so many acceptors with a worker, and behind them the words of its lane. */
function memories(acceptors = 1): ModelMemory[] {
  const links = Array.from({ length: acceptors }, () => new SharedArrayBuffer(CHANNEL_BYTES));
  const lane = new SharedArrayBuffer(WORKER_STATS_BYTES);
  return [...links, lane].map((buffer) => ({ buffer, waits: 'notified' }));
}

const statsOf = ({ memories }: ThreadContext) => memories[memories.length - 1].words;

function producerOf(world: ThreadContext, acceptor = 0): CheckQueueProducer {
  return new CheckQueueProducer(world.memories[acceptor], {
    words: statsOf(world),
  } as unknown as WorkerStats);
}

const put = (producer: CheckQueueProducer, kind: number, cost: number) => {
  const id = { h0: 0, h1: 0, h2: 0, h3: 1 };
  const parameters = { limit: 1, durationMs: 1_000, cost, rule: RULE.fixed, burst: NO_BURST };
  if (kind === ENTRY_KIND.check) producer.enqueueCheck(id, 0, parameters);
  else producer.enqueueDeduction(id, 0, 0, parameters);
};

/** An acceptor that hands over deductions, of so much each. */
const handOver =
  (costs: number[], acceptor = 0) =>
  (world: ThreadContext): void => {
    const handoff = producerOf(world, acceptor);
    for (const cost of costs) {
      put(handoff, ENTRY_KIND.deduction, cost);
      handoff.wakeWorker();
    }
  };

/** A worker whose table only notes what is done; it ends when it has seen these entries. */
const worker =
  (lasts: number[]) =>
  (world: ThreadContext): void => {
    const lane = statsOf(world);
    const left = new Set(lasts);
    const noted = (what: string, cost: number) => {
      world.recordEvent(`${what} ${cost}`);
      left.delete(cost);
    };
    const table = {
      deduct: (...[, , , , { cost }]: Parameters<CounterTable['deduct']>) => {
        noted('deducted', cost);
        return DEDUCTION_OUTCOME.applied;
      },
      decide: (...[, , , { cost }]: Parameters<CounterTable['decide']>) => noted('decided', cost),
    } as unknown as CounterTable;
    const figures = {
      add: (index: number) => {
        if (index === WORKER_STAT.entriesRepeated) world.recordEvent('repeated');
        if (index === WORKER_STAT.entriesLost) world.recordEvent('lost');
      },
    } as unknown as WorkerStats;
    const clock = { nowMs: () => 0 } as unknown as Clock;
    const inboxes = world.memories.slice(0, -1).map((link, acceptor) => {
      const door = { postMessage: () => world.send(acceptor) } as unknown as MessagePort;
      return new CheckQueueConsumer(link, () => table, clock, figures, door);
    });
    while (left.size > 0) {
      let served = 0;
      for (const inbox of inboxes) served += inbox.processEntries(8);
      if (served > 0) continue;
      sleep(lane, WAKE_UP_FLAG, 1, () => inboxes.some((inbox) => !inbox.isEmpty()));
    }
  };

/** An acceptor that hands over two checks and goes on until both are answered. */
const askTwo =
  (costs: number[], acceptor = 0) =>
  (world: ThreadContext): void => {
    const handoff = producerOf(world, acceptor);
    const { words } = world.memories[acceptor];
    const replies = new QueueConsumer(world.memories[acceptor], REPLY_QUEUE);
    let heard = 0;
    const drain = () => {
      requestNotification(words, NOTIFICATION_FLAG);
      for (; !replies.isEmpty(); replies.releaseFirst()) {
        world.recordEvent(`answer ${acceptor} ${words[replies.firstItem() + REPLY.number]}`);
        heard++;
      }
    };
    drain();
    for (const cost of costs) put(handoff, ENTRY_KIND.check, cost);
    handoff.wakeWorker();
    while (heard < costs.length) {
      world.receive(acceptor);
      drain();
    }
  };

function exploreQueue(
  threads: ModelThread[],
  acceptors: number,
  check: (ending: FinalState) => void,
): ExplorationResult {
  const bound = threads.length > 2 ? { preemptions: preemptionsOf(threads) } : {};
  return explore({ memories: memories(acceptors), threads, ...bound }, check);
}

const count = (events: readonly string[], what: string) =>
  events.filter((event) => event === what).length;

/** What a dying worker leaves: at least each entry once, and one more for each death at most. */
function expectAtMostOneLost(
  { events, stuck, deaths }: FinalState,
  costs: number[],
  worker: number,
) {
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

function recordExploration(fault: string, { states, endings }: ExplorationResult): void {
  recordMeasurement('P3', fault, `${states} states, ${endings} endings`, '0 broken');
}

test('a ring loses and repeats nothing, and is never written over', () => {
  const explored = exploreQueue(
    [
      {
        run: ({ memories: [memory], recordEvent }) => {
          const producer = new QueueProducer(memory, SMALL);
          for (let value = 1; value <= 4; value++) {
            if (!producer.hasRoom()) recordEvent(`full ${value}`);
            else {
              memory.words[producer.nextItem()] = value;
              producer.publish();
              recordEvent(`put ${value}`);
            }
          }
        },
      },
      {
        run: ({ memories: [memory], recordEvent }) => {
          const consumer = new QueueConsumer(memory, SMALL);
          for (let looks = 0; looks < 4; looks++) {
            if (consumer.isEmpty()) continue;
            recordEvent(`took ${memory.words[consumer.firstItem()]}`);
            consumer.releaseFirst();
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
  recordExploration('a ring, every order of two threads', explored);
});

test('a worker that goes to sleep while work comes is woken, in every order', () => {
  const actors = [{ run: handOver([1, 2]) }, { run: worker([2]) }];
  const explored = exploreQueue(actors, 1, ({ events, stuck }) => {
    expect([stuck, events]).toEqual([[], ['deducted 1', 'deducted 2']]);
  });
  recordExploration('a worker that goes to sleep, every order of two threads', explored);
});

test('an acceptor hears of every answer, though it is told only when its door is open', () => {
  const actors = [{ run: askTwo([1, 2]) }, { run: worker([2]) }];
  const explored = exploreQueue(actors, 1, ({ events, stuck }) => {
    const answers = events.filter((event) => event.startsWith('answer'));
    expect([stuck, answers]).toEqual([[], ['answer 0 0', 'answer 0 1']]);
  });
  recordExploration('answers of a worker, every order of two threads', explored);
});

test('a check that is taken back is decided by one of the two, never by both or none', () => {
  const outcomes = new Set<string>();
  const explored = exploreQueue(
    [
      {
        run: (world) => {
          const handoff = producerOf(world);
          put(handoff, ENTRY_KIND.check, 1);
          put(handoff, ENTRY_KIND.check, 2);
          handoff.wakeWorker();
          if (handoff.withdraw(0)) world.recordEvent('taken back 1');
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
  recordExploration('a check that is taken back, every order of two threads', explored);
});

test('a worker that dies at any step leaves at most one entry to be repeated, and loses none', () => {
  const mortal = { run: worker([2]), isMortal: true, restart: worker([2]) };
  let repeated = 0;
  const explored = exploreQueue([{ run: handOver([1, 2]) }, mortal], 1, (ending) => {
    repeated += expectAtMostOneLost(ending, [1, 2], 1);
  });
  expect(repeated).toBeGreaterThan(0);
  recordExploration('a worker that dies over its ring, at every step', explored);
});

test('two acceptors and a worker that goes to sleep: it is woken for each', () => {
  const actors = [{ run: handOver([1]) }, { run: handOver([2], 1) }, { run: worker([1, 2]) }];
  const explored = exploreQueue(actors, 2, ({ events, stuck }) => {
    expect([stuck, events.toSorted()]).toEqual([[], ['deducted 1', 'deducted 2']]);
  });
  recordExploration('two acceptors and a worker that sleeps, three threads', explored);
});

test('two acceptors hear of their answers, each of its own', () => {
  const actors = [{ run: askTwo([1]) }, { run: askTwo([2], 1) }, { run: worker([1, 2]) }];
  const explored = exploreQueue(actors, 2, ({ events, stuck }) => {
    const answers = events.filter((event) => event.startsWith('answer'));
    expect([stuck, answers.toSorted()]).toEqual([[], ['answer 0 0', 'answer 1 0']]);
  });
  recordExploration('two acceptors and their answers, three threads', explored);
});

test('a worker that dies between two acceptors repeats one entry of one at most', () => {
  const mortal = { run: worker([1, 2]), isMortal: true, restart: worker([1, 2]) };
  const actors = [{ run: handOver([1]) }, { run: handOver([2], 1) }, mortal];
  let repeated = 0;
  const explored = exploreQueue(actors, 2, (ending) => {
    repeated += expectAtMostOneLost(ending, [1, 2], 2);
  });
  expect(repeated).toBeGreaterThan(0);
  recordExploration('two acceptors and a worker that dies, three threads', explored);
});
