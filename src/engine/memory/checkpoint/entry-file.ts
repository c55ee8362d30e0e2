/**
 * A checkpoint file while it is written: entries first, the header last. A disk that fails throws,
 * and the file stays incomplete.
 */

import { closeSync, constants, ftruncateSync, openSync, writeSync } from 'node:fs';
import { crc32 } from 'node:zlib';
import {
  checkpointPath,
  encodeHeader,
  type FileKind,
  type HashKeyFingerprint,
  HEADER_BYTES,
} from './format.ts';

/**
 * Without O_TRUNC, after which file systems flush a file at once when it is closed. A symbolic link
 * in its place is an error: other users may be able to write to the directory.
 */
const OPEN_FLAGS = constants.O_WRONLY | constants.O_CREAT | constants.O_NOFOLLOW;

export class EntryFile {
  readonly #kind: FileKind;
  /** Undefined when it is closed. */
  #file: number | undefined;
  #entryCount = 0;
  #crc = 0;

  /** Opens the file of a checkpoint. */
  constructor(directory: string, kind: FileKind, shard: number, number: number) {
    this.#kind = kind;
    this.#file = openSync(checkpointPath(directory, kind, shard, number), OPEN_FLAGS, 0o600);
  }

  /** @param bytes whole entries */
  append(bytes: Uint8Array): void {
    this.#crc = crc32(bytes, this.#crc);
    this.#write(bytes, HEADER_BYTES + this.#entryCount * this.#kind.entryBytes);
    this.#entryCount += bytes.length / this.#kind.entryBytes;
  }

  finish(number: number, startedMs: number, key: HashKeyFingerprint): void {
    const entryCount = this.#entryCount;
    this.#write(encodeHeader(this.#kind, { number, startedMs, entryCount }, key, this.#crc), 0);
    ftruncateSync(this.#file!, HEADER_BYTES + entryCount * this.#kind.entryBytes);
    // Some file systems report only now that there was no space.
    this.close();
  }

  close(): void {
    const file = this.#file;
    this.#file = undefined;
    if (file !== undefined) closeSync(file);
  }

  #write(bytes: Uint8Array, position: number): void {
    for (let at = 0; at < bytes.length; ) {
      at += writeSync(this.#file!, bytes, at, bytes.length - at, position + at);
    }
  }
}
