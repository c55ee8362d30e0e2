/**
 * The table of exact overrides, of a namespace and an identifier without a star: found by the hash
 * of the two that the check has anyway, so that a look-up compares no text. The main thread has one
 * that it changes (`registers.ts`), of which copies are published: flat and immutable, in buffers
 * that a task copies it to (`compile.ts`). Acceptors attach to these and read.
 *
 *   header    16 int32    magic | version | records | slots, a power of two
 *   slots     48 bytes each:
 *             int32    0-3  hash
 *             float64  2    limit
 *             float64  3    duration, ms; negative where asynchronous, 0 in a free slot
 *             int32    8-10 id
 *
 * At most half of the slots are taken, so a look-up mostly reads a line of the cache or two.
 */

import { MemoryError } from '../core/errors.ts';
import type { Identity } from '../core/hash.ts';
import { allocateMemory, attachMemory, reuseMemory, writeHeader } from '../shared-memory/block.ts';
import { decodeId, encodeId, type OverrideValue } from './id.ts';

const EXACT = { magic: 0, version: 1, records: 2, slots: 3 } as const;
const HEADER = { magic: 0x57656578, version: 3 } as const; // "Weex"
const HEADER_WORDS = 16;

const SLOT_WORDS = 12;
/** Offsets from the start of a slot: of hash and id in words, of the numbers in doubles. */
const SLOT = { hash: 0, limit: 2, durationMs: 3, id: 8 } as const;

const DESCRIPTION = 'the table of exact overrides';
const INITIAL_SLOTS = 64;

/** Where a slot begins, and, of their count, where the table ends: in words. */
const slotOffset = (slot: number) => HEADER_WORDS + SLOT_WORDS * slot;

/** The table that is changed. Failures in here are failed assertions. */
export class WritableExactTable {
  records = 0;
  buffer = allocate(INITIAL_SLOTS);
  #words = new Int32Array(this.buffer);
  #doubles = new Float64Array(this.buffer);
  #mask = INITIAL_SLOTS - 1;

  /** Writes the record of an identity, over the one that it has. */
  put(identity: Identity, { id, limit, durationMs, isAsync }: OverrideValue): void {
    let at = this.#find(identity);
    if (this.#isFree(at)) {
      if (2 * ++this.records > this.#mask + 1) {
        this.#grow();
        at = this.#find(identity);
      }
      this.#words.set([identity.h0, identity.h1, identity.h2, identity.h3], at + SLOT.hash);
    }
    this.#words.set(encodeId(id), at + SLOT.id);
    this.#doubles[at / 2 + SLOT.limit] = limit;
    this.#doubles[at / 2 + SLOT.durationMs] = isAsync ? -durationMs : durationMs;
  }

  /** Those behind it that could not lie where it lay move up, so that no look-up ends too early. */
  remove(identity: Identity): void {
    let hole = this.#find(identity);
    if (this.#isFree(hole)) throw new Error(`${DESCRIPTION} has not what is to be removed`);
    this.records--;
    const mask = this.#mask;
    const slotOf = (at: number) => (at - HEADER_WORDS) / SLOT_WORDS;
    for (let at = this.#nextOffset(hole); !this.#isFree(at); at = this.#nextOffset(at)) {
      const fromHome = (slotOf(at) - this.#words[at]) & mask;
      if (fromHome < ((slotOf(at) - slotOf(hole)) & mask)) continue;
      this.#words.copyWithin(hole, at, at + SLOT_WORDS);
      hole = at;
    }
    this.#words.fill(0, hole, hole + SLOT_WORDS);
  }

  /** The slot of an identity, or the free one where it would be, as an index of words. */
  #find({ h0, h1, h2, h3 }: Identity): number {
    const words = this.#words;
    let at = slotOffset(h0 & this.#mask);
    while (!this.#isFree(at)) {
      const isSame = words[at] === h0 && words[at + 1] === h1;
      if (isSame && words[at + 2] === h2 && words[at + 3] === h3) break;
      at = this.#nextOffset(at);
    }
    return at;
  }

  #nextOffset(offset: number): number {
    return offset === slotOffset(this.#mask) ? HEADER_WORDS : offset + SLOT_WORDS;
  }

  #isFree(offset: number): boolean {
    return this.#doubles[offset / 2 + SLOT.durationMs] === 0;
  }

  #grow(): void {
    const before = this.#words;
    const slots = this.#mask + 1;
    this.buffer = allocate(2 * slots);
    this.#words = new Int32Array(this.buffer);
    this.#doubles = new Float64Array(this.buffer);
    this.#mask = 2 * slots - 1;
    const doubles = new Float64Array(before.buffer);
    for (let from = HEADER_WORDS; from < slotOffset(slots); from += SLOT_WORDS) {
      if (doubles[from / 2 + SLOT.durationMs] === 0) continue;
      const [h0, h1, h2, h3] = before.subarray(from, from + 4);
      const to = this.#find({ h0, h1, h2, h3 });
      this.#words.set(before.subarray(from, from + SLOT_WORDS), to);
    }
  }
}

function allocate(slots: number): SharedArrayBuffer {
  return allocateMemory(4 * slotOffset(slots), EXACT, { ...HEADER, slots });
}

/**
 * Copies the table that is changed, to be published.
 * @param spare a buffer that nobody reads any more, if there is one
 * @returns the buffer it was copied to: the spare one, or a larger one
 */
export function copyExact(
  table: SharedArrayBuffer,
  records: number,
  spare: SharedArrayBuffer | undefined,
): SharedArrayBuffer {
  const buffer = reuseMemory(table.byteLength, EXACT, spare);
  const source = new Int32Array(table);
  new Int32Array(buffer).set(source.subarray(HEADER_WORDS), HEADER_WORDS);
  writeHeader(buffer, EXACT, { ...HEADER, records, slots: source[EXACT.slots] });
  return buffer;
}

export class ExactTable {
  readonly #words: Int32Array;
  readonly #doubles: Float64Array;
  readonly #mask: number;

  /** @throws MemoryError when the buffer holds no whole table of this version */
  constructor(buffer: SharedArrayBuffer) {
    const words = attachMemory(buffer, DESCRIPTION, EXACT, HEADER);
    const records = words[EXACT.records];
    const slots = words[EXACT.slots];
    const isShape = records > 0 && slots >= 2 * records && (slots & (slots - 1)) === 0;
    if (!isShape || 4 * slotOffset(slots) > buffer.byteLength) {
      throw new MemoryError(
        `${DESCRIPTION}: ${buffer.byteLength} bytes for ${records} records, ${slots} slots`,
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
      const at = slotOffset((h0 + probe) & mask);
      if (this.#doubles[at / 2 + SLOT.durationMs] === 0) return -1;
      if (words[at] !== h0 || words[at + 1] !== h1) continue;
      if (words[at + 2] === h2 && words[at + 3] === h3) return at;
    }
    throw new MemoryError(`${DESCRIPTION} has no free slot`);
  }

  /** Of the record at an offset that `find` returned. */
  limit(offset: number): number {
    return this.#doubles[offset / 2 + SLOT.limit];
  }

  durationMs(offset: number): number {
    return Math.abs(this.#doubles[offset / 2 + SLOT.durationMs]);
  }

  isAsync(offset: number): boolean {
    return this.#doubles[offset / 2 + SLOT.durationMs] < 0;
  }

  id(offset: number): string {
    return decodeId(this.#words, offset + SLOT.id);
  }
}
