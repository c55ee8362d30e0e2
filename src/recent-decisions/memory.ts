/**
 * The recent decisions of one thread in shared memory. The thread is the only writer, and writes
 * over the oldest record. The main thread reads when it is asked, and never writes.
 *
 *   line 0    header   int32: thread | written, the number of the last record |
 *                      text end, the bytes of texts that were written or are being written
 *   then      records  RECENT_DECISIONS of RECORD_BYTES
 *   then      texts    RECENT_TEXT_BYTES of UTF-8
 *
 * A record has its number while it is complete, and 0 while it is written. Numbers and the text end
 * only grow, and wrap as int32. The text end is moved before bytes are written over. So a reader
 * that reads the number of a record, the record, its texts, the text end, and the number again,
 * knows whether what it has read belongs together. Both sides use atomic exchanges where a plain
 * access must not move across an atomic one.
 */

import { CACHE_LINE_BYTES, RECENT_DECISIONS, RECENT_TEXT_BYTES } from '../core/constants.ts';
import { MemoryError } from '../core/errors.ts';
import { allocateMemory, attachMemory } from '../shared-memory/block.ts';

const HEADER = { thread: 0 } as const;
export const WRITTEN = 1;
export const TEXT_END = 2;

const RECORD_BYTES = 2 * CACHE_LINE_BYTES;
const TEXTS_FROM = CACHE_LINE_BYTES + RECENT_DECISIONS * RECORD_BYTES;
export const RECENT_MEMORY_BYTES = TEXTS_FROM + RECENT_TEXT_BYTES;

/** The doubles of a record. Times are Unix ms. */
export const DOUBLE = {
  time: 0,
  /** Of the last denial that the record counts. */
  until: 1,
  cost: 2,
  limit: 3,
  duration: 4,
  /** Of a lease: the tokens in use. */
  remaining: 5,
  reset: 6,
  burst: 7,
} as const;

/** The words of a record, behind its doubles. */
export const WORD = {
  number: 16,
  textFrom: 17,
  namespaceBytes: 18,
  /** NO_TEXT without an identifier. */
  identifierBytes: 19,
  /** NO_TEXT without an override. */
  overrideBytes: 20,
  flags: 21,
  rule: 22,
  /** Decisions that the record counts. */
  count: 23,
  /** Denials of the namespace without a record: since the one before, and up to the next one. */
  leftOut: 24,
  h0: 25,
  h1: 26,
  h2: 27,
  h3: 28,
  /** Of the namespace: two words of its hash state. */
  namespace0: 29,
  namespace1: 30,
} as const;

export const FLAG = { allowed: 1, window: 2, lease: 4, policy: 8, shadow: 16 } as const;
export const NO_TEXT = -1;
/** The number of no record. */
export const NO_RECORD = 0;

export function allocateRecentMemory(thread: number): SharedArrayBuffer {
  return allocateMemory(RECENT_MEMORY_BYTES, HEADER, { thread });
}

/** @throws MemoryError when the buffer is not that of this thread */
export function attachRecentMemory(buffer: SharedArrayBuffer, thread: number) {
  const name = `the recent decisions of thread ${thread}`;
  const words = attachMemory(buffer, name, HEADER, { thread });
  if (buffer.byteLength !== RECENT_MEMORY_BYTES) {
    throw new MemoryError(`${name} have ${buffer.byteLength} bytes, not ${RECENT_MEMORY_BYTES}`);
  }
  const texts = Buffer.from(buffer, TEXTS_FROM, RECENT_TEXT_BYTES);
  return { words, doubles: new Float64Array(buffer), texts };
}

/** The first byte of a record, by its number. */
export function recordAt(number: number): number {
  return CACHE_LINE_BYTES + (number & (RECENT_DECISIONS - 1)) * RECORD_BYTES;
}

/** Where a byte of the texts is, by its number. */
export function textAt(number: number): number {
  return number & (RECENT_TEXT_BYTES - 1);
}
