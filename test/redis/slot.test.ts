import { describe, expect, test } from 'vitest';
import { slotOfKey } from '../../src/redis/slot.ts';

describe('the slot of a key', () => {
  test.each([
    // As `CLUSTER KEYSLOT` of Redis answers.
    ['foo', 12_182],
    ['123456789', 12_739],
    ['', 0],
    ['{foo}.bar', 12_182],
    ['a{foo}{bar}', 12_182],
    ['{}foo', 9_500],
    ['weir:{0}:m', 13_907],
  ])('%j is %i', (key, slot) => {
    expect(slotOfKey(key)).toBe(slot);
  });
});
