/**
 * The ids of holds. An id says where its record lies, so that it is found without a search, and has
 * 96 random bits, so that nobody guesses it:
 *
 *   rlrs_ or rlls_ | base64url of 16 bytes: number of the record | secret, three words
 */

import { randomFillSync } from 'node:crypto';
import { SHARDS } from '../core/constants.ts';

/** The kinds of holds, and the prefixes of their ids. */
export const HOLD_KIND = { reservation: 1, lease: 2 } as const;
export type HoldKind = (typeof HOLD_KIND)[keyof typeof HOLD_KIND];
const PREFIXES = { [HOLD_KIND.reservation]: 'rlrs_', [HOLD_KIND.lease]: 'rlls_' } as const;

/** The characters of an id after its prefix, and of all of it. */
const CODE_CHARACTERS = 22;
const HOLD_ID_CHARACTERS = PREFIXES[HOLD_KIND.lease].length + CODE_CHARACTERS;

/** The secret of a hold: three int32. */
export type Secret = readonly [number, number, number];

export interface HoldId {
  kind: HoldKind;
  shard: number;
  /** The number of the record in its shard. */
  record: number;
  secret: Secret;
  /** Whether it belongs to a list. No such id is given out: the first of the list has the id. */
  isMember?: true;
}

const ID_WORDS = 4;
const SECRET_WORDS = 3;

/** A store of random words: one system call for many secrets. */
const pool = new Int32Array(SECRET_WORDS * 1_024);
let poolAt = pool.length;

export function newSecret(): Secret {
  if (poolAt === pool.length) {
    randomFillSync(pool);
    poolAt = 0;
  }
  const secret: Secret = [pool[poolAt], pool[poolAt + 1], pool[poolAt + 2]];
  // A secret that was given out must not be found in a dump of the memory.
  pool[poolAt++] = 0;
  pool[poolAt++] = 0;
  pool[poolAt++] = 0;
  return secret;
}

const DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
const DIGIT_BITS = 6;
/** By byte: the value of the digit, or -1. */
const DIGIT_VALUES = new Int8Array(256).fill(-1);
for (const [value, digit] of [...DIGITS].entries()) DIGIT_VALUES[digit.charCodeAt(0)] = value;
/** Those of the last digit that are beyond the last byte, and 0. */
const UNUSED_BITS = CODE_CHARACTERS * DIGIT_BITS - 32 * ID_WORDS;

/** Scratch of one call: the reference and the secret, before a 0; the characters of an id. */
const words = new Int32Array(ID_WORDS + 1);
const characters = Buffer.alloc(HOLD_ID_CHARACTERS);
const view = new DataView(characters.buffer, characters.byteOffset, characters.length);
/** By the value of two digits: their characters. */
const PAIR_BITS = 2 * DIGIT_BITS;
const DIGIT_PAIRS = Uint16Array.from({ length: 2 ** PAIR_BITS }, (_, value) => {
  return Buffer.from(DIGITS[value >>> DIGIT_BITS] + DIGITS[value & 63]).readUInt16LE();
});

export function formatHoldId(id: HoldId): string {
  return encodeHoldId(id).toString('latin1');
}

/** @returns the characters of an id, which the next call overwrites */
export function encodeHoldId({ kind, shard, record, secret }: HoldId): Buffer {
  words[0] = record * SHARDS + shard;
  words[1] = secret[0];
  words[2] = secret[1];
  words[3] = secret[2];
  const prefix = PREFIXES[kind];
  for (let i = 0; i < prefix.length; i++) characters[i] = prefix.charCodeAt(i);
  for (let i = 0; i < CODE_CHARACTERS / 2; i++) {
    const word = (i * PAIR_BITS) >>> 5;
    const end = ((i * PAIR_BITS) & 31) + PAIR_BITS;
    const value =
      end <= 32
        ? words[word] >>> (32 - end)
        : (words[word] << (end - 32)) | (words[word + 1] >>> (64 - end));
    view.setUint16(prefix.length + 2 * i, DIGIT_PAIRS[value & (2 ** PAIR_BITS - 1)], true);
  }
  return characters;
}

/** A short name of a hold, which tells it from others, and from which its id cannot be derived. */
export function handleOf({ shard, record, secret }: Omit<HoldId, 'kind'>): string {
  const mixed = secret[0] ^ secret[1] ^ secret[2];
  const check = (mixed & 0xffff).toString(16).padStart(4, '0');
  return `${(record * SHARDS + shard).toString(36)}-${check}`;
}

/** @returns undefined if no hold of this kind can have the id */
export function parseHoldId(kind: HoldKind, text: string): HoldId | undefined {
  // The bytes of a character beyond ASCII are no digits.
  if (text.length !== HOLD_ID_CHARACTERS) return undefined;
  return decodeHoldId(kind, Buffer.from(text), 0, text.length);
}

/** The same for an id in memory. */
export function decodeHoldId(
  kind: HoldKind,
  bytes: Uint8Array,
  from: number,
  to: number,
): HoldId | undefined {
  if (to - from !== HOLD_ID_CHARACTERS) return undefined;
  const prefix = PREFIXES[kind];
  for (let i = 0; i < prefix.length; i++) {
    if (bytes[from + i] !== prefix.charCodeAt(i)) return undefined;
  }
  const code = from + prefix.length;
  for (let word = 0; word < ID_WORDS; word++) words[word] = 0;
  for (let i = 0; i < CODE_CHARACTERS; i++) {
    const value = DIGIT_VALUES[bytes[code + i]];
    if (value < 0) return undefined;
    const word = (i * DIGIT_BITS) >>> 5;
    const end = ((i * DIGIT_BITS) & 31) + DIGIT_BITS;
    if (end <= 32) words[word] |= value << (32 - end);
    else {
      words[word] |= value >>> (end - 32);
      if (word + 1 < ID_WORDS) words[word + 1] |= value << (64 - end);
      else if ((value & ((1 << UNUSED_BITS) - 1)) !== 0) return undefined;
    }
  }
  const reference = words[0] >>> 0;
  const secret: Secret = [words[1], words[2], words[3]];
  return { kind, shard: reference % SHARDS, record: Math.floor(reference / SHARDS), secret };
}
