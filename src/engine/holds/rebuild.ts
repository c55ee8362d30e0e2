/**
 * Derives from the records of a shard all that the memory has beside them: after a load, and after
 * the death of a shard worker that held the lock. The caller holds the lock, or no other thread has
 * the memory.
 */

import { MAIN_THREAD_OWNER, passLock, release } from '../table/lock.ts';
import { HoldTable } from './hold-table.ts';
import { AT, COUNTER, DOUBLE_AT, HOLD_STATE, LOCK, NONE, RECORD, RECORD_DOUBLE } from './layout.ts';

export function rebuild(table: HoldTable): void {
  const { memory } = table;
  const { words, doubles, buckets, groups, bucketsPerGroup } = memory;
  words.fill(NONE, buckets, buckets + groups * bucketsPerGroup);
  words.fill(NONE, AT.freeRecord, AT.liveLeases + 1);
  doubles[DOUBLE_AT.heldTokens] = 0;
  doubles[DOUBLE_AT.leasedTokens] = 0;
  const live: number[] = [];
  const ended: number[] = [];
  // From the end, so that the lists of free ones begin with the first.
  for (let number = words[AT.used]; number >= 1; number--) {
    words[memory.counter(number) + COUNTER.next] = words[AT.freeCounter];
    words[AT.freeCounter] = number;
    const state = memory.word(number, RECORD.state);
    if (state === HOLD_STATE.free) {
      memory.setWord(number, RECORD.link, words[AT.freeRecord]);
      words[AT.freeRecord] = number;
    } else (state === HOLD_STATE.live ? live : ended).push(number);
  }
  for (const record of live) table.link(record);
  const endedAt = (record: number) => memory.double(record, RECORD_DOUBLE.endedAt);
  for (const record of ended.toSorted((a, b) => endedAt(a) - endedAt(b))) table.link(record);
}

/**
 * Frees the lock of a shard's holds if an ended run of a shard worker holds it, and mends what the
 * run was changing. On the main thread.
 */
export function recoverHolds(buffer: SharedArrayBuffer, shard: number, owner: number): void {
  const table = new HoldTable(buffer, shard, MAIN_THREAD_OWNER, () => {});
  const { words } = table.memory;
  if (!passLock(words, LOCK, owner, MAIN_THREAD_OWNER)) return;
  rebuild(table);
  release(words, LOCK);
}
