/**
 * Writes the checkpoints of one shard, a part at a time, off the path of a check. It belongs to the
 * shard's worker. A group's lock is held while its counters and their holds are copied: they are
 * consistent, as of some moment between the start and the end. That takes some microseconds, and
 * about 1 ms for each 1 000 holds of one identifier.
 *
 * A worker that dies in here leaves an incomplete file, and the one before is complete. Its
 * successor begins again, over the same file, whatever the lock lines say about changes. If the
 * worker died after the last byte and before the checkpoint was numbered, its successor overwrites
 * the newest file, and only the other one is complete meanwhile. A disk that fails ends this
 * checkpoint, nothing else.
 */

import { ENDED_HOLD_MS } from '../../../core/constants.ts';
import type { HoldTable } from '../../holds/hold-table.ts';
import { AT, type HoldMemory, RECORD, RECORD_DOUBLE, RECORD_WORDS } from '../../holds/layout.ts';
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
import { EntryFile } from './entry-file.ts';
import { COUNTER_FILES, type FileKind, type HashKeyFingerprint, HOLD_FILES } from './format.ts';

/** Entries after which a part ends. */
const PART_ENTRIES = 1_024;
/** The most groups of a part that are copied, and that are looked at. */
const PART_COPIED_GROUPS_MAX = 128;
const PART_GROUPS_MAX = 2_048;

/** The entries of one part, for all shards of a worker in turn. */
export class CheckpointBuffer {
  readonly bytes = new Uint8Array((PART_ENTRIES + GROUP_SLOTS) * COUNTER_FILES.entryBytes);
  readonly words = new Int32Array(this.bytes.buffer);
  readonly holds = new RecordBuffer();
}

/** Records of holds. One identity may have any number of them, so it grows. */
class RecordBuffer {
  #words = new Int32Array(0);
  #length = 0;

  /** Copies a record, with its number in place of the link. */
  add(memory: HoldMemory, record: number): void {
    const from = memory.record(record);
    const to = this.#length;
    this.#length += RECORD_WORDS;
    if (this.#length > this.#words.length) {
      const larger = new Int32Array(2 * this.#words.length + PART_ENTRIES * RECORD_WORDS);
      larger.set(this.#words);
      this.#words = larger;
    }
    for (let i = 0; i < RECORD_WORDS; i++) this.#words[to + i] = memory.words[from + i];
    this.#words[to + RECORD.link] = record;
  }

  /** Removes all records. @returns their bytes, until the next one is added */
  take(): Uint8Array {
    const bytes = new Uint8Array(this.#words.buffer, 0, this.#length * 4);
    this.#length = 0;
    return bytes;
  }
}

/** How a worker reports that it is alive, or that it may wait long for the disk. */
interface HeartbeatReporter {
  heartbeat(): void;
  setWaitingForDisk(isWaiting: boolean): void;
}

export class CheckpointWriter {
  readonly #table: TableMemory;
  readonly #holds: HoldTable;
  readonly #shard: number;
  readonly #owner: number;
  readonly #directory: string;
  readonly #key: HashKeyFingerprint;
  readonly #buffer: CheckpointBuffer;
  readonly #heartbeats: HeartbeatReporter;
  /** Whether the last checkpoint, of this or an earlier worker, may be incomplete. */
  #isIncomplete = true;
  /** The files being written; undefined between two checkpoints. */
  #counterFile: EntryFile | undefined;
  /** Undefined too while the shard has no holds. */
  #holdFile: EntryFile | undefined;
  #startedMs = 0;
  #nextGroup = 0;

  /** @param owner of the locks that the calling thread takes: see `lock.ts` */
  constructor(
    table: TableMemory,
    holds: HoldTable,
    owner: number,
    directory: string,
    key: HashKeyFingerprint,
    buffer: CheckpointBuffer,
    heartbeats: HeartbeatReporter,
  ) {
    this.#table = table;
    this.#holds = holds;
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
    if (this.#holds.memory.words[AT.changed] !== 0) return true;
    for (let group = 0; group < groups; group++) {
      if (words[changedAt(lockAt(group))] !== 0) return true;
    }
    return false;
  }

  /** Begins another checkpoint, in place of an unfinished one. */
  begin(nowMs: number): void {
    this.abandon();
    // A hold that changes from here on is in the next checkpoint, whether or not it is in this one.
    this.#holds.memory.words[AT.changed] = 0;
    this.#counterFile = this.#open(COUNTER_FILES);
    if (this.#holds.hasRecords()) this.#holdFile = this.#open(HOLD_FILES);
    this.#isIncomplete = true;
    this.#startedMs = nowMs;
    this.#nextGroup = 0;
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
    if (this.#holdFile === undefined && this.#holds.hasRecords()) {
      // The tokens of the shard's first reservations may be in the counters, without their records.
      this.begin(nowMs);
      return false;
    }
    this.#finish();
    return true;
  }

  /** Ends an unfinished checkpoint. */
  abandon(): void {
    const files = [this.#counterFile, this.#holdFile];
    this.#counterFile = undefined;
    this.#holdFile = undefined;
    for (const file of files) file?.close();
  }

  /**
   * Whether a group has no counter and no hold, and none was removed or added since. Read
   * without its lock: a decision at this moment marks the group as changed for the next one.
   */
  #isEmpty(group: number): boolean {
    const { words } = this.#table;
    const lock = lockAt(group);
    return (
      words[changedAt(lock)] === 0 &&
      nextMarkedSlot(words, lock, 0) === GROUP_SLOTS &&
      (this.#holdFile === undefined || !this.#holds.hasRecordsInGroup(group))
    );
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
      if (this.#holdFile !== undefined) this.#copyHolds(group, lockedMs);
    } finally {
      release(words, lock);
    }
    return end;
  }

  /** Copies the holds of the identities of a group, whose lock is held. */
  #copyHolds(group: number, nowMs: number): void {
    const holds = this.#holds;
    const { memory } = holds;
    holds.lock();
    try {
      for (const record of holds.recordsOfGroup(group)) {
        const endedMs = memory.double(record, RECORD_DOUBLE.endedAt);
        if (!holds.isLive(record) && endedMs + ENDED_HOLD_MS <= nowMs) continue;
        this.#buffer.holds.add(memory, record);
      }
    } finally {
      holds.unlock();
    }
  }

  #write(entries: number): void {
    const counters = this.#buffer.bytes.subarray(0, entries * COUNTER_FILES.entryBytes);
    const holds = this.#buffer.holds.take();
    this.#doDiskWork(() => {
      this.#holdFile?.append(holds);
      this.#counterFile!.append(counters);
    });
  }

  #finish(): void {
    const number = this.#number();
    const startedMs = this.#startedMs;
    this.#doDiskWork(() => {
      this.#holdFile?.finish(number, startedMs, this.#key);
      this.#counterFile!.finish(number, startedMs, this.#key);
    });
    this.abandon();
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

  #open(kind: FileKind): EntryFile {
    const number = this.#number();
    return this.#doDiskWork(() => new EntryFile(this.#directory, kind, this.#shard, number));
  }
}
