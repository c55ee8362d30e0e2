/**
 * The two rings of a link, each with one producer and one consumer. An entry is written first and
 * published last, by the one store that moves the head; it is done with by the one store that moves
 * the tail. So the death of either side leaves every other entry as it was, and a successor that
 * attaches goes on where the head or the tail stands.
 *
 * Each side remembers what it last saw of the other, which can only be too little room or too few
 * entries, and looks again when that does not do.
 */

import { CHECK_QUEUE_ENTRIES, REPLY_QUEUE_ENTRIES } from '../../core/constants.ts';
import { MemoryError } from '../../core/errors.ts';
import { allocateMemory, attachMemory } from '../../shared-memory/block.ts';
import {
  CHANNEL_BYTES,
  CHANNEL_HEADER,
  CHANNEL_MAGIC,
  CHANNEL_VERSION,
  ENTRIES_AT,
  ENTRY_WORDS,
  HEAD,
  REPLIES_AT,
  REPLY_HEAD,
  REPLY_TAIL,
  REPLY_WORDS,
  TAIL,
} from './layout.ts';

/** A link as int32 and as float64 from its first byte. */
export interface ChannelMemory {
  readonly words: Int32Array;
  readonly doubles: Float64Array;
}

const headerValues = (acceptor: number, worker: number) => {
  return { magic: CHANNEL_MAGIC, version: CHANNEL_VERSION, acceptor, worker };
};

export function allocateChannel(acceptor: number, worker: number): SharedArrayBuffer {
  return allocateMemory(CHANNEL_BYTES, CHANNEL_HEADER, headerValues(acceptor, worker));
}

/** @throws MemoryError when the buffer is not the link of these two, of this version */
export function attachChannel(
  buffer: SharedArrayBuffer,
  acceptor: number,
  worker: number,
): ChannelMemory {
  const what = `the link of acceptor ${acceptor} and worker ${worker}`;
  const words = attachMemory(buffer, what, CHANNEL_HEADER, headerValues(acceptor, worker));
  if (buffer.byteLength !== CHANNEL_BYTES) {
    throw new MemoryError(`${what}: ${buffer.byteLength} bytes, not ${CHANNEL_BYTES}`);
  }
  return { words, doubles: new Float64Array(buffer) };
}

/** One of the two rings of a link: where its words lie. */
export interface QueueLayout {
  head: number;
  tail: number;
  firstItem: number;
  capacity: number;
  itemWords: number;
}

export const CHECK_QUEUE: QueueLayout = {
  head: HEAD,
  tail: TAIL,
  firstItem: ENTRIES_AT,
  capacity: CHECK_QUEUE_ENTRIES,
  itemWords: ENTRY_WORDS,
};
export const REPLY_QUEUE: QueueLayout = {
  head: REPLY_HEAD,
  tail: REPLY_TAIL,
  firstItem: REPLIES_AT,
  capacity: REPLY_QUEUE_ENTRIES,
  itemWords: REPLY_WORDS,
};

/** The first word of an item, by its number. */
export function itemAt({ firstItem, capacity, itemWords }: QueueLayout, number: number): number {
  return firstItem + (number & (capacity - 1)) * itemWords;
}

/** How many items lie in a ring; for who only looks, of a moment ago. */
export function queueDepth(words: Int32Array, { head, tail, capacity }: QueueLayout): number {
  // The tail first: between the two readings there can only be more put in.
  const done = Atomics.load(words, tail);
  return Math.min((Atomics.load(words, head) - done) | 0, capacity);
}

export class QueueProducer {
  readonly #words: Int32Array;
  readonly #layout: QueueLayout;
  #head: number;
  #tailSeen: number;

  constructor({ words }: ChannelMemory, layout: QueueLayout) {
    this.#words = words;
    this.#layout = layout;
    this.#head = Atomics.load(words, layout.head);
    this.#tailSeen = Atomics.load(words, layout.tail);
  }

  /** The number of the item to be published next. */
  get nextNumber(): number {
    return this.#head;
  }

  /** Whether there is room for one more. Room does not go away. */
  hasRoom(): boolean {
    if (((this.#head - this.#tailSeen) | 0) < this.#layout.capacity) return true;
    this.#tailSeen = Atomics.load(this.#words, this.#layout.tail);
    return ((this.#head - this.#tailSeen) | 0) < this.#layout.capacity;
  }

  /** The first word of the item to be published next. It is written only while there is room. */
  nextItem(): number {
    return itemAt(this.#layout, this.#head);
  }

  /** Publishes the item in `slot()`. */
  publish(): void {
    this.#head = (this.#head + 1) | 0;
    Atomics.store(this.#words, this.#layout.head, this.#head);
  }
}

export class QueueConsumer {
  readonly #words: Int32Array;
  readonly #layout: QueueLayout;
  #tail: number;
  #headSeen: number;

  constructor({ words }: ChannelMemory, layout: QueueLayout) {
    this.#words = words;
    this.#layout = layout;
    this.#tail = Atomics.load(words, layout.tail);
    this.#headSeen = this.#tail;
  }

  /** The number of the first item that is not done with. */
  get nextNumber(): number {
    return this.#tail;
  }

  /** @throws MemoryError when the head cannot be one of this ring */
  isEmpty(): boolean {
    if (this.#headSeen !== this.#tail) return false;
    const head = Atomics.load(this.#words, this.#layout.head);
    const depth = (head - this.#tail) | 0;
    if (depth < 0 || depth > this.#layout.capacity) {
      throw new MemoryError(`a ring of ${this.#layout.capacity} holds ${depth} items`);
    }
    this.#headSeen = head;
    return depth === 0;
  }

  /** The first word of the first item, where the ring is not empty. */
  firstItem(): number {
    return itemAt(this.#layout, this.#tail);
  }

  /** Gives the place of the first item back. */
  releaseFirst(): void {
    this.#tail = (this.#tail + 1) | 0;
    Atomics.store(this.#words, this.#layout.tail, this.#tail);
  }
}
