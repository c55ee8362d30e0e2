/**
 * The hash table of exact overrides, whose namespace and identifier are not patterns. Its key is
 * the hash that each check has anyway, so a lookup compares no text. The main thread changes one
 * table (`sets.ts`); a task copies it into flat, immutable buffers (`compile.ts`) for acceptors.
 *
 *   header         16 int32    magic | number of slots, a power of two
 *   slots          48 bytes each:
 *                  int32    0-3  hash
 *                  float64  2    limit
 *                  float64  3    duration, ms; negative if asynchronous, 0 in a free slot
 *                  int32    8-10 id
 *                  int32    11   usage row
 *   concurrencies  1 float64 for each slot; NO_CONCURRENCY for none
 *
 * At most half of the slots are used, so most lookups read one or two cache lines. Concurrencies
 * are apart, because checks do not read them.
 */

import { MemoryError } from '../core/errors.ts';
import type { Identity } from '../core/hash.ts';
import { allocateMemory, attachMemory, reuseMemory, writeHeader } from '../shared-memory/block.ts';
import { decodeId, encodeId, NO_CONCURRENCY, NO_USAGE_ROW, type OverrideValue } from './id.ts';

const EXACT = { magic: 0, slots: 1 } as const;
const HEADER = { magic: 0x57656578 } as const; // "Weex"
const HEADER_WORDS = 16;

const SLOT_WORDS = 12;
/** Offsets from the start of a slot: limit and duration in doubles, the others in words. */
const SLOT = { hash: 0, limit: 2, durationMs: 3, id: 8, usageRow: 11 } as const;

const DESCRIPTION = 'the table of exact overrides';
const INITIAL_SLOTS = 64;

/** The offset of a slot in words; for the number of slots, the end of the table. */
const slotOffset = (slot: number) => HEADER_WORDS + SLOT_WORDS * slot;
const slotAt = (offset: number) => (offset - HEADER_WORDS) / SLOT_WORDS;

/** Where the concurrency of a slot is, in doubles. @param offset of the slot */
const concurrencyIndex = (offset: number, slots: number) => slotOffset(slots) / 2 + slotAt(offset);

const tableBytes = (slots: number) => 4 * slotOffset(slots) + 8 * slots;

/** The table on the main thread. Its errors are failed assertions. */
export class WritableExactTable {
  records = 0;
  buffer = allocate(INITIAL_SLOTS);
  #words = new Int32Array(this.buffer);
  #doubles = new Float64Array(this.buffer);
  #mask = INITIAL_SLOTS - 1;

  /** Inserts or replaces the override of an identity. */
  put(identity: Identity, value: OverrideValue): void {
    const { id, limit, durationMs, isAsync, usageRow = NO_USAGE_ROW } = value;
    const { concurrency = NO_CONCURRENCY } = value;
    let offset = this.#find(identity);
    if (this.#isFree(offset)) {
      if (2 * ++this.records > this.#mask + 1) {
        this.#grow();
        offset = this.#find(identity);
      }
      this.#words.set([identity.h0, identity.h1, identity.h2, identity.h3], offset + SLOT.hash);
    }
    this.#words.set(encodeId(id), offset + SLOT.id);
    this.#words[offset + SLOT.usageRow] = usageRow;
    this.#doubles[offset / 2 + SLOT.limit] = limit;
    this.#doubles[offset / 2 + SLOT.durationMs] = isAsync ? -durationMs : durationMs;
    this.#doubles[this.#concurrencyIndex(offset)] = concurrency;
  }

  /** The override of an identity. */
  get(identity: Identity): OverrideValue | undefined {
    const offset = this.#find(identity);
    if (this.#isFree(offset)) return undefined;
    const durationMs = this.#doubles[offset / 2 + SLOT.durationMs];
    const concurrency = this.#doubles[this.#concurrencyIndex(offset)];
    const usageRow = this.#words[offset + SLOT.usageRow];
    return {
      id: decodeId(this.#words, offset + SLOT.id),
      limit: this.#doubles[offset / 2 + SLOT.limit],
      durationMs: Math.abs(durationMs),
      isAsync: durationMs < 0,
      ...(concurrency !== NO_CONCURRENCY && { concurrency }),
      ...(usageRow !== NO_USAGE_ROW && { usageRow }),
    };
  }

  /** Moves later entries of the probe sequence into the hole, so that no lookup ends early. */
  remove(identity: Identity): void {
    let hole = this.#find(identity);
    if (this.#isFree(hole)) throw new Error(`${DESCRIPTION}: no entry to remove`);
    this.records--;
    const mask = this.#mask;
    let offset = this.#nextOffset(hole);
    for (; !this.#isFree(offset); offset = this.#nextOffset(offset)) {
      const probes = (slotAt(offset) - this.#words[offset]) & mask;
      if (probes < ((slotAt(offset) - slotAt(hole)) & mask)) continue;
      this.#words.copyWithin(hole, offset, offset + SLOT_WORDS);
      const concurrency = this.#doubles[this.#concurrencyIndex(offset)];
      this.#doubles[this.#concurrencyIndex(hole)] = concurrency;
      hole = offset;
    }
    this.#words.fill(0, hole, hole + SLOT_WORDS);
  }

  /** The offset of an identity's slot, or of the free slot that it would take. */
  #find({ h0, h1, h2, h3 }: Identity): number {
    const words = this.#words;
    let offset = slotOffset(h0 & this.#mask);
    while (!this.#isFree(offset)) {
      const isSameHalf = words[offset] === h0 && words[offset + 1] === h1;
      if (isSameHalf && words[offset + 2] === h2 && words[offset + 3] === h3) break;
      offset = this.#nextOffset(offset);
    }
    return offset;
  }

  #nextOffset(offset: number): number {
    return offset === slotOffset(this.#mask) ? HEADER_WORDS : offset + SLOT_WORDS;
  }

  #concurrencyIndex(offset: number): number {
    return concurrencyIndex(offset, this.#mask + 1);
  }

  #isFree(offset: number): boolean {
    return this.#doubles[offset / 2 + SLOT.durationMs] === 0;
  }

  #grow(): void {
    const oldWords = this.#words;
    const slots = this.#mask + 1;
    this.buffer = allocate(2 * slots);
    this.#words = new Int32Array(this.buffer);
    this.#doubles = new Float64Array(this.buffer);
    this.#mask = 2 * slots - 1;
    const oldDoubles = new Float64Array(oldWords.buffer);
    for (let from = HEADER_WORDS; from < slotOffset(slots); from += SLOT_WORDS) {
      if (oldDoubles[from / 2 + SLOT.durationMs] === 0) continue;
      const [h0, h1, h2, h3] = oldWords.subarray(from, from + 4);
      const to = this.#find({ h0, h1, h2, h3 });
      this.#words.set(oldWords.subarray(from, from + SLOT_WORDS), to);
      const concurrency = oldDoubles[concurrencyIndex(from, slots)];
      this.#doubles[this.#concurrencyIndex(to)] = concurrency;
    }
  }
}

function allocate(slots: number): SharedArrayBuffer {
  return allocateMemory(tableBytes(slots), EXACT, { ...HEADER, slots });
}

/**
 * Copies the table of the main thread for publication.
 * @param spare a buffer that no thread reads any more
 * @returns the spare buffer, or a new one if the spare is too small
 */
export function copyExact(
  table: SharedArrayBuffer,
  spare: SharedArrayBuffer | undefined,
): SharedArrayBuffer {
  const buffer = reuseMemory(table.byteLength, EXACT, spare);
  const source = new Int32Array(table);
  new Int32Array(buffer).set(source.subarray(HEADER_WORDS), HEADER_WORDS);
  writeHeader(buffer, EXACT, { ...HEADER, slots: source[EXACT.slots] });
  return buffer;
}

/** A published table. */
export class ExactTable {
  readonly #words: Int32Array;
  readonly #doubles: Float64Array;
  readonly #mask: number;

  /** @throws MemoryError if the buffer does not contain a complete table */
  constructor(buffer: SharedArrayBuffer) {
    const words = attachMemory(buffer, DESCRIPTION, EXACT, HEADER);
    const slots = words[EXACT.slots];
    if (tableBytes(slots) > buffer.byteLength) {
      throw new MemoryError(`${DESCRIPTION}: ${slots} slots in ${buffer.byteLength} bytes`);
    }
    this.#words = words;
    this.#doubles = new Float64Array(buffer);
    this.#mask = slots - 1;
  }

  /** @returns the offset of an identity's slot; -1 if it has no override */
  find({ h0, h1, h2, h3 }: Identity): number {
    const words = this.#words;
    const mask = this.#mask;
    for (let probe = 0; probe <= mask; probe++) {
      const offset = slotOffset((h0 + probe) & mask);
      if (this.#doubles[offset / 2 + SLOT.durationMs] === 0) return -1;
      if (words[offset] !== h0 || words[offset + 1] !== h1) continue;
      if (words[offset + 2] === h2 && words[offset + 3] === h3) return offset;
    }
    throw new MemoryError(`${DESCRIPTION} has no free slot`);
  }

  /** @param offset returned by `find`, here and below */
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

  usageRow(offset: number): number {
    return this.#words[offset + SLOT.usageRow];
  }

  concurrency(offset: number): number {
    return this.#doubles[concurrencyIndex(offset, this.#mask + 1)];
  }
}
