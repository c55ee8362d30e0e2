import { describe, expect, test } from 'vitest';
import {
  type LeaseState,
  moveStateToWindow,
  newLeaseState,
} from '../../../../src/engine/redis/counter/lease-state.ts';
import { WINDOW } from './exchange.ts';

const USED: Partial<LeaseState> = {
  ...{ window: WINDOW, spent: 20, reserved: 3, lease: 5, others: 30, othersDeducted: 34 },
  ...{ reported: 18, rateSpent: 12, previousUsage: 7, previousKnownUsage: 7, previousSpent: 2 },
  ...{ deadlineMs: 9, boundUntilMs: 9, prefetchBelow: 4, isStored: true, isDoubted: true },
};
const usedState = () => Object.assign(newLeaseState(), USED);

describe('a counter that is moved', () => {
  test('to the next window keeps what is known of the ended one as the window before', () => {
    const state = usedState();
    moveStateToWindow(state, WINDOW + 1);
    expect(state).toMatchObject({
      ...{ window: WINDOW + 1, previousUsage: 57, previousKnownUsage: 50, previousSpent: 23 },
    });
  });

  test('by more than a window knows nothing of the window before', () => {
    const state = usedState();
    moveStateToWindow(state, WINDOW + 2);
    expect(state).toMatchObject({ previousUsage: 0, previousKnownUsage: 0, previousSpent: 0 });
  });

  test('has nothing in the new window, and goes on with its rate', () => {
    const state = usedState();
    moveStateToWindow(state, WINDOW + 1);
    expect(state).toMatchObject({
      ...{ spent: 0, reserved: 0, lease: 0, others: 0, othersDeducted: 0, reported: 0 },
      ...{ deadlineMs: 0, boundUntilMs: 0, prefetchBelow: 0, isStored: false, isDoubted: false },
      // 8 tokens were spent since the rate was estimated.
      rateSpent: -8,
    });
  });

  test('to its own window, or an earlier one, stays as it is', () => {
    for (const window of [WINDOW, WINDOW - 1]) {
      const state = usedState();
      moveStateToWindow(state, window);
      expect(state).toEqual(usedState());
    }
  });

  test('from no window has used nothing in the window before', () => {
    const state = newLeaseState();
    moveStateToWindow(state, WINDOW);
    expect(state).toEqual({ ...newLeaseState(), window: WINDOW });
  });
});
