import { describe, expect, it } from 'vitest';
import { CLUSTER_BUCKETS } from '../../../../src/core/constants.ts';
import { hexOf, identityFromHex, KeySpace } from '../../../../src/engine/redis/scripts/keys.ts';
import { slotOfKey } from '../../../../src/redis/slot.ts';

const identities = Array.from({ length: 1_000 }, (_, i) => {
  return { h0: i, h1: ~i, h2: i * 77_777, h3: Math.imul(i + 1, -1_640_531_527) };
});

describe('the names of keys', () => {
  const one = new KeySpace('weir', false);
  const many = new KeySpace('weir', true);

  it('lie in one bucket on a single server', () => {
    expect(one.bucketCount).toBe(1);
    expect(identities.every((identity) => one.bucketOf(identity) === 0)).toBe(true);
    expect(one.members(0)).toBe('weir:{0}:m');
    expect(one.counter({ h0: 1, h1: -1, h2: 0, h3: 16 }, 60_000)).toBe(
      'weir:{0}:c:00000001ffffffff0000000000000010:60000',
    );
  });

  it('spread evenly over the slots of a cluster', () => {
    const slots = Array.from({ length: CLUSTER_BUCKETS }, (_, bucket) => {
      return slotOfKey(/\{(.+)\}/.exec(many.members(bucket))![1]);
    });
    expect(slots.map((slot) => Math.floor(slot / (16_384 / CLUSTER_BUCKETS)))).toEqual([
      ...Array(CLUSTER_BUCKETS).keys(),
    ]);
    expect(new Set(identities.map((identity) => many.bucketOf(identity))).size).toBe(64);
  });

  it('have the slot of the tag of their bucket', () => {
    for (const identity of identities) {
      const bucket = many.bucketOf(identity);
      const slots = [
        many.members(bucket),
        many.counter(identity, 60_000),
        many.gcra(identity, 60_000),
        many.index(identity),
        many.channel(bucket, 'member'),
      ].map(slotOfKey);
      expect(new Set(slots).size).toBe(1);
    }
  });

  it('contain the identity', () => {
    for (const identity of identities) expect(identityFromHex(hexOf(identity))).toEqual(identity);
    expect(() => identityFromHex('12')).toThrow('"12" is not an identity');
  });

  it('have no prefix that would change their slot', () => {
    for (const prefix of ['', '{a}', 'a b', 'a}']) {
      expect(() => new KeySpace(prefix, true)).toThrow('prefix');
    }
  });
});
