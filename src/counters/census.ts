/**
 * Counts the counters of one shard, without locks: it only reads, so it disturbs nobody and may die
 * at any point. A slot that changes while it is read may be counted as it was or as it will be.
 */

import {
  BUCKET,
  BUCKET_SLOTS,
  BUCKET_WORDS,
  bucketsOffset,
  GROUP_BUCKETS,
  SLOT,
  slotAt,
} from './layout.ts';
import type { Table } from './table.ts';
import { isExpired } from './window.ts';

/** @returns how many live counters the table holds at a time */
export function countLive(table: Table, nowMs: number): number {
  const { words, doubles } = table;
  const first = bucketsOffset(table.groups) / 4;
  const end = first + table.groups * GROUP_BUCKETS * BUCKET_WORDS;
  let live = 0;
  for (let bucket = first; bucket < end; bucket += BUCKET_WORDS) {
    for (let i = 0; i < BUCKET_SLOTS; i++) {
      if (words[bucket + BUCKET.tags + i] === 0) continue;
      const slot = slotAt(bucket, i);
      const durationMs = doubles[slot + SLOT.duration];
      if (!isExpired(doubles[slot + SLOT.newest], durationMs, nowMs)) live++;
    }
  }
  return live;
}
