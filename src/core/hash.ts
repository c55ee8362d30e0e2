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

import { Bytes } from './bytes.ts';
import { NAME_MAX_BYTES } from './constants.ts';

export const HASH_KEY_BYTES = 16;

const ROUNDS = 8;
const BLOCK_BYTES = 16;
/** Behind the last byte of a message whose last block is not full. */
const PADDING_BYTE = 1;

const LENGTH_BYTES = 4;
/** A namespace, its length before it and zeros behind it. */
const SCRATCH_BYTES = LENGTH_BYTES + NAME_MAX_BYTES + BLOCK_BYTES;

/** The state of the hash after a namespace: four words. */
export type NamespaceState = Int32Array;

/** The hash of (namespace, identifier): four words, of which `h3` is never 0. */
export interface Identity {
  readonly h0: number;
  readonly h1: number;
  readonly h2: number;
  readonly h3: number;
}

/** An identity whose words are overwritten. */
export type MutableIdentity = { -readonly [word in keyof Identity]: number };

export function newIdentity(): MutableIdentity {
  return { h0: 0, h1: 0, h2: 0, h3: 0 };
}

export class Hasher implements Identity {
  /** The hash of the last identifier. */
  h0 = 0;
  h1 = 0;
  h2 = 0;
  h3 = 0;

  readonly #key: Int32Array;
  /** What is xor-ed around a full and around a padded last block, and around any other. */
  readonly #fullBlockMask: Int32Array;
  readonly #paddedBlockMask: Int32Array;
  readonly #innerBlockMask = new Int32Array(4);
  /** For texts that are not bytes yet. */
  readonly #scratch = new Bytes(SCRATCH_BYTES);

  /** @param key 16 bytes; the same key gives the same hashes on every thread and in every run */
  constructor(key: Uint8Array) {
    if (key.length !== HASH_KEY_BYTES) throw new Error(`the hash key has ${key.length} bytes`);
    const view = new DataView(key.buffer, key.byteOffset, HASH_KEY_BYTES);
    this.#key = Int32Array.from([0, 4, 8, 12], (at) => view.getInt32(at, true));
    this.#fullBlockMask = doubleInField(this.#key);
    this.#paddedBlockMask = doubleInField(this.#fullBlockMask);
  }

  /** Absorbs a namespace; what it returns is passed to every `hash` in that namespace. */
  namespace(name: string): NamespaceState {
    const scratch = this.#scratch;
    const end = scratch.write(name, LENGTH_BYTES);
    scratch.view.setUint32(0, end - LENGTH_BYTES, true);
    const blocks = Math.ceil(end / BLOCK_BYTES) * BLOCK_BYTES;
    scratch.array.fill(0, end, blocks);
    this.#absorb(this.#key, scratch.view, 0, blocks, false);
    return Int32Array.of(this.h0, this.h1, this.h2, this.h3);
  }

  /** Hashes an identifier into `h0` to `h3`. Its text is well-formed. */
  hash(state: NamespaceState, identifier: string): void {
    this.hashBytes(state, this.#scratch, 0, this.#scratch.write(identifier, 0));
  }

  /** The same of an identifier that is there in UTF-8. */
  hashBytes(state: NamespaceState, { view }: Bytes, from: number, to: number): void {
    this.#absorb(state, view, from, to, true);
    // 0 marks an empty slot. Of 2^32 values one is folded into another: 127.99 bits are left.
    if (this.h3 === 0) this.h3 = 1;
  }

  /** Copies the hash of the last identifier. */
  copyTo(identity: MutableIdentity): void {
    identity.h0 = this.h0;
    identity.h1 = this.h1;
    identity.h2 = this.h2;
    identity.h3 = this.h3;
  }

  /** The tag of a message under the key alone, as the algorithm is published: for its vectors. */
  chaskey(message: Uint8Array): Int32Array {
    this.#scratch.array.set(message);
    this.#absorb(this.#key, this.#scratch.view, 0, message.length, true);
    return Int32Array.of(this.h0, this.h1, this.h2, this.h3);
  }

  /** Runs a message of bytes from a state. One that goes on has full blocks. */
  #absorb(state: Int32Array, view: DataView, from: number, to: number, isFinal: boolean): void {
    let v0 = state[0];
    let v1 = state[1];
    let v2 = state[2];
    let v3 = state[3];
    for (let at = from; ; at += BLOCK_BYTES) {
      const left = to - at;
      const last = left <= BLOCK_BYTES;
      const around = !(last && isFinal)
        ? this.#innerBlockMask
        : left === BLOCK_BYTES
          ? this.#fullBlockMask
          : this.#paddedBlockMask;
      v0 ^= around[0] ^ word(view, at, left);
      v1 ^= around[1] ^ word(view, at + 4, left - 4);
      v2 ^= around[2] ^ word(view, at + 8, left - 8);
      v3 ^= around[3] ^ word(view, at + 12, left - 12);
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
}

/** The next four of `left` bytes as a little-endian word, with what padding falls into it. */
function word(view: DataView, at: number, left: number): number {
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
