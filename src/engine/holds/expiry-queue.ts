/**
 * The live holds of a shard in the order of their expiry: a heap in which each place has four below
 * it, in shared memory. A record has its place, so it is moved and removed without a search. The
 * caller holds the lock of the shard's holds.
 */

import { AT, type HoldMemory, NONE, RECORD, RECORD_DOUBLE } from './layout.ts';

const CHILDREN = 4;

export class ExpiryQueue {
  readonly #memory: HoldMemory;

  constructor(memory: HoldMemory) {
    this.#memory = memory;
  }

  /** The record that expires first, or NONE. */
  get first(): number {
    const { words, queue } = this.#memory;
    return words[AT.queueLength] === 0 ? NONE : words[queue];
  }

  /** When the first record expires: Unix time, ms. */
  get firstMs(): number {
    const { first } = this;
    return first === NONE ? Number.POSITIVE_INFINITY : this.#expiryMs(first);
  }

  add(record: number): void {
    const { words } = this.#memory;
    this.#moveUp(words[AT.queueLength]++, record);
  }

  remove(record: number): void {
    const memory = this.#memory;
    const { words, queue } = memory;
    const place = memory.word(record, RECORD.link);
    const lastPlace = --words[AT.queueLength];
    const last = words[queue + lastPlace];
    if (last !== record) this.#settle(place, last);
  }

  /** Moves a record whose expiry has changed. */
  move(record: number): void {
    this.#settle(this.#memory.word(record, RECORD.link), record);
  }

  /** Puts a record at a place, or where it belongs from there. */
  #settle(place: number, record: number): void {
    const parent = this.#memory.words[this.#memory.queue + parentOf(place)];
    if (place > 0 && this.#expiryMs(parent) > this.#expiryMs(record)) this.#moveUp(place, record);
    else this.#moveDown(place, record);
  }

  #moveUp(from: number, record: number): void {
    const { words, queue } = this.#memory;
    const expiryMs = this.#expiryMs(record);
    let place = from;
    while (place > 0) {
      const parent = words[queue + parentOf(place)];
      if (this.#expiryMs(parent) <= expiryMs) break;
      this.#put(place, parent);
      place = parentOf(place);
    }
    this.#put(place, record);
  }

  #moveDown(from: number, record: number): void {
    const { words, queue } = this.#memory;
    const expiryMs = this.#expiryMs(record);
    const length = words[AT.queueLength];
    let place = from;
    for (;;) {
      let next = NONE;
      let nextPlace = 0;
      let nextMs = expiryMs;
      const firstChild = place * CHILDREN + 1;
      for (let at = firstChild; at < Math.min(firstChild + CHILDREN, length); at++) {
        const childMs = this.#expiryMs(words[queue + at]);
        if (childMs >= nextMs) continue;
        next = words[queue + at];
        nextPlace = at;
        nextMs = childMs;
      }
      if (next === NONE) break;
      this.#put(place, next);
      place = nextPlace;
    }
    this.#put(place, record);
  }

  #put(place: number, record: number): void {
    const memory = this.#memory;
    memory.words[memory.queue + place] = record;
    memory.setWord(record, RECORD.link, place);
  }

  #expiryMs(record: number): number {
    return this.#memory.double(record, RECORD_DOUBLE.expiresAt);
  }
}

function parentOf(place: number): number {
  return Math.floor((place - 1) / CHILDREN);
}
