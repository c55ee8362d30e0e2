/**
 * The two queues of a channel, each an SPSC ring buffer. An item is published by one store to the
 * head, after it is written, and released by one store to the tail. So the death of either side
 * leaves every other item as it was, and a successor continues at the head or the tail.
 *
 * Each side caches the position of the other, which can only show too little room or too few items,
 * and reads it again when the cached one does not suffice.
 */

import { CHECK_QUEUE_ENTRIES, REPLY_QUEUE_ENTRIES } from '../../core/constants.ts';
import { MemoryError } from '../../core/errors.ts';
import { allocateMemory, attachMemory } from '../../shared-memory/block.ts';
import type { Control } from '../../shared-memory/control.ts';
import {
  CHANNEL_BYTES,
  CHANNEL_HEADER,
  ENTRIES_AT,
  ENTRY_WORDS,
  HEAD,
  REPLIES_AT,
  REPLY_HEAD,
  REPLY_TAIL,
  REPLY_WORDS,
  TAIL,
} from './layout.ts';

/** A channel as int32 and as float64 from its first byte. */
export interface ChannelMemory {
  /** In error messages. */
  readonly name: string;
  readonly words: Int32Array;
  readonly doubles: Float64Array;
}

export function allocateChannel(acceptor: number, worker: number): SharedArrayBuffer {
  return allocateMemory(CHANNEL_BYTES, CHANNEL_HEADER, { acceptor, worker });
}

/** Allocates the channels between all acceptors and all shard workers. */
export function allocateChannels({ acceptorCount, workerCount }: Control): SharedArrayBuffer[][] {
  return Array.from({ length: acceptorCount }, (_row, acceptor) => {
    return Array.from({ length: workerCount }, (_, worker) => allocateChannel(acceptor, worker));
  });
}

/** @throws MemoryError when the buffer is not the channel of these two */
export function attachChannel(
  buffer: SharedArrayBuffer,
  acceptor: number,
  worker: number,
): ChannelMemory {
  const name = `the channel of acceptor ${acceptor} and worker ${worker}`;
  const words = attachMemory(buffer, name, CHANNEL_HEADER, { acceptor, worker });
  if (buffer.byteLength !== CHANNEL_BYTES) {
    throw new MemoryError(`${name} has ${buffer.byteLength} bytes, not ${CHANNEL_BYTES}`);
  }
  return { name, words, doubles: new Float64Array(buffer) };
}

/** Where the words of one of the two queues are. */
export interface QueueLayout {
  name: string;
  head: number;
  tail: number;
  firstItem: number;
  capacity: number;
  itemWords: number;
}

export const CHECK_QUEUE: QueueLayout = {
  name: 'check queue',
  head: HEAD,
  tail: TAIL,
  firstItem: ENTRIES_AT,
  capacity: CHECK_QUEUE_ENTRIES,
  itemWords: ENTRY_WORDS,
};
export const REPLY_QUEUE: QueueLayout = {
  name: 'reply queue',
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

/** How many items are in a queue. For another thread, the number of a moment ago. */
export function queueDepth(words: Int32Array, { head, tail, capacity }: QueueLayout): number {
  // The tail first: between the two reads, items can only be added.
  const done = Atomics.load(words, tail);
  return Math.min((Atomics.load(words, head) - done) | 0, capacity);
}

/** Reads the head of a queue of the caller, who has this tail. @throws MemoryError: impossible */
export function readHead(memory: ChannelMemory, layout: QueueLayout, tail: number): number {
  const head = Atomics.load(memory.words, layout.head);
  const depth = (head - tail) | 0;
  if (depth >= 0 && depth <= layout.capacity) return head;
  const queue = `the ${layout.name} of ${memory.name}`;
  throw new MemoryError(`${queue}, of capacity ${layout.capacity}, has depth ${depth}`);
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

  /** Whether there is room for one more item. It stays so until `publish`. */
  hasRoom(): boolean {
    if (((this.#head - this.#tailSeen) | 0) < this.#layout.capacity) return true;
    this.#tailSeen = Atomics.load(this.#words, this.#layout.tail);
    return ((this.#head - this.#tailSeen) | 0) < this.#layout.capacity;
  }

  /** The first word of the item to be published next. It may be written while there is room. */
  nextItem(): number {
    return itemAt(this.#layout, this.#head);
  }

  /** Publishes the item at `nextItem()`. */
  publish(): void {
    this.#head = (this.#head + 1) | 0;
    Atomics.store(this.#words, this.#layout.head, this.#head);
  }
}

export class QueueConsumer {
  readonly #memory: ChannelMemory;
  readonly #layout: QueueLayout;
  #tail: number;
  #headSeen: number;

  constructor(memory: ChannelMemory, layout: QueueLayout) {
    this.#memory = memory;
    this.#layout = layout;
    this.#tail = Atomics.load(memory.words, layout.tail);
    this.#headSeen = this.#tail;
  }

  /** The number of the first item that is not released. */
  get nextNumber(): number {
    return this.#tail;
  }

  /** @throws MemoryError when the head is impossible */
  isEmpty(): boolean {
    if (this.#headSeen !== this.#tail) return false;
    this.#headSeen = readHead(this.#memory, this.#layout, this.#tail);
    return this.#headSeen === this.#tail;
  }

  /** The first word of the first item of a queue that is not empty. */
  firstItem(): number {
    return itemAt(this.#layout, this.#tail);
  }

  /** Releases the first item to the producer. */
  releaseFirst(): void {
    this.#tail = (this.#tail + 1) | 0;
    Atomics.store(this.#memory.words, this.#layout.tail, this.#tail);
  }
}
