import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { RING_ENTRIES, RING_REPLIES, SHARDS } from '../../src/limits.ts';
import {
  ENTRY,
  KIND,
  LINK,
  LINK_BYTES,
  LINK_MAGIC,
  LINK_VERSION,
  REPLIES_AT,
  REPLY,
  STATE,
} from '../../src/shards/layout.ts';
import {
  allocateLink,
  attachLink,
  Consumer,
  ENTRIES,
  itemAt,
  Producer,
  REPLIES,
  type RingShape,
  ringDepth,
} from '../../src/shards/ring.ts';
import { shardOf, workerOf } from '../../src/shards/shard.ts';

describe('a link', () => {
  test('has the numbers of version 1', () => {
    expect([LINK_MAGIC, LINK_VERSION, RING_ENTRIES, RING_REPLIES]).toEqual([
      0x57656c6b, 1, 1_024, 2_048,
    ]);
    expect([REPLIES_AT, LINK_BYTES]).toEqual([4 * (24 + 4_096), 4 * (96 + 16_384 + 16_384)]);
    expect(ENTRIES).toEqual({ head: 16, tail: 32, first: 96, size: 1_024, itemWords: 16 });
    expect(REPLIES).toMatchObject({ head: 48, tail: 64, size: 2_048, itemWords: 8 });
    expect(ENTRY).toEqual({
      limit: 0,
      durationMs: 1,
      cost: 2,
      window: 3,
      hash: 8,
      namespaceTag: 12,
      kind: 13,
      state: 14,
      number: 15,
    });
    expect(REPLY).toEqual({ remaining: 0, reset: 1, number: 4, admitted: 5, outcome: 6 });
    expect([KIND, STATE]).toEqual([
      { deduction: 1, fixedCheck: 2, slidingCheck: 3 },
      { queued: 1, claimed: 2, withdrawn: 3, repeated: 4 },
    ]);
  });

  test('is attached to by its two sides only, and only in its own shape', () => {
    const damaged = (at: number) => {
      const buffer = allocateLink(2, 3);
      new Int32Array(buffer)[at]++;
      return buffer;
    };
    expect(attachLink(allocateLink(2, 3), 2, 3).words.byteLength).toBe(LINK_BYTES);
    expect(() => attachLink(damaged(LINK.magic), 2, 3)).toThrow('magic');
    expect(() => attachLink(damaged(LINK.version), 2, 3)).toThrow('version');
    expect(() => attachLink(allocateLink(1, 3), 2, 3)).toThrow('acceptor is 1, not 2');
    expect(() => attachLink(allocateLink(2, 0), 2, 3)).toThrow('worker is 0, not 3');
  });
});

describe('a ring', () => {
  /** Numbers that are about to wrap as int32, and the ones of a new ring. */
  const starts = fc.constantFrom(0, 2 ** 31 - 3, -2);

  test('equals a queue of bounded length, also where its numbers wrap and sides attach anew', () => {
    const steps = fc.array(fc.constantFrom('put', 'take', 'reattach'), { maxLength: 300 });
    const shape: RingShape = { head: 0, tail: 1, first: 2, size: 8, itemWords: 2 };
    fc.assert(
      fc.property(starts, steps, (start, moves) => {
        const words = new Int32Array(new SharedArrayBuffer(4 * 64));
        words[shape.head] = start;
        words[shape.tail] = start;
        const memory = { words, doubles: new Float64Array(words.buffer) };
        let producer = new Producer(memory, shape);
        let consumer = new Consumer(memory, shape);
        const model: number[] = [];
        for (const [i, move] of moves.entries()) {
          if (move === 'reattach') {
            producer = new Producer(memory, shape);
            consumer = new Consumer(memory, shape);
          } else if (move === 'put') {
            expect(producer.hasRoom()).toBe(model.length < shape.size);
            if (!producer.hasRoom()) continue;
            expect(producer.slot()).toBe(itemAt(shape, producer.next));
            words[producer.slot()] = i;
            producer.publish();
            model.push(i);
          } else {
            expect(consumer.isEmpty()).toBe(model.length === 0);
            if (consumer.isEmpty()) continue;
            expect(words[consumer.item()]).toBe(model.shift());
            consumer.done();
          }
          expect(ringDepth(words, shape)).toBe(model.length);
        }
      }),
    );
  });

  test('with a head that cannot be is refused', () => {
    const words = new Int32Array(new SharedArrayBuffer(4 * 64));
    const shape: RingShape = { head: 0, tail: 1, first: 2, size: 8, itemWords: 2 };
    const consumer = new Consumer({ words, doubles: new Float64Array(words.buffer) }, shape);
    words[shape.head] = 9;
    expect(() => consumer.isEmpty()).toThrow('a ring of 8 holds 9 items');
    words[shape.head] = -1;
    expect(() => consumer.isEmpty()).toThrow('a ring of 8 holds -1 items');
  });
});

test('every shard has one worker, and every worker its share of the shards', () => {
  const id = (h0: number) => ({ h0, h1: 0, h2: 0, h3: 1 });
  expect([0, -1, 0x10000000].map((h0) => shardOf(id(h0)))).toEqual([0, SHARDS - 1, 1]);
  for (const workers of [1, 2, 3, SHARDS]) {
    const held = Array.from({ length: SHARDS }, (_, shard) => workerOf(shard, workers));
    expect(new Set(held).size).toBe(workers);
  }
});
