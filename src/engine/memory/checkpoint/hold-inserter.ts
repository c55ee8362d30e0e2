/**
 * Inserts the holds of a checkpoint into the table of their shard, each where its id says that it
 * lies. A hold that has expired meanwhile is inserted as live, and ends like any other.
 */

import { ENDED_HOLD_MS } from '../../../core/constants.ts';
import { isRule } from '../../../core/window-rules.ts';
import type { HoldTable } from '../../holds/hold-table.ts';
import {
  AT,
  HOLD_STATE,
  RECORD,
  RECORD_BYTES,
  RECORD_DOUBLE,
  ruleOfFlags,
} from '../../holds/layout.ts';
import { rebuild } from '../../holds/rebuild.ts';
import { shardOf } from '../../table/shard.ts';

const STATES: readonly number[] = [HOLD_STATE.live, HOLD_STATE.ended, HOLD_STATE.expired];
const RECORD_WORDS = RECORD_BYTES / 4;

export class HoldInserter {
  holds = 0;
  lostHolds = 0;
  readonly #tables: readonly HoldTable[];
  readonly #nowMs: number;

  constructor(tables: readonly HoldTable[], nowMs: number) {
    this.#tables = tables;
    this.#nowMs = nowMs;
  }

  /** @param entries from the first byte of their buffer on */
  insertAll(shard: number, { buffer, byteLength }: Uint8Array): void {
    for (let at = 0; at < byteLength; at += RECORD_BYTES) {
      const words = new Int32Array(buffer, at, RECORD_WORDS);
      const doubles = new Float64Array(buffer, at, RECORD_WORDS / 2);
      if (this.#isForgotten(words, doubles)) continue;
      if (this.#insertOne(shard, words, doubles)) this.holds++;
      else this.lostHolds++;
    }
  }

  /** Makes the inserted holds those of their tables. */
  finish(): void {
    if (this.holds > 0) for (const table of this.#tables) rebuild(table);
  }

  #insertOne(shard: number, words: Int32Array, doubles: Float64Array): boolean {
    const memory = this.#tables[shard]?.memory;
    const record = words[RECORD.link];
    if (memory === undefined || record < 1 || record > memory.capacity) return false;
    if (!STATES.includes(words[RECORD.state]) || !isRule(ruleOfFlags(words[RECORD.flags])))
      return false;
    if (shardOf({ h0: words[RECORD.identity] }) !== shard) return false;
    const amounts = doubles.subarray(RECORD_DOUBLE.durationMs);
    if (!amounts.every(Number.isSafeInteger)) return false;
    // A record that was used again while the checkpoint was written is in it twice. The later hold
    // counts, unless only the earlier one has tokens to return.
    const taken = memory.word(record, RECORD.state);
    if (taken !== HOLD_STATE.free) this.holds--;
    if (taken === HOLD_STATE.live && words[RECORD.state] !== HOLD_STATE.live) return true;
    memory.words.set(words, memory.record(record));
    memory.words[AT.used] = Math.max(memory.words[AT.used], record);
    return true;
  }

  #isForgotten(words: Int32Array, doubles: Float64Array): boolean {
    if (words[RECORD.state] === HOLD_STATE.live) return false;
    return doubles[RECORD_DOUBLE.endedAt] + ENDED_HOLD_MS <= this.#nowMs;
  }
}
