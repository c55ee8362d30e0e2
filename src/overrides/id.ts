/**
 * The fields of an override that the published tables contain. The tables contain its id as three
 * words, because a response may have to name the override, and its usage row as the fourth.
 */

import { BLOCK_ID_PREFIX, USAGE_ROWS } from '../core/constants.ts';
import { makeId } from '../core/ids.ts';

export interface OverrideValue {
  id: string;
  limit: number;
  durationMs: number;
  isAsync: boolean;
  /** Tokens that leases may use at once. Default: those that each acquire names. */
  concurrency?: number;
  /** Where acceptors count the checks to which it applies. Default: they do not count them. */
  usageRow?: number;
}

/** The concurrency of an override that has none, in the tables. */
export const NO_CONCURRENCY = -1;

/** Behind all rows: what is stored there is lost. */
export const NO_USAGE_ROW = USAGE_ROWS;

const PREFIX = 'rlor_';
const ID = /^rlor_[0-9a-f]{24}$/;
const ID_WORDS = 3;
const WORD_DIGITS = 8;

export function makeOverrideId(): string {
  const id = makeId(PREFIX);
  return id.startsWith(BLOCK_ID_PREFIX) ? makeOverrideId() : id;
}

export function makeBlockId(): string {
  return BLOCK_ID_PREFIX + makeId(PREFIX).slice(BLOCK_ID_PREFIX.length);
}

/** @throws if the text is not the id of an override */
export function encodeId(id: string): number[] {
  if (!ID.test(id)) throw new Error(`${id} is not the id of an override`);
  return Array.from({ length: ID_WORDS }, (_, i) => {
    const at = PREFIX.length + i * WORD_DIGITS;
    return Number.parseInt(id.slice(at, at + WORD_DIGITS), 16) | 0;
  });
}

/** @param offset of the first word of the id */
export function decodeId(words: Int32Array, offset: number): string {
  let id = PREFIX;
  for (let i = offset; i < offset + ID_WORDS; i++) {
    id += (words[i] >>> 0).toString(16).padStart(WORD_DIGITS, '0');
  }
  return id;
}
