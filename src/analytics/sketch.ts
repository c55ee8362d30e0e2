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
 * A check that is skipped reads one cache line, and one that finds its entry reads two. The lines
 * of one kind are together, so that those that most checks read are in a few pages.
 *
 *   heads     of each set: int32: first word of the hashes, by entry
 *             int32 at word 8: state: version | number of the entry that is replaced, from 1, or 0
 *             float64 from word 10: floor at the last replacement | skipped amounts
 *   entries   of each entry: int32: second word of the hash, which is odd; 0 marks a free entry |
 *             bytes of the identifier; float64: count
 *   errors    of each entry: float64
 *   texts     of each entry: the first TEXT_BYTES of the identifier in UTF-8
 */

import type { Bytes } from '../core/bytes.ts';
import { CACHE_LINE_BYTES, NAME_MAX_BYTES } from '../core/constants.ts';
import { FastRandom } from '../core/fast-random.ts';
import type { Identity } from '../core/hash.ts';
import type { IdentifierSketch } from '../core/namespace.ts';

export const SETS = 128;
export const WAYS = 8;
/** Longer identifiers are cut off. */
export const TEXT_BYTES = 96;

/** The probability of taking an entry is this times the amount, divided by the floor. */
const TAKING = 64;
/** exp(-28) < 10 ** -12. */
export const SKIPPED_SHARE = 28 / TAKING;

const TEXT_WORDS = TEXT_BYTES / 4;
/** The words of a set, and of an entry. */
const HEAD_WORDS = CACHE_LINE_BYTES / 4;
const ENTRY_WORDS = 4;
/** Offsets in words from the start of the sketch. */
const ENTRIES_AT = SETS * HEAD_WORDS;
const ERRORS_AT = ENTRIES_AT + SETS * WAYS * ENTRY_WORDS;
const TEXTS_AT = ERRORS_AT + SETS * WAYS * 2;
export const SKETCH_WORDS = TEXTS_AT + SETS * WAYS * TEXT_WORDS;
/** Offsets in words from the start of a head, and in doubles. */
const STATE = WAYS;
const FLOOR = 5;
const SKIPPED = 6;
/** Offsets in words from the start of an entry, and in doubles. */
const SECOND_HASH = 0;
const LENGTH = 1;
const COUNT = 1;

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
export class SketchWriter implements IdentifierSketch {
  readonly #words: Int32Array;
  readonly #doubles: Float64Array;
  readonly #firstWord: number;
  readonly #random: FastRandom;

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

  /** @returns false for an identifier that is to take an entry */
  add({ h0, h1, h2 }: Identity, amount: number): boolean {
    const words = this.#words;
    const doubles = this.#doubles;
    const second = h2 | 1;
    const set = h0 & (SETS - 1);
    const head = this.#firstWord + set * HEAD_WORDS;
    for (let way = 0; way < WAYS; way++) {
      if (words[head + way] !== h1) continue;
      const entry = entryAt(this.#firstWord, set * WAYS + way);
      if (words[entry + SECOND_HASH] !== second) continue;
      doubles[(entry >> 1) + COUNT] += amount;
      return true;
    }
    const floor = doubles[(head >> 1) + FLOOR];
    const takes = this.#random.happens((TAKING * amount) / floor);
    // Without a branch that is new to V8 when a floor is high for the first time: V8 would compile
    // the path of a check again.
    doubles[(head >> 1) + SKIPPED] += takes ? 0 : amount;
    return !takes;
  }

  /**
   * Gives the smallest entry of its set to an identifier that has none.
   * @param text the bytes from `from` to `to` are the identifier in UTF-8
   */
  take({ h0, h1, h2 }: Identity, amount: number, text: Bytes, from: number, to: number): void {
    const set = h0 & (SETS - 1);
    const head = this.#firstWord + set * HEAD_WORDS;
    const words = this.#words;
    const doubles = this.#doubles;
    const countAt = (way: number) => {
      return (entryAt(this.#firstWord, set * WAYS + way) >> 1) + COUNT;
    };
    let way = 0;
    let smallest = doubles[countAt(0)];
    // A free entry has the count 0.
    for (let other = 1; other < WAYS && smallest > 0; other++) {
      const count = doubles[countAt(other)];
      if (count >= smallest) continue;
      smallest = count;
      way = other;
    }
    const number = set * WAYS + way;
    const entry = entryAt(this.#firstWord, number);
    const error = smallest + doubles[(head >> 1) + SKIPPED];
    const version = words[head + STATE] & ~ENTRY_MASK;
    Atomics.store(words, head + STATE, version | (way + 1));
    doubles[(head >> 1) + FLOOR] = smallest;
    doubles[(head >> 1) + SKIPPED] = 0;
    words[head + way] = h1;
    words[entry + SECOND_HASH] = h2 | 1;
    words[entry + LENGTH] = to - from;
    doubles[(entry >> 1) + COUNT] = error + amount;
    doubles[errorAt(this.#firstWord, number)] = error;
    const end = Math.min(to, from + TEXT_BYTES);
    let at = textAt(this.#firstWord, number);
    // The memory may be read beyond its last byte; the length says what of a word belongs to it.
    for (let byte = from; byte < end; byte += 4) words[at++] = text.view.getInt32(byte, true);
    Atomics.store(words, head + STATE, (version + VERSION_STEP) | 0);
  }
}

/** @returns the first word of an entry. @param number of all entries of the sketch */
function entryAt(firstWord: number, number: number): number {
  return firstWord + ENTRIES_AT + number * ENTRY_WORDS;
}

/** @returns the double of the error of an entry */
function errorAt(firstWord: number, number: number): number {
  return ((firstWord + ERRORS_AT) >> 1) + number;
}

/** @returns the first word of the text of an entry */
function textAt(firstWord: number, number: number): number {
  return firstWord + TEXTS_AT + number * TEXT_WORDS;
}

/** Reads sketches while their writers may change them. */
export class SketchReader {
  /** By entry, in the order of the sketch: what the first pass has read. */
  readonly #counts = new Float64Array(SETS * WAYS);
  readonly #errors = new Float64Array(SETS * WAYS);
  readonly #hashes = new Int32Array(2 * SETS * WAYS);
  readonly #numbers = Uint16Array.from({ length: SETS * WAYS }, (_, number) => number);

  /**
   * Reads the entries with the largest proven counts. Each set is as it was at some moment of the
   * call. The floor covers the other entries too.
   * @param max entries of the result
   */
  read(memory: SketchMemory, firstWord: number, max: number): SketchReading {
    let floor = 0;
    let isComplete = true;
    for (let set = 0; set < SETS; set++) {
      const smallest = this.#readSet(memory, firstWord, set);
      isComplete &&= smallest !== undefined;
      floor = Math.max(floor, withSkipped(smallest ?? 0));
    }
    const proven = (number: number) => this.#counts[number] - this.#errors[number];
    const sorted = this.#numbers.toSorted((a, b) => proven(b) - proven(a));
    const entries: SketchEntry[] = [];
    for (const number of sorted) {
      const isListed = entries.length < max && this.#counts[number] > 0;
      const entry = isListed ? this.#readText(memory, firstWord, number) : undefined;
      if (entry !== undefined) entries.push(entry);
      else floor = Math.max(floor, withSkipped(this.#counts[number]));
    }
    return { entries, floor, isComplete };
  }

  /** @returns the smallest count of a set; undefined where it changes all the time */
  #readSet({ words, doubles }: SketchMemory, firstWord: number, set: number): number | undefined {
    const head = firstWord + set * HEAD_WORDS;
    const first = set * WAYS;
    for (let tries = 0; tries < READ_TRIES_MAX; tries++) {
      const state = Atomics.load(words, head + STATE);
      const replaced = (state & ENTRY_MASK) - 1;
      let smallest = Number.POSITIVE_INFINITY;
      for (let way = 0; way < WAYS; way++) {
        const entry = entryAt(firstWord, first + way);
        const isFree = words[entry + SECOND_HASH] === 0;
        const count = doubles[(entry >> 1) + COUNT];
        this.#counts[first + way] = isFree || way === replaced ? 0 : count;
        this.#errors[first + way] = doubles[errorAt(firstWord, first + way)];
        this.#hashes[2 * (first + way)] = words[head + way];
        this.#hashes[2 * (first + way) + 1] = words[entry + SECOND_HASH];
        // The entry that is replaced had the smallest count, so no other one is below it.
        if (way !== replaced) smallest = Math.min(smallest, this.#counts[first + way]);
      }
      if (Atomics.load(words, head + STATE) === state) return smallest;
    }
    this.#counts.fill(0, first, first + WAYS);
    return undefined;
  }

  /** @returns undefined where the entry was replaced since its count was read */
  #readText({ words }: SketchMemory, firstWord: number, number: number): SketchEntry | undefined {
    const set = Math.floor(number / WAYS);
    const way = number % WAYS;
    const head = firstWord + set * HEAD_WORDS;
    const entry = entryAt(firstWord, number);
    const [first, second] = [this.#hashes[2 * number], this.#hashes[2 * number + 1]];
    const text = new Int32Array(TEXT_WORDS);
    for (let tries = 0; tries < READ_TRIES_MAX; tries++) {
      const state = Atomics.load(words, head + STATE);
      if ((state & ENTRY_MASK) === way + 1) return undefined;
      const length = words[entry + LENGTH];
      const at = textAt(firstWord, number);
      for (let word = 0; word < TEXT_WORDS; word++) text[word] = words[at + word];
      if (words[head + way] !== first) return undefined;
      if (words[entry + SECOND_HASH] !== second) return undefined;
      // Another entry of the set may have been replaced meanwhile.
      if (Atomics.load(words, head + STATE) !== state) continue;
      // Not trusted: the sizes of what is read do not follow from shared memory.
      if (length < 0 || length > NAME_MAX_BYTES) return undefined;
      const [count, error] = [this.#counts[number], this.#errors[number]];
      return {
        key: keyOf(set, first, second),
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
