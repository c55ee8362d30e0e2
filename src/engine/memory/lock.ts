/**
 * The lock of a group: one int32 in shared memory, 0 when free, else the incarnation of the thread
 * that holds it, so that a lock whose owner died can be told from one whose owner only waits.
 *
 * Nobody notifies: to release is one store. Whoever finds the lock held spins briefly, since a
 * decision takes far less than a microsecond, and then gives the core away in bounded steps, since
 * the holder must have lost its own. Of waiting threads any may be next.
 *
 * When an acceptor dies, the process ends. When a shard worker dies, the supervisor alone breaks
 * the locks that it held, after its thread has ended; until then others wait, showing that they
 * live.
 */

/** A lock that is held this many steps of STEP_MS is held for ever: about five seconds. */
const WAIT_STEPS_MAX = 30_000;
const WAIT_STEP_MS = 0.1;
const SPINS_MAX = 200;

/**
 * @param onWait called now and then while it waits
 * @throws when the lock stays held, which is a failure of its holder and not of the caller
 */
export function acquire(words: Int32Array, lock: number, owner: number, onWait: () => void): void {
  if (!tryAcquire(words, lock, owner)) waitForLock(words, lock, owner, onWait);
}

export function tryAcquire(words: Int32Array, lock: number, owner: number): boolean {
  return Atomics.compareExchange(words, lock, 0, owner) === 0;
}

export function release(words: Int32Array, lock: number): void {
  Atomics.store(words, lock, 0);
}

/** Frees a lock if a thread held it that has ended. @returns whether it did */
export function breakLock(words: Int32Array, lock: number, owner: number): boolean {
  return Atomics.compareExchange(words, lock, owner, 0) === owner;
}

function waitForLock(words: Int32Array, lock: number, owner: number, onWait: () => void): void {
  for (let spin = 0; spin < SPINS_MAX; spin++) {
    if (Atomics.load(words, lock) === 0) {
      if (Atomics.compareExchange(words, lock, 0, owner) === 0) return;
    }
  }
  for (let step = 0; step < WAIT_STEPS_MAX; step++) {
    const holder = Atomics.compareExchange(words, lock, 0, owner);
    if (holder === 0) return;
    onWait();
    Atomics.wait(words, lock, holder, WAIT_STEP_MS);
  }
  throw new Error(`lock ${lock} is held by ${Atomics.load(words, lock)} for ever`);
}
