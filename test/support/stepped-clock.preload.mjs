/**
 * Preloaded into a server under test by `node --import`. The test moves the system clock that the
 * main thread reads: it sends `{ offsetMs }`, how far the clock is ahead of the true one. The other
 * threads take their time from the main thread, which compares it with the system clock every
 * CLOCK_TICK_MS (100 ms). The answer is sent after the next comparison.
 */

import { isMainThread } from 'node:worker_threads';

/** Longer than CLOCK_TICK_MS. A timer of the same thread that was due before has run before. */
const TICK_MS = 110;

if (isMainThread) {
  const trueNow = Date.now;
  let offsetMs = 0;
  Date.now = () => trueNow() + offsetMs;
  process.on('message', (message) => {
    offsetMs = message.offsetMs;
    setTimeout(() => process.send(message), TICK_MS);
  });
  // A server that drains must not wait for messages.
  process.channel.unref();
}
