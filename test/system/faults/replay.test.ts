/** The replay that other tests rely on finds what it is to find. */

import { expect, test } from 'vitest';
import { CheckLog, replay } from '../../support/replay.ts';

const LIMIT = 3;
const RESET = 1_000;

/** @param checks cost, whether it was allowed, and the times when it was sent and answered */
function replayOf(...checks: [number, boolean, number, number][]) {
  const log = new CheckLog();
  for (const [cost, allowed, sentMs, receivedMs] of checks) {
    log.add(0, RESET, cost, allowed, sentMs, receivedMs);
  }
  return replay([log.rows()], () => LIMIT);
}

test('tokens above the limit of a window are found', () => {
  const report = replayOf([2, true, 0, 1], [2, true, 2, 3]);
  expect(report).toMatchObject({ decisions: 2, windows: 1, overAdmission: 1, certainlyFalse: 0 });
  const log = new CheckLog();
  for (const reset of [RESET, 2 * RESET]) log.add(0, reset, LIMIT, true, 0, 1);
  expect(replay([log.rows(), log.rows()], () => 2 * LIMIT).overAdmission).toBe(0);
  expect(replay([log.rows(), log.rows()], () => LIMIT).overAdmission).toBe(2 * LIMIT);
});

test('a denial is certainly false if its cost fits beside all that was sent before its answer', () => {
  expect(replayOf([2, true, 0, 1], [1, false, 2, 3], [1, true, 4, 5])).toMatchObject({
    ...{ denials: 1, certainlyFalse: 1, overAdmission: 0, exhausted: 1, leastUtilisation: 1 },
  });
});

test('a denial is not certainly false if checks that were under way may explain it', () => {
  expect(replayOf([2, true, 0, 1], [1, true, 2, 9], [1, false, 2, 3]).certainlyFalse).toBe(0);
  expect(replayOf([2, true, 0, 1], [2, false, 2, 3]).certainlyFalse).toBe(0);
  expect(replayOf([LIMIT + 1, false, 0, 1]).certainlyFalse).toBe(0);
});

test('a window is exhausted if it denied one token', () => {
  expect(replayOf([2, true, 0, 1], [2, false, 2, 3]).exhausted).toBe(0);
  const report = replayOf([2, true, 0, 1], [1, false, 2, 3]);
  expect(report).toMatchObject({ exhausted: 1, leastUtilisation: 2 / LIMIT });
});
