/**
 * Preloaded into every Node in the terminal of a page, by NODE_OPTIONS. PAGE_CLOCK is a directory:
 * its file `offset` says by how many milliseconds the clock is ahead of the true one. The other
 * threads of weir take their time from its main thread, which compares it with this clock every
 * CLOCK_TICK_MS (100 ms). After the next comparison a file named by the process id has the offset.
 */

import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isMainThread } from 'node:worker_threads';

const POLL_MS = 25;
/** Longer than CLOCK_TICK_MS. A timer of the same thread that was due before has run before. */
const TICK_MS = 110;

if (isMainThread) {
  const directory = process.env.PAGE_CLOCK;
  const own = join(directory, String(process.pid));
  const readOffset = () => Number(readFileSync(join(directory, 'offset'), 'utf8'));
  const trueNow = Date.now;
  let offsetMs = readOffset();
  Date.now = () => trueNow() + offsetMs;
  writeFileSync(own, String(offsetMs));
  process.once('exit', () => rmSync(own, { force: true }));
  const timer = setInterval(() => {
    const next = readOffset();
    if (next === offsetMs) return;
    offsetMs = next;
    setTimeout(() => writeFileSync(own, String(next)), TICK_MS);
  }, POLL_MS);
  timer.unref();
}
