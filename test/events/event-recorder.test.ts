import { expect, test } from 'vitest';
import { FastRandom } from '../../src/core/fast-random.ts';
import { type EventPlan, EventRecorder } from '../../src/events/event-recorder.ts';
import { allocateEventRing, EventRingReader } from '../../src/events/event-ring.ts';
import { allocateControl, Control } from '../../src/shared-memory/control.ts';
import { ACCEPTOR_STAT } from '../../src/shared-memory/stats.ts';
import { EVENT, TIME_MS } from '../support/decision-event.ts';

function open(plan: Partial<EventPlan> = {}) {
  const stats = new Control(allocateControl(1, 1)).acceptorStats(0);
  const buffer = allocateEventRing(0);
  const recorder = new EventRecorder(
    { selection: 'all', oneIn: 1, identifierForm: 'text', rings: [buffer], ...plan },
    0,
    { nowMs: () => TIME_MS },
    stats,
    new FastRandom(7),
  );
  const reader = new EventRingReader(buffer, 0);
  return { recorder, reader, dropped: () => stats.get(ACCEPTOR_STAT.droppedEvents) };
}

test('a decision is in the ring as soon as it is recorded, with its time', () => {
  const { recorder, reader } = open();
  const identity = { h0: 1, h1: 2, h2: 3, h3: 4 };
  recorder.record({ ...EVENT, identity });
  identity.h0 = 5;
  const { lines, count } = reader.read()!;
  expect(JSON.parse(Buffer.from(lines).toString())).toMatchObject({ time: TIME_MS, cost: 2 });
  expect(count).toBe(1);
});

test('only the selected decisions become events', () => {
  const { recorder: ofAll } = open();
  expect([ofAll.selects(true), ofAll.selects(false)]).toEqual([true, true]);
  const { recorder } = open({ selection: 'denied' });
  expect([recorder.selects(true), recorder.selects(false)]).toEqual([false, true]);
});

test('a sample has the given share of the requests, each independent of the one before', () => {
  const requests = 50_000;
  for (const oneIn of [1, 2, 100]) {
    const { recorder } = open({ oneIn });
    const isIn = Array.from({ length: requests }, () => recorder.samples());
    const sampled = isIn.filter(Boolean).length;
    const both = isIn.filter((it, i) => it && isIn[i + 1]).length;
    const share = 1 / oneIn;
    // Six standard deviations, and one for the last request.
    const expectShare = (count: number, of: number) => {
      const deviation = 6 * Math.sqrt(requests * of * (1 - of)) + 1;
      expect(Math.abs(count - requests * of)).toBeLessThanOrEqual(deviation);
    };
    expectShare(sampled, share);
    expectShare(both, share * share);
  }
});

test('events without room are dropped and counted, and written again when there is room', () => {
  const { recorder, reader, dropped } = open();
  const count = 100_000;
  for (let i = 0; i < count; i++) recorder.record(EVENT);
  const before = dropped();
  expect(before).toBeGreaterThan(0);
  const chunk = reader.read()!;
  // Lines that were read, but are not in the file yet, take their room.
  recorder.record(EVENT);
  expect(dropped()).toBe(before + 1);
  reader.release(chunk);
  recorder.record(EVENT);
  expect(dropped()).toBe(before + 1);
  let read = chunk.count;
  for (let next = reader.read(); next !== undefined; next = reader.read()) read += next.count;
  expect(read + dropped()).toBe(count + 2);
});
