import { expect, test } from 'vitest';
import { EVENT_BYTES_MAX, EVENT_CHUNK_BYTES } from '../../src/core/constants.ts';
import { type DecisionEvent, validTraceparent } from '../../src/events/decision-event.ts';
import { type EventChunk, type EventPlan, EventRecorder } from '../../src/events/event-recorder.ts';
import { readDetails } from '../../src/events/request-details.ts';
import { allocateControl, Control } from '../../src/shared-memory/control.ts';
import { ACCEPTOR_STAT } from '../../src/shared-memory/stats.ts';

const EVENT: DecisionEvent = {
  ...{ time: 1_795_179_540_000, namespace: 'a', identifier: 'é "1"', isAllowed: false, cost: 2 },
  ...{ identity: { h0: 1, h1: -1, h2: 0, h3: 16 } },
  ...{ limit: 10, durationMs: 60_000, remaining: 1, reset: 1_795_179_600_000 },
};
const BASE = {
  ...{ time: 1_795_179_540_000, namespace: 'a', decision: 'denied', cost: 2 },
  ...{ limit: 10, duration: 60_000, remaining: 1, reset: 1_795_179_600_000 },
};

function open(plan: Partial<EventPlan> = {}) {
  const stats = new Control(allocateControl(1, 1)).acceptorStats(0);
  const chunks: EventChunk[] = [];
  const recorder = new EventRecorder(
    { selection: 'all', oneIn: 1, identifierForm: 'text', ...plan },
    stats,
    (chunk) => chunks.push({ ...chunk, lines: chunk.lines.slice() }),
  );
  const lines = () => {
    return chunks.flatMap((chunk) => {
      const text = Buffer.from(chunk.lines).toString();
      expect(text.endsWith('\n')).toBe(true);
      const all = text.slice(0, -1).split('\n');
      expect(all.length).toBe(chunk.count);
      return all.map((line) => JSON.parse(line));
    });
  };
  return { recorder, chunks, lines, dropped: () => stats.get(ACCEPTOR_STAT.droppedEvents) };
}

test('an event is a line of JSON without the fields that have no value', () => {
  const { recorder, lines } = open();
  recorder.record(EVENT);
  const request = { traceparent: 'x', meta: '{"a":[1]}', resources: '[]' };
  recorder.record({ ...EVENT, overrideId: 'rlor_1', policy: 'site', isShadow: true, request });
  recorder.record({ time: 1, namespace: 'b', isAllowed: true, cost: 0, request: {} });
  recorder.flush();
  expect(lines()).toEqual([
    { ...BASE, identifier: 'é "1"' },
    {
      ...{ ...BASE, identifier: 'é "1"', override: 'rlor_1', policy: 'site', shadow: true },
      ...{ traceparent: 'x', meta: { a: [1] }, resources: [] },
    },
    { time: 1, namespace: 'b', decision: 'allowed', cost: 0 },
  ]);
});

test('an identifier is replaced by its hash on request', () => {
  const { recorder, lines } = open({ identifierForm: 'hash' });
  recorder.record(EVENT);
  recorder.flush();
  expect(lines()).toEqual([{ ...BASE, identifierHash: '00000001ffffffff0000000000000010' }]);
});

test('only the selected decisions become events, and of a sample the given share', () => {
  const { recorder: ofAll } = open();
  expect([ofAll.samples(), ofAll.selects(true), ofAll.selects(false)]).toEqual([true, true, true]);
  const { recorder } = open({ selection: 'denied' });
  expect([recorder.selects(true), recorder.selects(false)]).toEqual([false, true]);
  const sample = open({ oneIn: 100 }).recorder;
  const selected = Array.from({ length: 100_000 }, () => sample.samples()).filter(Boolean);
  expect(selected.length).toBeGreaterThan(800);
  expect(selected.length).toBeLessThan(1_200);
});

test('events are sent in chunks, before the next one would not fit', () => {
  const { recorder, chunks, lines } = open();
  for (let i = 0; i < 5_000; i++) recorder.record(EVENT);
  recorder.flush();
  expect(chunks.length).toBeGreaterThan(2);
  for (const chunk of chunks) expect(chunk.lines.length).toBeLessThanOrEqual(EVENT_CHUNK_BYTES);
  expect(lines().length).toBe(5_000);
});

test('events are dropped and counted while too many are not written, and sent again after', () => {
  const { recorder, chunks, lines, dropped } = open();
  const count = 100_000;
  for (let i = 0; i < count; i++) recorder.record(EVENT);
  const sent = chunks.reduce((sum, chunk) => sum + chunk.lines.length, 0);
  expect(sent).toBeLessThanOrEqual(EVENT_BYTES_MAX);
  expect(dropped()).toBeGreaterThan(0);
  recorder.flush();
  expect(lines().length + dropped()).toBe(count);
  const before = dropped();
  recorder.record(EVENT);
  recorder.flush();
  expect(dropped()).toBe(before + 1);
  recorder.acknowledge(sent);
  recorder.record(EVENT);
  recorder.flush();
  expect(lines().length + dropped()).toBe(count + 2);
  expect(dropped()).toBe(before + 1);
});

test('the longest event fits a chunk', () => {
  const { recorder, lines, dropped } = open();
  const longest = { ...EVENT, identifier: '\u0001'.repeat(512), namespace: '\u0001'.repeat(512) };
  recorder.record({ ...longest, request: { meta: JSON.stringify('\u0001'.repeat(10_900)) } });
  recorder.flush();
  expect([lines().length, dropped()]).toEqual([1, 0]);
});

test('meta that is nested too deeply for JSON.stringify is left out of its event', () => {
  const deep = `{"a":${'['.repeat(32_000)}${']'.repeat(32_000)}}`;
  expect(() => JSON.stringify(JSON.parse(deep))).toThrow(RangeError);
  const body = Buffer.from(`{"meta":${deep},"resources":[{"id":"1"}]}`);
  expect(readDetails(body, { traceparent: undefined })).toEqual({ resources: '[{"id":"1"}]' });
});

test('the events of checks that share an identity object have their own hashes', () => {
  const { recorder, lines } = open({ identifierForm: 'hash' });
  const identity = { h0: 1, h1: 2, h2: 3, h3: 4 };
  recorder.record({ ...EVENT, identity });
  identity.h0 = 5;
  recorder.record({ ...EVENT, identity });
  recorder.flush();
  const hashes = lines().map(({ identifierHash }) => identifierHash.slice(0, 8));
  expect(hashes).toEqual(['00000001', '00000005']);
});

test('meta and resources are read from a body that has them', () => {
  const details = (body: object) =>
    readDetails(Buffer.from(JSON.stringify(body)), { traceparent: undefined });
  expect(details({ identifier: 'a' })).toEqual({});
  expect(details({ identifier: 'a', meta: { b: null }, resources: [{ id: '1' }] })).toEqual({
    ...{ meta: '{"b":null}', resources: '[{"id":"1"}]' },
  });
  expect(readDetails(Buffer.from('{"identifier":"\\"meta\\""}'), { traceparent: 'trace' })).toEqual(
    {
      traceparent: 'trace',
    },
  );
});

test('a traceparent that is not valid is ignored, as W3C Trace Context says', () => {
  const valid = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
  expect(validTraceparent(valid)).toBe(valid);
  for (const header of ['', 'x', valid.toUpperCase(), `${valid}-\n`, ` ${valid}`, valid.slice(1)]) {
    expect(validTraceparent(header)).toBe(undefined);
  }
});
