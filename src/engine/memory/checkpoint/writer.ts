/**
 * Writes the checkpoints of one shard, a part at a time, off the path of a check. It belongs to the
 * shard's worker. A group's lock is held while its counters are copied, some microseconds: each
 * counter is consistent, as of some moment between the start and the end.
 *
 * A worker that dies in here leaves an incomplete file, and the one before is complete. Its
 * successor begins again, over the same file, whatever the lock lines say about changes. If the
 * worker died after the last byte and before the checkpoint was numbered, its successor overwrites
 * the newest file, and only the other one is complete meanwhile. A disk that fails ends this
 * checkpoint, nothing else.
 */

import { closeSync, constants, ftruncateSync, openSync, writeSync } from 'node:fs';
import { crc32 } from 'node:zlib';
import {
  atomicWords,
  firstSlot,
  GROUP_SLOTS,
  groupAt,
  keyAt,
  latestMsAt,
  lockAt,
  nextMarkedSlot,
  type Slot,
  slotAt,
  TABLE_HEADER,
  tagAt,
} from '../../table/layout.ts';
import { acquire, release } from '../../table/lock.ts';
import type { TableMemory } from '../../table/table-memory.ts';
import { isExpired } from '../../windows/registry.ts';
import { CHECKPOINT_AT, changedAt, copySlot, newestAt } from '../layout.ts';
import {
  checkpointPath,
  ENTRY_BYTES,
  encodeHeader,
  type HashKeyFingerprint,
  HEADER_BYTES,
} from './format.ts';

/** Entries after which a part ends. */
const PART_ENTRIES = 1_024;
/** The most groups of a part that are copied, and that are looked at. */
const PART_COPIED_GROUPS_MAX = 128;
const PART_GROUPS_MAX = 2_048;

/**
 * Without O_TRUNC, after which file systems flush a file at once when it is closed. A symbolic link
 * in its place is an error: other users may be able to write to the directory.
 */
const OPEN_FLAGS = constants.O_WRONLY | constants.O_CREAT | constants.O_NOFOLLOW;

/** The entries of one part, for all shards of a worker in turn. */
export class CheckpointBuffer {
  readonly bytes = new Uint8Array((PART_ENTRIES + GROUP_SLOTS) * ENTRY_BYTES);
  readonly words = new Int32Array(this.bytes.buffer);
}

/** How a worker reports that it is alive, or that it may wait long for the disk. */
interface HeartbeatReporter {
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
  /** Whether the last checkpoint, of this or an earlier worker, may be incomplete. */
  #isIncomplete = true;
  /** The file being written; undefined between two checkpoints. */
  #file: number | undefined;
  #startedMs = 0;
  #nextGroup = 0;
  #entryCount = 0;
  #entriesCrc = 0;

  /** @param owner of the locks that the calling thread takes: see `lock.ts` */
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
   * Whether a decision was made that is in no checkpoint. Read without locks: a decision at this
   * moment is seen the next time.
   */
  hasChanges(): boolean {
    if (this.#isIncomplete) return true;
    const { words, groups } = this.#table;
    for (let group = 0; group < groups; group++) {
      if (words[changedAt(lockAt(group))] !== 0) return true;
    }
    return false;
  }

  /** Begins another checkpoint, in place of an unfinished one. */
  begin(nowMs: number): void {
    this.abandon();
    this.#file = this.#doDiskWork(() => openSync(this.#path(), OPEN_FLAGS, 0o600));
    this.#isIncomplete = true;
    this.#startedMs = nowMs;
    this.#nextGroup = 0;
    this.#entryCount = 0;
    this.#entriesCrc = 0;
  }

  /** Writes a part of it. @returns whether it is complete now */
  writePart(nowMs: number): boolean {
    const { groups } = this.#table;
    const end = Math.min(groups, this.#nextGroup + PART_GROUPS_MAX);
    let copied = 0;
    let entries = 0;
    while (this.#nextGroup < end && copied < PART_COPIED_GROUPS_MAX && entries < PART_ENTRIES) {
      const group = this.#nextGroup++;
      if (this.#isEmpty(group)) continue;
      copied++;
      entries = this.#copyGroup(group, nowMs, entries);
    }
    this.#write(entries);
    if (this.#nextGroup < groups) return false;
    this.#finish();
    return true;
  }

  /** Ends an unfinished checkpoint. */
  abandon(): void {
    const file = this.#file;
    this.#file = undefined;
    if (file !== undefined) closeSync(file);
  }

  /**
   * Whether a group has no counter, and none was removed or added since the last checkpoint. Read
   * without its lock: a decision at this moment marks the group as changed for the next one.
   */
  #isEmpty(group: number): boolean {
    const { words } = this.#table;
    const lock = lockAt(group);
    return words[changedAt(lock)] === 0 && nextMarkedSlot(words, lock, 0) === GROUP_SLOTS;
  }

  /** @param entries those in the part so far @returns those after this group */
  #copyGroup(group: number, nowMs: number, entries: number): number {
    const { words, doubles, groups } = this.#table;
    const lock = lockAt(group);
    const slots = groupAt(firstSlot(groups), group);
    let end = entries;
    acquire(words, lock, this.#owner, () => this.#heartbeats.heartbeat());
    try {
      words[changedAt(lock)] = 0;
      const lockedMs = Math.max(doubles[latestMsAt(lock)], nowMs);
      for (
        let i = nextMarkedSlot(words, lock, 0);
        i < GROUP_SLOTS;
        i = nextMarkedSlot(words, lock, i + 1)
      ) {
        const slot = slotAt(slots, i);
        if (words[tagAt(slot)] === 0) continue;
        if (isExpired(doubles[keyAt(slot)], doubles[newestAt(slot)], lockedMs)) continue;
        copySlot(words, slot, this.#buffer.words, slotAt(0 as Slot, end++));
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
      // Some file systems report only now that there was no space.
      this.abandon();
    });
    Atomics.store(atomicWords(this.#table.words), CHECKPOINT_AT, number);
    this.#isIncomplete = false;
  }

  #doDiskWork<T>(work: () => T): T {
    this.#heartbeats.setWaitingForDisk(true);
    try {
      return work();
    } finally {
      // The heartbeat first: after the flag is cleared, the wait must not count as unresponsive.
      this.#heartbeats.heartbeat();
      this.#heartbeats.setWaitingForDisk(false);
    }
  }

  /** The number of the checkpoint being written, or of the next one. */
  #number(): number {
    return Atomics.load(atomicWords(this.#table.words), CHECKPOINT_AT) + 1;
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
