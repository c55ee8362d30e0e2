/**
 * Sleeping and waking, without a lost wake-up and without needless ones: a wake-up takes a lock of
 * the whole process, so it is done only when the other side has announced that it sleeps.
 *
 *   a shard worker   sets its flag, looks for work once more, and waits on the flag
 *   an acceptor      sets its flag, looks once more, and returns to its event loop, which a message
 *                    wakes; the worker that finds the flag set clears it and sends the message
 *
 * The side that brings work publishes it first and reads the flag then. All of these accesses are
 * sequentially consistent, so one side sees the other. `test/model/queues.schedules.test.ts` tries
 * every order.
 */

const AWAKE = 0;
const ASLEEP = 1;

/** Sleeps until a wake-up, or for `ms`; not at all when there is work. */
export function sleep(
  words: Int32Array,
  wakeUpFlag: number,
  ms: number,
  hasWork: () => boolean,
): void {
  Atomics.store(words, wakeUpFlag, ASLEEP);
  if (!hasWork()) Atomics.wait(words, wakeUpFlag, ASLEEP, ms);
  Atomics.store(words, wakeUpFlag, AWAKE);
}

/**
 * The same for a thread with an event loop, which goes on meanwhile. A timer of the caller must
 * keep the loop alive.
 */
export async function sleepInLoop(
  words: Int32Array,
  wakeUpFlag: number,
  ms: number,
  hasWork: () => boolean,
): Promise<void> {
  Atomics.store(words, wakeUpFlag, ASLEEP);
  if (!hasWork()) {
    const wait = Atomics.waitAsync(words, wakeUpFlag, ASLEEP, ms);
    if (wait.async) await wait.value;
  }
  Atomics.store(words, wakeUpFlag, AWAKE);
}

/** Waits for `ms`, also when work comes: no wake-up is sent to a worker that pauses. */
export function pause(words: Int32Array, wakeUpFlag: number, ms: number): void {
  Atomics.wait(words, wakeUpFlag, AWAKE, ms);
}

/** Wakes a worker if it sleeps. Called after the work is published. */
export function wakeUp(words: Int32Array, wakeUpFlag: number): void {
  if (Atomics.load(words, wakeUpFlag) === AWAKE) return;
  if (Atomics.compareExchange(words, wakeUpFlag, ASLEEP, AWAKE) === ASLEEP) {
    Atomics.notify(words, wakeUpFlag, 1);
  }
}

const NOT_REQUESTED = 0;
const REQUESTED = 1;

/** Requests a message about later work. The caller looks for earlier work afterwards. */
export function requestNotification(words: Int32Array, notificationFlag: number): void {
  Atomics.store(words, notificationFlag, REQUESTED);
}

/** Called after the work is published. @returns whether a message must be sent */
export function takeNotificationRequest(words: Int32Array, notificationFlag: number): boolean {
  if (Atomics.load(words, notificationFlag) === NOT_REQUESTED) return false;
  return Atomics.exchange(words, notificationFlag, NOT_REQUESTED) === REQUESTED;
}
