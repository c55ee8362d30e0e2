/**
 * The table of exact overrides, of a namespace and an identifier without a star: found by the hash
 * of the two that the check has anyway, so that a look-up compares no text. Flat and immutable once
 * it is published: the main thread has it written into a spare buffer (`compile.ts`), acceptors
 * attach to it and read.
 *
 *   header    16 int32    magic | version | records | slots, a power of two
 *   index     2 int32 a slot: a word of the hash | number of the record and 1, or 0 for free
 *   records   40 bytes each, as in the register of the main thread:
 *             int32    0  hash 0-3    8  asynchronous, 0 or 1    9  unused
 *             float64  2  limit       3  duration, ms
 *
 * At most half of the slots are taken, so a look-up ends after one or two.
 */

import type { Identity } from '../counters/hash.ts';
import { MemoryError } from '../errors.ts';
import { attachMemory } from '../memory.ts';

const EXACT = { magic: 0, version: 1, records: 2, slots: 3 } as const;
const HEADER = { magic: 0x57656578, version: 1 } as const; // "Weex"
const HEADER_WORDS = 16;
const SLOT_WORDS = 2;

export const RECORD_WORDS = 10;
export const RECORD_BYTES = 4 * RECORD_WORDS;
/** Offsets from the start of a record: of the two numbers in doubles, of the others in words. */
export const RECORD = { hash: 0, limit: 2, durationMs: 3, isAsync: 8 } as const;

const NAME = 'the table of exact overrides';
/** A table that outgrows its buffer gets one that is so much larger than it has to be. */
const SPARE = 2;

const recordsAt = (slots: number) => HEADER_WORDS + SLOT_WORDS * slots;
const wordsOf = (records: number, slots: number) => recordsAt(slots) + RECORD_WORDS * records;

/**
 * Writes a table.
 * @param register records, one behind the other
 * @param spare a buffer that nobody reads any more, if there is one
 * @returns the buffer it was written into: the spare one, or a larger one
 */
export function writeExact(
  register: SharedArrayBuffer,
  records: number,
  spare: SharedArrayBuffer | undefined,
): SharedArrayBuffer {
  let slots = 1;
  while (slots < 2 * records) slots *= 2;
  const bytes = 4 * wordsOf(records, slots);
  const fits = spare !== undefined && spare.byteLength >= bytes;
  const buffer = fits ? spare : new SharedArrayBuffer(SPARE * bytes);
  const words = new Int32Array(buffer);
  words[EXACT.magic] = 0;
  words[EXACT.version] = HEADER.version;
  words[EXACT.records] = records;
  words[EXACT.slots] = slots;
  words.fill(0, HEADER_WORDS, recordsAt(slots));
  const source = new Int32Array(register, 0, RECORD_WORDS * records);
  words.set(source, recordsAt(slots));
  for (let record = 0; record < records; record++) {
    const hash = record * RECORD_WORDS + RECORD.hash;
    let slot = source[hash] & (slots - 1);
    while (words[HEADER_WORDS + SLOT_WORDS * slot + 1] !== 0) slot = (slot + 1) & (slots - 1);
    words[HEADER_WORDS + SLOT_WORDS * slot] = source[hash + 1];
    words[HEADER_WORDS + SLOT_WORDS * slot + 1] = record + 1;
  }
  Atomics.store(words, EXACT.magic, HEADER.magic);
  return buffer;
}

export class ExactTable {
  readonly records: number;
  readonly #words: Int32Array;
  readonly #doubles: Float64Array;
  readonly #mask: number;
  readonly #recordsAt: number;

  /** @throws MemoryError when the buffer holds no whole table of this version */
  constructor(buffer: SharedArrayBuffer) {
    const words = attachMemory(buffer, NAME, EXACT, HEADER);
    const records = words[EXACT.records];
    const slots = words[EXACT.slots];
    const isShape = records >= 0 && slots >= 2 * records && (slots & (slots - 1)) === 0;
    if (!isShape || slots < 1 || 4 * wordsOf(records, slots) > buffer.byteLength) {
      throw new MemoryError(
        `${NAME}: ${buffer.byteLength} bytes for ${records} records, ${slots} slots`,
      );
    }
    this.records = records;
    this.#words = words;
    this.#doubles = new Float64Array(buffer);
    this.#mask = slots - 1;
    this.#recordsAt = recordsAt(slots);
  }

  /** @returns where the record of an identity lies, -1 when it has none */
  find({ h0, h1, h2, h3 }: Identity): number {
    const words = this.#words;
    const mask = this.#mask;
    for (let probe = 0; probe <= mask; probe++) {
      const slot = (h0 + probe) & mask;
      const number = words[HEADER_WORDS + SLOT_WORDS * slot + 1];
      if (number === 0) return -1;
      if (words[HEADER_WORDS + SLOT_WORDS * slot] !== h1) continue;
      const at = this.#recordsAt + (number - 1) * RECORD_WORDS;
      if (words[at] === h0 && words[at + 2] === h2 && words[at + 3] === h3) return at;
    }
    throw new MemoryError(`${NAME} has no free slot`);
  }

  /** Of the record at an offset that `find` returned. */
  limit(at: number): number {
    return this.#doubles[at / 2 + RECORD.limit];
  }

  durationMs(at: number): number {
    return this.#doubles[at / 2 + RECORD.durationMs];
  }

  isAsync(at: number): boolean {
    return this.#words[at + RECORD.isAsync] === 1;
  }
}
