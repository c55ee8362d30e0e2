import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type IdentifierList, mergeLists } from '../../src/analytics/identifier-list.ts';
import { newSeed } from '../support/guarantees.ts';

const item = (key: string, count: number, error = 0) => {
  return { key, text: key, isCutOff: false, count, error };
};

test('a missing identifier counts with the floor of the list, as a count and as an error', () => {
  const lists: IdentifierList[] = [
    { items: [item('a', 50), item('b', 20, 5)], floor: 4 },
    { items: [item('a', 7, 2), item('c', 90)], floor: 3 },
  ];
  expect(mergeLists(lists, 10)).toEqual({
    items: [item('c', 94, 4), item('a', 57, 2), item('b', 23, 8)],
    floor: 7,
  });
});

test('the floor of a merge covers the identifiers that it leaves out', () => {
  const lists: IdentifierList[] = [
    { items: [item('a', 9), item('b', 8), item('c', 6, 6)], floor: 1 },
  ];
  expect(mergeLists(lists, 1)).toEqual({ items: [item('a', 9)], floor: 8 });
  // Nothing is proven of an identifier whose count may be an error.
  expect(mergeLists(lists, 3)).toEqual({ items: [item('a', 9), item('b', 8)], floor: 6 });
  expect(mergeLists([], 3)).toEqual({ items: [], floor: 0 });
});

test('bounds that hold in all lists hold in their merge, however often lists are merged', () => {
  const parts = fc.array(
    fc.dictionary(fc.constantFrom(...'abcdefgh'), fc.integer({ min: 0, max: 1_000 })),
    { minLength: 1, maxLength: 6 },
  );
  const listOf = (truth: Record<string, number>, shown: number): IdentifierList => {
    const sorted = Object.entries(truth).sort(([, a], [, b]) => b - a);
    const floor = sorted[shown]?.[1] ?? 0;
    const items = sorted.slice(0, shown).map(([key, count], i) => item(key, count + i, 2 * i));
    return { items, floor };
  };
  fc.assert(
    fc.property(parts, fc.integer({ min: 1, max: 8 }), fc.boolean(), (truths, shown, isNested) => {
      const lists = truths.map((truth) => listOf(truth, shown));
      const half = Math.ceil(lists.length / 2);
      const nested = [lists.slice(0, half), lists.slice(half)].map((part) =>
        mergeLists(part, shown),
      );
      const { items, floor } = mergeLists(isNested ? nested : lists, shown);
      for (const key of 'abcdefgh') {
        const truth = truths.reduce((sum, part) => sum + (part[key] ?? 0), 0);
        const found = items.find((one) => one.key === key);
        if (found === undefined) expect(truth).toBeLessThanOrEqual(floor);
        else {
          expect(found.count).toBeGreaterThanOrEqual(truth);
          expect(found.count - found.error).toBeLessThanOrEqual(truth);
        }
      }
    }),
    { seed: newSeed() },
  );
});
