/**
 * Writes events on the main thread, to a file that is rotated by size or to standard output. One
 * write runs at a time, on a thread of Node's pool, so a slow disk or a reader that does not read
 * stops neither the main thread nor a check. No library is used: none says which lines it wrote.
 *
 * A chunk that cannot be written is dropped, and its events are counted. The log says so, and again
 * when events are written. The file is opened anew for each try after a failure.
 */

import { write as writeCallback } from 'node:fs';
import { type FileHandle, open, rename, rm } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { storageErrorCause } from '../core/errno.ts';
import { FailureLog, type FileFault } from '../core/failure-log.ts';
import type { Log } from '../core/log.ts';
import type { EventChunk } from './event-ring.ts';

const write = promisify(writeCallback);

export const STANDARD_OUTPUT = '-';
const STANDARD_OUTPUT_DESCRIPTOR = 1;
const NEWLINE = Buffer.from('\n');
/** The delay before a full pipe is tried again. */
const RETRY_MS = 10;
const CLOSING_RETRIES = 100;

interface EventFileOptions {
  /** A path, or STANDARD_OUTPUT. */
  path: string;
  /** A file is rotated before it would exceed this size. */
  maxBytes: number;
  /** Rotated files that are kept, as `path.1` to `path.N`. */
  keptFiles: number;
  log: Log;
}

export class EventFile {
  /** Events in the file, and those that could not be written. */
  written = 0;
  failed = 0;
  readonly #options: EventFileOptions;
  #file: FileHandle | undefined;
  #size = 0;
  readonly #failureLog: FailureLog;
  /** A write has failed within a line. */
  #isLineBroken = false;
  #last: Promise<void> = Promise.resolve();
  /** Retries that are left until the file is closed; undefined before `close`. */
  #closingRetries: number | undefined;

  constructor(options: EventFileOptions) {
    this.#options = options;
    this.#failureLog = new FailureLog(options.log, 'error', 'events are written again');
  }

  /** The file that could not be written at the last try. */
  get fault(): FileFault | undefined {
    const { path } = this.#options;
    if (path === STANDARD_OUTPUT) return undefined;
    return this.#failureLog.fault(path, 'events are dropped');
  }

  /**
   * Writes a chunk after those before it.
   * @param onDone called when it was written, or could not be
   */
  write({ lines, count }: EventChunk, onDone: () => void): void {
    this.#last = this.#last.then(async () => {
      try {
        await this.#append(lines);
        this.written += count;
        this.#failureLog.succeeded();
      } catch (error) {
        this.failed += count;
        await this.#close();
        this.#logFailure(error);
      }
      onDone();
    });
  }

  /**
   * Resolves when all chunks are written, or a reader has not read for a second.
   * @param rest further chunks; each is taken when those before it are written
   */
  async close(rest: Iterable<EventChunk> = []): Promise<void> {
    this.#closingRetries = CLOSING_RETRIES;
    await this.#last;
    for (const chunk of rest) await new Promise<void>((done) => this.write(chunk, done));
    await this.#close();
  }

  async #append(lines: Uint8Array): Promise<void> {
    const { path, maxBytes } = this.#options;
    if (path === STANDARD_OUTPUT) {
      await this.#writeAll(STANDARD_OUTPUT_DESCRIPTOR, lines);
      return;
    }
    this.#file ??= await this.#open();
    if (this.#size > 0 && this.#size + lines.length > maxBytes) await this.#rotate();
    await this.#writeAll(this.#file.fd, lines);
  }

  async #writeAll(descriptor: number, lines: Uint8Array): Promise<void> {
    let rest: Uint8Array = this.#isLineBroken ? Buffer.concat([NEWLINE, lines]) : lines;
    while (rest.length > 0) {
      const bytesWritten = await write(descriptor, rest).then(
        (result) => result.bytesWritten,
        (error) => this.#waitForReader(error),
      );
      this.#size += bytesWritten;
      rest = rest.subarray(bytesWritten);
      // Broken until the last line is complete.
      this.#isLineBroken = rest.length > 0;
    }
  }

  /** Standard output may be a full pipe that does not block. @returns the bytes written: none */
  async #waitForReader(error: NodeJS.ErrnoException): Promise<number> {
    if (error.code !== 'EAGAIN' || this.#closingRetries === 0) throw error;
    if (this.#closingRetries !== undefined) this.#closingRetries--;
    await sleep(RETRY_MS);
    return 0;
  }

  async #open(): Promise<FileHandle> {
    const file = await open(this.#options.path, 'a', 0o600);
    this.#size = (await file.stat()).size;
    return file;
  }

  /** Renames the file to `path.1`, and each rotated file to the next number. */
  async #rotate(): Promise<void> {
    const { path, keptFiles } = this.#options;
    await this.#close();
    for (let number = keptFiles; number > 0; number--) {
      const from = number === 1 ? path : `${path}.${number - 1}`;
      await rename(from, `${path}.${number}`).catch(ignoreMissing);
    }
    if (keptFiles === 0) await rm(path);
    this.#file = await this.#open();
  }

  async #close(): Promise<void> {
    const file = this.#file;
    this.#file = undefined;
    await file?.close().catch(() => {});
  }

  #logFailure(error: unknown): void {
    const { path } = this.#options;
    const message = 'events cannot be written; they are dropped';
    this.#failureLog.failed({ error: storageErrorCause(error), path }, message);
  }
}

function ignoreMissing(error: NodeJS.ErrnoException): void {
  if (error.code !== 'ENOENT') throw error;
}
