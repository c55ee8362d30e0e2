/** The names of keys in a Redis Cluster. */

import { expect, test } from 'vitest';
import { CLUSTER_BUCKETS } from '../../../../src/core/constants.ts';
import { KeySpace } from '../../../../src/engine/redis/scripts/keys.ts';
import { slotOfKey } from '../../../../src/redis/slot.ts';
import { isRedisMissing, startCluster } from '../../../support/programs/redis.ts';

test.skipIf(isRedisMissing)('all keys of a bucket have the slot of its tag', async () => {
  const { nodes, close } = await startCluster(1);
  const keys = new KeySpace('weir', true);
  const buckets = new Set<number>();
  try {
    for (let i = 0; i < 20; i++) {
      const identity = { h0: i, h1: ~i, h2: i * 77_777, h3: Math.imul(i + 1, -1_640_531_527) };
      const bucket = keys.bucketOf(identity);
      buckets.add(bucket);
      const slot = slotOfKey(/\{(.+)\}/.exec(keys.members(bucket))![1]);
      for (const key of [
        keys.members(bucket),
        keys.counter(identity, 60_000),
        keys.gcra(identity, 60_000),
        keys.index(identity),
        keys.channel(bucket, 'member'),
      ]) {
        expect(await nodes[0].command('CLUSTER', 'KEYSLOT', key)).toBe(slot);
      }
    }
  } finally {
    await close();
  }
  expect(buckets.size).toBeGreaterThan(CLUSTER_BUCKETS / 8);
});
