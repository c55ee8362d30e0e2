/**
 * Writes JSON as bytes into one buffer that serves one text after the other: the responses of a
 * thread, or its events. The whole text is never a string.
 */

import { Bytes } from './bytes.ts';

/** A text that is written many times, as words of memory; the last word is padded. */
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
const COMMA = 0x2c;
const ZERO = 0x30;
const COLON = 0x3a;
const BACKSLASH = 0x5c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
/** The digits of 0 to 99, as two bytes. */
const DIGIT_PAIRS = Uint16Array.from({ length: 100 }, (_, value) => {
  return Buffer.from(String(value).padStart(2, '0')).readUInt16LE();
});
/** A long number is written in chunks of so many digits, each with 32-bit arithmetic. */
const CHUNK_DIGITS = 9;
const CHUNK = 10 ** CHUNK_DIGITS;
/** Shorter texts have prepared views, so that none is allocated. */
const SHORT_BYTES = 256;

/** At least one field; numbers are integers from 0 on. */
export type FlatObject = Readonly<Record<string, number | string | boolean | null>>;

export class JsonWriter {
  readonly #memory: Bytes;
  readonly #shortViews: Buffer[];
  #position = 0;
  /** The last text that `writeJsonText` encoded. */
  #lastText = '';
  #lastTextJson = encodeFragment('""');

  /** @param maxBytes the longest text */
  constructor(maxBytes: number) {
    this.#memory = new Bytes(maxBytes);
    const { array } = this.#memory;
    this.#shortViews = Array.from({ length: SHORT_BYTES }, (_, n) => array.subarray(0, n));
  }

  /** Bytes written so far. */
  get position(): number {
    return this.#position;
  }

  /** Continues at a position; the bytes before it stay. */
  seek(position: number): void {
    this.#position = position;
  }

  writeFragment({ words, length }: TextFragment): void {
    const { view } = this.#memory;
    const at = this.#position;
    for (let i = 0; i < words.length; i++) view.setInt32(at + 4 * i, words[i], true);
    this.#position = at + length;
  }

  /** Writes a short text that is bytes. */
  writeBytes(bytes: Uint8Array): void {
    const { array } = this.#memory;
    const at = this.#position;
    for (let i = 0; i < bytes.length; i++) array[at + i] = bytes[i];
    this.#position = at + bytes.length;
  }

  /** @param text ASCII without characters that JSON escapes */
  writeAscii(text: string): void {
    const { array } = this.#memory;
    for (let i = 0; i < text.length; i++) array[this.#position++] = text.charCodeAt(i);
  }

  /** Writes any text as a JSON string. Mostly it is the last text again, encoded already. */
  writeJsonText(text: string): void {
    if (text !== this.#lastText) {
      this.#lastText = text;
      this.#lastTextJson = encodeFragment(JSON.stringify(text));
    }
    this.writeFragment(this.#lastTextJson);
  }

  /** The same for a text that is hardly ever the last one: its encoding is not kept. */
  writeUncachedJsonText(text: string): void {
    const { array } = this.#memory;
    let at = this.#position;
    array[at++] = QUOTE;
    for (let i = 0; i < text.length; i++) {
      const code = text.charCodeAt(i);
      if (code < SPACE || code > 0x7e || code === QUOTE || code === BACKSLASH) {
        this.writeUtf8(JSON.stringify(text));
        return;
      }
      array[at++] = code;
    }
    array[at++] = QUOTE;
    this.#position = at;
  }

  /** Writes an object whose names need no escapes. */
  writeFlatObject(fields: FlatObject): void {
    const { array } = this.#memory;
    let separator = OPEN_BRACE;
    for (const name in fields) {
      array[this.#position++] = separator;
      array[this.#position++] = QUOTE;
      this.writeAscii(name);
      array[this.#position++] = QUOTE;
      array[this.#position++] = COLON;
      const value = fields[name];
      if (typeof value === 'number') this.writeInteger(value);
      else if (typeof value === 'string') this.writeUncachedJsonText(value);
      else this.writeAscii(String(value));
      separator = COMMA;
    }
    array[this.#position++] = CLOSE_BRACE;
  }

  /** Writes any text as it is. */
  writeUtf8(text: string): void {
    this.#position = this.#memory.write(text, this.#position);
  }

  /** Writes UTF-8 in memory as a JSON string. */
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

  /** @param value a safe integer, not negative */
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

  /** @returns a view of all written bytes, which the next text overwrites */
  finish(): Buffer {
    return this.view(this.#position);
  }

  view(length: number): Buffer {
    return length < SHORT_BYTES ? this.#shortViews[length] : this.#memory.array.subarray(0, length);
  }

  #writeDigits(value: number, count: number): void {
    const { array, view } = this.#memory;
    const from = this.#position;
    let rest = value | 0;
    let at = from + count;
    for (this.#position = at; at - from >= 2; ) {
      const quotient = (rest / 100) | 0;
      at -= 2;
      view.setUint16(at, DIGIT_PAIRS[rest - 100 * quotient], true);
      rest = quotient;
    }
    if (at > from) array[from] = ZERO + rest;
  }
}
