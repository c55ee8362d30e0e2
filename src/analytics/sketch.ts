/**
 * A sketch of the identifiers with the largest counts in a stream of checks: Space-Saving
 * (Metwally, Agrawal, El Abbadi, "Efficient computation of frequent and top-k elements in data
 * streams", 2005) in sets. The hash of an identifier selects a set of WAYS entries. An identifier
 * without an entry takes that of the smallest count in its set: it inherits this count as its
 * error, and adds its own. So the true count of an identifier with an entry is between `count -
 * error` and `count`, and that of an identifier without one is at most the smallest count in its
 * set: its floor. A set that has counted N in all has a floor of N / WAYS at most. No client can
 * choose the set of an identifier, since the hash has a secret key.
 *
 * Most checks of a flood of identifiers would take an entry, which costs more than to count. So
 * where the floor is above TAKING times the amount, a check takes one at random only, with a
 * probability of TAKING * amount / floor. It adds what the others have skipped since, so the floor
 * is as high as it would be. An identifier skips amounts of more than S without taking an entry
 * with a probability of less than exp(-TAKING * S / floor), however they are divided. Where S is
 * the share SKIPPED_SHARE of the floor, this is less than 10 ** -12. A reading adds this share to
 * floors and errors.
 *
 * One acceptor writes; the main thread reads. A replacement of an entry is announced in the state
 * of its set, so that a reader ignores the entry. A reader repeats a set that was changed
 * meanwhile. An increment is one store, and a reader may miss it.
 *
 * A check that is skipped uses one cache line, and one that finds its entry uses two.
 *
 *   a set     line 0    int32: first word of the hashes, by entry
 *                       int32 at word 8: state: version | number of the entry that is replaced,
 *                       from 1, or 0
 *                       float64 from word 10: floor at the last replacement | skipped amounts
 *             line 1, 2 an entry after the other: int32: second word of the hash, which is odd; 0
 *                       marks a free entry | bytes of the identifier; float64: count
 *             line 3    float64: errors, by entry
 *             line 4    the first TEXT_BYTES of the identifiers in UTF-8, by entry
 */

import type { Bytes } from '../core/bytes.ts';
import { CACHE_LINE_BYTES, NAME_MAX_BYTES } from '../core/constants.ts';
import { FastRandom } from '../core/fast-random.ts';
import type { Identity } from '../core/hash.ts';

export const SETS = 128;
export const WAYS = 8;
/** Longer identifiers are cut off. */
export const TEXT_BYTES = 96;

/** The probability of taking an entry is this times the amount, divided by the floor. */
const TAKING = 64;
/** exp(-28) < 10 ** -12. */
export const SKIPPED_SHARE = 28 / TAKING;

const LINE_WORDS = CACHE_LINE_BYTES / 4;
const TEXT_WORDS = TEXT_BYTES / 4;
/** Offsets in words from the start of a set. */
const FIRST_HASHES = 0;
const STATE = WAYS;
const ENTRIES = LINE_WORDS;
const TEXTS = 4 * LINE_WORDS;
/** Offsets in doubles from the start of a set. */
const FLOOR = 5;
const SKIPPED = 6;
const ERRORS = (3 * LINE_WORDS) / 2;
/** Of an entry: its words, its doubles, and what they hold. */
const ENTRY_WORDS = 4;
const ENTRY_DOUBLES = ENTRY_WORDS / 2;
const SECOND_HASH = ENTRIES;
const LENGTH = ENTRIES + 1;
const COUNT = ENTRIES / 2 + 1;
const SET_WORDS = TEXTS + WAYS * TEXT_WORDS;
export const SKETCH_WORDS = SETS * SET_WORDS;

/** The bits of the state that number the entry; the others are the version. */
const ENTRY_MASK = 15;
const VERSION_STEP = ENTRY_MASK + 1;

/** A set that changes more often than this while it is read is left out of a reading. */
const READ_TRIES_MAX = 1_000;

/** Both views are of one buffer. */
export interface SketchMemory {
  words: Int32Array;
  doubles: Float64Array;
}

/** An identifier, as its sketch knows it. */
export interface SketchEntry {
  /** From its hash: 18 hexadecimal digits. The same identifier has the same key in every run. */
  key: string;
  /** Of the identifier, at most TEXT_BYTES. */
  text: Uint8Array;
  isCutOff: boolean;
  count: number;
  error: number;
}

export interface SketchReading {
  entries: SketchEntry[];
  /** The largest count that an identifier without an entry can have. */
  floor: number;
  /** Whether all sets were read: one that is replaced without a pause is left out. */
  isComplete: boolean;
}

/** The only writer of a sketch. */
export class SketchWriter {
  readonly #words: Int32Array;
  readonly #doubles: Float64Array;
  readonly #firstWord: number;
  readonly #random: FastRandom;
  /** Where `prefetch` stores what it loads. Public, since the compiler rejects unread fields. */
  prefetched = 0;

  /**
   * @param firstWord the offset of the sketch in its memory
   * @param random decides which identifiers take an entry
   */
  constructor({ words, doubles }: SketchMemory, firstWord: number, random = new FastRandom()) {
    this.#words = words;
    this.#doubles = doubles;
    this.#firstWord = firstWord;
    this.#random = random;
  }

  /** Begins to load the memory that `add` reads first, so that it does not wait for it. */
  prefetch({ h0 }: Identity): void {
    // The processor goes on before the value is there. V8 would remove a load that is not used.
    this.prefetched = this.#words[this.#firstWord + (h0 & (SETS - 1)) * SET_WORDS] & 1;
  }

  /**
   * Adds to the count of an identifier.
   * @param amount above 0
   * @returns false for an identifier that is to take an entry: the caller must call `take`
   */
  add({ h0, h1, h2 }: Identity, amount: number): boolean {
    const words = this.#words;
    const doubles = this.#doubles;
    const second = h2 | 1;
    const set = this.#firstWord + (h0 & (SETS - 1)) * SET_WORDS;
    for (let entry = 0; entry < WAYS; entry++) {
      if (words[set + FIRST_HASHES + entry] !== h1) continue;
      if (words[set + SECOND_HASH + entry * ENTRY_WORDS] !== second) continue;
      doubles[(set >> 1) + COUNT + entry * ENTRY_DOUBLES] += amount;
      return true;
    }
    const floor = doubles[(set >> 1) + FLOOR];
    const takes = this.#random.happens((TAKING * amount) / floor);
    // Without a branch that is new to V8 when a floor is high for the first time: V8 would compile
    // the path of a check again.
    doubles[(set >> 1) + SKIPPED] += takes ? 0 : amount;
    return !takes;
  }

  /**
   * Gives the smallest entry of its set to an identifier that has none.
   * @param text the bytes from `from` to `to` are the identifier in UTF-8
   */
  take({ h0, h1, h2 }: Identity, amount: number, text: Bytes, from: number, to: number): void {
    const set = this.#firstWord + (h0 & (SETS - 1)) * SET_WORDS;
    const words = this.#words;
    const doubles = this.#doubles;
    const setDoubles = set >> 1;
    let entry = 0;
    let smallest = doubles[setDoubles + COUNT];
    // A free entry has the count 0.
    for (let other = 1; other < WAYS && smallest > 0; other++) {
      const count = doubles[setDoubles + COUNT + other * ENTRY_DOUBLES];
      if (count >= smallest) continue;
      smallest = count;
      entry = other;
    }
    const error = smallest + doubles[setDoubles + SKIPPED];
    const version = words[set + STATE] & ~ENTRY_MASK;
    Atomics.store(words, set + STATE, version | (entry + 1));
    doubles[setDoubles + FLOOR] = smallest;
    doubles[setDoubles + SKIPPED] = 0;
    words[set + FIRST_HASHES + entry] = h1;
    words[set + SECOND_HASH + entry * ENTRY_WORDS] = h2 | 1;
    words[set + LENGTH + entry * ENTRY_WORDS] = to - from;
    doubles[setDoubles + COUNT + entry * ENTRY_DOUBLES] = error + amount;
    doubles[setDoubles + ERRORS + entry] = error;
    const end = Math.min(to, from + TEXT_BYTES);
    let at = set + TEXTS + entry * TEXT_WORDS;
    // The memory may be read beyond its last byte; the length says what of a word belongs to it.
    for (let byte = from; byte < end; byte += 4) words[at++] = text.view.getInt32(byte, true);
    Atomics.store(words, set + STATE, (version + VERSION_STEP) | 0);
  }
}

/** Reads sketches while their writers may change them. */
export class SketchReader {
  /** By entry, in the order of the sketch: what the first pass has read. */
  readonly #counts = new Float64Array(SETS * WAYS);
  readonly #errors = new Float64Array(SETS * WAYS);
  readonly #hashes = new Int32Array(2 * SETS * WAYS);
  readonly #indexes = Uint16Array.from({ length: SETS * WAYS }, (_, index) => index);

  /**
   * Reads the entries with the largest proven counts. Each set is as it was at some moment of the
   * call. The floor covers the other entries too.
   * @param max entries of the result
   */
  read(memory: SketchMemory, firstWord: number, max: number): SketchReading {
    let floor = 0;
    let isComplete = true;
    for (let number = 0; number < SETS; number++) {
      const smallest = this.#readSet(memory, firstWord + number * SET_WORDS, number);
      isComplete &&= smallest !== undefined;
      floor = Math.max(floor, withSkipped(smallest ?? 0));
    }
    const proven = (index: number) => this.#counts[index] - this.#errors[index];
    const sorted = this.#indexes.toSorted((a, b) => proven(b) - proven(a));
    const entries: SketchEntry[] = [];
    for (const index of sorted) {
      const isListed = entries.length < max && this.#counts[index] > 0;
      const entry = isListed ? this.#readText(memory, firstWord, index) : undefined;
      if (entry !== undefined) entries.push(entry);
      else floor = Math.max(floor, withSkipped(this.#counts[index]));
    }
    return { entries, floor, isComplete };
  }

  /** @returns the smallest count of a set; undefined where it changes all the time */
  #readSet({ words, doubles }: SketchMemory, set: number, number: number): number | undefined {
    for (let tries = 0; tries < READ_TRIES_MAX; tries++) {
      const state = Atomics.load(words, set + STATE);
      const replaced = (state & ENTRY_MASK) - 1;
      let smallest = Number.POSITIVE_INFINITY;
      for (let entry = 0; entry < WAYS; entry++) {
        const index = number * WAYS + entry;
        const isFree = words[set + SECOND_HASH + entry * ENTRY_WORDS] === 0;
        const count = doubles[(set >> 1) + COUNT + entry * ENTRY_DOUBLES];
        this.#counts[index] = isFree || entry === replaced ? 0 : count;
        this.#errors[index] = doubles[(set >> 1) + ERRORS + entry];
        this.#hashes[2 * index] = words[set + FIRST_HASHES + entry];
        this.#hashes[2 * index + 1] = words[set + SECOND_HASH + entry * ENTRY_WORDS];
        // The entry that is replaced had the smallest count, so no other one is below it.
        if (entry !== replaced) smallest = Math.min(smallest, this.#counts[index]);
      }
      if (Atomics.load(words, set + STATE) === state) return smallest;
    }
    this.#counts.fill(0, number * WAYS, (number + 1) * WAYS);
    return undefined;
  }

  /** @returns undefined where the entry was replaced since its count was read */
  #readText({ words }: SketchMemory, firstWord: number, index: number): SketchEntry | undefined {
    const number = Math.floor(index / WAYS);
    const entry = index % WAYS;
    const set = firstWord + number * SET_WORDS;
    const [first, second] = [this.#hashes[2 * index], this.#hashes[2 * index + 1]];
    const text = new Int32Array(TEXT_WORDS);
    for (let tries = 0; tries < READ_TRIES_MAX; tries++) {
      const state = Atomics.load(words, set + STATE);
      if ((state & ENTRY_MASK) === entry + 1) return undefined;
      const length = words[set + LENGTH + entry * ENTRY_WORDS];
      const at = set + TEXTS + entry * TEXT_WORDS;
      for (let word = 0; word < TEXT_WORDS; word++) text[word] = words[at + word];
      if (words[set + FIRST_HASHES + entry] !== first) return undefined;
      if (words[set + SECOND_HASH + entry * ENTRY_WORDS] !== second) return undefined;
      // Another entry of the set may have been replaced meanwhile.
      if (Atomics.load(words, set + STATE) !== state) continue;
      // Not trusted: the sizes of what is read do not follow from shared memory.
      if (length < 0 || length > NAME_MAX_BYTES) return undefined;
      const [count, error] = [this.#counts[index], this.#errors[index]];
      return {
        key: keyOf(number, first, second),
        text: new Uint8Array(text.buffer, 0, Math.min(length, TEXT_BYTES)),
        isCutOff: length > TEXT_BYTES,
        count: count + skippedOf(error),
        error: withSkipped(error),
      };
    }
    return undefined;
  }
}

function withSkipped(floor: number): number {
  return floor + skippedOf(floor);
}

/** What an identifier has skipped at most, under a floor. */
function skippedOf(floor: number): number {
  return floor <= TAKING ? 0 : Math.ceil(floor * SKIPPED_SHARE);
}

const hexadecimal = (word: number) => (word >>> 0).toString(16).padStart(8, '0');

/** The set is part of the key: it has bits of the hash that the two words do not have. */
function keyOf(set: number, first: number, second: number): string {
  return set.toString(16).padStart(2, '0') + hexadecimal(first) + hexadecimal(second);
}
