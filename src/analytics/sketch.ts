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
 * where the floor is above TAKING, a check takes one at random only: the amounts that a set skips
 * before the next one are exponentially distributed, with the mean floor / TAKING. This check adds
 * the amounts that the others have skipped, so the floor is as high as it would be. An identifier
 * skips amounts of S before it takes an entry with a probability of at most exp(-TAKING * S /
 * floor), however they are divided. Where S is the share SKIPPED_SHARE of the floor, this is less
 * than 10 ** -12. A reading adds this share to floors and errors. It covers the time from the loss
 * of one entry to the next: an identifier with a steady rate that loses entries again and again has
 * less than an equal share of the amounts of its set, so the floor rises by more than it skips.
 *
 * One acceptor writes; the main thread reads. A replacement of an entry is announced in the state
 * of its set, so that a reader ignores the entry. A reader repeats a set that was changed
 * meanwhile. An increment is one store, and a reader may miss it.
 *
 * Most checks of a flood find no entry, so this is the shortest path: a head has a tag of each
 * entry, one byte of its hash. Two words of tags say whether an entry can be of an identifier. The
 * parts of one kind are together, so that most checks read few pages.
 *
 *   heads     of each set: int32: tags of the entries 0 to 3, the first one lowest | of 4 to 7 |
 *             state: version | number of the entry that is replaced, from 1, or 0
 *             int32 from word 3: amounts to skip until the next entry is taken: left | of all
 *   entries   of each entry: int32: first word of the hash | second word, which is odd; 0 marks a
 *             free entry
 *             float64: count
 *   errors    of each entry: float64
 *   lengths   of each entry: int32: bytes of the identifier
 *   texts     of each entry: the first TEXT_BYTES of the identifier in UTF-8
 */

import type { Bytes } from '../core/bytes.ts';
import { NAME_MAX_BYTES } from '../core/constants.ts';
import { FastRandom } from '../core/fast-random.ts';
import type { Identity } from '../core/hash.ts';
import type { IdentifierSketch } from '../core/namespace.ts';

export const SETS = 128;
export const WAYS = 8;
export const SKETCH_ENTRIES = SETS * WAYS;
/** Longer identifiers are cut off. */
export const TEXT_BYTES = 96;

/** While a set skips amounts that add up to its floor, about this many checks take an entry. */
const TAKING = 64;
/** exp(-28) < 10 ** -12. */
const SKIPPED_SHARE = 28 / TAKING;

const TEXT_WORDS = TEXT_BYTES / 4;
/** The words of a head, and of an entry. */
const HEAD_WORDS = 8;
const ENTRY_WORDS = 4;
/** Offsets in words from the start of the sketch. */
const ENTRIES_AT = SETS * HEAD_WORDS;
const ERRORS_AT = ENTRIES_AT + SETS * WAYS * ENTRY_WORDS;
const LENGTHS_AT = ERRORS_AT + SETS * WAYS * 2;
const TEXTS_AT = LENGTHS_AT + SETS * WAYS;
export const SKETCH_WORDS = TEXTS_AT + SETS * WAYS * TEXT_WORDS;
/** Offsets in words from the start of a head. */
const LOW_TAGS = 0;
const HIGH_TAGS = 1;
const STATE = 2;
const LEFT = 3;
const TO_SKIP = 4;
/** Offsets in words from the start of an entry, and in doubles. */
const FIRST_HASH = 0;
const SECOND_HASH = 1;
const COUNT = 1;

/** In one word. */
const TAGS = 4;
const TAG_BITS = 8;
const TAG_MASK = 255;
/** A word with the same byte four times is this times the byte. */
const EACH_BYTE = 0x01010101;
const TOP_BITS = 0x80808080;
/** Of an int32. Where more would be skipped, an entry is taken earlier. */
const TO_SKIP_MAX = 2 ** 31 - 1;

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

  /**
   * Adds to the count of an identifier.
   * @param amount above 0
   * @returns below 0 if it is not counted: the caller must call `take` with this number
   */
  add({ h0, h1, h2 }: Identity, amount: number): number {
    const words = this.#words;
    const set = h0 & (SETS - 1);
    const head = this.#firstWord + set * HEAD_WORDS;
    const tags = Math.imul(tagOf(h1), EACH_BYTE);
    const low = zeroBytes(words[head + LOW_TAGS] ^ tags);
    const high = zeroBytes(words[head + HIGH_TAGS] ^ tags);
    if ((low | high) !== 0) {
      const first = set * WAYS;
      if (this.#addToEntry(first, low, h1, h2, amount)) return 0;
      if (this.#addToEntry(first + TAGS, high, h1, h2, amount)) return 0;
    }
    const left = words[head + LEFT] - amount;
    // Also below 0, where `take` sets it anew: a branch would be new to V8 when a floor is high for
    // the first time, and V8 would compile the path of a check again.
    words[head + LEFT] = left;
    return left;
  }

  /**
   * @param first number of an entry
   * @param candidates the top bit of a byte says that this entry, or one after it, has the tag
   * @returns whether one of them is of the identifier
   */
  #addToEntry(first: number, candidates: number, h1: number, h2: number, amount: number): boolean {
    const words = this.#words;
    for (let number = first, rest = candidates; rest !== 0; number++, rest >>>= TAG_BITS) {
      const entry = entryAt(this.#firstWord, number);
      if (words[entry + FIRST_HASH] !== h1 || words[entry + SECOND_HASH] !== (h2 | 1)) continue;
      this.#doubles[(entry >> 1) + COUNT] += amount;
      return true;
    }
    return false;
  }

  /**
   * Gives the smallest entry of its set to an identifier that has none.
   * @param left what `add` has returned
   * @param text the bytes from `from` to `to` are the identifier in UTF-8
   */
  take(
    { h0, h1, h2 }: Identity,
    amount: number,
    left: number,
    text: Bytes,
    from: number,
    to: number,
  ): void {
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
    // `left` is after the amount, so the count includes it.
    const count = smallest + words[head + TO_SKIP] - left;
    // Drawn in each case: a branch would be new to V8 when a floor is above TAKING the first time.
    const drawn = this.#random.exponential(smallest / TAKING);
    const toSkip = smallest <= TAKING ? 0 : drawn;
    const version = words[head + STATE] & ~ENTRY_MASK;
    Atomics.store(words, head + STATE, version | (way + 1));
    words[head + TO_SKIP] = Math.min(toSkip, TO_SKIP_MAX);
    words[head + LEFT] = words[head + TO_SKIP];
    const tags = head + (way < TAGS ? LOW_TAGS : HIGH_TAGS);
    const shift = TAG_BITS * (way % TAGS);
    words[tags] = (words[tags] & ~(TAG_MASK << shift)) | (tagOf(h1) << shift);
    words[entry + FIRST_HASH] = h1;
    words[entry + SECOND_HASH] = h2 | 1;
    doubles[(entry >> 1) + COUNT] = count;
    doubles[errorAt(this.#firstWord, number)] = count - amount;
    words[lengthAt(this.#firstWord, number)] = to - from;
    const end = Math.min(to, from + TEXT_BYTES);
    let at = textAt(this.#firstWord, number);
    // The memory may be read beyond its last byte; the length says what of a word belongs to it.
    for (let byte = from; byte < end; byte += 4) words[at++] = text.view.getInt32(byte, true);
    Atomics.store(words, head + STATE, (version + VERSION_STEP) | 0);
  }
}

/** @param h1 of a hash @returns the tag of its entry */
function tagOf(h1: number): number {
  return h1 >>> (32 - TAG_BITS);
}

/** @returns the top bits of the bytes that are 0, and perhaps of bytes above the lowest of them */
function zeroBytes(word: number): number {
  return (word - EACH_BYTE) & ~word & TOP_BITS;
}

/** @returns the first word of an entry. @param number of all entries of the sketch */
function entryAt(firstWord: number, number: number): number {
  return firstWord + ENTRIES_AT + number * ENTRY_WORDS;
}

/** @returns the double of the error of an entry */
function errorAt(firstWord: number, number: number): number {
  return ((firstWord + ERRORS_AT) >> 1) + number;
}

/** @returns the word of the length of an entry */
function lengthAt(firstWord: number, number: number): number {
  return firstWord + LENGTHS_AT + number;
}

/** @returns the first word of the text of an entry */
function textAt(firstWord: number, number: number): number {
  return firstWord + TEXTS_AT + number * TEXT_WORDS;
}

const NO_BYTES = new Uint8Array(0);

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
   * @param prefix reads identifiers that begin with these bytes; the floor covers only such ones
   */
  read(
    memory: SketchMemory,
    firstWord: number,
    max: number,
    prefix: Uint8Array = NO_BYTES,
  ): SketchReading {
    let floor = 0;
    let isComplete = true;
    for (let set = 0; set < SETS; set++) {
      const smallest = this.#readSet(memory, firstWord, set);
      isComplete &&= smallest !== undefined;
      floor = Math.max(floor, withSkipped(smallest ?? 0));
    }
    const proven = (number: number) => this.#counts[number] - this.#errors[number];
    const { buffer, byteOffset } = memory.words;
    const bytes = new Uint8Array(buffer, byteOffset);
    // An entry that is replaced meanwhile is left out by the reading of its text.
    const isWanted = (number: number) => {
      return (
        this.#counts[number] > 0 &&
        memory.words[lengthAt(firstWord, number)] >= prefix.length &&
        hasBytes(bytes, 4 * textAt(firstWord, number), prefix)
      );
    };
    const wanted = prefix.length === 0 ? this.#numbers : this.#numbers.filter(isWanted);
    const sorted = wanted.toSorted((a, b) => proven(b) - proven(a));
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
        this.#hashes[2 * (first + way)] = words[entry + FIRST_HASH];
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
      const length = words[lengthAt(firstWord, number)];
      const at = textAt(firstWord, number);
      for (let word = 0; word < TEXT_WORDS; word++) text[word] = words[at + word];
      if (words[entry + FIRST_HASH] !== first) return undefined;
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

function hasBytes(bytes: Uint8Array, at: number, expected: Uint8Array): boolean {
  if (expected.length > TEXT_BYTES) return false;
  return expected.every((byte, i) => bytes[at + i] === byte);
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
