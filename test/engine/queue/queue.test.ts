import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { CHECK_QUEUE_ENTRIES, REPLY_QUEUE_ENTRIES, SHARDS } from '../../../src/core/constants.ts';
import { OUTCOME } from '../../../src/core/decision.ts';
import { ENTRY_KIND as MEMORY_KIND } from '../../../src/engine/memory/entry-kinds.ts';
import {
  CHANNEL_BYTES,
  ENTRY,
  ENTRY_STATE,
  REPLIES_AT,
  REPLY,
  REPLY_ALLOWED,
} from '../../../src/engine/queue/layout.ts';
import {
  allocateChannel,
  attachChannel,
  CHECK_QUEUE,
  type ChannelMemory,
  itemAt,
  QueueConsumer,
  type QueueLayout,
  QueueProducer,
  queueDepth,
  REPLY_QUEUE,
} from '../../../src/engine/queue/queue.ts';
import { ENTRY_KIND as REDIS_KIND } from '../../../src/engine/redis/entry-kinds.ts';
import { shardOf, workerOf } from '../../../src/engine/table/shard.ts';

describe('a channel', () => {
  test('has the layout that its drawing shows', () => {
    expect([CHECK_QUEUE_ENTRIES, REPLY_QUEUE_ENTRIES]).toEqual([1_024, 2_048]);
    expect([REPLIES_AT, CHANNEL_BYTES]).toEqual([4 * (24 + 4_096), 4 * (96 + 16_384 + 16_384)]);
    expect(CHECK_QUEUE).toMatchObject({
      head: 16,
      tail: 32,
      firstItem: 96,
      capacity: 1_024,
      itemWords: 16,
    });
    expect(REPLY_QUEUE).toMatchObject({ head: 48, tail: 64, capacity: 2_048, itemWords: 8 });
    expect(ENTRY).toEqual({
      limit: 0,
      durationMs: 1,
      cost: 2,
      burstOrWindow: 3,
      hash: 8,
      namespaceTag: 12,
      kind: 13,
      state: 14,
      number: 15,
    });
    expect(REPLY).toEqual({ remaining: 0, reset: 1, passesAt: 2, number: 6, result: 7 });
    expect(REPLY_ALLOWED).toBeGreaterThan(Math.max(...Object.values(OUTCOME)));
    expect([MEMORY_KIND, REDIS_KIND, ENTRY_STATE]).toEqual([
      { deduction: 1, check: 2 },
      { tokens: 3, countedTokens: 4, reserve: 5, prefetch: 6, asyncNew: 7, report: 8 },
      { queued: 1, claimed: 2, withdrawn: 3, repeated: 4, done: 5 },
    ]);
  });

  test('can be attached only by its acceptor and worker, and only with its size', () => {
    expect(attachChannel(allocateChannel(2, 3), 2, 3).words.byteLength).toBe(CHANNEL_BYTES);
    expect(() => attachChannel(allocateChannel(1, 3), 2, 3)).toThrow('acceptor is 1, not 2');
    expect(() => attachChannel(allocateChannel(2, 0), 2, 3)).toThrow('worker is 0, not 3');
  });
});

describe('a queue', () => {
  /** Sequence numbers shortly before they wrap as int32, and those of a new queue. */
  const starts = fc.constantFrom(0, 2 ** 31 - 3, -2);

  const shape: QueueLayout = {
    ...{ name: 'check queue', head: 0, tail: 1, firstItem: 2, capacity: 8, itemWords: 2 },
  };
  const newMemory = (): ChannelMemory => {
    const words = new Int32Array(new SharedArrayBuffer(4 * 64));
    return { name: 'channel 3', words, doubles: new Float64Array(words.buffer) };
  };

  test('equals a bounded list, also when its numbers wrap and its sides attach again', () => {
    const steps = fc.array(fc.constantFrom('put', 'take', 'reattach'), { maxLength: 300 });
    fc.assert(
      fc.property(starts, steps, (start, moves) => {
        const memory = newMemory();
        const { words } = memory;
        words[shape.head] = start;
        words[shape.tail] = start;
        let producer = new QueueProducer(memory, shape);
        let consumer = new QueueConsumer(memory, shape);
        const model: number[] = [];
        for (const [i, move] of moves.entries()) {
          if (move === 'reattach') {
            producer = new QueueProducer(memory, shape);
            consumer = new QueueConsumer(memory, shape);
          } else if (move === 'put') {
            expect(producer.hasRoom()).toBe(model.length < shape.capacity);
            if (!producer.hasRoom()) continue;
            expect(producer.nextItem()).toBe(itemAt(shape, producer.nextNumber));
            words[producer.nextItem()] = i;
            producer.publish();
            model.push(i);
          } else {
            expect(consumer.isEmpty()).toBe(model.length === 0);
            if (consumer.isEmpty()) continue;
            expect(words[consumer.firstItem()]).toBe(model.shift());
            consumer.releaseFirst();
          }
          expect(queueDepth(words, shape)).toBe(model.length);
        }
      }),
    );
  });

  test('rejects an impossible head', () => {
    const memory = newMemory();
    const { words } = memory;
    const consumer = new QueueConsumer(memory, shape);
    words[shape.head] = 9;
    expect(() => consumer.isEmpty()).toThrow(
      'the check queue of channel 3, of capacity 8, has depth 9',
    );
    words[shape.head] = -1;
    expect(() => consumer.isEmpty()).toThrow(
      'the check queue of channel 3, of capacity 8, has depth -1',
    );
  });
});

test('every shard has one worker, and every worker some shards', () => {
  const id = (h0: number) => ({ h0, h1: 0, h2: 0, h3: 1 });
  expect([0, -1, 0x10000000].map((h0) => shardOf(id(h0)))).toEqual([0, SHARDS - 1, 1]);
  for (const workers of [1, 2, 3, SHARDS]) {
    const held = Array.from({ length: SHARDS }, (_, shard) => workerOf(shard, workers));
    expect(new Set(held).size).toBe(workers);
  }
});
