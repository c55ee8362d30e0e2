/**
 * The identity of a counter: a keyed 128-bit hash of (namespace, identifier).
 *
 * The hash is Chaskey with 8 rounds, a PRF, because two identifiers that share a counter must be
 * practically impossible to make; a seeded mixing function gives no such thing. The message is
 *
 *   u32 length of the namespace in UTF-8 | its bytes | zeros up to a block of 16 | the identifier
 *
 * which no two pairs share. The blocks of the namespace are absorbed once, when it is first seen;
 * a check absorbs its identifier only. One `Hasher` belongs to one thread.
 */

export const HASH_KEY_BYTES = 16;

const ROUNDS = 8;
const BLOCK = 16;
/** Behind the last byte of a message whose last block is not full. */
const PADDING = 1;

/** The state of the hash after a namespace: four words. */
export type NamespaceState = Int32Array;

/** The hash of (namespace, identifier): four words, of which `h3` is never 0. */
export interface Identity {
  readonly h0: number;
  readonly h1: number;
  readonly h2: number;
  readonly h3: number;
}

/** One that is filled in again and again. */
export type MutableIdentity = { -readonly [word in keyof Identity]: number };

export class Hasher implements Identity {
  /** The hash of the last identifier. */
  h0 = 0;
  h1 = 0;
  h2 = 0;
  h3 = 0;

  readonly #key: Int32Array;
  /** What is xor-ed around a full and around a padded last block, and around any other. */
  readonly #full: Int32Array;
  readonly #padded: Int32Array;
  readonly #inner = new Int32Array(4);
  /** All characters of the last message or-ed. */
  #seen = 0;

  /** @param key 16 bytes; the same key gives the same hashes on every thread and in every run */
  constructor(key: Uint8Array) {
    if (key.length !== HASH_KEY_BYTES) throw new Error(`the hash key has ${key.length} bytes`);
    const view = new DataView(key.buffer, key.byteOffset, HASH_KEY_BYTES);
    this.#key = Int32Array.from([0, 4, 8, 12], (at) => view.getInt32(at, true));
    this.#full = timesTwo(this.#key);
    this.#padded = timesTwo(this.#full);
  }

  /** Absorbs a namespace; what it returns is passed to every `hash` in that namespace. */
  namespace(name: string): NamespaceState {
    const length = Buffer.byteLength(name);
    const message = Buffer.alloc(Math.ceil((4 + length) / BLOCK) * BLOCK);
    message.writeUInt32LE(length);
    message.write(name, 4);
    this.#run(this.#key, message.toString('latin1'), false);
    return Int32Array.of(this.h0, this.h1, this.h2, this.h3);
  }

  /** Hashes the UTF-8 of an identifier into `h0` to `h3`. Its text is well-formed. */
  hash(state: NamespaceState, identifier: string): void {
    this.#run(state, identifier, true);
    if (this.#seen > 0x7f) this.#run(state, Buffer.from(identifier).toString('latin1'), true);
    // 0 marks an empty slot. Of 2^32 values one is folded into another: 127.99 bits are left.
    if (this.h3 === 0) this.h3 = 1;
  }

  /** The tag of a message under the key alone, as the algorithm is published: for its vectors. */
  chaskey(message: Buffer): Int32Array {
    this.#run(this.#key, message.toString('latin1'), true);
    return Int32Array.of(this.h0, this.h1, this.h2, this.h3);
  }

  /** Runs a message of bytes, a character each, from a state. One that goes on has full blocks. */
  #run(state: Int32Array, text: string, final: boolean): void {
    let v0 = state[0];
    let v1 = state[1];
    let v2 = state[2];
    let v3 = state[3];
    this.#seen = 0;
    for (let at = 0; ; at += BLOCK) {
      const left = text.length - at;
      const last = left <= BLOCK;
      const around = !(last && final) ? this.#inner : left === BLOCK ? this.#full : this.#padded;
      v0 ^= around[0] ^ this.#word(text, at, left);
      v1 ^= around[1] ^ this.#word(text, at + 4, left - 4);
      v2 ^= around[2] ^ this.#word(text, at + 8, left - 8);
      v3 ^= around[3] ^ this.#word(text, at + 12, left - 12);
      for (let round = 0; round < ROUNDS; round++) {
        v0 = (v0 + v1) | 0;
        v1 = ((v1 << 5) | (v1 >>> 27)) ^ v0;
        v0 = (v0 << 16) | (v0 >>> 16);
        v2 = (v2 + v3) | 0;
        v3 = ((v3 << 8) | (v3 >>> 24)) ^ v2;
        v0 = (v0 + v3) | 0;
        v3 = ((v3 << 13) | (v3 >>> 19)) ^ v0;
        v2 = (v2 + v1) | 0;
        v1 = ((v1 << 7) | (v1 >>> 25)) ^ v2;
        v2 = (v2 << 16) | (v2 >>> 16);
      }
      if (!last) continue;
      this.h0 = v0 ^ around[0];
      this.h1 = v1 ^ around[1];
      this.h2 = v2 ^ around[2];
      this.h3 = v3 ^ around[3];
      return;
    }
  }

  /**
   * The next four of `left` characters as a little-endian word, with what padding falls into it.
   * Made from characters, not by way of a scratch buffer: a 32-bit load behind four byte stores has
   * to wait for them.
   */
  #word(text: string, at: number, left: number): number {
    if (left >= 4) {
      const c0 = text.charCodeAt(at);
      const c1 = text.charCodeAt(at + 1);
      const c2 = text.charCodeAt(at + 2);
      const c3 = text.charCodeAt(at + 3);
      this.#seen |= c0 | c1 | c2 | c3;
      return c0 | (c1 << 8) | (c2 << 16) | (c3 << 24);
    }
    if (left < 0) return 0;
    let word = PADDING << (8 * left);
    for (let i = 0; i < left; i++) {
      const c = text.charCodeAt(at + i);
      this.#seen |= c;
      word |= c << (8 * i);
    }
    return word;
  }
}

/** Doubling in the field GF(2^128), as the algorithm derives its subkeys. */
function timesTwo(key: Int32Array): Int32Array {
  return Int32Array.of(
    (key[0] << 1) ^ (key[3] < 0 ? 0x87 : 0),
    (key[1] << 1) | (key[0] >>> 31),
    (key[2] << 1) | (key[1] >>> 31),
    (key[3] << 1) | (key[2] >>> 31),
  );
}
