import fc from 'fast-check';
import { expect, test } from 'vitest';
import { PAUSE_BITS, pauseLeftMs, pauseUntil } from '../../../../src/engine/redis/counter/pause.ts';
import { PAUSE_MAX_MS } from '../../../../src/engine/redis/scripts/protocol-constants.ts';

const anyMs = fc.double({ min: 0, max: 2 ** 40, noNaN: true });

test('0 is no pause at any time', () => {
  // By its bits it would end in a millisecond.
  expect(pauseLeftMs(0, 2 ** PAUSE_BITS - 1)).toBe(0);
  fc.assert(
    fc.property(anyMs, (nowMs) => {
      expect(pauseLeftMs(0, nowMs)).toBe(0);
    }),
  );
});

test('a pause lasts until its end, rounded up, and then is over', () => {
  fc.assert(
    fc.property(anyMs, fc.integer({ min: 0, max: PAUSE_MAX_MS }), (nowMs, ms) => {
      const pause = pauseUntil(nowMs + ms);
      const leftMs = pauseLeftMs(pause, nowMs);
      expect(leftMs).toBeGreaterThanOrEqual(ms);
      expect(leftMs).toBeLessThanOrEqual(ms + 2);
      expect(pauseLeftMs(pause, nowMs + ms + 2)).toBe(0);
    }),
  );
});
