/**
 * Preloaded into every thread of a server under test by `node --import`. In each thread of the
 * shard workers' pool it causes a fault, a little after its run has begun, at whatever access to
 * shared memory comes then; or the thread cannot even start. WORKER_FAULTS names the kinds to
 * draw from, WORKER_FAULT_MS how long a run lives about. It says on standard error what it does,
 * and when a run has begun.
 *
 * `orphan` is another thing: the first thread ends when it has just claimed an entry, and none that
 * comes after it can start. And `damage` writes where nobody should, when there is a file
 * WORKER_FAULT_FILE.
 */

import { existsSync, writeSync } from 'node:fs';
import { isMainThread, threadId, workerData } from 'node:worker_threads';

const FAULTS = {
  throw: () => {
    throw new Error('a fault of the test');
  },
  exit: () => process.exit(3),
  memory: () => {
    for (const held = []; ; ) held.push(new Array(100_000).fill(threadId));
  },
  loop: () => {
    for (;;);
  },
};

const kinds = (process.env.WORKER_FAULTS ?? '').split(',');
const lifeMs = Number(process.env.WORKER_FAULT_MS ?? 100);
const say = (event) => writeSync(2, `fault ${JSON.stringify({ ...event, at: Date.now() })}\n`);

/** Of what a thread id makes, as if by chance, and the same again. */
let state = (threadId * 2_654_435_761) | 0;
const next = (below) => {
  state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0;
  return (state >>> 8) % below;
};

const isShardWorker =
  !isMainThread && workerData?.channels !== undefined && !('index' in workerData);
if (isShardWorker && kinds[0] === 'orphan') {
  if (threadId > Number(process.env.WORKER_FIRST)) throw new Error('a fault of the test');
  const original = Atomics.compareExchange;
  const [QUEUED, CLAIMED] = [1, 2];
  Atomics.compareExchange = (...args) => {
    const was = original(...args);
    if (was === QUEUED && args[2] === QUEUED && args[3] === CLAIMED) process.exit(3);
    return was;
  };
} else if (isShardWorker && kinds[0] === 'damage') {
  const heads = new Int32Array(workerData.channels[0][0]);
  const original = Atomics.wait;
  Atomics.wait = (...args) => {
    if (existsSync(process.env.WORKER_FAULT_FILE)) heads[16] = -5;
    return original(...args);
  };
} else if (isShardWorker) {
  let strikes = 0;
  /** Kinds in turn: threads are numbered, and one that only threw goes on to the next. */
  const kindNow = () => kinds[(threadId + strikes) % kinds.length];
  if (kindNow() === 'bootstrap') {
    say({ kind: 'bootstrap' });
    throw new Error('a fault of the test');
  }
  let strikesAt = Number.POSITIVE_INFINITY;
  let accessesLeft = 0;
  let hasBegun = false;
  for (const name of ['load', 'store', 'compareExchange', 'exchange', 'wait']) {
    const original = Atomics[name];
    Atomics[name] = (...args) => {
      if (!hasBegun) {
        hasBegun = true;
        say({ kind: 'begun' });
        strikesAt = performance.now() + lifeMs / 2 + next(lifeMs);
        accessesLeft = next(40);
      }
      if (performance.now() > strikesAt && accessesLeft-- === 0) {
        hasBegun = false;
        strikesAt = Number.POSITIVE_INFINITY;
        const kind = kindNow() === 'bootstrap' ? 'throw' : kindNow();
        strikes++;
        say({ kind });
        FAULTS[kind]();
      }
      return original(...args);
    };
  }
}
