/**
 * Reading and writing a counter in its slot. Called under the lock of its group, except that
 * reading is possible without it: what is read then may be partly from before a write.
 *
 * Stores are ordered so that a thread that dies between two of them leaves the counter valid: the
 * tag of a slot is cleared before it is filled and written last, and the cells follow the order of
 * their rule.
 */

import type { Identity } from '../../core/hash.ts';
import type { RuleNumber } from '../../core/window-rules.ts';
import { hashAt, keyAt, type MemoryViews, type Slot, tagAt } from '../table/layout.ts';
import { storesNewestLast } from '../windows/registry.ts';
import type { Cells } from '../windows/rule.ts';
import { cellAt, deniedAt, limitAt, namespaceAt, newestAt } from './layout.ts';

/** Reads the cells of a counter. */
export function readCells(memory: MemoryViews, slot: Slot, cells: Cells): void {
  readUsage(memory, slot, cells);
  cells.limit = memory.doubles[limitAt(slot)];
}

/** Reads the cells of a counter but the limit. */
export function readUsage({ doubles }: MemoryViews, slot: Slot, cells: Cells): void {
  const newest = doubles[newestAt(slot)];
  const parity = newest & 1;
  cells.newest = newest;
  cells.current = doubles[cellAt(slot, parity)];
  cells.previous = doubles[cellAt(slot, parity ^ 1)];
}

/** Writes the cells of a counter. */
export function writeCells(
  { words, doubles }: MemoryViews,
  slot: Slot,
  rule: RuleNumber,
  { newest, current, previous, limit }: Cells,
): void {
  if (storesNewestLast(rule)) {
    // Cut off before the last store, no active window has lost a token: the cells that were written
    // are those of windows that have ended, or hold what they held.
    const parity = newest & 1;
    doubles[limitAt(slot)] = limit;
    doubles[cellAt(slot, parity ^ 1)] = previous;
    doubles[cellAt(slot, parity)] = current;
    if (newest === doubles[newestAt(slot)]) return;
    words[deniedAt(slot)] = 0;
    doubles[newestAt(slot)] = newest;
  } else {
    // If the thread dies between these stores, the bucket is never fuller than in the fuller of the
    // two states: until it is full, as many tokens come back as its time times its limit.
    doubles[cellAt(slot, 0)] = 0;
    doubles[cellAt(slot, 1)] = 0;
    if (limit > doubles[limitAt(slot)]) doubles[limitAt(slot)] = limit;
    doubles[newestAt(slot)] = newest;
    doubles[limitAt(slot)] = limit;
    doubles[cellAt(slot, 0)] = current;
    doubles[cellAt(slot, 1)] = current;
  }
}

/** Writes a counter into an unused slot, or over another counter. */
export function writeCounter(
  { words, doubles }: MemoryViews,
  slot: Slot,
  id: Identity,
  namespaceTag: number,
  key: number,
  cells: Cells,
): void {
  words[tagAt(slot)] = 0;
  words[hashAt(slot, 0)] = id.h0;
  words[hashAt(slot, 1)] = id.h1;
  words[hashAt(slot, 2)] = id.h2;
  words[namespaceAt(slot)] = namespaceTag;
  words[deniedAt(slot)] = 0;
  doubles[keyAt(slot)] = key;
  doubles[newestAt(slot)] = cells.newest;
  const parity = cells.newest & 1;
  doubles[cellAt(slot, parity)] = cells.current;
  doubles[cellAt(slot, parity ^ 1)] = cells.previous;
  doubles[limitAt(slot)] = cells.limit;
  words[tagAt(slot)] = id.h3;
}
