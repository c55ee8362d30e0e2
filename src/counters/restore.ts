/**
 * Takes the counters of the last run in again, from its checkpoints, before any thread decides. On
 * the main thread. Of each shard it takes the last whole checkpoint; one that is not whole is left
 * out, with a sentence that says so, and the one before it taken in its place. What is left out is
 * removed, where it can be, or a later start might find it newer than what this one writes. A start
 * never fails over them: counters that are forgotten let somebody in too early, once.
 *
 * Counters go where their hash says, whatever the table they were in.
 */

import { closeSync, fstatSync, openSync, readdirSync, readSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { shardOf } from '../shards/shard.ts';
import type { Table } from './buffer.ts';
import {
  type Checkpoint,
  Damage,
  ENTRY_BYTES,
  HEADER_BYTES,
  type KeyWords,
  readHeader,
  requireWhole,
  shardOfName,
} from './checkpoint.ts';
import { OUTCOME } from './decision.ts';
import { Group } from './group.ts';
import type { Identity } from './hash.ts';
import { HEADER, NO_SLOT, SLOT, SLOT_WORD } from './layout.ts';
import { type Cells, isExpired } from './window.ts';

/** A file that says it is a checkpoint. */
interface File extends Checkpoint {
  name: string;
  header: ArrayBuffer;
}

/** What became of the counters of the last run. */
export interface Restored {
  counters: number;
  /** Those that found no room in a smaller table, or took that of another. */
  noRoom: number;
  /** What is wrong with files, a sentence each. */
  damage: string[];
}

export class LastRun {
  /** Weir's time when its last checkpoint was begun; 0 when there is none. */
  readonly atMs: number;
  readonly #directory: string;
  /** By shard, the newest first. */
  readonly #files = new Map<number, File[]>();
  readonly #damage: string[] = [];

  /** @param latestMs checkpoints of a later time were made under a clock that went wrong */
  constructor(directory: string, key: KeyWords, latestMs: number) {
    this.#directory = directory;
    for (const name of readdirSync(directory)) {
      const shard = shardOfName(name);
      if (shard === undefined) continue;
      this.#attempt(name, () => {
        const header = this.#read(name, 0, HEADER_BYTES);
        const file = { name, header, ...readHeader(header, key) };
        if (file.atMs > latestMs) throw new Damage("it is of a time far ahead of this machine's");
        const files = [...(this.#files.get(shard) ?? []), file];
        this.#files.set(
          shard,
          files.toSorted((a, b) => b.number - a.number),
        );
      });
    }
    this.atMs = Math.max(0, ...[...this.#files.values()].flat().map(({ atMs }) => atMs));
  }

  /** Takes its counters in. @param tables one for each shard, that nobody else has */
  into(tables: readonly Table[], nowMs: number): Restored {
    const taking = new Taking(tables, nowMs);
    for (const shard of [...this.#files.keys()].toSorted((a, b) => a - b)) {
      for (const file of this.#files.get(shard)!) {
        const entries = this.#attempt(file.name, () => this.#entriesOf(file));
        if (entries === undefined) continue;
        taking.take(entries);
        if (shard < tables.length) tables[shard].words[HEADER.checkpoint] = file.number;
        break;
      }
    }
    const { counters, noRoom } = taking;
    return { counters, noRoom, damage: this.#damage };
  }

  #entriesOf({ name, header, count }: File): ArrayBuffer {
    const entries = this.#read(name, HEADER_BYTES, count * ENTRY_BYTES);
    requireWhole(header, new Uint8Array(entries));
    return entries;
  }

  /** Does what reads a file; where it cannot be, that is damage. */
  #attempt<T>(name: string, read: () => T): T | undefined {
    try {
      return read();
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      if (!(error instanceof Damage) && code === undefined) throw error;
      const path = join(this.#directory, name);
      this.#damage.push(`${path} is left out: ${message}`);
      this.#remove(path);
      return undefined;
    }
  }

  #remove(path: string): void {
    try {
      rmSync(path, { force: true });
    } catch (error) {
      this.#damage.push(`${path} cannot be removed: ${(error as Error).message}`);
    }
  }

  #read(name: string, position: number, length: number): ArrayBuffer {
    const file = openSync(join(this.#directory, name), 'r');
    try {
      // What a damaged header says is no reason to ask for memory.
      if (fstatSync(file).size < position + length) throw new Damage('it is cut off');
      const bytes = new Uint8Array(length);
      for (let at = 0; at < length; ) {
        const read = readSync(file, bytes, at, length - at, position + at);
        if (read === 0) throw new Damage('it is cut off');
        at += read;
      }
      return bytes.buffer;
    } finally {
      closeSync(file);
    }
  }
}

/** Puts entries into the tables. */
class Taking {
  counters = 0;
  noRoom = 0;
  readonly #groups: readonly Group[];
  readonly #nowMs: number;

  constructor(tables: readonly Table[], nowMs: number) {
    this.#groups = tables.map((table) => new Group(table));
    this.#nowMs = nowMs;
  }

  take(entries: ArrayBuffer): void {
    const words = new Int32Array(entries);
    const doubles = new Float64Array(entries);
    for (let at = 0; at < doubles.length; at += ENTRY_BYTES / 8) this.#takeOne(words, doubles, at);
  }

  #takeOne(words: Int32Array, doubles: Float64Array, at: number): void {
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
      current: doubles[at + SLOT.ring + (newest & 1)],
      previous: doubles[at + SLOT.ring + (~newest & 1)],
    };
    const limit = doubles[at + SLOT.limit];
    const group = this.#groups[shardOf(id)];
    group.seek(id);
    group.advance(this.#nowMs);
    // Left behind by a weir with more shards, whose own files come first.
    if (group.find(id, durationMs) !== NO_SLOT) return;
    const tag = words[at * 2 + SLOT_WORD.namespace];
    const outcome = group.place(id, tag, this.#nowMs, cells, durationMs, limit);
    if (outcome !== OUTCOME.decided) this.noRoom++;
    if (outcome === OUTCOME.full) return;
    this.counters++;
    for (const window of [newest, newest - 1]) {
      if (words[at * 2 + SLOT_WORD.refused] & (1 << (window & 1))) {
        group.refusedIn(group.find(id, durationMs), window);
      }
    }
  }
}
