/**
 * The stored answers of one shard, as one thread uses them. A new answer takes the slot of the
 * oldest one, so the memory is bounded: if many requests come, answers are forgotten early.
 *
 * A request is decided under the lock of the shard, and so are its repetitions. The order of locks
 * is this one, then those of groups, then those of holds: a thread that holds one of the others
 * never takes this one. Only acceptors take it, and the process ends if one dies. So no thread
 * meets a lock of a dead one, or an answer that is written in part.
 */

import { REQUEST_ID_MS } from '../../core/constants.ts';
import type { Identity } from '../../core/hash.ts';
import type { HoldId, HoldKind } from '../hold-id.ts';
import type { RepeatableAnswer, RepeatableRequest, RequestAnswer } from '../request-engine.ts';
import { acquire, release } from '../table/lock.ts';
import { AT, DOUBLE_AT, LOCK, NONE, RequestMemory, SLOT, SLOT_DOUBLE } from './layout.ts';

/** The kind of the hold of an answer without a hold. */
const NO_HOLD = 0;

export class RequestTable {
  readonly #memory: RequestMemory;
  readonly #owner: number;
  readonly #onWait: () => void;

  /**
   * @param owner of the locks that the calling thread takes: see `table/lock.ts`
   * @param onWait called now and then while the thread waits for the lock
   */
  constructor(buffer: SharedArrayBuffer, shard: number, owner: number, onWait: () => void) {
    this.#memory = new RequestMemory(buffer, shard);
    this.#owner = owner;
    this.#onWait = onWait;
  }

  /** See `RequestEngine`. @param decide called under the lock */
  answer(
    { key, parameters }: RepeatableRequest,
    nowMs: number,
    decide: () => RequestAnswer,
  ): RepeatableAnswer | undefined {
    const { words } = this.#memory;
    acquire(words, LOCK, this.#owner, this.#onWait);
    try {
      const now = this.#advanceTime(nowMs);
      const slot = this.#find(key, now);
      if (slot === NONE) {
        const answer = decide();
        if (answer.allowed) this.#store(key, parameters, now, answer);
        return { ...answer, isRepetition: false };
      }
      const isSame = hasHash(words, this.#memory.slot(slot) + SLOT.parameters, parameters);
      return isSame ? this.#read(slot) : undefined;
    } finally {
      release(words, LOCK);
    }
  }

  /** Time never runs back, so the answers of a bucket are in the order of their times. */
  #advanceTime(nowMs: number): number {
    const { doubles } = this.#memory;
    const now = Math.max(nowMs, doubles[DOUBLE_AT.latestMs]);
    doubles[DOUBLE_AT.latestMs] = now;
    return now;
  }

  /** @returns the slot of the answer to a key, or NONE */
  #find(key: Identity, nowMs: number): number {
    const memory = this.#memory;
    const { words, doubles } = memory;
    let slot = words[memory.bucket(key.h1)];
    while (slot !== NONE) {
      const at = memory.slot(slot);
      // This answer and all after it are too old.
      if (doubles[at / 2 + SLOT_DOUBLE.answeredAt] + REQUEST_ID_MS <= nowMs) return NONE;
      if (hasHash(words, at + SLOT.key, key)) return slot;
      slot = words[at + SLOT.next];
    }
    return NONE;
  }

  #read(slot: number): RepeatableAnswer {
    const { words, doubles } = this.#memory;
    const at = this.#memory.slot(slot);
    return {
      isRepetition: true,
      allowed: true,
      limit: doubles[at / 2 + SLOT_DOUBLE.limit],
      remaining: doubles[at / 2 + SLOT_DOUBLE.remaining],
      reset: doubles[at / 2 + SLOT_DOUBLE.reset],
      id: readHold(words, at),
      expiresAt: doubles[at / 2 + SLOT_DOUBLE.expiresAt],
      inUse: doubles[at / 2 + SLOT_DOUBLE.inUse],
    };
  }

  /** Stores an answer in the slot that was written longest ago. */
  #store(key: Identity, parameters: Identity, nowMs: number, answer: RequestAnswer): void {
    const memory = this.#memory;
    const { words, doubles } = memory;
    const slot = (words[AT.lastWritten] % memory.capacity) + 1;
    words[AT.lastWritten] = slot;
    this.#forget(slot);
    const at = memory.slot(slot);
    writeHash(words, at + SLOT.key, key);
    writeHash(words, at + SLOT.parameters, parameters);
    writeHold(words, at, answer.id);
    doubles[at / 2 + SLOT_DOUBLE.answeredAt] = nowMs;
    doubles[at / 2 + SLOT_DOUBLE.limit] = answer.limit;
    doubles[at / 2 + SLOT_DOUBLE.remaining] = answer.remaining;
    doubles[at / 2 + SLOT_DOUBLE.reset] = answer.reset;
    doubles[at / 2 + SLOT_DOUBLE.expiresAt] = answer.expiresAt;
    doubles[at / 2 + SLOT_DOUBLE.inUse] = answer.inUse;
    const bucket = memory.bucket(key.h1);
    words[at + SLOT.next] = words[bucket];
    words[bucket] = slot;
  }

  /** Takes a slot out of its bucket, where it is the last one. One that is not used is in none. */
  #forget(slot: number): void {
    const memory = this.#memory;
    const { words } = memory;
    let link = memory.bucket(words[memory.slot(slot) + SLOT.key + 1]);
    while (words[link] !== slot) {
      if (words[link] === NONE) return;
      link = memory.slot(words[link]) + SLOT.next;
    }
    words[link] = NONE;
  }
}

function hasHash(words: Int32Array, at: number, { h0, h1, h2, h3 }: Identity): boolean {
  return words[at] === h0 && words[at + 1] === h1 && words[at + 2] === h2 && words[at + 3] === h3;
}

function writeHash(words: Int32Array, at: number, { h0, h1, h2, h3 }: Identity): void {
  words[at] = h0;
  words[at + 1] = h1;
  words[at + 2] = h2;
  words[at + 3] = h3;
}

function readHold(words: Int32Array, at: number): HoldId | undefined {
  const kind = words[at + SLOT.holdKind];
  if (kind === NO_HOLD) return undefined;
  const [first, second, third] = words.subarray(at + SLOT.holdSecret);
  return {
    kind: kind as HoldKind,
    shard: words[at + SLOT.holdShard],
    record: words[at + SLOT.holdRecord],
    secret: [first, second, third],
  };
}

function writeHold(words: Int32Array, at: number, id: HoldId | undefined): void {
  words[at + SLOT.holdKind] = id?.kind ?? NO_HOLD;
  if (id === undefined) return;
  words[at + SLOT.holdShard] = id.shard;
  words[at + SLOT.holdRecord] = id.record;
  words.set(id.secret, at + SLOT.holdSecret);
}
