/**
 * The text of an answer, put together as bytes in one buffer that is used for all answers of a
 * thread: no string is built, and what is handed to uWebSockets.js is copied once, by it.
 */

import { Bytes } from '../bytes.ts';

/** A piece of text that stands in many answers, by words; its last one may go beyond it. */
export interface Piece {
  readonly words: Int32Array;
  readonly length: number;
}

export function piece(text: string): Piece {
  const bytes = Buffer.from(text);
  const words = new Int32Array(Math.ceil(bytes.length / 4));
  new Uint8Array(words.buffer).set(bytes);
  return { words, length: bytes.length };
}

const SPACE = 0x20;
const QUOTE = 0x22;
const ZERO = 0x30;
const BACKSLASH = 0x5c;
/** The digits of 0 to 99, as two bytes. */
const PAIRS = Uint16Array.from({ length: 100 }, (_, value) => {
  return Buffer.from(String(value).padStart(2, '0')).readUInt16LE();
});
/** A number is written as two or three of so many digits, each by arithmetic on 32 bits. */
const CHUNK_DIGITS = 9;
const CHUNK = 10 ** CHUNK_DIGITS;
/** Answers up to that length have views of their own, which need not be made each time. */
const SHORT_BYTES = 256;

export class AnswerWriter {
  readonly #memory: Bytes;
  readonly #short: Buffer[];
  #at = 0;
  /** The last text that was written as JSON. */
  #text = '';
  #quoted = piece('""');

  /** @param length the most bytes of an answer */
  constructor(length: number) {
    this.#memory = new Bytes(length);
    const { array } = this.#memory;
    this.#short = Array.from({ length: SHORT_BYTES }, (_, n) => array.subarray(0, n));
  }

  /** How much is written. */
  get at(): number {
    return this.#at;
  }

  /** Goes on behind so much of what was written before, which stays; from 0 on anew. */
  begin(at: number): void {
    this.#at = at;
  }

  piece({ words, length }: Piece): void {
    const { view } = this.#memory;
    const at = this.#at;
    for (let i = 0; i < words.length; i++) view.setInt32(at + 4 * i, words[i], true);
    this.#at = at + length;
  }

  /** Text of ASCII, of which JSON escapes nothing. */
  ascii(text: string): void {
    const { array } = this.#memory;
    for (let i = 0; i < text.length; i++) array[this.#at++] = text.charCodeAt(i);
  }

  /** Any text, as JSON has it: mostly the one before. */
  json(text: string): void {
    if (text !== this.#text) {
      this.#text = text;
      this.#quoted = piece(JSON.stringify(text));
    }
    this.piece(this.#quoted);
  }

  /** The same of a text that lies somewhere in UTF-8. */
  jsonOf(memory: Bytes, from: number, to: number): void {
    const { array } = memory;
    const bytes = this.#memory.array;
    let at = this.#at;
    bytes[at++] = QUOTE;
    for (let i = from; i < to; i++) {
      const byte = array[i];
      if (byte < SPACE || byte === QUOTE || byte === BACKSLASH) {
        this.json(memory.text(from, to));
        return;
      }
      bytes[at++] = byte;
    }
    bytes[at++] = QUOTE;
    this.#at = at;
  }

  /** @param value a safe integer from 0 on */
  integer(value: number): void {
    if (value >= CHUNK) {
      const high = Math.floor(value / CHUNK);
      this.integer(high);
      this.#digits(value - high * CHUNK, CHUNK_DIGITS);
    } else {
      let digits = 1;
      for (let power = 10; value >= power; power *= 10) digits++;
      this.#digits(value, digits);
    }
  }

  /** @returns all of it, which the next answer overwrites */
  all(): Buffer {
    return this.upTo(this.#at);
  }

  upTo(length: number): Buffer {
    return length < SHORT_BYTES ? this.#short[length] : this.#memory.array.subarray(0, length);
  }

  #digits(value: number, count: number): void {
    const { array, view } = this.#memory;
    const from = this.#at;
    let left = value | 0;
    let at = from + count;
    for (this.#at = at; at - from >= 2; ) {
      const rest = (left / 100) | 0;
      at -= 2;
      view.setUint16(at, PAIRS[left - 100 * rest], true);
      left = rest;
    }
    if (at > from) array[from] = ZERO + left;
  }
}
