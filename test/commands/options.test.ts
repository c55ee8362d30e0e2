/** Durations and dates of the command line. */

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { parseDuration, parseExpiry } from '../../src/commands/options.ts';
import { DURATION_MAX_MS, DURATION_MIN_MS } from '../../src/core/constants.ts';
import { formatDuration } from '../../src/core/duration.ts';

const UNITS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

test('a formatted duration is parsed to the same value', () => {
  const amounts = fc.integer({ min: DURATION_MIN_MS, max: DURATION_MAX_MS });
  const round = fc.constantFrom(...Object.values(UNITS)).chain((unit) => {
    return fc.integer({ min: Math.ceil(1_000 / unit), max: 36_525 }).map((count) => count * unit);
  });
  fc.assert(
    fc.property(fc.oneof(amounts, round), (ms) => {
      expect(parseDuration('duration', formatDuration(ms))).toBe(ms);
      expect(parseDuration('duration', `${ms}`)).toBe(ms);
    }),
  );
});

test('a duration without a unit is in ms, and an error quotes it as typed', () => {
  const ms = (text: string) => () => parseDuration('duration', text);
  const range = '--duration must be from 1s to 36525d; got';
  expect(ms('60')).toThrow(new Error(`${range} 60, which is 60 ms: for seconds write 60s`));
  expect(ms('999')).toThrow(new Error(`${range} 999, which is 999 ms: for seconds write 999s`));
  expect(ms('0')).toThrow(new Error(`${range} 0, which is 0 ms`));
  expect(ms('9999999999999')).toThrow(
    new Error(`${range} 9999999999999, which is 9999999999999 ms`),
  );
});

test('a timeout needs a unit', () => {
  const bounds = { minimumMs: 1, maximumMs: 300_000, needsUnit: true } as const;
  expect(parseDuration('timeout', '5s', bounds)).toBe(5_000);
  for (const text of ['5', '5000', '', 'soon']) {
    expect(() => parseDuration('timeout', text, bounds)).toThrow(
      new Error(
        `--timeout must be a duration with a unit, such as 500ms or 5s; got ${JSON.stringify(text)}`,
      ),
    );
  }
});

test('a duration with a unit is parsed, or rejected with the bounds in that unit', () => {
  const units = fc.constantFrom(...(Object.keys(UNITS) as (keyof typeof UNITS)[]));
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 4e12 }), units, (count, unit) => {
      const ms = count * UNITS[unit];
      const read = () => parseDuration('duration', `${count}${unit}`);
      if (ms >= DURATION_MIN_MS && ms <= DURATION_MAX_MS) expect(read()).toBe(ms);
      else expect(read).toThrow(new RegExp(` to ${DURATION_MAX_MS / UNITS[unit]}${unit}; got "`));
    }),
  );
});

test('a date is parsed with any UTC offset', () => {
  const dates = fc.date({
    min: new Date('2100-01-01T00:00:00Z'),
    max: new Date('9998-12-31T00:00:00Z'),
    noInvalidDate: true,
  });
  fc.assert(
    fc.property(dates, fc.integer({ min: -14 * 60, max: 14 * 60 }), (date, minutes) => {
      const local = new Date(date.getTime() + minutes * 60_000).toISOString().slice(0, -1);
      const [h, m] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
      const two = (n: number) => String(n).padStart(2, '0');
      const offset = `${minutes < 0 ? '-' : '+'}${two(h)}:${two(m)}`;
      expect(parseExpiry('expires', local + offset)).toBe(date.getTime());
      expect(parseExpiry('expires', date.toISOString())).toBe(date.getTime());
      const day = date.toISOString().slice(0, 10);
      expect(parseExpiry('expires', day)).toBe(Date.parse(day));
    }),
  );
});

test.each(['90s', '15m', '1h', '30d', '5000ms'])('the expiry "%s" is relative to now', (text) => {
  const before = Date.now();
  const ms = parseExpiry('expires', text) - parseDuration('expires', text);
  expect(ms >= before && ms <= Date.now()).toBe(true);
});

test.each([
  ...['soon', '', '90000', '0', '1y', '-1d', '1d ', '2030', '2030-', '2030-1-31', '2030-13-45'],
  ...['2030-02-31', '2030-02-30T12:00:00Z', '2030-00-10', '2030-01-00', '2030-01-31 10:00'],
  ...['2030-01-31T12:00:00', '2030-01-31T12:00', '2030-01-31T25:00:00Z', '2030-01-31T12:00:00z'],
  ...['2030-01-31T12:00:00+0200', '31.01.2030', '01/31/2030', '+2030-01-31', 'Jan 31 2030'],
])('"%s" is not an expiry', (text) => {
  expect(() => parseExpiry('expires', text)).toThrow(
    /^--expires must be a duration from now such as .*, or a date such as 2030-01-31, .*; got "/,
  );
});

test.each(['2001-01-31', '1969-12-31T23:59:59Z', '0001-01-01', '2020-02-29'])(
  'the expiry "%s" is in the past',
  (text) => {
    expect(() => parseExpiry('expires', text)).toThrow('--expires must be in the future; got "');
  },
);

test('an expiry after 0 s or after more than a century is rejected', () => {
  expect(() => parseExpiry('expires', '0s')).toThrow('--expires must be from 1s to 3155760000s');
  expect(() => parseExpiry('expires', '9999999999999d')).toThrow('must be from 1s to 36525d; got');
});
