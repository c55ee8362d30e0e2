/**
 * The text of an answer, put together as bytes in one buffer that is used for all answers of a
 * thread: no string is built, and what is handed to uWebSockets.js is copied once, by it.
 */

import { Bytes } from '../../core/bytes.ts';

/** A piece of text that stands in many answers, by words; its last one may go beyond it. */
export interface TextFragment {
  readonly words: Int32Array;
  readonly length: number;
}

export function encodeFragment(text: string): TextFragment {
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
const DIGIT_PAIRS = Uint16Array.from({ length: 100 }, (_, value) => {
  return Buffer.from(String(value).padStart(2, '0')).readUInt16LE();
});
/** A number is written as two or three of so many digits, each by arithmetic on 32 bits. */
const CHUNK_DIGITS = 9;
const CHUNK = 10 ** CHUNK_DIGITS;
/** Answers up to that length have views of their own, which need not be made each time. */
const SHORT_BYTES = 256;

export class BodyWriter {
  readonly #memory: Bytes;
  readonly #shortViews: Buffer[];
  #position = 0;
  /** The last text that was written as JSON. */
  #lastText = '';
  #lastTextJson = encodeFragment('""');

  /** @param maxBytes the most bytes of an answer */
  constructor(maxBytes: number) {
    this.#memory = new Bytes(maxBytes);
    const { array } = this.#memory;
    this.#shortViews = Array.from({ length: SHORT_BYTES }, (_, n) => array.subarray(0, n));
  }

  /** How much is written. */
  get position(): number {
    return this.#position;
  }

  /** Goes on behind so much of what was written before, which stays; from 0 on anew. */
  seek(position: number): void {
    this.#position = position;
  }

  writeFragment({ words, length }: TextFragment): void {
    const { view } = this.#memory;
    const at = this.#position;
    for (let i = 0; i < words.length; i++) view.setInt32(at + 4 * i, words[i], true);
    this.#position = at + length;
  }

  /** Text of ASCII, of which JSON escapes nothing. */
  writeAscii(text: string): void {
    const { array } = this.#memory;
    for (let i = 0; i < text.length; i++) array[this.#position++] = text.charCodeAt(i);
  }

  /** Any text, as JSON has it: mostly the one before. */
  writeJsonText(text: string): void {
    if (text !== this.#lastText) {
      this.#lastText = text;
      this.#lastTextJson = encodeFragment(JSON.stringify(text));
    }
    this.writeFragment(this.#lastTextJson);
  }

  /** The same of a text that lies somewhere in UTF-8. */
  writeJsonTextFrom(memory: Bytes, from: number, to: number): void {
    const { array } = memory;
    const bytes = this.#memory.array;
    let at = this.#position;
    bytes[at++] = QUOTE;
    for (let i = from; i < to; i++) {
      const byte = array[i];
      if (byte < SPACE || byte === QUOTE || byte === BACKSLASH) {
        this.writeJsonText(memory.text(from, to));
        return;
      }
      bytes[at++] = byte;
    }
    bytes[at++] = QUOTE;
    this.#position = at;
  }

  /** @param value a safe integer from 0 on */
  writeInteger(value: number): void {
    if (value >= CHUNK) {
      const high = Math.floor(value / CHUNK);
      this.writeInteger(high);
      this.#writeDigits(value - high * CHUNK, CHUNK_DIGITS);
    } else {
      let digits = 1;
      for (let power = 10; value >= power; power *= 10) digits++;
      this.#writeDigits(value, digits);
    }
  }

  /** @returns all of it, which the next answer overwrites */
  finish(): Buffer {
    return this.view(this.#position);
  }

  view(length: number): Buffer {
    return length < SHORT_BYTES ? this.#shortViews[length] : this.#memory.array.subarray(0, length);
  }

  #writeDigits(value: number, count: number): void {
    const { array, view } = this.#memory;
    const from = this.#position;
    let left = value | 0;
    let at = from + count;
    for (this.#position = at; at - from >= 2; ) {
      const rest = (left / 100) | 0;
      at -= 2;
      view.setUint16(at, DIGIT_PAIRS[left - 100 * rest], true);
      left = rest;
    }
    if (at > from) array[from] = ZERO + left;
  }
}
