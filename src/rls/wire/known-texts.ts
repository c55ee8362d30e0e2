/**
 * The strings of texts that repeat, by their bytes: keys of descriptors and domains come from
 * configurations, so a request with known ones needs no new string. Another text replaces one in
 * the same place, so the table has a fixed size.
 */

import { RLS_KNOWN_TEXT_MAX_BYTES, RLS_KNOWN_TEXTS } from '../../core/constants.ts';
import { decodeText } from '../transport/protobuf.ts';

const MASK = RLS_KNOWN_TEXTS - 1;
/** Of the hash FNV-1a. */
const OFFSET_BASIS = 0x811c_9dc5;
const PRIME = 0x0100_0193;

export class KnownTexts {
  readonly #bytes = Buffer.alloc(RLS_KNOWN_TEXTS * RLS_KNOWN_TEXT_MAX_BYTES);
  readonly #lengths = new Uint8Array(RLS_KNOWN_TEXTS);
  readonly #texts: string[] = new Array(RLS_KNOWN_TEXTS).fill('');

  /** The text of valid UTF-8. Its errors are those of `decodeText`. */
  get(bytes: Buffer, start: number, end: number): string {
    const length = end - start;
    if (length > RLS_KNOWN_TEXT_MAX_BYTES) return decodeText(bytes, start, end);
    let hash = OFFSET_BASIS;
    for (let i = start; i < end; i++) hash = Math.imul(hash ^ bytes[i], PRIME);
    const index = (hash ^ (hash >>> 15)) & MASK;
    const offset = index * RLS_KNOWN_TEXT_MAX_BYTES;
    if (this.#lengths[index] === length && this.#isAt(offset, bytes, start, length)) {
      return this.#texts[index];
    }
    const text = decodeText(bytes, start, end);
    bytes.copy(this.#bytes, offset, start, end);
    this.#lengths[index] = length;
    this.#texts[index] = text;
    return text;
  }

  #isAt(offset: number, bytes: Buffer, start: number, length: number): boolean {
    const known = this.#bytes;
    for (let i = 0; i < length; i++) {
      if (known[offset + i] !== bytes[start + i]) return false;
    }
    return true;
  }
}
