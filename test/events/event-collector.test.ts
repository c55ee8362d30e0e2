import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import {
  CLOCK_TICK_MS,
  EVENT_CHUNK_BYTES,
  EVENT_INTERVAL_MS,
  EVENT_RING_BYTES,
} from '../../src/core/constants.ts';
import { openLog } from '../../src/core/log.ts';
import { EventCollector } from '../../src/events/event-collector.ts';
import { EventFile } from '../../src/events/event-file.ts';
import { allocateEventRing, EventRingWriter } from '../../src/events/event-ring.ts';
import { removeDirectory, temporaryDirectory, waitUntil } from '../support/server.ts';

let directory: string;
let path: string;
beforeEach(() => {
  directory = temporaryDirectory();
  path = join(directory, 'events.jsonl');
});
afterEach(() => removeDirectory(directory));

function open() {
  const rings = [0, 1].map(allocateEventRing);
  const log = openLog('silent');
  const file = new EventFile({ path, maxBytes: 2 ** 30, keptFiles: 1, log });
  const writers = rings.map((buffer, index) => new EventRingWriter(buffer, index));
  const collector = new EventCollector(rings, file);
  const tickUntilWritten = (count: number) => {
    return waitUntil(`${count} are written`, () => {
      collector.tick();
      return file.written >= count;
    });
  };
  return { file, writers, collector, tickUntilWritten };
}
const linesOfFile = () => readFileSync(path, 'utf8').split('\n').slice(0, -1);

test('the events of all acceptors are written while they run, and the others at the end', async () => {
  const { file, writers, collector, tickUntilWritten } = open();
  for (const [index, writer] of writers.entries()) writer.write(Buffer.from(`first ${index}\n`));
  await tickUntilWritten(2);
  expect(linesOfFile()).toEqual(['first 0', 'first 1']);
  for (const [index, writer] of writers.entries()) writer.write(Buffer.from(`last ${index}\n`));
  await collector.close();
  expect(linesOfFile()).toEqual(['first 0', 'first 1', 'last 0', 'last 1']);
  expect(file.written).toBe(4);
});

test('a full ring is written chunk by chunk, and has room for as much again', async () => {
  const { writers, collector, tickUntilWritten } = open();
  const [writer] = writers;
  const lineBytes = 1_000;
  const count = Math.floor(EVENT_RING_BYTES / lineBytes);
  expect(count * lineBytes).toBeGreaterThan(2 * EVENT_CHUNK_BYTES);
  const line = (i: number) => `${i}`.padEnd(lineBytes - 1, '.');
  for (let round = 1; round <= 2; round++) {
    for (let i = 0; i < count; i++) expect(writer.write(Buffer.from(`${line(i)}\n`))).toBe(true);
    await tickUntilWritten(round * count);
  }
  await collector.close();
  const numbers = Array.from({ length: count }, (_, i) => line(i));
  expect(linesOfFile()).toEqual([...numbers, ...numbers]);
});

test('all that is in the rings at the end is written, also behind a chunk that is written', async () => {
  for (const chunks of [1, 2, 3, 4, 5]) {
    rmSync(path, { force: true });
    const { file, writers, collector } = open();
    const [writer] = writers;
    const line = Buffer.from(`${'.'.repeat(1_023)}\n`);
    const count = (chunks * EVENT_CHUNK_BYTES) / line.length;
    for (let i = 0; i < count; i++) writer.write(line);
    // The first chunk is on its way.
    collector.tick();
    const closed = collector.close();
    collector.tick();
    await closed;
    expect(file.written).toBe(count);
    expect(linesOfFile().length).toBe(count);
  }
});

test('few events wait for the end of an interval, and a chunk does not', async () => {
  const { file, writers, collector } = open();
  const [few, many] = writers;
  few.write(Buffer.from('few\n'));
  for (let bytes = 0; bytes < EVENT_CHUNK_BYTES; bytes += 1_000) {
    many.write(Buffer.from(`${'.'.repeat(999)}\n`));
  }
  collector.tick();
  await waitUntil('the chunk is written', () => file.written > 0);
  expect(linesOfFile()).not.toContain('few');
  for (let ticks = 1; ticks < EVENT_INTERVAL_MS / CLOCK_TICK_MS; ticks++) collector.tick();
  await waitUntil('the few are written', () => linesOfFile().includes('few'));
  await collector.close();
});

test('all events before the end of an interval are written then, also if they are many', async () => {
  const { file, writers, collector } = open();
  const [writer] = writers;
  const lines = (1.5 * EVENT_CHUNK_BYTES) / 1_024;
  for (let i = 0; i < lines; i++) writer.write(Buffer.from(`${'.'.repeat(1_023)}\n`));
  for (let ticks = 0; ticks < EVENT_INTERVAL_MS / CLOCK_TICK_MS; ticks++) collector.tick();
  // Without another tick.
  await waitUntil('all are written', () => file.written === lines);
  await collector.close();
});
