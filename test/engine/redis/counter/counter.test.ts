import { describe, expect, test } from 'vitest';
import { decideInOrder } from '../../../../src/engine/redis/counter/counter.ts';
import { TestCounter } from './exchange.ts';

describe('checks that wait', () => {
  /** Three checks with these costs, decided from a lease of 5 tokens. @returns the costs tried */
  function decide(costs: number[], sent: number[] = []) {
    const machine = new TestCounter();
    for (const cost of costs) machine.add({ cost }).wasSent = sent.includes(cost);
    const tried: number[] = [];
    let lease = 5;
    decideInOrder(machine.counter, ({ parameters: { cost } }) => {
      tried.push(cost);
      if (cost > lease) return false;
      lease -= cost;
      return true;
    });
    return { tried, left: machine.counter.waiting.map(({ parameters }) => parameters.cost) };
  }

  test('are all decided in memory while it can', () => {
    expect(decide([2, 1, 2])).toEqual({ tried: [2, 1, 2], left: [] });
  });

  test('are decided in their order: the first that cannot be keeps back those after it', () => {
    expect(decide([2, 4, 1])).toEqual({ tried: [2, 4], left: [4, 1] });
  });

  test('that were sent are decided by Redis, and keep nothing back', () => {
    expect(decide([4, 1], [4])).toEqual({ tried: [1], left: [4] });
  });
});
