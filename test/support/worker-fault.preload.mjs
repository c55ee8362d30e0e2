/**
 * Preloaded into every thread of a server under test by `node --import`. In each shard worker it
 * causes a fault at an access to shared memory, about WORKER_FAULT_MS after the worker's run began.
 * The fault `bootstrap` prevents the start of the thread. WORKER_FAULTS lists the kinds to use in
 * turn. Each fault and each beginning of a run is reported on standard error.
 *
 * `no-restart` is different: the first thread exits after it has claimed its first entry, and no
 * later thread can start. `corrupt` writes an invalid queue position when the file
 * WORKER_FAULT_FILE exists. `native` waits in the kernel until WORKER_FAULT_FILE, a FIFO, is opened
 * for writing.
 */

import { closeSync, existsSync, openSync, writeSync } from 'node:fs';
import { isMainThread, threadId, workerData } from 'node:worker_threads';

const originalWait = Atomics.wait;
const FAULTS = {
  throw: () => {
    throw new Error('injected fault');
  },
  exit: () => process.exit(3),
  memory: () => {
    for (const held = []; ; ) held.push(new Array(100_000).fill(threadId));
  },
  loop: () => {
    for (;;);
  },
  wait: () => originalWait(new Int32Array(new SharedArrayBuffer(4)), 0, 0),
  native: () => closeSync(openSync(process.env.WORKER_FAULT_FILE, 'r')),
};

const kinds = (process.env.WORKER_FAULTS ?? '').split(',');
const lifeMs = Number(process.env.WORKER_FAULT_MS ?? 100);
const report = (event) => writeSync(2, `fault ${JSON.stringify({ ...event, at: Date.now() })}\n`);

/** Pseudo-random numbers, seeded with the thread id, so that they repeat. */
let state = (threadId * 2_654_435_761) | 0;
const next = (below) => {
  state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0;
  return (state >>> 8) % below;
};

const channels = workerData?.channels ?? workerData?.engine?.channels;
const isShardWorker = !isMainThread && channels !== undefined && !('index' in workerData);
if (isShardWorker && kinds[0] === 'no-restart') {
  if (threadId > Number(process.env.WORKER_FIRST)) throw new Error('injected fault');
  const original = Atomics.compareExchange;
  const [QUEUED, CLAIMED] = [1, 2];
  Atomics.compareExchange = (...args) => {
    const was = original(...args);
    if (was === QUEUED && args[2] === QUEUED && args[3] === CLAIMED) process.exit(3);
    return was;
  };
} else if (isShardWorker && kinds[0] === 'corrupt') {
  const heads = new Int32Array(channels[0][0]);
  const original = Atomics.wait;
  Atomics.wait = (...args) => {
    if (existsSync(process.env.WORKER_FAULT_FILE)) heads[16] = -5;
    return original(...args);
  };
} else if (isShardWorker) {
  let faults = 0;
  /** Kinds in turn. A thread that survived a `throw` continues with the next kind. */
  const kindNow = () => kinds[(threadId + faults) % kinds.length];
  if (kindNow() === 'bootstrap') {
    report({ kind: 'bootstrap' });
    throw new Error('injected fault');
  }
  let faultAtMs = Number.POSITIVE_INFINITY;
  let accessesLeft = 0;
  let hasBegun = false;
  for (const name of ['load', 'store', 'compareExchange', 'exchange', 'wait']) {
    const original = Atomics[name];
    Atomics[name] = (...args) => {
      if (!hasBegun) {
        hasBegun = true;
        report({ kind: 'begun' });
        faultAtMs = performance.now() + lifeMs / 2 + next(lifeMs);
        accessesLeft = next(40);
      }
      if (performance.now() > faultAtMs && accessesLeft-- === 0) {
        hasBegun = false;
        faultAtMs = Number.POSITIVE_INFINITY;
        const kind = kindNow() === 'bootstrap' ? 'throw' : kindNow();
        faults++;
        report({ kind });
        FAULTS[kind]();
      }
      return original(...args);
    };
  }
}
