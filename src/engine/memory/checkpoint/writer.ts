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
import {
  bucketAt,
  GROUP_BUCKETS,
  GROUP_SLOTS,
  LOCK_LINE,
  lockAt,
  nextUsedSlot,
  SLOT,
  SLOT_WORD,
  slotAt,
  TABLE_HEADER,
} from '../layout.ts';
import { acquire, release } from '../lock.ts';
import type { TableMemory } from '../table-memory.ts';
import { isExpired } from '../windows/window.ts';
import {
  checkpointPath,
  ENTRY_BYTES,
  encodeHeader,
  type HashKeyFingerprint,
  HEADER_BYTES,
} from './format.ts';

const ENTRY_WORDS = ENTRY_BYTES / 4;

/** Entries that are gathered before they are written: a part ends with them. */
const PART_ENTRIES = 1_024;
/** Groups that a part takes at most, also where they are empty. */
const PART_GROUPS_MAX = 4_096;

/**
 * Not by the flag that empties a file, behind which file systems write it out at once. A symbolic
 * link in its place is an error: the directory may be one that other users write.
 */
const OPEN_FLAGS = constants.O_WRONLY | constants.O_CREAT | constants.O_NOFOLLOW;

/** What is being written, for all shards of a worker in turn. */
export class CheckpointBuffer {
  readonly bytes = new Uint8Array((PART_ENTRIES + GROUP_SLOTS) * ENTRY_BYTES);
  readonly words = new Int32Array(this.bytes.buffer);
}

/** How a worker shows that it lives, or for what it may wait long. */
export interface HeartbeatReporter {
  heartbeat(): void;
  setWaitingForDisk(isWaiting: boolean): void;
}

export class CheckpointWriter {
  readonly #table: TableMemory;
  readonly #shard: number;
  readonly #owner: number;
  readonly #directory: string;
  readonly #key: HashKeyFingerprint;
  readonly #buffer: CheckpointBuffer;
  readonly #heartbeats: HeartbeatReporter;
  /** The last checkpoint, of this or an earlier worker, may not have been finished. */
  #isIncomplete = true;
  /** The file being written; undefined between two checkpoints. */
  #file: number | undefined;
  #startedMs = 0;
  #nextGroup = 0;
  #entryCount = 0;
  #entriesCrc = 0;

  /** @param owner the incarnation of the calling thread, which its locks carry */
  constructor(
    table: TableMemory,
    owner: number,
    directory: string,
    key: HashKeyFingerprint,
    buffer: CheckpointBuffer,
    heartbeats: HeartbeatReporter,
  ) {
    this.#table = table;
    this.#shard = table.words[TABLE_HEADER.shard];
    this.#owner = owner;
    this.#directory = directory;
    this.#key = key;
    this.#buffer = buffer;
    this.#heartbeats = heartbeats;
  }

  /**
   * Whether anything was decided that is in no checkpoint. Read without locks: of what is decided
   * at this moment it hears the next time, and of all once nobody decides any more.
   */
  hasChanges(): boolean {
    if (this.#isIncomplete) return true;
    const { words, groups } = this.#table;
    for (let group = 0; group < groups; group++) {
      if (words[lockAt(group) + LOCK_LINE.isChanged] !== 0) return true;
    }
    return false;
  }

  /** Begins another one; what an unfinished one has written is no loss. */
  begin(nowMs: number): void {
    this.abandon();
    this.#file = this.#doDiskWork(() => openSync(this.#path(), OPEN_FLAGS, 0o600));
    this.#isIncomplete = true;
    this.#startedMs = nowMs;
    this.#nextGroup = 0;
    this.#entryCount = 0;
    this.#entriesCrc = 0;
  }

  /** Writes a part of it. @returns whether it is whole now */
  writePart(nowMs: number): boolean {
    const { groups } = this.#table;
    let entries = 0;
    let looks = 0;
    while (this.#nextGroup < groups && entries < PART_ENTRIES && looks++ < PART_GROUPS_MAX) {
      entries = this.#copyGroup(this.#nextGroup++, nowMs, entries);
    }
    this.#write(entries);
    if (this.#nextGroup < groups) return false;
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
  #copyGroup(group: number, nowMs: number, entries: number): number {
    const { words, doubles, groups } = this.#table;
    const lock = lockAt(group);
    const part = this.#buffer.words;
    const slots = bucketAt(groups, group * GROUP_BUCKETS);
    let end = entries;
    acquire(words, lock, this.#owner, () => this.#heartbeats.heartbeat());
    try {
      words[lock + LOCK_LINE.isChanged] = 0;
      const lockedMs = Math.max(doubles[lock / 2 + LOCK_LINE.latestMs], nowMs);
      for (
        let i = nextUsedSlot(words, lock, 0);
        i < GROUP_SLOTS;
        i = nextUsedSlot(words, lock, i + 1)
      ) {
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
    const bytes = this.#buffer.bytes.subarray(0, length);
    this.#entriesCrc = crc32(bytes, this.#entriesCrc);
    const at = HEADER_BYTES + this.#entryCount * ENTRY_BYTES;
    this.#doDiskWork(() => writeAll(this.#file!, bytes, at));
    this.#entryCount += entries;
  }

  #finish(): void {
    const number = this.#number();
    const file = this.#file!;
    const header = encodeHeader(
      { number, startedMs: this.#startedMs, entryCount: this.#entryCount },
      this.#key,
      this.#entriesCrc,
    );
    this.#doDiskWork(() => {
      writeAll(file, header, 0);
      ftruncateSync(file, HEADER_BYTES + this.#entryCount * ENTRY_BYTES);
      // Some file systems say only now that there was no space.
      this.abandon();
    });
    Atomics.store(this.#table.words, TABLE_HEADER.checkpoint, number);
    this.#isIncomplete = false;
  }

  #doDiskWork<T>(work: () => T): T {
    this.#heartbeats.setWaitingForDisk(true);
    try {
      return work();
    } finally {
      // First the heartbeat: the wait must not count once it is over.
      this.#heartbeats.heartbeat();
      this.#heartbeats.setWaitingForDisk(false);
    }
  }

  /** Of the one being written, or to be written next. */
  #number(): number {
    return Atomics.load(this.#table.words, TABLE_HEADER.checkpoint) + 1;
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
