/**
 * The two rings of a link, each with one producer and one consumer. An entry is written first and
 * published last, by the one store that moves the head; it is done with by the one store that moves
 * the tail. So the death of either side leaves every other entry as it was, and a successor that
 * attaches goes on where the head or the tail stands.
 *
 * Each side remembers what it last saw of the other, which can only be too little room or too few
 * entries, and looks again when that does not do.
 */

import { MemoryError } from '../errors.ts';
import { RING_ENTRIES, RING_REPLIES } from '../limits.ts';
import { allocateMemory, attachMemory } from '../memory.ts';
import {
  ENTRIES_AT,
  ENTRY_WORDS,
  HEAD,
  LINK,
  LINK_BYTES,
  LINK_MAGIC,
  LINK_VERSION,
  REPLIES_AT,
  REPLY_HEAD,
  REPLY_TAIL,
  REPLY_WORDS,
  TAIL,
} from './layout.ts';

/** A link as int32 and as float64 from its first byte. */
export interface LinkMemory {
  readonly words: Int32Array;
  readonly doubles: Float64Array;
}

const headerOf = (acceptor: number, worker: number) => {
  return { magic: LINK_MAGIC, version: LINK_VERSION, acceptor, worker };
};

export function allocateLink(acceptor: number, worker: number): SharedArrayBuffer {
  return allocateMemory(LINK_BYTES, LINK, headerOf(acceptor, worker));
}

/** @throws MemoryError when the buffer is not the link of these two, of this version */
export function attachLink(
  buffer: SharedArrayBuffer,
  acceptor: number,
  worker: number,
): LinkMemory {
  const what = `the link of acceptor ${acceptor} and worker ${worker}`;
  const words = attachMemory(buffer, what, LINK, headerOf(acceptor, worker));
  if (buffer.byteLength !== LINK_BYTES) {
    throw new MemoryError(`${what}: ${buffer.byteLength} bytes, not ${LINK_BYTES}`);
  }
  return { words, doubles: new Float64Array(buffer) };
}

/** One of the two rings of a link: where its words lie. */
export interface RingShape {
  head: number;
  tail: number;
  first: number;
  size: number;
  itemWords: number;
}

export const ENTRIES: RingShape = {
  head: HEAD,
  tail: TAIL,
  first: ENTRIES_AT,
  size: RING_ENTRIES,
  itemWords: ENTRY_WORDS,
};
export const REPLIES: RingShape = {
  head: REPLY_HEAD,
  tail: REPLY_TAIL,
  first: REPLIES_AT,
  size: RING_REPLIES,
  itemWords: REPLY_WORDS,
};

/** The first word of an item, by its number. */
export function itemAt({ first, size, itemWords }: RingShape, number: number): number {
  return first + (number & (size - 1)) * itemWords;
}

/** How many items lie in a ring; for who only looks, of a moment ago. */
export function ringDepth(words: Int32Array, { head, tail, size }: RingShape): number {
  // The tail first: between the two readings there can only be more put in.
  const done = Atomics.load(words, tail);
  return Math.min((Atomics.load(words, head) - done) | 0, size);
}

export class Producer {
  readonly #words: Int32Array;
  readonly #shape: RingShape;
  #head: number;
  #tailSeen: number;

  constructor({ words }: LinkMemory, shape: RingShape) {
    this.#words = words;
    this.#shape = shape;
    this.#head = Atomics.load(words, shape.head);
    this.#tailSeen = Atomics.load(words, shape.tail);
  }

  /** The number of the item to be published next. */
  get next(): number {
    return this.#head;
  }

  /** Whether there is room for one more. Room does not go away. */
  hasRoom(): boolean {
    if (((this.#head - this.#tailSeen) | 0) < this.#shape.size) return true;
    this.#tailSeen = Atomics.load(this.#words, this.#shape.tail);
    return ((this.#head - this.#tailSeen) | 0) < this.#shape.size;
  }

  /** The first word of the item to be published next. It is written only while there is room. */
  slot(): number {
    return itemAt(this.#shape, this.#head);
  }

  /** Publishes the item in `slot()`. */
  publish(): void {
    this.#head = (this.#head + 1) | 0;
    Atomics.store(this.#words, this.#shape.head, this.#head);
  }
}

export class Consumer {
  readonly #words: Int32Array;
  readonly #shape: RingShape;
  #tail: number;
  #headSeen: number;

  constructor({ words }: LinkMemory, shape: RingShape) {
    this.#words = words;
    this.#shape = shape;
    this.#tail = Atomics.load(words, shape.tail);
    this.#headSeen = this.#tail;
  }

  /** The number of the first item that is not done with. */
  get next(): number {
    return this.#tail;
  }

  /** @throws MemoryError when the head cannot be one of this ring */
  isEmpty(): boolean {
    if (this.#headSeen !== this.#tail) return false;
    const head = Atomics.load(this.#words, this.#shape.head);
    const depth = (head - this.#tail) | 0;
    if (depth < 0 || depth > this.#shape.size) {
      throw new MemoryError(`a ring of ${this.#shape.size} holds ${depth} items`);
    }
    this.#headSeen = head;
    return depth === 0;
  }

  /** The first word of the first item, where the ring is not empty. */
  item(): number {
    return itemAt(this.#shape, this.#tail);
  }

  /** Gives the place of the first item back. */
  done(): void {
    this.#tail = (this.#tail + 1) | 0;
    Atomics.store(this.#words, this.#shape.tail, this.#tail);
  }
}
