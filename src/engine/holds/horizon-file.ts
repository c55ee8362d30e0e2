/**
 * The file of the lease horizon, in the data directory: a time that no lease outlives that was
 * granted while the file was there. It is one line, the Unix time in ms and its CRC-32 in
 * hexadecimal digits, so that an operator can read it. A new time is written to another file, which
 * then replaces this one, both fsynced: whatever fails or ends in between, the file has the old
 * time or the new one. Any other content is damage by the disk or by hand.
 *
 * Failures are those of the file system.
 */

import {
  closeSync,
  fsyncSync,
  openSync,
  readFileSync,
  renameSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { SAFE_OPEN_FLAGS } from '../../core/file-ownership.ts';

export const LEASE_HORIZON_FILE = 'lease-horizon';
const UNFINISHED_FILE = `${LEASE_HORIZON_FILE}.new`;

const CONTENT = /^(\d{1,16}) [\da-f]{8}\n$/;

export function horizonPath(directory: string): string {
  return join(directory, LEASE_HORIZON_FILE);
}

/** @returns Unix time, ms; infinite if the file is damaged; 0 if there is none */
export function readHorizon(directory: string): number {
  const content = unlessMissing(() => read(horizonPath(directory)));
  if (content === undefined) return 0;
  const ms = Number(CONTENT.exec(content)?.[1]);
  return content === encode(ms) ? ms : Number.POSITIVE_INFINITY;
}

/** Durable when it returns. @param ms Unix time in whole ms */
export function writeHorizon(directory: string, ms: number): void {
  const unfinished = join(directory, UNFINISHED_FILE);
  remove(unfinished);
  // It fails if the file exists: other users may be able to write links to the directory.
  withFile(unfinished, 'wx', (file) => writeFileSync(file, encode(ms)));
  renameSync(unfinished, horizonPath(directory));
  withFile(directory, 'r', () => {});
}

export function removeHorizon(directory: string): void {
  remove(horizonPath(directory));
}

function read(path: string): string {
  const file = openSync(path, SAFE_OPEN_FLAGS);
  try {
    return readFileSync(file, 'latin1');
  } finally {
    closeSync(file);
  }
}

function remove(path: string): void {
  unlessMissing(() => unlinkSync(path));
}

/** @returns undefined if the file does not exist */
function unlessMissing<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    return undefined;
  }
}

function encode(ms: number): string {
  return `${ms} ${crc32(String(ms)).toString(16).padStart(8, '0')}\n`;
}

/** Opens a file or a directory, and fsyncs it at the end. */
function withFile(path: string, flags: string, work: (file: number) => void): void {
  const file = openSync(path, flags, 0o600);
  try {
    work(file);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}
