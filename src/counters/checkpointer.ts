/**
 * Writes the checkpoints of one shard, a part at a time, off the path of a check. It belongs to the
 * shard's worker. A group's lock is held while its counters are copied, some microseconds: each
 * counter is whole, and as it was at some moment between the beginning and the end.
 *
 * A worker that dies in here leaves a file that is not whole, and the one before is; its successor
 * begins anew, over the same file, whatever the words in the lock lines say. Should it have died
 * between the last byte and the note that there is one more, that is the newest file, and until it
 * is whole again the other is all there is. A disk that fails ends this checkpoint, nothing else.
 */

import { closeSync, constants, ftruncateSync, openSync, writeSync } from 'node:fs';
import { crc32 } from 'node:zlib';
import type { Table } from './buffer.ts';
import {
  checkpointPath,
  ENTRY_BYTES,
  HEADER_BYTES,
  headerOf,
  type KeyWords,
} from './checkpoint.ts';
import {
  bucketAt,
  GROUP_BUCKETS,
  GROUP_SLOTS,
  HEADER,
  LOCK,
  lockOf,
  nextUsed,
  SLOT,
  SLOT_WORD,
  slotAt,
} from './layout.ts';
import { acquire, release } from './lock.ts';
import { isExpired } from './window.ts';

const ENTRY_WORDS = ENTRY_BYTES / 4;

/** Entries that are gathered before they are written: a part ends with them. */
const PART_ENTRIES = 1_024;
/** Groups that a part takes at most, also where they are empty. */
const PART_GROUPS = 4_096;

/**
 * Not by the flag that empties a file, behind which file systems write it out at once. A symbolic
 * link in its place is an error: the directory may be one that other users write.
 */
const OPEN = constants.O_WRONLY | constants.O_CREAT | constants.O_NOFOLLOW;

/** What is being written, for all shards of a worker in turn. */
export class Part {
  readonly bytes = new Uint8Array((PART_ENTRIES + GROUP_SLOTS) * ENTRY_BYTES);
  readonly words = new Int32Array(this.bytes.buffer);
}

/** How a worker shows that it lives, or for what it may wait long. */
export interface Signs {
  beat(): void;
  atDisk(isSo: boolean): void;
}

export class Checkpointer {
  readonly #table: Table;
  readonly #shard: number;
  readonly #owner: number;
  readonly #directory: string;
  readonly #key: KeyWords;
  readonly #part: Part;
  readonly #signs: Signs;
  /** The last checkpoint, of this or an earlier worker, may not have been finished. */
  #isOwed = true;
  /** The file being written; undefined between two checkpoints. */
  #file: number | undefined;
  #atMs = 0;
  #next = 0;
  #count = 0;
  #crc = 0;

  /** @param owner the incarnation of the calling thread, which its locks carry */
  constructor(
    table: Table,
    owner: number,
    directory: string,
    key: KeyWords,
    part: Part,
    signs: Signs,
  ) {
    this.#table = table;
    this.#shard = table.words[HEADER.shard];
    this.#owner = owner;
    this.#directory = directory;
    this.#key = key;
    this.#part = part;
    this.#signs = signs;
  }

  /**
   * Whether anything was decided that is in no checkpoint. Read without locks: of what is decided
   * at this moment it hears the next time, and of all once nobody decides any more.
   */
  isBehind(): boolean {
    if (this.#isOwed) return true;
    const { words, groups } = this.#table;
    for (let group = 0; group < groups; group++) {
      if (words[lockOf(group) + LOCK.changed] !== 0) return true;
    }
    return false;
  }

  /** Begins another one; what an unfinished one has written is no loss. */
  begin(nowMs: number): void {
    this.abandon();
    this.#file = this.#atDisk(() => openSync(this.#path(), OPEN, 0o600));
    this.#isOwed = true;
    this.#atMs = nowMs;
    this.#next = 0;
    this.#count = 0;
    this.#crc = 0;
  }

  /** Writes a part of it. @returns whether it is whole now */
  step(nowMs: number): boolean {
    const { groups } = this.#table;
    let entries = 0;
    let looks = 0;
    while (this.#next < groups && entries < PART_ENTRIES && looks++ < PART_GROUPS) {
      entries = this.#copy(this.#next++, nowMs, entries);
    }
    this.#write(entries);
    if (this.#next < groups) return false;
    this.#finish();
    return true;
  }

  /** Ends an unfinished one. */
  abandon(): void {
    const file = this.#file;
    this.#file = undefined;
    if (file !== undefined) closeSync(file);
  }

  /** @returns how many entries there are in the part behind those of this group */
  #copy(group: number, nowMs: number, entries: number): number {
    const { words, doubles, groups } = this.#table;
    const lock = lockOf(group);
    const part = this.#part.words;
    const slots = bucketAt(groups, group * GROUP_BUCKETS);
    let end = entries;
    acquire(words, lock, this.#owner, () => this.#signs.beat());
    try {
      words[lock + LOCK.changed] = 0;
      const lockedMs = Math.max(doubles[lock / 2 + LOCK.now], nowMs);
      for (let i = nextUsed(words, lock, 0); i < GROUP_SLOTS; i = nextUsed(words, lock, i + 1)) {
        const slot = slotAt(slots, i);
        const from = slot * 2;
        if (words[from + SLOT_WORD.tag] === 0) continue;
        if (isExpired(doubles[slot + SLOT.newest], doubles[slot + SLOT.duration], lockedMs)) {
          continue;
        }
        // As words: a hash that is read as a double may be changed on its way.
        const to = end++ * ENTRY_WORDS;
        for (let word = 0; word < ENTRY_WORDS; word++) part[to + word] = words[from + word];
      }
    } finally {
      release(words, lock);
    }
    return end;
  }

  #write(entries: number): void {
    const length = entries * ENTRY_BYTES;
    const bytes = this.#part.bytes.subarray(0, length);
    this.#crc = crc32(bytes, this.#crc);
    const at = HEADER_BYTES + this.#count * ENTRY_BYTES;
    this.#atDisk(() => writeAll(this.#file!, bytes, at));
    this.#count += entries;
  }

  #finish(): void {
    const number = this.#number();
    const file = this.#file!;
    const header = headerOf({ number, atMs: this.#atMs, count: this.#count }, this.#key, this.#crc);
    this.#atDisk(() => {
      writeAll(file, header, 0);
      ftruncateSync(file, HEADER_BYTES + this.#count * ENTRY_BYTES);
      // Some file systems say only now that there was no space.
      this.abandon();
    });
    Atomics.store(this.#table.words, HEADER.checkpoint, number);
    this.#isOwed = false;
  }

  #atDisk<T>(work: () => T): T {
    this.#signs.atDisk(true);
    try {
      return work();
    } finally {
      // First the heartbeat: the wait must not count once it is over.
      this.#signs.beat();
      this.#signs.atDisk(false);
    }
  }

  /** Of the one being written, or to be written next. */
  #number(): number {
    return Atomics.load(this.#table.words, HEADER.checkpoint) + 1;
  }

  #path(): string {
    return checkpointPath(this.#directory, this.#shard, this.#number());
  }
}

function writeAll(file: number, bytes: Uint8Array, position: number): void {
  for (let at = 0; at < bytes.length; ) {
    at += writeSync(file, bytes, at, bytes.length - at, position + at);
  }
}
