/**
 * The layout of a counter table: what the memory engine adds to `table/layout.ts`. A test pins the
 * numbers. Checkpoints have slots as they are here.
 *
 *   header     int32  2       checkpoint  the number of the last one
 *
 *   lock line  int32  4-11    marks       the slot may hold a counter: set before the slot is
 *                                         written, cleared when it is found empty
 *              int32  12      changed     1: a decision was made here since the last checkpoint
 *
 *   slot       int32  4       namespace   its tag, which eviction goes by
 *              int32  5       denied      until when a denial protects the counter: see its rule
 *              float64 4      newest      windows: number of the newest one; GCRA: ms of `full`
 *              float64 5, 6   cells       windows: tokens used in windows of even and odd number;
 *                                         GCRA: both the fraction of `full` below `newest`
 *              float64 7      limit       the limit under which the last tokens were counted
 *
 * A thread holds the group's lock while it reads or writes a bucket. Three reads take no lock: the
 * first scan of a sweep, the peek of an asynchronous check, and prefetches. A peek may miss a
 * concurrent write.
 */

import { CACHE_LINE_BYTES } from '../../core/constants.ts';
import type { DoubleIndex, Lock, Slot, WordIndex, Words } from '../table/layout.ts';

/** The word of the header with the number of the last checkpoint. */
export const CHECKPOINT_AT = 2 as WordIndex;

const SLOT_WORDS = CACHE_LINE_BYTES / 4;

export function namespaceAt(slot: Slot): WordIndex {
  return ((slot << 1) + 4) as WordIndex;
}

export function deniedAt(slot: Slot): WordIndex {
  return ((slot << 1) + 5) as WordIndex;
}

export function newestAt(slot: Slot): DoubleIndex {
  return (slot + 4) as DoubleIndex;
}

/** @param parity of the window's number: 0 or 1 */
export function cellAt(slot: Slot, parity: number): DoubleIndex {
  return (slot + 5 + parity) as DoubleIndex;
}

export function limitAt(slot: Slot): DoubleIndex {
  return (slot + 7) as DoubleIndex;
}

/**
 * Copies a whole slot, from one memory to another or within one. As words: a hash that is read as a
 * double may be changed on its way.
 */
export function copySlot(from: Words, slot: Slot, into: Words, target: Slot): void {
  for (let word = 0; word < SLOT_WORDS; word++) {
    into[(target * 2 + word) as WordIndex] = from[(slot * 2 + word) as WordIndex];
  }
}

export function changedAt(lock: Lock): WordIndex {
  return (lock + 12) as WordIndex;
}
