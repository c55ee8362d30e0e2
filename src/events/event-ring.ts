/**
 * The events of an acceptor on their way to the main thread: an SPSC ring buffer of lines.
 *
 *   cache line 0   header   int32: acceptor
 *   cache line 1   head     int32: bytes added                         written by the acceptor
 *   cache line 2   tail     int32: bytes that are in the file, or lost  written by the main thread
 *   cache line 3+  bytes    EVENT_RING_BYTES of UTF-8, each line with its end
 *
 * Head and tail only grow, and wrap as int32. Lines are published by one store to the head, after
 * they are written, and their room is free after one store to the tail. So the main thread sees
 * whole lines only, and needs no message: it looks from time to time. The acceptor caches the tail,
 * which can only show too little room, and reads it again when the cached one does not suffice.
 */

import { CACHE_LINE_BYTES, EVENT_CHUNK_BYTES, EVENT_RING_BYTES } from '../core/constants.ts';
import { MemoryError } from '../core/errors.ts';
import { allocateMemory, attachMemory } from '../shared-memory/block.ts';

/** Lines of events, each with its end. */
export interface EventChunk {
  lines: Uint8Array;
  count: number;
}

const HEADER = { acceptor: 0 } as const;
const HEAD = CACHE_LINE_BYTES / 4;
const TAIL = 2 * HEAD;
const BYTES_FROM = 3 * CACHE_LINE_BYTES;
const RING_BUFFER_BYTES = BYTES_FROM + EVENT_RING_BYTES;
const NEWLINE = 0x0a;

export function allocateEventRing(acceptor: number): SharedArrayBuffer {
  return allocateMemory(RING_BUFFER_BYTES, HEADER, { acceptor });
}

/** @throws MemoryError when the buffer is not the ring of this acceptor */
function attachEventRing(buffer: SharedArrayBuffer, acceptor: number) {
  const name = `the events of acceptor ${acceptor}`;
  const words = attachMemory(buffer, name, HEADER, { acceptor });
  if (buffer.byteLength !== RING_BUFFER_BYTES) {
    throw new MemoryError(`${name} have ${buffer.byteLength} bytes, not ${RING_BUFFER_BYTES}`);
  }
  return { name, words, bytes: new Uint8Array(buffer, BYTES_FROM) };
}

/** Where a byte is in the ring, by its number. */
const offsetOf = (number: number) => number & (EVENT_RING_BYTES - 1);

/** The side of the acceptor. */
export class EventRingWriter {
  readonly #words: Int32Array;
  readonly #bytes: Uint8Array;
  #head: number;
  #tailSeen: number;

  constructor(buffer: SharedArrayBuffer, acceptor: number) {
    const { words, bytes } = attachEventRing(buffer, acceptor);
    this.#words = words;
    this.#bytes = bytes;
    this.#head = Atomics.load(words, HEAD);
    this.#tailSeen = Atomics.load(words, TAIL);
  }

  /** @returns false where there is no room for the line */
  write(line: Uint8Array): boolean {
    if (!this.#hasRoom(line.length)) return false;
    const at = offsetOf(this.#head);
    const beforeEnd = EVENT_RING_BYTES - at;
    if (line.length <= beforeEnd) {
      this.#bytes.set(line, at);
    } else {
      this.#bytes.set(line.subarray(0, beforeEnd), at);
      this.#bytes.set(line.subarray(beforeEnd), 0);
    }
    this.#head = (this.#head + line.length) | 0;
    Atomics.store(this.#words, HEAD, this.#head);
    return true;
  }

  #hasRoom(length: number): boolean {
    const usedMax = EVENT_RING_BYTES - length;
    if (((this.#head - this.#tailSeen) | 0) <= usedMax) return true;
    this.#tailSeen = Atomics.load(this.#words, TAIL);
    return ((this.#head - this.#tailSeen) | 0) <= usedMax;
  }
}

/** The side of the main thread. */
export class EventRingReader {
  readonly #name: string;
  readonly #words: Int32Array;
  readonly #bytes: Uint8Array;
  /** The number of the first byte that was not read. */
  #next: number;

  constructor(buffer: SharedArrayBuffer, acceptor: number) {
    const { name, words, bytes } = attachEventRing(buffer, acceptor);
    this.#name = name;
    this.#words = words;
    this.#bytes = bytes;
    this.#next = Atomics.load(words, TAIL);
  }

  /** @throws MemoryError when the ring is damaged */
  get unreadBytes(): number {
    const head = Atomics.load(this.#words, HEAD);
    const unread = (head - this.#next) >>> 0;
    if (unread <= EVENT_RING_BYTES) return unread;
    throw new MemoryError(`${this.#name} end at ${head}, and were read to ${this.#next}`);
  }

  /**
   * @returns a copy of the next lines, of EVENT_CHUNK_BYTES at most, if there are any
   * @throws MemoryError when the ring is damaged
   */
  read(): EventChunk | undefined {
    const { unreadBytes } = this;
    if (unreadBytes === 0) return undefined;
    const copy = Buffer.allocUnsafeSlow(Math.min(unreadBytes, EVENT_CHUNK_BYTES));
    const at = offsetOf(this.#next);
    const beforeEnd = Math.min(EVENT_RING_BYTES - at, copy.length);
    copy.set(this.#bytes.subarray(at, at + beforeEnd));
    copy.set(this.#bytes.subarray(0, copy.length - beforeEnd), beforeEnd);
    const lines = copy.subarray(0, copy.lastIndexOf(NEWLINE) + 1);
    if (lines.length === 0) throw new MemoryError(`${this.#name} have no end of a line`);
    this.#next = (this.#next + lines.length) | 0;
    return { lines, count: countOf(lines) };
  }

  /** Makes room in the place of a chunk, in the order in which the chunks were read. */
  release({ lines }: EventChunk): void {
    Atomics.store(this.#words, TAIL, (Atomics.load(this.#words, TAIL) + lines.length) | 0);
  }
}

function countOf(lines: Buffer): number {
  let count = 0;
  for (let at = lines.indexOf(NEWLINE); at >= 0; at = lines.indexOf(NEWLINE, at + 1)) count++;
  return count;
}
