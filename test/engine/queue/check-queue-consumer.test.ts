import { MessageChannel, type MessagePort, receiveMessageOnPort } from 'node:worker_threads';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { OUTCOME } from '../../../src/core/decision.ts';
import { NO_BURST, RULE } from '../../../src/core/window-rules.ts';
import { CheckQueueConsumer } from '../../../src/engine/queue/check-queue-consumer.ts';
import { CheckQueueProducer } from '../../../src/engine/queue/check-queue-producer.ts';
import { NOTIFICATION_FLAG, REPLY } from '../../../src/engine/queue/layout.ts';
import {
  allocateChannel,
  attachChannel,
  QueueConsumer,
  REPLY_QUEUE,
} from '../../../src/engine/queue/queue.ts';
import { requestNotification } from '../../../src/engine/queue/wake-up.ts';
import { ENTRY_KIND } from '../../../src/engine/redis/entry-kinds.ts';
import { allocateControl, Control } from '../../../src/shared-memory/control.ts';
import { WORKER_STAT } from '../../../src/shared-memory/stats.ts';

const IDENTITY = { h0: 1, h1: 2, h2: 3, h3: 4 };

function newQueue() {
  const channel = attachChannel(allocateChannel(0, 0), 0, 0);
  const stats = new Control(allocateControl(1, 1)).workerStats(0);
  const producer = new CheckQueueProducer(channel, stats);
  const replies = new QueueConsumer(channel, REPLY_QUEUE);
  return {
    stats,
    producer,
    enqueue(cost: number): number {
      const parameters = { limit: 10, durationMs: 1_000, cost, rule: RULE.fixed, burst: NO_BURST };
      producer.enqueue(ENTRY_KIND.tokens, IDENTITY, 7, parameters, parameters.burst);
      return producer.nextNumber - 1;
    },
    requestNotification: () => requestNotification(channel.words, NOTIFICATION_FLAG),
    newConsumer: (port?: MessagePort) => new CheckQueueConsumer(channel, stats, port),
    readReplies(): [number, number][] {
      const read: [number, number][] = [];
      for (; !replies.isEmpty(); replies.releaseFirst()) {
        const at = replies.firstItem();
        read.push([channel.words[at + REPLY.number], channel.doubles[at / 2 + REPLY.remaining]]);
      }
      return read;
    },
  };
}

const decisionOf = (remaining: number) => {
  return { allowed: true, remaining, reset: 1_000, passesAt: 0, outcome: OUTCOME.decided };
};

function readAll(consumer: CheckQueueConsumer): number[] {
  const numbers: number[] = [];
  consumer.readNew(Number.POSITIVE_INFINITY, ({ number }) => numbers.push(number));
  return numbers;
}

describe('the queue of checks that end in any order', () => {
  test('gives each entry exactly one end, also when its worker is replaced', () => {
    const step = fc.oneof(
      fc.record({ kind: fc.constantFrom('enqueue', 'read', 'replace', 'flush') }),
      fc.record({ kind: fc.constantFrom('reply', 'withdraw', 'unclaim'), which: fc.nat() }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const queue = newQueue();
        let consumer = queue.newConsumer();
        let read: number[] = [];
        const open = new Set<number>();
        const replied: number[] = [];
        const pick = (list: readonly number[], which: number) => list[which % list.length];
        for (const step of steps) {
          if (step.kind === 'enqueue' && queue.producer.hasRoom()) open.add(queue.enqueue(1));
          else if (step.kind === 'read') read.push(...readAll(consumer));
          else if (step.kind === 'flush') consumer.flush();
          else if (step.kind === 'replace') {
            consumer = queue.newConsumer();
            read = [];
          } else if ('which' in step && step.kind === 'withdraw' && open.size > 0) {
            const number = pick([...open], step.which);
            if (queue.producer.withdraw(number)) open.delete(number);
          } else if ('which' in step && read.length > 0) {
            const number = pick(read, step.which);
            const isOpen = open.has(number);
            expect(consumer.claim(number)).toBe(isOpen);
            if (!isOpen) continue;
            if (step.kind === 'unclaim') consumer.unclaim(number);
            else {
              consumer.reply(number, decisionOf(0));
              replied.push(number);
              open.delete(number);
            }
          }
        }
        consumer = queue.newConsumer();
        expect(readAll(consumer)).toEqual([...open]);
        for (const number of open) {
          expect(consumer.claim(number)).toBe(true);
          consumer.reply(number, decisionOf(0));
          replied.push(number);
        }
        consumer.flush();
        expect(consumer.isEmpty()).toBe(true);
        expect(queue.readReplies().map(([number]) => number)).toEqual(replied);
      }),
    );
  });

  test('repeats an entry over which a worker died, and drops it after a second death', () => {
    const queue = newQueue();
    const number = queue.enqueue(1);
    const first = queue.newConsumer();
    expect(readAll(first)).toEqual([number]);
    expect(first.claim(number)).toBe(true);
    expect(queue.producer.withdraw(number)).toBe(false);
    const second = queue.newConsumer();
    expect(readAll(second)).toEqual([number]);
    expect(second.claim(number)).toBe(true);
    const third = queue.newConsumer();
    expect(readAll(third)).toEqual([]);
    third.flush();
    expect(third.isEmpty()).toBe(true);
    const { entriesRepeated, entriesLost } = WORKER_STAT;
    expect([queue.stats.get(entriesRepeated), queue.stats.get(entriesLost)]).toEqual([1, 1]);
  });

  test('drops a repeated entry that gets no reply, and no other', () => {
    const queue = newQueue();
    const [dead, other] = [queue.enqueue(1), queue.enqueue(1)];
    const first = queue.newConsumer();
    readAll(first);
    first.claim(dead);
    const second = queue.newConsumer();
    expect(readAll(second)).toEqual([dead, other]);
    second.dropRepeated(dead);
    second.dropRepeated(other);
    expect([second.claim(dead), second.claim(other)]).toEqual([false, true]);
    second.reply(other, decisionOf(0));
    second.flush();
    expect(second.isEmpty()).toBe(true);
  });

  test('does not claim a new entry in the place of an old one', () => {
    const queue = newQueue();
    const old = queue.enqueue(1);
    const consumer = queue.newConsumer();
    readAll(consumer);
    expect(queue.producer.withdraw(old)).toBe(true);
    consumer.flush();
    while (queue.producer.hasRoom()) queue.enqueue(1);
    expect(consumer.isOpen(old)).toBe(false);
    expect(consumer.claim(old)).toBe(false);
  });

  test('notifies an acceptor that asks for it of replies, and of nothing else', () => {
    const queue = newQueue();
    const { port1: acceptor, port2: port } = new MessageChannel();
    const consumer = queue.newConsumer(port);
    const isNotified = () => receiveMessageOnPort(acceptor) !== undefined;
    const numbers = [queue.enqueue(1), queue.enqueue(1), queue.enqueue(1)];
    readAll(consumer);
    const reply = (number: number) => {
      consumer.claim(number);
      consumer.reply(number, decisionOf(0));
      consumer.flush();
    };
    reply(numbers[0]);
    expect(isNotified()).toBe(false);
    queue.requestNotification();
    consumer.finish(numbers[1]);
    consumer.flush();
    expect(isNotified()).toBe(false);
    reply(numbers[2]);
    expect([isNotified(), isNotified()]).toEqual([true, false]);
    acceptor.close();
  });
});
