/**
 * Preloaded into every thread of a server under test by `node --import`. It says on standard error
 * when a thread of a piscina pool is started and when the thread has loaded its file. Between the
 * two it takes BOOT_MS longer than it would. Threads are named by their ids in the variables below.
 *
 * Those of DYING, which are shard workers, exit DEATH_MS after they find a file BOOT_FILE. The one
 * of FAILING throws while it boots, and the one of HANGING never ends to boot.
 */

import { existsSync, writeSync } from 'node:fs';
import threads, { isMainThread, parentPort, threadId, workerData } from 'node:worker_threads';

const isAmong = (name) => (process.env[name] ?? '').split(',').includes(String(threadId));
const say = (what, id = threadId) => writeSync(2, `thread ${id} ${what}\n`);

const { wait } = Atomics;
const pause = (ms) => wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

if (isMainThread) {
  // Acceptors are started with the class itself, which they have imported by its name.
  threads.Worker = class extends threads.Worker {
    constructor(...args) {
      super(...args);
      say('boots', this.threadId);
    }
  };
}

const isAcceptor = typeof workerData === 'object' && workerData !== null && 'index' in workerData;
if (!isMainThread && !isAcceptor) {
  const bootMs = Number(process.env.BOOT_MS);
  if (isAmong('FAILING')) {
    say('fails');
    pause(bootMs / 2);
    throw new Error('a fault of the test');
  }
  if (isAmong('HANGING')) {
    say('hangs');
    pause(Number.POSITIVE_INFINITY);
  }
  const post = parentPort.postMessage.bind(parentPort);
  // piscina sends the first message of a thread when the thread has loaded its file.
  parentPort.postMessage = (...args) => {
    parentPort.postMessage = post;
    say('has booted');
    post(...args);
  };
  pause(bootMs);
}

if (isAmong('DYING')) {
  Atomics.wait = (...args) => {
    if (existsSync(process.env.BOOT_FILE)) {
      say('dies');
      pause(Number(process.env.DEATH_MS));
      process.exit(3);
    }
    return wait(...args);
  };
}
