import { expect, test } from 'vitest';
import { LISTED_HOLDS_MAX } from '../../../src/core/constants.ts';
import { RULE } from '../../../src/core/window-rules.ts';
import { formatHoldId, HOLD_KIND, handleOf } from '../../../src/engine/hold-id.ts';
import { HOLD_STATE, LOCK } from '../../../src/engine/holds/layout.ts';
import { liveHolds } from '../../../src/engine/holds/live-holds.ts';
import { NO_WINDOW } from '../../../src/engine/windows/rule.ts';
import { expectConsistent, holdIdentity, newHoldTable } from '../../support/hold-tables.ts';
import { START_MS } from '../../support/limiter-model.ts';

/** Of an identity that has many. */
const HOLDS = 2_500;
const [OWN, OTHER, NONE] = [1, 2, 3].map((h3) => holdIdentity(0, 1, 0, h3));
const NO_HOLDS = { reservedTokens: 0, inUse: 0, count: 0, listed: [] };

function holdOf(isLease: boolean, amount: number, ttlMs: number, identity = OWN) {
  return {
    ...{ isLease, identity, namespace: [1, 2], rule: RULE.sliding, durationMs: 60_000, window: 1 },
    ...{ limit: 50, amount, expiresAt: START_MS + ttlMs },
  };
}

test('shows the live holds of one identity, in the order of their expiry', () => {
  const table = newHoldTable(64, 1);
  const late = table.add(holdOf(false, 7, 3_000), START_MS);
  const lease = table.add(holdOf(true, 2, 2_000), START_MS);
  table.add(holdOf(false, 9, 1_500, OTHER), START_MS);
  const early = table.add(holdOf(false, 4, 1_000), START_MS);
  const ended = table.add(holdOf(false, 100, 1_000), START_MS);
  table.end(ended.record, HOLD_STATE.ended, START_MS);
  const before = table.memory.words.slice();
  const terms = { limit: 50, durationMs: 60_000, rule: RULE.sliding };
  const reservation = { ...terms, kind: HOLD_KIND.reservation };
  expect(liveHolds(table, OWN, START_MS)).toEqual({
    ...{ reservedTokens: 11, inUse: 2, count: 3 },
    listed: [
      { ...reservation, handle: handleOf(early), tokens: 4, expiresAt: START_MS + 1_000 },
      {
        ...{ ...terms, kind: HOLD_KIND.lease, handle: handleOf(lease) },
        ...{ tokens: 2, expiresAt: START_MS + 2_000 },
      },
      { ...reservation, handle: handleOf(late), tokens: 7, expiresAt: START_MS + 3_000 },
    ],
  });
  expect(liveHolds(table, NONE, START_MS)).toEqual(NO_HOLDS);
  // It changes nothing, and the lock is free.
  expect(table.memory.words).toEqual(before);
  expect(table.memory.words[LOCK]).toBe(0);
});

test('does not show a hold that has expired, also before the worker has ended it', () => {
  const table = newHoldTable(64, 1);
  table.add(holdOf(true, 2, 1_000), START_MS);
  table.add(holdOf(false, 3, 1_001), START_MS);
  expect(liveHolds(table, OWN, START_MS + 999)).toMatchObject({ count: 2, inUse: 2 });
  const rest = { count: 1, inUse: 0, reservedTokens: 3 };
  expect(liveHolds(table, OWN, START_MS + 1_000)).toMatchObject(rest);
  expect(liveHolds(table, OWN, START_MS + 1_001)).toEqual(NO_HOLDS);
  expectConsistent(table);
});

test('counts all holds, and lists a bounded number: those that expire first', () => {
  const table = newHoldTable(2_048, 1);
  const count = LISTED_HOLDS_MAX + 7;
  const ids = Array.from({ length: count }, (_, number) => {
    return table.add(holdOf(false, 1, 10_000 - number), START_MS);
  });
  const shown = liveHolds(table, OWN, START_MS);
  expect([shown.count, shown.reservedTokens]).toEqual([count, count]);
  const handles = shown.listed.map(({ handle }) => handle);
  expect(handles).toEqual(ids.slice(-LISTED_HOLDS_MAX).map(handleOf).toReversed());
  expect(new Set(handles).size).toBe(LISTED_HOLDS_MAX);
  // Nothing of the answer is an id, or can be made one.
  const text = JSON.stringify(shown);
  for (const id of ids) expect(text).not.toContain(formatHoldId(id).slice(5));
});

test('the sums are those of all live holds, and the list has the first to expire', () => {
  const table = newHoldTable(16 * HOLDS, 1);
  const identity = holdIdentity(0, 1, 5, 1);
  const terms = { rule: RULE.fixed, durationMs: 60_000, window: NO_WINDOW, limit: 100, amount: 2 };
  const expiries = Array.from({ length: HOLDS }, (_, n) => START_MS + ((n * 7_919) % 5_003));
  for (const [n, expiresAt] of expiries.entries()) {
    const hold = { ...terms, isLease: n % 5 === 0, identity, namespace: [1, 2], expiresAt };
    table.add(hold, START_MS);
  }
  const live = expiries.filter((expiresAt) => expiresAt > START_MS + 500).length;
  const { listed, count, reservedTokens, inUse } = liveHolds(table, identity, START_MS + 500);
  expect(count).toBe(live);
  expect(reservedTokens + inUse).toBe(2 * live);
  const isShownLease = (expiresAt: number, n: number) => n % 5 === 0 && expiresAt > START_MS + 500;
  expect(inUse).toBe(2 * expiries.filter(isShownLease).length);
  const first = expiries
    .filter((expiresAt) => expiresAt > START_MS + 500)
    .toSorted((a, b) => a - b);
  const shown = listed.map(({ expiresAt }) => expiresAt);
  expect(shown).toEqual(first.slice(0, LISTED_HOLDS_MAX));
});
