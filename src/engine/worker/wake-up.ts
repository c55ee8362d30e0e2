/**
 * Sleeping and waking, without a wake-up lost and with none that nobody waits for: waking takes a
 * lock of the whole process, so it is done only when the other side has said that it sleeps.
 *
 *   a shard worker sleeps      it says so, looks for work once more, and waits on that word
 *   an acceptor's loop sleeps  it opens its door, looks once more, and goes back to its loop, which
 *                              a message wakes; who finds the door open closes it and sends one
 *
 * Whoever brings work publishes it first and looks at the word then. All of these are sequentially
 * consistent, so one of the two sees the other. `test/model/queues.schedules.test.ts` tries every
 * order.
 */

const AWAKE = 0;
const ASLEEP = 1;

/** Sleeps until it is rung for, or for `ms`; not at all when there is work. */
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

/** Rests for `ms`, whatever comes, but for a notification: who rests is not rung for. */
export function pause(words: Int32Array, wakeUpFlag: number, ms: number): void {
  Atomics.wait(words, wakeUpFlag, AWAKE, ms);
}

/** Wakes the worker behind a bell, if it sleeps. Called after the work is published. */
export function wakeUp(words: Int32Array, wakeUpFlag: number): void {
  if (Atomics.load(words, wakeUpFlag) === AWAKE) return;
  if (Atomics.compareExchange(words, wakeUpFlag, ASLEEP, AWAKE) === ASLEEP) {
    Atomics.notify(words, wakeUpFlag, 1);
  }
}

const NOT_REQUESTED = 0;
const REQUESTED = 1;

/** Asks for a message about what comes from now on. What came before has to be looked for then. */
export function requestNotification(words: Int32Array, notificationFlag: number): void {
  Atomics.store(words, notificationFlag, REQUESTED);
}

/** @returns whether a message has to be sent; called after the work is published */
export function takeNotificationRequest(words: Int32Array, notificationFlag: number): boolean {
  if (Atomics.load(words, notificationFlag) === NOT_REQUESTED) return false;
  return Atomics.exchange(words, notificationFlag, NOT_REQUESTED) === REQUESTED;
}
