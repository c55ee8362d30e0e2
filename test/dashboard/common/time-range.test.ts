import { describe, expect, test } from 'vitest';
import type { Live } from '../../../src/dashboard/common/live.ts';
import { fieldsOf, granularityOf, timeRangeOf } from '../../../src/dashboard/common/time-range.ts';
import type { Snapshot } from '../../../src/observe/dashboard/snapshot.ts';

const HOUR_MS = 3_600_000;
const NOW = Date.UTC(2026, 10, 29, 12);
const CHOICES = ['15m', '1h', '24h'] as const;
const live: Pick<Live, 'history' | 'minutes'> = { history: [{ at: NOW } as Snapshot], minutes: [] };
const rangeAt = (question: string, of = live) => {
  return timeRangeOf({ query: new URLSearchParams(question) }, of, CHOICES);
};

describe('the time of an address', () => {
  test('is the last hour by the clock of the server, unless the address has another', () => {
    const lastHour = { start: NOW - HOUR_MS, end: NOW, isLive: true, last: '1h' };
    expect(rangeAt('')).toEqual(lastHour);
    expect(rangeAt('last=24h')).toMatchObject({ start: NOW - 24 * HOUR_MS, last: '24h' });
  });

  test.each([
    'last=7d',
    'last=x',
    'from=x',
    'from=',
    'from=-1',
    'from=1.5',
    'to=5',
    'from=9&to=9',
    `from=${NOW + 1}`,
  ])('is the last hour for one that has no figures: %s', (question) => {
    expect(rangeAt(question).last).toBe('1h');
  });

  test('between two others is not live, and without an end it is', () => {
    expect(rangeAt('from=5&to=9')).toEqual({ start: 5, end: 9, isLive: false });
    const open = rangeAt(`from=${NOW - 9}`);
    expect(open).toEqual({ start: NOW - 9, end: NOW, isLive: true });
  });

  test('is written so that it is read as the same', () => {
    for (const question of ['', 'last=15m', 'from=5&to=9', `from=${NOW - 9}`]) {
      expect(new URLSearchParams(fieldsOf(rangeAt(question))).toString()).toBe(question);
    }
  });

  test('begins with the first minute of a server that started lately', () => {
    const at = NOW - 20 * 60_000;
    const down = { at: NOW - HOUR_MS, elapsedMs: 60_000, latency: null };
    const minutes = [down, { at, elapsedMs: 60_000, latency: [1] }];
    expect(rangeAt('', { ...live, minutes }).start).toBe(at);
    expect(rangeAt('last=15m', { ...live, minutes }).start).toBe(NOW - 15 * 60_000);
    expect(rangeAt('last=24h', { ...live, minutes }).start).toBe(NOW - 24 * HOUR_MS);
  });
});

test('minutes are asked for of a day at most, in which the server has them', () => {
  const of = (agoH: number, hours: number) => {
    const start = NOW - agoH * HOUR_MS;
    return granularityOf({ start, end: start + hours * HOUR_MS }, NOW);
  };
  expect([of(24, 24), of(1, 1), of(25, 1), of(168, 168)]).toEqual([
    'minute',
    'minute',
    'hour',
    'hour',
  ]);
});
