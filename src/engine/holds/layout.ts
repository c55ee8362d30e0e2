/**
 * The layout of the holds of one shard in shared memory. A test pins the numbers.
 *
 *   byte 0     header      shard | groups | buckets of a group | capacity
 *   byte 48    lock line   int32   0       owner of the lock, or 0: see `table/lock.ts`
 *                          int32   1       changed: 1 if a hold changed since the last checkpoint
 *                          int32   2, 3    the first free record, and the first free counter
 *                          int32   4, 5    the ended record that ended first, and last
 *                          int32   6       records in the expiry queue
 *                          int32   7, 8    live reservations, live leases
 *                          int32   9       used: records that ever had a hold, the first ones
 *                          float64 5       the latest time of a change, ms
 *                          float64 6, 7    tokens of live reservations, and of live leases
 *   after it   buckets     int32 each: the first counter of a bucket
 *              queue       int32 each: a record, in the order of `expiry-queue.ts`
 *              counters    64 bytes each: the holds of one identity
 *              records     128 bytes each: one hold
 *
 *   counter    int32   0-3     the identity
 *              int32   4       its first live record
 *              int32   5, 6    its ended record that ended first, and last
 *              int32   7       the next counter of the bucket, or the next free one
 *              float64 4       in use: the sum of its live leases
 *              float64 5       no live lease of it expires before this time, ms
 *
 *   record     int32   0       state, one of HOLD_STATE; written last
 *              int32   1-4     the identity
 *              int32   5, 6    the first words of the hash state of the namespace
 *              int32   7-9     the secret of its id
 *              int32   10      flags, of HOLD_FLAG; from bit 8 the number of the window rule; from
 *                              bit 16 the length of the list, of its first record
 *              int32   11      of a list of reservations: the reference of the next one, or 0
 *              int32   12      its counter
 *              int32   13, 14  the records before it and after it in its counter: live, the other
 *                              live ones; ended, only the one after it, which ended next
 *              int32   15      live: its place in the queue; ended: the record that ended next;
 *                              free: the next free one
 *              float64 8       duration, ms
 *              float64 9       window: that of the decision, as its rule has it
 *              float64 10      limit
 *              float64 11      amount: tokens reserved, or the cost of a lease
 *              float64 12, 13  when it expires, and when it ended: Unix time, ms
 *              float64 14      charged: tokens that count for it now
 *              float64 15      released: tokens that its end returned
 *
 * Counters and records are numbered from 1; 0 is none. A bucket has counters of one group of the
 * counter table, so that a checkpoint finds the holds of a group.
 *
 * The lease horizon of all shards (`lease-horizon.ts`) is a buffer of one line:
 *
 *              int32   0       owner of the lock, or 0
 *              int32   1, 2    the errno of the last write, 0 if it succeeded; failed writes
 *              float64 2       the horizon: Unix time, ms; 0 before the first lease
 *              float64 3       the system clock at the last failed write, ms
 */

import { CACHE_LINE_BYTES, FIRST_LINE_OFFSET, SHARDS } from '../../core/constants.ts';
import { MemoryError } from '../../core/errors.ts';
import { allocateMemory, attachMemory } from '../../shared-memory/block.ts';
import type { Lock } from '../table/layout.ts';

/** No record, no counter. */
export const NONE = 0;

/** A record and its shard in one number, above 0. */
export function referenceOf(shard: number, record: number): number {
  return record * SHARDS + shard;
}
export function shardOfReference(reference: number): number {
  return reference % SHARDS;
}
export function recordOfReference(reference: number): number {
  return Math.floor(reference / SHARDS);
}

/** `live` until the hold is ended by its owner, or by its expiry. */
export const HOLD_STATE = { free: 0, live: 1, ended: 2, expired: 3 } as const;

/**
 * `late`: the commit came after the expiry. `voided`: a reset has removed what it could return.
 * `member`: it belongs to a list, whose first record has the id.
 */
export const HOLD_FLAG = { lease: 1, late: 2, voided: 4, member: 8 } as const;
const RULE_SHIFT = 8;
const LENGTH_SHIFT = 16;
const BYTE = 0xff;

export function flagsWord(flags: number, rule: number, listLength: number): number {
  return flags | (rule << RULE_SHIFT) | (listLength << LENGTH_SHIFT);
}
export function ruleOfFlags(word: number): number {
  return (word >>> RULE_SHIFT) & BYTE;
}
export function listLengthOfFlags(word: number): number {
  return word >>> LENGTH_SHIFT;
}

export const RECORD_BYTES = 2 * CACHE_LINE_BYTES;
export const RECORD_WORDS = RECORD_BYTES / 4;
const COUNTER_WORDS = CACHE_LINE_BYTES / 4;

const HEADER = { shard: 0, groups: 1, bucketsPerGroup: 2, capacity: 3 } as const;

const LINE = FIRST_LINE_OFFSET / 4;
export const LOCK = LINE as Lock;
/** Words of the lock line. */
export const AT = {
  changed: LINE + 1,
  freeRecord: LINE + 2,
  freeCounter: LINE + 3,
  firstEnded: LINE + 4,
  lastEnded: LINE + 5,
  queueLength: LINE + 6,
  liveReservations: LINE + 7,
  liveLeases: LINE + 8,
  used: LINE + 9,
} as const;
/** Doubles of the lock line. */
export const DOUBLE_AT = {
  latestMs: LINE / 2 + 5,
  heldTokens: LINE / 2 + 6,
  leasedTokens: LINE / 2 + 7,
} as const;

/** Words of a counter. */
export const COUNTER = {
  identity: 0,
  firstLive: 4,
  firstEnded: 5,
  lastEnded: 6,
  next: 7,
} as const;
export const COUNTER_DOUBLE = { inUse: 4, earliestExpiryMs: 5 } as const;

/** Words of a record. */
export const RECORD = {
  state: 0,
  identity: 1,
  namespace: 5,
  secret: 7,
  flags: 10,
  nextOfList: 11,
  counter: 12,
  previous: 13,
  next: 14,
  link: 15,
} as const;
export const RECORD_DOUBLE = {
  durationMs: 8,
  window: 9,
  limit: 10,
  amount: 11,
  expiresAt: 12,
  endedAt: 13,
  charged: 14,
  released: 15,
} as const;

/** Of the lease horizon. */
export const HORIZON_LOCK = 0 as Lock;
export const HORIZON = { errno: 1, failures: 2 } as const;
export const HORIZON_DOUBLE = { ms: 2, failedMs: 3 } as const;

export function allocateHorizon(): SharedArrayBuffer {
  return new SharedArrayBuffer(CACHE_LINE_BYTES);
}

/**
 * The records of each shard, for so many holds in all: some more than its share, because identities
 * are not distributed evenly.
 */
function holdsPerShard(holds: number): number {
  const share = holds / SHARDS;
  return Math.ceil(share + 4 * Math.sqrt(share));
}

/** About one bucket for each record: a power of two in each group. */
function bucketsPerGroup(capacity: number, groups: number): number {
  return 2 ** Math.max(0, Math.ceil(Math.log2(capacity / groups)));
}

interface Sizes {
  groups: number;
  bucketsPerGroup: number;
  capacity: number;
}

/** The first word of each part, and the bytes of all. */
function partsOf({ groups, bucketsPerGroup, capacity }: Sizes) {
  const toLine = (word: number) => {
    return LINE + Math.ceil((word - LINE) / COUNTER_WORDS) * COUNTER_WORDS;
  };
  const buckets = LINE + COUNTER_WORDS;
  const queue = toLine(buckets + groups * bucketsPerGroup);
  const firstCounter = toLine(queue + capacity);
  const firstRecord = firstCounter + capacity * COUNTER_WORDS;
  const bytes = 4 * (firstRecord + capacity * RECORD_WORDS);
  // Numbers begin at 1.
  const counters = firstCounter - COUNTER_WORDS;
  const records = firstRecord - RECORD_WORDS;
  return { buckets, queue, counters, records, bytes: Math.ceil(bytes / 8) * 8 };
}

function sizesOf(holds: number, groups: number): Sizes {
  const capacity = holdsPerShard(holds);
  return { groups, capacity, bucketsPerGroup: bucketsPerGroup(capacity, groups) };
}

/** Allocates the memory of one shard, without holds. */
export function allocateHolds(shard: number, holds: number, groups: number): SharedArrayBuffer {
  const sizes = sizesOf(holds, groups);
  return allocateMemory(partsOf(sizes).bytes, HEADER, { shard, ...sizes });
}

/** The holds of one shard, as one thread reaches them. */
export class HoldMemory {
  readonly words: Int32Array;
  readonly doubles: Float64Array;
  readonly shard: number;
  readonly groups: number;
  readonly bucketsPerGroup: number;
  /** How many records there are, and as many counters. */
  readonly capacity: number;
  /** The first words of the buckets and of the queue. */
  readonly buckets: number;
  readonly queue: number;
  readonly #counters: number;
  readonly #records: number;

  /** @throws MemoryError when the buffer does not have the holds of this shard */
  constructor(buffer: SharedArrayBuffer, shard: number) {
    const name = `the holds of shard ${shard}`;
    const words = attachMemory(buffer, name, HEADER, { shard });
    const groups = words[HEADER.groups];
    const bucketsPerGroup = words[HEADER.bucketsPerGroup];
    const capacity = words[HEADER.capacity];
    const parts = partsOf({ groups, bucketsPerGroup, capacity });
    if (buffer.byteLength !== parts.bytes) {
      throw new MemoryError(`${name} have ${buffer.byteLength} bytes, not ${parts.bytes}`);
    }
    this.words = words;
    this.doubles = new Float64Array(buffer);
    this.shard = shard;
    this.groups = groups;
    this.bucketsPerGroup = bucketsPerGroup;
    this.capacity = capacity;
    this.buckets = parts.buckets;
    this.queue = parts.queue;
    this.#counters = parts.counters;
    this.#records = parts.records;
  }

  /** The first word of a counter. */
  counter(number: number): number {
    return this.#counters + number * COUNTER_WORDS;
  }

  /** The first word of a record. */
  record(number: number): number {
    return this.#records + number * RECORD_WORDS;
  }

  /** Reads a word of a record. @param field one of RECORD */
  word(record: number, field: number): number {
    return this.words[this.record(record) + field];
  }

  setWord(record: number, field: number, value: number): void {
    this.words[this.record(record) + field] = value;
  }

  /** Reads a double of a record. @param field one of RECORD_DOUBLE */
  double(record: number, field: number): number {
    return this.doubles[(this.record(record) >>> 1) + field];
  }

  setDouble(record: number, field: number, value: number): void {
    this.doubles[(this.record(record) >>> 1) + field] = value;
  }

  /** Reads a double of a counter. @param field one of COUNTER_DOUBLE */
  counterDouble(counter: number, field: number): number {
    return this.doubles[(this.counter(counter) >>> 1) + field];
  }

  setCounterDouble(counter: number, field: number, value: number): void {
    this.doubles[(this.counter(counter) >>> 1) + field] = value;
  }
}
