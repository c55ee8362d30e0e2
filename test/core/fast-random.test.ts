import { expect, test } from 'vitest';
import { FastRandom } from '../../src/core/fast-random.ts';
import { newSeed } from '../support/guarantees.ts';

const DRAWS = 200_000;

const draw = (next: (random: FastRandom) => number) => {
  const random = new FastRandom(newSeed() | 1);
  return Array.from({ length: DRAWS }, () => next(random));
};
const shareAbove = (values: readonly number[], bound: number) => {
  return values.filter((value) => value > bound).length / DRAWS;
};
const meanOf = (values: readonly number[]) => values.reduce((a, b) => a + b, 0) / DRAWS;

// Of so many draws 1.5 % of a mean are more than six standard deviations.
test('trials until one happens have the mean 1 / probability', () => {
  const trials = draw((random) => random.trialsUntil(0.01));
  expect(Math.min(...trials.slice(0, 10_000))).toBeGreaterThanOrEqual(1);
  expect(Math.abs(meanOf(trials) / 100 - 1)).toBeLessThan(0.015);
  expect(new Set(draw((random) => random.trialsUntil(1)))).toEqual(new Set([1]));
});

test('an exponential number is above n times the mean with a probability of exp(-n)', () => {
  const numbers = draw((random) => random.exponential(50));
  expect(Math.abs(meanOf(numbers) / 50 - 1)).toBeLessThan(0.015);
  for (const n of [1, 3, 5]) {
    const [share, expected] = [shareAbove(numbers, 50 * n), Math.exp(-n)];
    // Six standard deviations.
    expect(Math.abs(share - expected)).toBeLessThan(6 * Math.sqrt(expected / DRAWS));
  }
  expect(new Set(draw((random) => random.exponential(0)))).toEqual(new Set([0]));
});
