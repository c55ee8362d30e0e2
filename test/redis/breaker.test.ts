import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Breaker } from '../../src/redis/breaker.ts';

/** The middle of each delay: 75 % of it. */
const HALF = () => 0.5;

function openBreaker(nowMs = 0, random = HALF): Breaker {
  const breaker = new Breaker(random);
  breaker.lost(nowMs);
  return breaker;
}

describe('the breaker', () => {
  test('opens after five failures in a row, not after five failures', () => {
    const breaker = new Breaker(HALF);
    for (let i = 0; i < 4; i++) breaker.failed(0);
    breaker.succeeded();
    for (let i = 0; i < 4; i++) breaker.failed(0);
    expect(breaker.isOpen).toBe(false);
    expect(breaker.allows(0)).toBe(true);
    breaker.failed(0);
    expect(breaker.isOpen).toBe(true);
    expect(breaker.allows(0)).toBe(false);
  });

  test('opens at once when the connection is lost', () => {
    const breaker = openBreaker();
    expect(breaker.isOpen).toBe(true);
    expect(breaker.allows(37)).toBe(false);
    expect(breaker.msUntilProbe(30)).toBe(7.5);
  });

  test('allows one probe at a time, later after each failure, up to 0.5 s', () => {
    const breaker = openBreaker();
    const delays: number[] = [];
    let nowMs = 0;
    for (let i = 0; i < 8; i++) {
      const waitMs = breaker.msUntilProbe(nowMs)!;
      delays.push(waitMs);
      nowMs += waitMs;
      expect(breaker.allows(nowMs)).toBe(true);
      expect(breaker.allows(nowMs)).toBe(false);
      expect(breaker.msUntilProbe(nowMs)).toBeUndefined();
      breaker.failed(nowMs);
    }
    expect(delays).toEqual([37.5, 75, 150, 300, 375, 375, 375, 375]);
  });

  test('closes on the first success, and begins again with short delays', () => {
    const breaker = openBreaker();
    expect(breaker.allows(1_000)).toBe(true);
    breaker.failed(1_000);
    expect(breaker.allows(2_000)).toBe(true);
    breaker.succeeded();
    expect(breaker.isOpen).toBe(false);
    expect(breaker.msUntilProbe(2_000)).toBeUndefined();
    breaker.lost(2_000);
    expect(breaker.msUntilProbe(2_000)).toBe(37.5);
  });

  test('does not delay the probe for calls that were sent before it opened', () => {
    const breaker = openBreaker();
    breaker.failed(10);
    breaker.failed(20);
    breaker.lost(30);
    expect(breaker.msUntilProbe(30)).toBe(7.5);
  });

  test('spreads probes over half of the delay', () => {
    expect(openBreaker(0, () => 0).msUntilProbe(0)).toBe(25);
    expect(openBreaker(0, () => 0.999).msUntilProbe(0)).toBeGreaterThan(49);
    const random = new Breaker();
    random.lost(0);
    expect(random.msUntilProbe(0)).toBeGreaterThanOrEqual(25);
  });

  test('is always open or closed, and probes within 2 s, after any history', () => {
    const event = fc.constantFrom('succeeded', 'failed', 'lost', 'allows', 'wait');
    fc.assert(
      fc.property(fc.array(event), (events) => {
        const breaker = new Breaker();
        let nowMs = 0;
        let isProbing = false;
        for (const name of events) {
          if (name === 'wait') nowMs += 100;
          else if (name === 'allows') {
            const isAllowed = breaker.allows(nowMs);
            if (!breaker.isOpen) expect(isAllowed).toBe(true);
            else if (isAllowed) isProbing = true;
          } else {
            breaker[name](nowMs);
            isProbing = false;
          }
        }
        if (isProbing) breaker.failed(nowMs);
        if (breaker.isOpen) expect(breaker.allows(nowMs + 2_000)).toBe(true);
      }),
    );
  });
});
