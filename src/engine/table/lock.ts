/**
 * The lock of a group: one int32 in shared memory, 0 when free, else the number of its owner: index
 * + 1 of an acceptor, or the incarnation of a shard worker's run, which no other run has and which
 * is above ACCEPTORS_MAX, or MAIN_THREAD_OWNER. So a lock whose owner died is distinguished from
 * one whose owner waits.
 *
 * A release is one store, without a notification. A thread that finds the lock held spins briefly,
 * because a decision takes far less than a microsecond. Then it gives its core away in bounded
 * steps, because the holder must have lost its core. Any of the waiting threads may be next.
 *
 * When an acceptor dies, the process ends. When a shard worker dies, the supervisor alone breaks
 * the locks that it held, after its thread has ended; until then others wait, with heartbeats.
 */

import { ACCEPTORS_MAX } from '../../core/constants.ts';
import { atomicWords, type Lock, type Words } from './layout.ts';

/** The main thread removes counters of deleted namespaces. Where it ends, the process ends. */
export const MAIN_THREAD_OWNER = 2 ** 31 - 1;

/** After so many steps of WAIT_STEP_MS the wait fails: about five seconds. */
const WAIT_STEPS_MAX = 30_000;
const WAIT_STEP_MS = 0.1;
const SPINS_MAX = 200;

/**
 * @param onWait called now and then while the thread waits
 * @throws when the lock stays held, a failure of its holder
 */
export function acquire(words: Words, lock: Lock, owner: number, onWait: () => void): void {
  if (!tryAcquire(words, lock, owner)) waitForLock(words, lock, owner, onWait);
}

export function tryAcquire(words: Words, lock: Lock, owner: number): boolean {
  return Atomics.compareExchange(atomicWords(words), lock, 0, owner) === 0;
}

export function release(words: Words, lock: Lock): void {
  Atomics.store(atomicWords(words), lock, 0);
}

/** Frees a lock that an ended thread holds. @returns false: it does not hold it */
export function breakLock(words: Words, lock: Lock, owner: number): boolean {
  return passLock(words, lock, owner, 0);
}

/** Gives a lock that an ended thread holds to another owner. @returns false: it does not hold it */
export function passLock(words: Words, lock: Lock, owner: number, next: number): boolean {
  return Atomics.compareExchange(atomicWords(words), lock, owner, next) === owner;
}

function waitForLock(words: Words, lock: Lock, owner: number, onWait: () => void): void {
  for (let spin = 0; spin < SPINS_MAX; spin++) {
    if (Atomics.load(atomicWords(words), lock) === 0) {
      if (Atomics.compareExchange(atomicWords(words), lock, 0, owner) === 0) return;
    }
  }
  for (let step = 0; step < WAIT_STEPS_MAX; step++) {
    const holder = Atomics.compareExchange(atomicWords(words), lock, 0, owner);
    if (holder === 0) return;
    onWait();
    Atomics.wait(atomicWords(words), lock, holder, WAIT_STEP_MS);
  }
  const holder = Atomics.load(atomicWords(words), lock);
  const waitedS = (WAIT_STEPS_MAX * WAIT_STEP_MS) / 1_000;
  throw new Error(
    `a lock in shared memory (word ${lock}) is still held by ${ownerName(holder)}` +
      ` after ${waitedS} s`,
  );
}

function ownerName(owner: number): string {
  if (owner === MAIN_THREAD_OWNER) return 'the main thread';
  return owner <= ACCEPTORS_MAX ? `acceptor ${owner - 1}` : `run ${owner} of a shard worker`;
}
