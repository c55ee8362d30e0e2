import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { AMOUNT_MAX, DURATION_MAX_MS } from '../../../src/core/constants.ts';
import { type Decision, NEVER } from '../../../src/core/decision.ts';
import { NO_BURST, RULE } from '../../../src/core/window-rules.ts';
import { judgeFixed } from '../../../src/engine/windows/fixed.ts';
import { isExpired, ruleOf } from '../../../src/engine/windows/registry.ts';
import { type Cells, type Judge, NO_WINDOW, newCells } from '../../../src/engine/windows/rule.ts';
import { judgeSliding, share, slidingPassesAt } from '../../../src/engine/windows/sliding.ts';
import { addUsage, isCurrent } from '../../../src/engine/windows/window.ts';
import { trialCount } from '../../support/guarantees.ts';
import { amounts, durations } from '../../support/limiter-model.ts';

/** Decides a check, and counts its cost if it is allowed, as the table does. */
function decide(
  judge: Judge,
  cells: Cells,
  now: number,
  limit: number,
  durationMs: number,
  cost: number,
): Omit<Decision, 'passesAt'> {
  const rule = judge === judgeSliding ? RULE.sliding : RULE.fixed;
  const terms = { limit, durationMs, cost, rule, burst: NO_BURST };
  const decideAt = (ms: number) => {
    const decision = { allowed: false, remaining: 0, reset: 0, window: 0, passesAt: 0 };
    judge(Object.freeze({ ...cells }), ms, terms, decision);
    return decision;
  };
  const { passesAt, ...decision } = decideAt(now);
  if (decision.allowed) {
    expect(passesAt).toBe(0);
    if (cost > 0) addUsage(cells, decision.window, cost);
  } else if (cost > limit) expect(passesAt).toBe(NEVER);
  else {
    const around = [decideAt(passesAt - 1), decideAt(passesAt)];
    expect(around.map(({ allowed }) => allowed)).toEqual([false, true]);
  }
  return decision;
}

/** The rules of the API in exact integers, with a map of all windows. */
class WindowModel {
  readonly used = new Map<bigint, bigint>();
  newest = BigInt(NO_WINDOW);
  readonly isSliding: boolean;

  constructor(isSliding: boolean) {
    this.isSliding = isSliding;
  }

  decide(now: number, limit: number, duration: number, cost: number) {
    const length = BigInt(duration);
    const clock = BigInt(now) / length;
    const window = clock > this.newest ? clock : this.newest;
    const allowed = cost === 0 || this.#use(window, now, length) + BigInt(cost) <= BigInt(limit);
    if (allowed && cost > 0) {
      this.used.set(window, (this.used.get(window) ?? 0n) + BigInt(cost));
      this.newest = window;
    }
    const left = BigInt(limit) - this.#use(window, now, length);
    const showsRemaining = allowed || !this.isSliding;
    return {
      allowed: allowed,
      remaining: showsRemaining && left > 0n ? Number(left) : 0,
      reset: Number((window + 1n) * length),
      window: Number(window),
    };
  }

  /** The usage. The elapsed share of the window is an exact fraction. */
  #use(window: bigint, now: number, length: bigint): bigint {
    const used = this.used.get(window) ?? 0n;
    if (!this.isSliding) return used;
    const passed = BigInt(now) - window * length;
    const elapsed = { over: passed < 0n ? 0n : passed, under: length };
    const before = this.used.get(window - 1n) ?? 0n;
    return used + (before * (elapsed.under - elapsed.over)) / elapsed.under;
  }
}

describe.each([
  ['fixed', judgeFixed],
  ['sliding', judgeSliding],
] as const)('the %s window', (name, judge) => {
  test('equals an exact model on random checks, also when the clock steps back', () => {
    const step = fc.record({
      part: fc.double({ min: -1.5, max: 2, noNaN: true }),
      limit: amounts(0),
      cost: amounts(0),
    });
    fc.assert(
      fc.property(
        fc.integer({ min: 1.6e12, max: 4e12 }),
        durations,
        fc.array(step, { minLength: 1, maxLength: 60 }),
        (start, length, steps) => {
          const model = new WindowModel(name === 'sliding');
          const cells = newCells();
          let now = start;
          for (const { part, limit, cost } of steps) {
            now = Math.min(7e12, Math.max(0, Math.floor(now + part * length)));
            const expected = model.decide(now, limit, length, cost);
            expect(decide(judge, cells, now, limit, length, cost)).toEqual(expected);
          }
          expect(BigInt(cells.current)).toBe(model.used.get(model.newest) ?? 0n);
          const before = cells.newest === NO_WINDOW ? 0n : model.used.get(model.newest - 1n);
          expect(BigInt(cells.previous)).toBe(before ?? 0n);
        },
      ),
      { numRuns: trialCount(600, 5_000) },
    );
  });

  test('allows a cost of 0 at any usage, and returns the remaining tokens', () => {
    const cells = { newest: 5, current: 10, previous: 7, limit: 0 };
    const at = { allowed: true, reset: 6_000, window: 5 };
    expect(decide(judge, cells, 5_000, 20, 1_000, 0)).toMatchObject({ allowed: true });
    expect(decide(judge, cells, 5_999, 14, 1_000, 0)).toEqual({ ...at, remaining: 4 });
    expect(decide(judge, cells, 5_000, 3, 1_000, 0)).toEqual({ ...at, remaining: 0 });
    expect(decide(judge, cells, 5_000, 0, 1_000, 0)).toEqual({ ...at, remaining: 0 });
    expect(cells).toEqual({ newest: 5, current: 10, previous: 7, limit: 0 });
  });
});

describe('the sliding window', () => {
  test('a denial in a later window protects what is carried over, and nothing else', () => {
    const { protect } = ruleOf(RULE.sliding);
    const empty = { newest: 5, current: 0, previous: 9, limit: 0 };
    expect(protect({ ...empty }, 6)).toBe(false);
    const used = { ...empty, current: 1 };
    expect(protect(used, 6)).toBe(true);
    expect(used).toMatchObject({ newest: 6, current: 0, previous: 1 });
  });

  test('has an exact share of the previous usage, also where the product exceeds 2^53', () => {
    const whole = fc.integer({ min: 1, max: DURATION_MAX_MS });
    fc.assert(
      fc.property(
        amounts(0),
        whole,
        fc.double({ min: 0, max: 1, noNaN: true }),
        (of, length, part) => {
          const over = Math.floor(part * length);
          const expected = (BigInt(of) * BigInt(over)) / BigInt(length);
          expect(BigInt(share(of, over, length))).toBe(expected);
        },
      ),
      { numRuns: trialCount(10_000, 100_000) },
    );
    // Quotients next to an integer, from products next to 2^53.
    for (let length = 1_000; length < 1_500; length++) {
      for (const of of [AMOUNT_MAX, AMOUNT_MAX - 1, Math.floor(AMOUNT_MAX / (length - 1))]) {
        for (const over of [1, length - 1, length]) {
          const expected = (BigInt(of) * BigInt(over)) / BigInt(length);
          expect(share(of, over, length)).toBe(Number(expected));
        }
      }
    }
  });
});

describe('a counter', () => {
  test('counts in its newest window and the one before it only', () => {
    const cells = { newest: 5, current: 3, previous: 4, limit: 0 };
    expect(addUsage(cells, 3, 1)).toBe(false);
    expect(addUsage(cells, 4, 1)).toBe(true);
    expect(addUsage(cells, 5, 1)).toBe(true);
    expect(cells).toEqual({ newest: 5, current: 4, previous: 5, limit: 0 });
    expect(addUsage(cells, 6, 2)).toBe(true);
    expect(cells).toEqual({ newest: 6, current: 2, previous: 4, limit: 0 });
    expect(addUsage(cells, 9, 2)).toBe(true);
    expect(cells).toEqual({ newest: 9, current: 2, previous: 0, limit: 0 });
  });

  test('expires when the window after its newest has ended', () => {
    expect(isCurrent(7, 1_000, 7_999)).toBe(true);
    expect(isCurrent(7, 1_000, 8_000)).toBe(false);
    expect(isExpired(1_000, 7, 8_999)).toBe(false);
    expect(isExpired(1_000, 7, 9_000)).toBe(true);
  });
});

test('a deduction does not move a counter into a window that has not begun', () => {
  const parameters = { limit: 10, durationMs: 1_000, cost: 1, rule: RULE.fixed, burst: NO_BURST };
  for (const { newest } of [newCells(), { newest: 4 }]) {
    const cells = { ...newCells(), newest };
    // The window of another counter, which a peek without the lock may have read.
    expect(ruleOf(RULE.fixed).deduct(cells, 1_790_000_000_000, 5_500, parameters)).toBe(true);
    expect(cells).toMatchObject({ newest: 5, current: 1 });
  }
});

describe('a reservation', () => {
  const durationMs = 1_000;
  const used = () => ({ newest: 5, current: 8, previous: 3, limit: 10 });
  const giveBack = (name: 'fixed' | 'sliding', window: number, nowMs: number, tokens: number) => {
    const cells = used();
    const reserved = { window, durationMs, limit: 10 };
    const returned = ruleOf(RULE[name]).giveBack(cells, reserved, nowMs, tokens);
    if (returned === 0) expect(cells).toEqual(used());
    return { returned, current: cells.current, previous: cells.previous };
  };

  test('gives its tokens back to its window, and no more than are used there', () => {
    for (const name of ['fixed', 'sliding'] as const) {
      expect(giveBack(name, 5, 5_999, 3)).toEqual({ returned: 3, current: 5, previous: 3 });
      expect(giveBack(name, 5, 5_000, 9)).toEqual({ returned: 8, current: 0, previous: 3 });
      // A clock that is behind the window is in it.
      expect(giveBack(name, 5, 4_000, 3)).toEqual({ returned: 3, current: 5, previous: 3 });
      expect(giveBack(name, 5, 5_500, 0).returned).toBe(0);
    }
  });

  test('gives nothing back after its fixed window', () => {
    expect(giveBack('fixed', 5, 6_000, 3).returned).toBe(0);
    expect(giveBack('fixed', 4, 5_500, 3).returned).toBe(0);
    expect(giveBack('fixed', 4, 4_999, 3).returned).toBe(0);
  });

  test('gives tokens back to a sliding window while it is carried over', () => {
    expect(giveBack('sliding', 5, 6_999, 3)).toEqual({ returned: 3, current: 5, previous: 3 });
    expect(giveBack('sliding', 5, 7_000, 3).returned).toBe(0);
    expect(giveBack('sliding', 4, 5_999, 2)).toEqual({ returned: 2, current: 8, previous: 1 });
    expect(giveBack('sliding', 4, 5_000, 9)).toEqual({ returned: 3, current: 8, previous: 0 });
    expect(giveBack('sliding', 4, 6_000, 2).returned).toBe(0);
  });

  test('gives nothing back to a window that the counter does not have', () => {
    for (const name of ['fixed', 'sliding'] as const) {
      expect(giveBack(name, 3, 5_500, 3).returned).toBe(0);
      expect(giveBack(name, 6, 6_500, 3).returned).toBe(0);
      const cells = newCells();
      const reserved = { window: 5, durationMs, limit: 10 };
      expect(ruleOf(RULE[name]).giveBack(cells, reserved, 5_500, 3)).toBe(0);
      expect(cells).toEqual(newCells());
    }
  });
});

test('a denial whose tokens have been returned passes in the window that it has', () => {
  const [durationMs, reset] = [60_000, 120_000];
  const terms = { limit: 10, durationMs, cost: 6, rule: RULE.sliding, burst: NO_BURST };
  const huge = { ...terms, limit: AMOUNT_MAX };
  for (const before of [-1, 0, 1, 4]) {
    expect(slidingPassesAt(0, before, terms, reset)).toBe(60_000);
    expect(slidingPassesAt(0, before, huge, reset)).toBe(60_000);
  }
});
