/** The shard of an identity, and the worker of a shard. */

import { SHARDS } from '../../core/constants.ts';
import type { Identity } from '../../core/hash.ts';

const SHARD_SHIFT = 32 - Math.log2(SHARDS);

/** The top bits of the first word of a hash. */
export function shardOf(id: Pick<Identity, 'h0'>): number {
  return id.h0 >>> SHARD_SHIFT;
}

export function workerOf(shard: number, workers: number): number {
  return shard % workers;
}
