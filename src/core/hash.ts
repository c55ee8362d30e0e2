/**
 * The identity of a counter: a keyed 128-bit hash of (namespace, identifier).
 *
 * The hash is Chaskey with 8 rounds, a PRF: a client cannot construct two identifiers that share a
 * counter. A seeded mixing function does not guarantee this. The message is
 *
 *   u32 length of the namespace in UTF-8 | its bytes | zeros up to a block of 16 | the identifier
 *
 * and is different for any two pairs. The text of a namespace is its key: see `namespaceKey`. Its
 * blocks are absorbed once, at its first use; a check absorbs its identifier only. One `Hasher`
 * belongs to one thread.
 */

import { Bytes } from './bytes.ts';
import { NAMESPACE_KEY_MAX_BYTES } from './constants.ts';

export const HASH_KEY_BYTES = 16;

const ROUNDS = 8;
const BLOCK_BYTES = 16;
/** Follows the last byte of a message whose last block is not full. */
const PADDING_BYTE = 1;

const LENGTH_BYTES = 4;
/** The length of a namespace, its bytes, and zeros. */
const SCRATCH_BYTES = LENGTH_BYTES + NAMESPACE_KEY_MAX_BYTES + BLOCK_BYTES;

/** The state of the hash after a namespace: four words. */
export type NamespaceState = Int32Array;

/** The hash of (namespace, identifier): four words, of which `h3` is never 0. */
export interface Identity {
  readonly h0: number;
  readonly h1: number;
  readonly h2: number;
  readonly h3: number;
}

export type MutableIdentity = { -readonly [word in keyof Identity]: number };

export function newIdentity(): MutableIdentity {
  return { h0: 0, h1: 0, h2: 0, h3: 0 };
}

export class Hasher {
  readonly #key: Int32Array;
  /** The masks of a full last block, a padded last block, and all other blocks. */
  readonly #fullBlockMask: Int32Array;
  readonly #paddedBlockMask: Int32Array;
  readonly #innerBlockMask = new Int32Array(4);
  /** For texts that are not encoded yet. */
  readonly #scratch = new Bytes(SCRATCH_BYTES);

  /** @param key 16 bytes; the same key gives the same hashes on every thread and in every run */
  constructor(key: Uint8Array) {
    if (key.length !== HASH_KEY_BYTES) {
      throw new Error(`the hash key must have ${HASH_KEY_BYTES} bytes; got ${key.length}`);
    }
    const view = new DataView(key.buffer, key.byteOffset, HASH_KEY_BYTES);
    this.#key = Int32Array.from([0, 4, 8, 12], (at) => view.getInt32(at, true));
    this.#fullBlockMask = doubleInField(this.#key);
    this.#paddedBlockMask = doubleInField(this.#fullBlockMask);
  }

  /** Absorbs a namespace. @returns its state, for every `hash` in that namespace */
  namespace(key: string): NamespaceState {
    const scratch = this.#scratch;
    const end = scratch.write(key, LENGTH_BYTES);
    scratch.view.setUint32(0, end - LENGTH_BYTES, true);
    const blocks = Math.ceil(end / BLOCK_BYTES) * BLOCK_BYTES;
    scratch.array.fill(0, end, blocks);
    return this.#absorbAll(scratch.view, blocks, false);
  }

  /** Hashes an identifier. @param identifier well-formed text @returns `into` */
  hash(state: NamespaceState, identifier: string, into: MutableIdentity): Identity {
    return this.hashBytes(state, this.#scratch, 0, this.#scratch.write(identifier, 0), into);
  }

  /** Hashes an identifier that is encoded in UTF-8. @returns `into` */
  hashBytes(
    state: NamespaceState,
    { view }: Bytes,
    from: number,
    to: number,
    into: MutableIdentity,
  ): Identity {
    this.#absorb(state, view, from, to, true, into);
    // 0 marks an empty slot. Of 2^32 values one is folded into another: 127.99 bits are left.
    if (into.h3 === 0) into.h3 = 1;
    return into;
  }

  /** The tag of a message under the key alone, as the algorithm is published: for its vectors. */
  chaskey(message: Uint8Array): Int32Array {
    this.#scratch.array.set(message);
    return this.#absorbAll(this.#scratch.view, message.length, true);
  }

  /** Absorbs the first bytes of a view, from the key. */
  #absorbAll(view: DataView, length: number, isFinal: boolean): Int32Array {
    const result = newIdentity();
    this.#absorb(this.#key, view, 0, length, isFinal, result);
    return Int32Array.of(result.h0, result.h1, result.h2, result.h3);
  }

  /** Absorbs bytes, from a state. @param isFinal false: all blocks are full, and more may follow */
  #absorb(
    state: Int32Array,
    view: DataView,
    from: number,
    to: number,
    isFinal: boolean,
    into: MutableIdentity,
  ): void {
    let v0 = state[0];
    let v1 = state[1];
    let v2 = state[2];
    let v3 = state[3];
    for (let at = from; ; at += BLOCK_BYTES) {
      const left = to - at;
      const isLast = left <= BLOCK_BYTES;
      const mask = !(isLast && isFinal)
        ? this.#innerBlockMask
        : left === BLOCK_BYTES
          ? this.#fullBlockMask
          : this.#paddedBlockMask;
      v0 ^= mask[0] ^ readWord(view, at, left);
      v1 ^= mask[1] ^ readWord(view, at + 4, left - 4);
      v2 ^= mask[2] ^ readWord(view, at + 8, left - 8);
      v3 ^= mask[3] ^ readWord(view, at + 12, left - 12);
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
      if (!isLast) continue;
      into.h0 = v0 ^ mask[0];
      into.h1 = v1 ^ mask[1];
      into.h2 = v2 ^ mask[2];
      into.h3 = v3 ^ mask[3];
      return;
    }
  }
}

/** The next four of `left` bytes as a little-endian word, padded where fewer are left. */
function readWord(view: DataView, at: number, left: number): number {
  if (left >= 4) return view.getInt32(at, true);
  if (left < 0) return 0;
  const shift = 8 * left;
  return (view.getInt32(at, true) & ((1 << shift) - 1)) | (PADDING_BYTE << shift);
}

/** Doubling in the field GF(2^128), as the algorithm derives its subkeys. */
function doubleInField(key: Int32Array): Int32Array {
  return Int32Array.of(
    (key[0] << 1) ^ (key[3] < 0 ? 0x87 : 0),
    (key[1] << 1) | (key[0] >>> 31),
    (key[2] << 1) | (key[1] >>> 31),
    (key[3] << 1) | (key[2] >>> 31),
  );
}
