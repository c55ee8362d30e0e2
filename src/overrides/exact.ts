/**
 * The table of exact overrides, of a namespace and an identifier without a star: found by the hash
 * of the two that the check has anyway, so that a look-up compares no text. Flat and immutable once
 * it is published: the main thread has it written into a spare buffer (`compile.ts`), acceptors
 * attach to it and read.
 *
 *   header    16 int32    magic | version | records | slots, a power of two
 *   slots     32 bytes each, half a line of the cache, as in the register of the main thread:
 *             int32    0-3  hash
 *             float64  2    limit
 *             float64  3    duration, ms; negative where asynchronous, 0 in a free slot
 *
 * At most half of the slots are taken, so a look-up mostly reads a single line.
 */

import type { Identity } from '../counters/hash.ts';
import { MemoryError } from '../errors.ts';
import { attachMemory, reuseMemory, writeHeader } from '../memory.ts';

const EXACT = { magic: 0, version: 1, records: 2, slots: 3 } as const;
const HEADER = { magic: 0x57656578, version: 2 } as const; // "Weex"
const HEADER_WORDS = 16;

export const RECORD_WORDS = 8;
export const RECORD_BYTES = 4 * RECORD_WORDS;
/** Offsets from the start of a record: of the hash in words, of the numbers in doubles. */
export const RECORD = { hash: 0, limit: 2, durationMs: 3 } as const;

const NAME = 'the table of exact overrides';

const wordsOf = (slots: number) => HEADER_WORDS + RECORD_WORDS * slots;

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
  const buffer = reuseMemory(4 * wordsOf(slots), EXACT, spare);
  const words = new Int32Array(buffer);
  const doubles = new Float64Array(buffer);
  words.fill(0, HEADER_WORDS, wordsOf(slots));
  const source = new Int32Array(register);
  for (let record = 0; record < records; record++) {
    const from = record * RECORD_WORDS;
    let slot = source[from] & (slots - 1);
    while (doubles[wordsOf(slot) / 2 + RECORD.durationMs] !== 0) slot = (slot + 1) & (slots - 1);
    for (let word = 0; word < RECORD_WORDS; word++) {
      words[wordsOf(slot) + word] = source[from + word];
    }
  }
  writeHeader(buffer, EXACT, { ...HEADER, records, slots });
  return buffer;
}

export class ExactTable {
  readonly #words: Int32Array;
  readonly #doubles: Float64Array;
  readonly #mask: number;

  /** @throws MemoryError when the buffer holds no whole table of this version */
  constructor(buffer: SharedArrayBuffer) {
    const words = attachMemory(buffer, NAME, EXACT, HEADER);
    const records = words[EXACT.records];
    const slots = words[EXACT.slots];
    const isShape = records > 0 && slots >= 2 * records && (slots & (slots - 1)) === 0;
    if (!isShape || 4 * wordsOf(slots) > buffer.byteLength) {
      throw new MemoryError(
        `${NAME}: ${buffer.byteLength} bytes for ${records} records, ${slots} slots`,
      );
    }
    this.#words = words;
    this.#doubles = new Float64Array(buffer);
    this.#mask = slots - 1;
  }

  /** @returns where the record of an identity lies, -1 when it has none */
  find({ h0, h1, h2, h3 }: Identity): number {
    const words = this.#words;
    const mask = this.#mask;
    for (let probe = 0; probe <= mask; probe++) {
      const at = HEADER_WORDS + RECORD_WORDS * ((h0 + probe) & mask);
      if (this.#doubles[at / 2 + RECORD.durationMs] === 0) return -1;
      if (words[at] !== h0 || words[at + 1] !== h1) continue;
      if (words[at + 2] === h2 && words[at + 3] === h3) return at;
    }
    throw new MemoryError(`${NAME} has no free slot`);
  }

  /** Of the record at an offset that `find` returned. */
  limit(at: number): number {
    return this.#doubles[at / 2 + RECORD.limit];
  }

  durationMs(at: number): number {
    return Math.abs(this.#doubles[at / 2 + RECORD.durationMs]);
  }

  isAsync(at: number): boolean {
    return this.#doubles[at / 2 + RECORD.durationMs] < 0;
  }
}
