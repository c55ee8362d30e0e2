/**
 * The files in which the counters of a shard outlive the process: two for each shard, written in
 * turn, so that one of them is whole at any moment. The shard's worker writes them
 * (`checkpointer.ts`), the main thread reads them at the next start (`restore.ts`).
 *
 *   byte 0    int32    magic | version | number | CRC-32 of the entries | key, two words
 *             float64  3  count of entries   4  weir's time when it was begun, ms
 *             int32    15  CRC-32 of the header before it
 *   byte 64   entries  64 bytes each: a slot as it lies in the table, drawn in `layout.ts`
 *
 * The header is written last: a file that was not finished has the header of an older checkpoint,
 * or none, over newer entries, which the CRC tells. What lies behind the last entry is of no
 * account.
 *
 * An entry has the whole hash, so that a table of another capacity, or other shards, can take it
 * in. The key words are made with the key of the hash: entries of another one mean nothing here.
 *
 * Nothing is forced to the disk. The files outlive the process however it ends, for the kernel has
 * them; when the machine ends, what it had not written by itself is gone.
 */

import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { CACHE_LINE_BYTES } from '../../../core/constants.ts';
import { Hasher } from '../../../core/hash.ts';

const MAGIC = 0x57656370; // "Wecp"
const VERSION = 1;

export const HEADER_BYTES = CACHE_LINE_BYTES;
export const ENTRY_BYTES = CACHE_LINE_BYTES;

const HEADER_WORD = { magic: 0, version: 1, number: 2, crc: 3, key: 4, headerCrc: 15 } as const;
const HEADER_DOUBLE = { entryCount: 3, startedMs: 4 } as const;

const FILE_NAME = /^counters-(\d+)\.[01]$/;

/** What a header says. */
export interface CheckpointHeader {
  /** Of this shard, from 1. */
  number: number;
  /** Weir's time when it was begun: what was decided before is in it. */
  startedMs: number;
  entryCount: number;
}

/** Made with the key of the hash. */
export type HashKeyFingerprint = readonly [number, number];

export function fingerprintOf(hashKey: Uint8Array): HashKeyFingerprint {
  const [first, second] = new Hasher(hashKey).chaskey(Buffer.from('checkpoint'));
  return [first, second];
}

/** Where the checkpoint of a number is written: over the one before the last. */
export function checkpointPath(directory: string, shard: number, number: number): string {
  return join(directory, `counters-${shard}.${number & 1}`);
}

/** The shard whose checkpoint a file of this name is; undefined when it is something else. */
export function shardOfFileName(name: string): number | undefined {
  const shard = FILE_NAME.exec(name)?.[1];
  return shard === undefined ? undefined : Number(shard);
}

/** @param entriesCrc of all entries, in their order */
export function encodeHeader(
  { number, startedMs, entryCount }: CheckpointHeader,
  key: HashKeyFingerprint,
  entriesCrc: number,
): Uint8Array {
  const { bytes, words, doubles } = views(new ArrayBuffer(HEADER_BYTES));
  words[HEADER_WORD.magic] = MAGIC;
  words[HEADER_WORD.version] = VERSION;
  words[HEADER_WORD.number] = number;
  words.set(key, HEADER_WORD.key);
  doubles[HEADER_DOUBLE.entryCount] = entryCount;
  doubles[HEADER_DOUBLE.startedMs] = startedMs;
  words[HEADER_WORD.crc] = entriesCrc;
  words[HEADER_WORD.headerCrc] = computeHeaderCrc(bytes);
  return bytes;
}

/** What is wrong with a file, for the log. */
export class CheckpointDamageError extends Error {}

/** @throws Damage when the bytes are no header of this version and key */
export function decodeHeader(header: ArrayBuffer, key: HashKeyFingerprint): CheckpointHeader {
  const { bytes, words, doubles } = views(header);
  if (words[HEADER_WORD.magic] !== MAGIC) throw new CheckpointDamageError('it was never finished');
  if (words[HEADER_WORD.version] !== VERSION) {
    throw new CheckpointDamageError(
      `it is of version ${words[HEADER_WORD.version]}, not ${VERSION}`,
    );
  }
  if (words[HEADER_WORD.headerCrc] !== computeHeaderCrc(bytes))
    throw new CheckpointDamageError('its header is damaged');
  if (words[HEADER_WORD.key] !== key[0] || words[HEADER_WORD.key + 1] !== key[1]) {
    throw new CheckpointDamageError('its counters are of another store');
  }
  return {
    number: words[HEADER_WORD.number],
    startedMs: doubles[HEADER_DOUBLE.startedMs],
    entryCount: doubles[HEADER_DOUBLE.entryCount],
  };
}

/** What the checksum of all entries must be, as a word has it. */
export function readEntriesCrc(header: ArrayBuffer): number {
  return views(header).words[HEADER_WORD.crc];
}

/** As a word has it. */
function computeHeaderCrc(header: Uint8Array): number {
  return crc32(header.subarray(0, 4 * HEADER_WORD.headerCrc)) | 0;
}

function views(buffer: ArrayBuffer) {
  return {
    bytes: new Uint8Array(buffer),
    words: new Int32Array(buffer),
    doubles: new Float64Array(buffer),
  };
}
