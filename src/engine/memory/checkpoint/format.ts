/**
 * The files in which the counters and the holds of a shard outlive the process: two of each kind,
 * written in turn, so that one of them is complete at any moment. The shard's worker writes them
 * (`writer.ts`), the main thread reads them at the next start (`loader.ts`).
 *
 *   byte 0    int32    magic | version | number | CRC-32 of the entries | key, two words
 *             float64  3  count of entries   4  weir's time at its start, ms
 *             int32    15  CRC-32 of the header before it
 *   byte 64   entries  64 bytes each: a slot as it is in the table, drawn in `memory/layout.ts`;
 *                      of holds 128 bytes: a record as `holds/layout.ts` draws it, with its number
 *                      in place of its link
 *
 * The header is written last. A file that was not finished has the header of an older checkpoint,
 * or none, before newer entries, which the CRC detects. Bytes after the last entry are ignored.
 *
 * Holds belong to the counters with the same number and time. They are written before these, so
 * complete counters have complete holds, or there were none.
 *
 * An entry has the whole hash, so it can be inserted into a table of another capacity or number of
 * shards. The key words are derived from the hash key: with another key, entries mean nothing.
 *
 * Nothing is fsynced. The files survive any end of the process, because the kernel has them. When
 * the machine fails, writes that it had not flushed are lost.
 */

import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { CACHE_LINE_BYTES } from '../../../core/constants.ts';
import { Hasher } from '../../../core/hash.ts';
import { RECORD_BYTES } from '../../holds/layout.ts';

export const HEADER_BYTES = CACHE_LINE_BYTES;

/** What the entries of a file are. */
export interface FileKind {
  /** How the names of its files begin. */
  name: string;
  magic: number;
  version: number;
  oldestVersion: number;
  entryBytes: number;
}

/** Version 1 had no GCRA counters, whose key carries the rule; its entries are read as they are. */
export const COUNTER_FILES: FileKind = {
  name: 'counters',
  magic: 0x57656370, // "Wecp"
  version: 2,
  oldestVersion: 1,
  entryBytes: CACHE_LINE_BYTES,
};

export const HOLD_FILES: FileKind = {
  name: 'holds',
  magic: 0x57656368, // "Wech"
  version: 1,
  oldestVersion: 1,
  entryBytes: RECORD_BYTES,
};

const FILE_KINDS = [COUNTER_FILES, HOLD_FILES];

const HEADER_WORD = { magic: 0, version: 1, number: 2, crc: 3, key: 4, headerCrc: 15 } as const;
const HEADER_DOUBLE = { entryCount: 3, startedMs: 4 } as const;

const FILE_NAME = /^([a-z]+)-(\d+)\.[01]$/;

/** The contents of a header. */
export interface CheckpointHeader {
  /** The number of the checkpoint in its shard, from 1. */
  number: number;
  /** Weir's time at its start: it includes all decisions before. */
  startedMs: number;
  entryCount: number;
}

/** Two words derived from the hash key. */
export type HashKeyFingerprint = readonly [number, number];

export function fingerprintOf(hashKey: Uint8Array): HashKeyFingerprint {
  const [first, second] = new Hasher(hashKey).chaskey(Buffer.from('checkpoint'));
  return [first, second];
}

/** The file of a checkpoint, by its number: it replaces the one before the last. */
export function checkpointPath(
  directory: string,
  { name }: FileKind,
  shard: number,
  number: number,
): string {
  return join(directory, `${name}-${shard}.${number & 1}`);
}

/** The kind and the shard of a checkpoint file; undefined when the name is not that of one. */
export function parseFileName(fileName: string): { kind: FileKind; shard: number } | undefined {
  const [, name, shard] = FILE_NAME.exec(fileName) ?? [];
  const kind = FILE_KINDS.find((kind) => kind.name === name);
  return kind && { kind, shard: Number(shard) };
}

/** @param entriesCrc the CRC-32 of all entries in their order */
export function encodeHeader(
  { magic, version }: FileKind,
  { number, startedMs, entryCount }: CheckpointHeader,
  key: HashKeyFingerprint,
  entriesCrc: number,
): Uint8Array {
  const { bytes, words, doubles } = views(new ArrayBuffer(HEADER_BYTES));
  words[HEADER_WORD.magic] = magic;
  words[HEADER_WORD.version] = version;
  words[HEADER_WORD.number] = number;
  words.set(key, HEADER_WORD.key);
  doubles[HEADER_DOUBLE.entryCount] = entryCount;
  doubles[HEADER_DOUBLE.startedMs] = startedMs;
  words[HEADER_WORD.crc] = entriesCrc;
  words[HEADER_WORD.headerCrc] = computeHeaderCrc(bytes);
  return bytes;
}

/** Why a file cannot be used, for the log. */
export class CheckpointDamageError extends Error {}

/** @throws CheckpointDamageError when the bytes are no header of a known version and this key */
export function decodeHeader(
  kind: FileKind,
  header: ArrayBuffer,
  key: HashKeyFingerprint,
): CheckpointHeader {
  const { bytes, words, doubles } = views(header);
  if (words[HEADER_WORD.magic] !== kind.magic) {
    throw new CheckpointDamageError('it was never finished');
  }
  const version = words[HEADER_WORD.version];
  if (version < kind.oldestVersion || version > kind.version) {
    throw new CheckpointDamageError(
      `it has version ${version}; accepted are ${kind.oldestVersion} to ${kind.version}`,
    );
  }
  if (words[HEADER_WORD.headerCrc] !== computeHeaderCrc(bytes)) {
    throw new CheckpointDamageError('its header is damaged');
  }
  if (words[HEADER_WORD.key] !== key[0] || words[HEADER_WORD.key + 1] !== key[1]) {
    throw new CheckpointDamageError('its entries belong to another store');
  }
  return {
    number: words[HEADER_WORD.number],
    startedMs: doubles[HEADER_DOUBLE.startedMs],
    entryCount: doubles[HEADER_DOUBLE.entryCount],
  };
}

/** The CRC-32 that all entries must have, as int32. */
export function readEntriesCrc(header: ArrayBuffer): number {
  return views(header).words[HEADER_WORD.crc];
}

/** As int32. */
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
