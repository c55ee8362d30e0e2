/**
 * Takes the counters of the last run in again, from its checkpoints, before any thread decides. On
 * the main thread. Of each shard it takes the last whole checkpoint; one that is not whole is left
 * out, with a sentence that says so, and the one before it taken in its place. So is a symbolic
 * link, a FIFO or a file of another user. What is left out is removed (of a link only the link),
 * where it can be, or a later start might find it newer than what this one writes. A start never
 * fails over them: counters that are forgotten let somebody in too early, once.
 *
 * Counters go where their hash says, whatever the table they were in.
 */

import { closeSync, lstatSync, openSync, readdirSync, readSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { OUTCOME } from '../../../core/decision.ts';
import type { Identity } from '../../../core/hash.ts';
import { SAFE_OPEN_FLAGS, unusableReason } from '../../../core/ownership.ts';
import { Group } from '../group.ts';
import { NO_SLOT, SLOT, SLOT_WORD, TABLE_HEADER } from '../layout.ts';
import { shardOf } from '../shard.ts';
import type { TableMemory } from '../table-memory.ts';
import { type Cells, isExpired } from '../windows/window.ts';
import {
  CheckpointDamageError,
  type CheckpointHeader,
  decodeHeader,
  ENTRY_BYTES,
  type HashKeyFingerprint,
  HEADER_BYTES,
  readEntriesCrc,
  shardOfFileName,
} from './format.ts';

/** A file that says it is a checkpoint. */
interface CheckpointFile extends CheckpointHeader {
  name: string;
  entriesCrc: number;
}

/**
 * Entries that are read at once. A file is read twice, first to learn whether it is whole: to hold
 * all of it would take as much memory again as its counters.
 */
const PART_ENTRIES = 16_384;

/** What became of the counters of the last run. */
export interface RestoreResult {
  counters: number;
  /** Those that found no room in a smaller table, or took that of another. */
  lostCounters: number;
  /** What is wrong with files, a sentence each. */
  damageMessages: string[];
}

export class CheckpointLoader {
  /** Weir's time when its last checkpoint was begun; 0 when there is none. */
  readonly latestStartedMs: number;
  readonly #directory: string;
  /** By shard, the newest first. */
  readonly #files = new Map<number, CheckpointFile[]>();
  readonly #damageMessages: string[] = [];
  readonly #buffer = new Uint8Array(PART_ENTRIES * ENTRY_BYTES);

  /** @param latestMs checkpoints of a later time were made under a clock that went wrong */
  constructor(directory: string, key: HashKeyFingerprint, latestMs: number) {
    this.#directory = directory;
    for (const name of readdirSync(directory)) {
      const shard = shardOfFileName(name);
      if (shard === undefined) continue;
      this.#tryRead(name, () => {
        const fault = unusableReason(lstatSync(join(directory, name)));
        if (fault !== undefined) throw new CheckpointDamageError(`it ${fault}`);
        const header = new ArrayBuffer(HEADER_BYTES);
        this.#read(name, 0, new Uint8Array(header));
        const file = { name, entriesCrc: readEntriesCrc(header), ...decodeHeader(header, key) };
        if (file.startedMs > latestMs)
          throw new CheckpointDamageError("it is of a time far ahead of this machine's");
        const files = [...(this.#files.get(shard) ?? []), file];
        this.#files.set(
          shard,
          files.toSorted((a, b) => b.number - a.number),
        );
      });
    }
    this.latestStartedMs = Math.max(
      0,
      ...[...this.#files.values()].flat().map(({ startedMs }) => startedMs),
    );
  }

  /** Takes its counters in. @param tables one for each shard, that nobody else has */
  restoreInto(tables: readonly TableMemory[], nowMs: number): RestoreResult {
    const taking = new CounterInserter(tables, nowMs);
    for (const shard of [...this.#files.keys()].toSorted((a, b) => a - b)) {
      for (const file of this.#files.get(shard)!) {
        if (!this.#tryRead(file.name, () => this.#loadFile(file, taking))) continue;
        if (shard < tables.length) tables[shard].words[TABLE_HEADER.checkpoint] = file.number;
        break;
      }
    }
    const { counters, lostCounters } = taking;
    return { counters, lostCounters, damageMessages: this.#damageMessages };
  }

  /** @returns true when its entries were taken */
  #loadFile({ name, entryCount, entriesCrc }: CheckpointFile, inserter: CounterInserter): true {
    let crc = 0;
    for (const entries of this.#parts(name, entryCount)) crc = crc32(entries, crc);
    if ((crc | 0) !== entriesCrc) throw new CheckpointDamageError('it is not whole');
    for (const entries of this.#parts(name, entryCount)) inserter.insertAll(entries);
    return true;
  }

  /** All entries, in a buffer that is used again for each part. */
  *#parts(name: string, count: number): Generator<Uint8Array> {
    for (let at = 0; at < count; at += PART_ENTRIES) {
      const length = Math.min(PART_ENTRIES, count - at) * ENTRY_BYTES;
      const part = this.#buffer.subarray(0, length);
      this.#read(name, HEADER_BYTES + at * ENTRY_BYTES, part);
      yield part;
    }
  }

  /** Does what reads a file; where it cannot be, that is damage. */
  #tryRead<T>(name: string, read: () => T): T | undefined {
    try {
      return read();
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      if (!(error instanceof CheckpointDamageError) && code === undefined) throw error;
      const path = join(this.#directory, name);
      this.#damageMessages.push(`${path} is left out: ${message}`);
      this.#remove(path);
      return undefined;
    }
  }

  #remove(path: string): void {
    try {
      rmSync(path, { force: true });
    } catch (error) {
      this.#damageMessages.push(`${path} cannot be removed: ${(error as Error).message}`);
    }
  }

  /** Fills the bytes from this position of a file on. */
  #read(name: string, position: number, bytes: Uint8Array): void {
    const { length } = bytes;
    const file = openSync(join(this.#directory, name), SAFE_OPEN_FLAGS);
    try {
      for (let at = 0; at < length; ) {
        const read = readSync(file, bytes, at, length - at, position + at);
        if (read === 0) throw new CheckpointDamageError('it is cut off');
        at += read;
      }
    } finally {
      closeSync(file);
    }
  }
}

/** Puts entries into the tables. */
class CounterInserter {
  counters = 0;
  lostCounters = 0;
  readonly #groups: readonly Group[];
  readonly #nowMs: number;

  constructor(tables: readonly TableMemory[], nowMs: number) {
    this.#groups = tables.map((table) => new Group(table));
    this.#nowMs = nowMs;
  }

  /** @param entries from the first byte of their buffer on */
  insertAll({ buffer, byteLength }: Uint8Array): void {
    const words = new Int32Array(buffer, 0, byteLength / 4);
    const doubles = new Float64Array(buffer, 0, byteLength / 8);
    for (let at = 0; at < doubles.length; at += ENTRY_BYTES / 8)
      this.#insertOne(words, doubles, at);
  }

  #insertOne(words: Int32Array, doubles: Float64Array, at: number): void {
    const durationMs = doubles[at + SLOT.duration];
    const newest = doubles[at + SLOT.newest];
    if (isExpired(newest, durationMs, this.#nowMs)) return;
    const id: Identity = {
      h0: words[at * 2 + SLOT_WORD.hash0],
      h1: words[at * 2 + SLOT_WORD.hash1],
      h2: words[at * 2 + SLOT_WORD.hash2],
      h3: words[at * 2 + SLOT_WORD.tag],
    };
    const cells: Cells = {
      newest,
      current: doubles[at + SLOT.cells + (newest & 1)],
      previous: doubles[at + SLOT.cells + (~newest & 1)],
    };
    const limit = doubles[at + SLOT.limit];
    const group = this.#groups[shardOf(id)];
    group.locate(id);
    group.advanceTime(this.#nowMs);
    // Left behind by a weir with more shards, whose own files come first.
    if (group.find(id, durationMs) !== NO_SLOT) return;
    const tag = words[at * 2 + SLOT_WORD.namespace];
    const outcome = group.insert(id, tag, this.#nowMs, cells, durationMs, limit);
    if (outcome !== OUTCOME.decided) this.lostCounters++;
    if (outcome === OUTCOME.full) return;
    this.counters++;
    for (const window of [newest, newest - 1]) {
      if (words[at * 2 + SLOT_WORD.denied] & (1 << (window & 1))) {
        group.markDenied(group.find(id, durationMs), window);
      }
    }
  }
}
