import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { EVENT_CHUNK_BYTES, EVENT_RING_BYTES } from '../../src/core/constants.ts';
import { MemoryError } from '../../src/core/errors.ts';
import {
  allocateEventRing,
  type EventChunk,
  EventRingReader,
  EventRingWriter,
} from '../../src/events/event-ring.ts';
import { trialCount } from '../support/guarantees.ts';
import { numberedLine, type RingTask } from './event-ring.thread.ts';

const THREAD = new URL('../../dist/threads/event-ring.thread.js', import.meta.url);
const HEAD = 16;
const TAIL = 32;

/** A ring whose next byte has any number, as after years. */
function openAt(position: number) {
  const buffer = allocateEventRing(3);
  const words = new Int32Array(buffer);
  words[HEAD] = position;
  words[TAIL] = position;
  return { buffer, words, ...attach(buffer) };
}

function attach(buffer: SharedArrayBuffer) {
  return { writer: new EventRingWriter(buffer, 3), reader: new EventRingReader(buffer, 3) };
}

const lineOf = (length: number, fill: number) => {
  return Buffer.concat([Buffer.alloc(length - 1, 97 + (fill % 26)), Buffer.from('\n')]);
};

describe('a ring of events', () => {
  test('gives the lines of a model, across its end and the wrap of its positions', () => {
    const step = fc.oneof(
      { weight: 3, arbitrary: fc.record({ write: fc.integer({ min: 1, max: 160_000 }) }) },
      { weight: 3, arbitrary: fc.constant('read' as const) },
      { weight: 3, arbitrary: fc.constant('release' as const) },
      { weight: 1, arbitrary: fc.constant('restart of the writer' as const) },
    );
    const position = fc.oneof(
      fc.constant(2 ** 31 - 100_000),
      fc.constant(-100_000),
      fc.constant(EVENT_RING_BYTES - 50_000),
      fc.integer(),
    );
    fc.assert(
      fc.property(position, fc.array(step, { maxLength: 200 }), (from, steps) => {
        const ring = openAt(from | 0);
        let { writer } = ring;
        const unread: Buffer[] = [];
        const unreleased: EventChunk[] = [];
        let used = 0;
        for (const [number, action] of steps.entries()) {
          if (action === 'read') {
            const chunk = ring.reader.read();
            expect(chunk === undefined).toBe(unread.length === 0);
            if (chunk === undefined) continue;
            const expected = unread.splice(0, chunk.count);
            expect(Buffer.compare(chunk.lines, Buffer.concat(expected))).toBe(0);
            expect(chunk.lines.length).toBeLessThanOrEqual(EVENT_CHUNK_BYTES);
            unreleased.push(chunk);
          } else if (action === 'release') {
            const chunk = unreleased.shift();
            if (chunk === undefined) continue;
            ring.reader.release(chunk);
            used -= chunk.lines.length;
          } else if (action === 'restart of the writer') {
            writer = new EventRingWriter(ring.buffer, 3);
          } else {
            const line = lineOf(action.write, number);
            const hasRoom = used + line.length <= EVENT_RING_BYTES;
            expect(writer.write(line)).toBe(hasRoom);
            if (!hasRoom) continue;
            unread.push(line);
            used += line.length;
          }
        }
      }),
      { numRuns: trialCount(100, 200) },
    );
  });

  test('is full with exactly its bytes', () => {
    const { writer, reader } = openAt(-5);
    const part = lineOf(EVENT_CHUNK_BYTES, 0);
    for (let i = 0; i < EVENT_RING_BYTES / part.length; i++) expect(writer.write(part)).toBe(true);
    expect(writer.write(lineOf(1, 0))).toBe(false);
    const chunk = reader.read()!;
    expect(writer.write(lineOf(1, 0))).toBe(false);
    reader.release(chunk);
    expect(writer.write(part)).toBe(true);
    expect(writer.write(lineOf(1, 0))).toBe(false);
  });

  test('passes every line of another thread on, in order', async () => {
    const buffer = allocateEventRing(3);
    const reader = new EventRingReader(buffer, 3);
    const lines = trialCount(50_000, 300_000);
    const task: RingTask = { buffer, acceptor: 3, lines };
    const thread = new Worker(THREAD, { workerData: task });
    let failure: unknown;
    const ended = once(thread, 'exit').catch((error) => {
      failure = error;
    });
    let next = 0;
    while (next < lines) {
      if (failure !== undefined) throw failure;
      const chunk = reader.read();
      if (chunk === undefined) {
        await new Promise((resolve) => setImmediate(resolve));
        continue;
      }
      const expected = Array.from({ length: chunk.count }, (_, i) => numberedLine(next + i));
      expect(Buffer.from(chunk.lines).toString()).toBe(expected.join(''));
      next += chunk.count;
      reader.release(chunk);
    }
    expect(await ended).toEqual([0]);
    expect(reader.read()).toBe(undefined);
  });

  test('shows nothing of a line whose writer has died before it published the line', () => {
    const { words, buffer, reader, writer } = openAt(0);
    writer.write(lineOf(10, 1));
    // All bytes of the next line are there, but not the store to the head.
    writer.write(lineOf(20, 2));
    words[HEAD] = 10;
    expect(reader.read()).toEqual({ lines: lineOf(10, 1), count: 1 });
    expect(reader.read()).toBe(undefined);
    new EventRingWriter(buffer, 3).write(lineOf(5, 3));
    expect(reader.read()).toEqual({ lines: lineOf(5, 3), count: 1 });
  });

  test('that is damaged is not read', () => {
    // More bytes than there are, and bytes that no acceptor has written.
    for (const head of [2 ** 31 - 1, -1, EVENT_RING_BYTES + 1, EVENT_RING_BYTES, 1]) {
      const { words, reader } = openAt(0);
      words[HEAD] = head;
      expect(() => reader.read()).toThrow(MemoryError);
    }
  });

  test('is not used in the place of that of another acceptor', () => {
    const buffer = allocateEventRing(3);
    expect(() => new EventRingWriter(buffer, 2)).toThrow(MemoryError);
    expect(() => new EventRingReader(new SharedArrayBuffer(1_024), 0)).toThrow(MemoryError);
  });
});
