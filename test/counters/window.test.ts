import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  type Cells,
  type Decision,
  decideFixed,
  isCurrent,
  isExpired,
  NO_WINDOW,
} from '../../src/counters/window.ts';
import { AMOUNT_MAX, DURATION_MAX_MS, DURATION_MIN_MS } from '../../src/limits.ts';

const newCells = (): Cells => ({ newest: NO_WINDOW, current: 0, previous: 0 });
const newAnswer = (): Decision => ({ admitted: false, remaining: 0, reset: 0 });

/** The rules of the API, said with exact integers and a map of all windows that ever were. */
class Model {
  readonly used = new Map<bigint, bigint>();
  newest = BigInt(NO_WINDOW);

  decide(now: number, limit: number, duration: number, cost: number) {
    const clock = BigInt(now) / BigInt(duration);
    const window = clock > this.newest ? clock : this.newest;
    const used = this.used.get(window) ?? 0n;
    const admitted = cost === 0 || used + BigInt(cost) <= BigInt(limit);
    if (admitted && cost > 0) {
      this.used.set(window, used + BigInt(cost));
      this.newest = window;
    }
    const left = BigInt(limit) - (this.used.get(window) ?? 0n);
    return {
      admitted,
      remaining: Number(left > 0n ? left : 0n),
      reset: Number((window + 1n) * BigInt(duration)),
    };
  }
}

const amount = (minimum: number) =>
  fc.oneof(
    fc.integer({ min: minimum, max: 20 }),
    fc.integer({ min: minimum, max: AMOUNT_MAX }),
    fc.integer({ min: AMOUNT_MAX - 20, max: AMOUNT_MAX }),
  );
const duration = fc.oneof(
  fc.constantFrom(1_000, 1_001, 60_000, 86_400_000, DURATION_MAX_MS),
  fc.integer({ min: DURATION_MIN_MS, max: DURATION_MAX_MS }),
);

describe('the fixed window', () => {
  test('equals a naive model on random checks, with a clock that steps both ways', () => {
    const step = fc.record({
      part: fc.double({ min: -2.5, max: 2.5, noNaN: true }),
      limit: amount(1),
      cost: amount(0),
    });
    fc.assert(
      fc.property(
        fc.integer({ min: 1.6e12, max: 4e12 }),
        duration,
        fc.array(step, { minLength: 1, maxLength: 60 }),
        (start, length, steps) => {
          const model = new Model();
          const cells = newCells();
          const answer = newAnswer();
          let now = start;
          for (const { part, limit, cost } of steps) {
            now = Math.min(7e12, Math.max(0, Math.floor(now + part * length)));
            decideFixed(cells, now, limit, length, cost, answer);
            expect(answer).toEqual(model.decide(now, limit, length, cost));
          }
          expect(BigInt(cells.current)).toBe(model.used.get(model.newest) ?? 0n);
          const before = cells.newest === NO_WINDOW ? 0n : model.used.get(model.newest - 1n);
          expect(BigInt(cells.previous)).toBe(before ?? 0n);
        },
      ),
      { numRuns: 5_000 },
    );
  });

  test('keeps what is used when the limit is lowered, and refuses without going negative', () => {
    const cells = newCells();
    const answer = newAnswer();
    decideFixed(cells, 5_000, 10, 1_000, 8, answer);
    decideFixed(cells, 5_001, 5, 1_000, 1, answer);
    expect(answer).toEqual({ admitted: false, remaining: 0, reset: 6_000 });
    decideFixed(cells, 5_002, 10, 1_000, 2, answer);
    expect(answer).toEqual({ admitted: true, remaining: 0, reset: 6_000 });
  });

  test('is exact up to 2^53-1 and never wraps', () => {
    const cells = newCells();
    const answer = newAnswer();
    decideFixed(cells, 0, AMOUNT_MAX, 1_000, AMOUNT_MAX - 1, answer);
    expect(answer).toMatchObject({ admitted: true, remaining: 1 });
    decideFixed(cells, 0, AMOUNT_MAX, 1_000, 2, answer);
    expect(answer).toMatchObject({ admitted: false, remaining: 1 });
    decideFixed(cells, 0, AMOUNT_MAX, 1_000, AMOUNT_MAX, answer);
    expect(answer).toMatchObject({ admitted: false, remaining: 1 });
    decideFixed(cells, 0, AMOUNT_MAX, 1_000, 1, answer);
    expect(answer).toMatchObject({ admitted: true, remaining: 0 });
  });

  test('is aligned to the epoch, whatever the first check', () => {
    const answer = newAnswer();
    decideFixed(newCells(), 1_700_000_012_345, 1, 60_000, 1, answer);
    expect(answer.reset).toBe(Math.floor(1_700_000_012_345 / 60_000) * 60_000 + 60_000);
  });

  test('a counter expires when the window after its newest has ended', () => {
    expect(isCurrent(7, 1_000, 7_999)).toBe(true);
    expect(isCurrent(7, 1_000, 8_000)).toBe(false);
    expect(isExpired(7, 1_000, 8_999)).toBe(false);
    expect(isExpired(7, 1_000, 9_000)).toBe(true);
  });
});
