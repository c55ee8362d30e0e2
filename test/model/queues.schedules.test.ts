/**
 * Explores schedules of the queue and wake-up protocols, with the real code: two threads in every
 * order, three threads with a few preemptions.
 */

import type { MessagePort } from 'node:worker_threads';
import { expect, test, vi } from 'vitest';
import { DEDUCTION_OUTCOME } from '../../src/core/decision.ts';
import { NO_BURST, RULE } from '../../src/core/window-rules.ts';
import { ENTRY_KIND } from '../../src/engine/memory/entry-kinds.ts';
import { EntryProcessor } from '../../src/engine/memory/shard-worker/entry-processor.ts';
import type { CounterTable } from '../../src/engine/memory/table.ts';
import { CheckQueueConsumer } from '../../src/engine/queue/check-queue-consumer.ts';
import { CheckQueueProducer } from '../../src/engine/queue/check-queue-producer.ts';
import { CHANNEL_BYTES, NOTIFICATION_FLAG, REPLY } from '../../src/engine/queue/layout.ts';
import {
  QueueConsumer,
  type QueueLayout,
  QueueProducer,
  REPLY_QUEUE,
} from '../../src/engine/queue/queue.ts';
import { requestNotification, sleep } from '../../src/engine/queue/wake-up.ts';
import type { Clock } from '../../src/shared-memory/clock.ts';
import {
  WAKE_UP_FLAG,
  WORKER_STAT,
  WORKER_STATS_BYTES,
  type WorkerStats,
} from '../../src/shared-memory/stats.ts';
import { IS_LONG, recordMeasurement } from '../support/guarantees.ts';
import {
  explore,
  type FinalState,
  type ModelMemory,
  type ModelThread,
  type ThreadContext,
} from './explorer.ts';

vi.setConfig({ testTimeout: 600_000 });

/** The preemptions of three threads. The quick form has fewer where a thread may die. */
const preemptionsOf = (actors: ModelThread[]) => {
  if (IS_LONG) return 3;
  return actors.some(({ isMortal }) => isMortal) ? 1 : 2;
};

/** The smallest queue that can be full: two items of one word. */
const SMALL: QueueLayout = {
  ...{ name: 'small queue', head: 0, tail: 1, firstItem: 2, capacity: 2, itemWords: 1 },
};

/** One channel per acceptor to the worker, followed by the stats block of the worker. */
function memories(acceptors = 1): ModelMemory[] {
  const channels = Array.from({ length: acceptors }, () => new SharedArrayBuffer(CHANNEL_BYTES));
  const stats = new SharedArrayBuffer(WORKER_STATS_BYTES);
  return [...channels, stats].map((buffer) => ({ buffer, waits: 'notified' }));
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
  producer.enqueue(kind, id, 0, parameters, kind === ENTRY_KIND.deduction ? 0 : NO_BURST);
};

/** An acceptor that enqueues deductions with these costs. */
const enqueueDeductions =
  (costs: number[], acceptor = 0) =>
  (world: ThreadContext): void => {
    const producer = producerOf(world, acceptor);
    for (const cost of costs) {
      put(producer, ENTRY_KIND.deduction, cost);
      producer.wakeWorker();
    }
  };

/** A worker whose table only records its calls. It ends after the entries with these costs. */
const worker =
  (lastCosts: number[]) =>
  (world: ThreadContext): void => {
    const statsWords = statsOf(world);
    const pending = new Set(lastCosts);
    const record = (what: string, cost: number) => {
      world.recordEvent(`${what} ${cost}`);
      pending.delete(cost);
    };
    const table = {
      deduct: (...[, , , , { cost }]: Parameters<CounterTable['deduct']>) => {
        record('deducted', cost);
        return DEDUCTION_OUTCOME.applied;
      },
      decide: (...[, , , { cost }]: Parameters<CounterTable['decide']>) => record('decided', cost),
    } as unknown as CounterTable;
    const stats = {
      add: (index: number) => {
        if (index === WORKER_STAT.entriesRepeated) world.recordEvent('repeated');
        if (index === WORKER_STAT.entriesLost) world.recordEvent('lost');
      },
    } as unknown as WorkerStats;
    const clock = { nowMs: () => 0 } as unknown as Clock;
    const inboxes = world.memories.slice(0, -1).map((channel, acceptor) => {
      const port = { postMessage: () => world.send(acceptor) } as unknown as MessagePort;
      const queue = new CheckQueueConsumer(channel, stats, port);
      return new EntryProcessor(queue, () => table, clock, stats);
    });
    while (pending.size > 0) {
      let served = 0;
      for (const inbox of inboxes) served += inbox.processEntries(8);
      if (served > 0) continue;
      sleep(statsWords, WAKE_UP_FLAG, 1, () => inboxes.some((inbox) => inbox.hasEntries()));
    }
  };

/** An acceptor that enqueues checks with these costs and runs until all are answered. */
const enqueueChecks =
  (costs: number[], acceptor = 0) =>
  (world: ThreadContext): void => {
    const producer = producerOf(world, acceptor);
    const { words } = world.memories[acceptor];
    const replies = new QueueConsumer(world.memories[acceptor], REPLY_QUEUE);
    let received = 0;
    const drain = () => {
      requestNotification(words, NOTIFICATION_FLAG);
      for (; !replies.isEmpty(); replies.releaseFirst()) {
        world.recordEvent(`reply ${acceptor} ${words[replies.firstItem() + REPLY.number]}`);
        received++;
      }
    };
    drain();
    for (const cost of costs) put(producer, ENTRY_KIND.check, cost);
    producer.wakeWorker();
    while (received < costs.length) {
      world.receive(acceptor);
      drain();
    }
  };

/** Explores the schedules, and records them as a measurement of the running test. */
function exploreQueue(
  threads: ModelThread[],
  acceptors: number,
  check: (ending: FinalState) => void,
): void {
  const bound = threads.length > 2 ? { preemptions: preemptionsOf(threads) } : {};
  const explored = explore({ memories: memories(acceptors), threads, ...bound }, check);
  const trials = `${explored.states} states, ${explored.endings} endings`;
  recordMeasurement('P3', expect.getState().currentTestName ?? '', trials, '0 broken');
}

const count = (events: readonly string[], what: string) =>
  events.filter((event) => event === what).length;

/** Asserts that each entry ran at least once, with at most one repeated entry per death. */
function expectAtMostOneLost(
  { events, stuck, deaths }: FinalState,
  costs: number[],
  worker: number,
) {
  const runs = costs.map((cost) => count(events, `deducted ${cost}`));
  const extra = runs.reduce((sum, times) => sum + times, 0) - costs.length;
  const holds =
    Math.min(...runs) >= 1 &&
    extra <= deaths &&
    // A repeated entry is counted as repeated.
    extra <= count(events, 'repeated') &&
    count(events, 'lost') === 0 &&
    // A worker may die after its last entry. Its successor finds an empty queue and sleeps.
    (stuck.length === 0 || (deaths === 1 && stuck.length === 1 && stuck[0] === worker));
  if (!holds) expect({ events, stuck, deaths }).toBe('each entry once, or repeated after a death');
  return extra;
}

/** Two entries, from one acceptor or one from each of two. */
const ENTRIES: Record<number, number[][]> = { 1: [[1, 2]], 2: [[1], [2]] };
const acceptorsThat = (run: typeof enqueueDeductions, count: number) => {
  return ENTRIES[count].map((costs, acceptor) => ({ run: run(costs, acceptor) }));
};

test('a queue neither loses, repeats nor overwrites an item', () => {
  let endings = 0;
  exploreQueue(
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
          for (let polls = 0; polls < 4; polls++) {
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
      endings++;
      expect([stuck, depth]).toEqual([[], put.length - took.length]);
    },
  );
  expect(endings).toBeGreaterThan(100);
});

/** What one acceptor asks for happens in its order; several acceptors have no order. */
const inOrder = (events: readonly string[], acceptors: number) => {
  return acceptors === 1 ? events : events.toSorted();
};

test.each([1, 2])(
  'a worker that goes to sleep is woken for each entry of %i acceptors',
  (count) => {
    const actors = [...acceptorsThat(enqueueDeductions, count), { run: worker([1, 2]) }];
    exploreQueue(actors, count, ({ events, stuck }) => {
      expect([stuck, inOrder(events, count)]).toEqual([[], ['deducted 1', 'deducted 2']]);
    });
  },
);

test.each([
  [1, ['reply 0 0', 'reply 0 1']],
  [2, ['reply 0 0', 'reply 1 0']],
])('each of %i acceptors gets its replies, though it is notified only on request', (count, all) => {
  const actors = [...acceptorsThat(enqueueChecks, count), { run: worker([1, 2]) }];
  exploreQueue(actors, count, ({ events, stuck }) => {
    const replies = events.filter((event) => event.startsWith('reply'));
    expect([stuck, inOrder(replies, count)]).toEqual([[], all]);
  });
});

test('a withdrawn check is decided by the acceptor or the worker, never by both or none', () => {
  const outcomes = new Set<string>();
  exploreQueue(
    [
      {
        run: (world) => {
          const producer = producerOf(world);
          put(producer, ENTRY_KIND.check, 1);
          put(producer, ENTRY_KIND.check, 2);
          producer.wakeWorker();
          if (producer.withdraw(0)) world.recordEvent('withdrawn 1');
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
  expect([...outcomes].sort()).toEqual(['decided 1, decided 2', 'decided 2, withdrawn 1']);
});

test.each([1, 2])(
  'a worker of %i acceptors that dies repeats at most one entry, and loses none',
  (count) => {
    const mortal = { run: worker([1, 2]), isMortal: true, restart: worker([1, 2]) };
    let repeated = 0;
    exploreQueue([...acceptorsThat(enqueueDeductions, count), mortal], count, (ending) => {
      repeated += expectAtMostOneLost(ending, [1, 2], count);
    });
    expect(repeated).toBeGreaterThan(0);
  },
);
