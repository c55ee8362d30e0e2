/**
 * Preloaded into every thread of a server under test by `node --import`. It reports on standard
 * error when a thread of a piscina pool starts and when the thread has loaded its file. Between the
 * two it delays the thread by BOOT_MS. The variables below hold lists of thread ids.
 *
 * Shard workers in EXITING exit DEATH_MS after the file BOOT_FILE exists. The thread in FAILING
 * throws while it boots. The thread in BLOCKED never finishes booting.
 */

import { existsSync, writeSync } from 'node:fs';
import threads, { isMainThread, parentPort, threadId, workerData } from 'node:worker_threads';

const isAmong = (name) => (process.env[name] ?? '').split(',').includes(String(threadId));
const report = (event, id = threadId) => writeSync(2, `thread ${id} ${event}\n`);

const { wait } = Atomics;
const pause = (ms) => wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

if (isMainThread) {
  // Acceptors are not affected: they are started with the original class, imported by name.
  threads.Worker = class extends threads.Worker {
    constructor(...args) {
      super(...args);
      report('boots', this.threadId);
    }
  };
}

const isAcceptor = typeof workerData === 'object' && workerData !== null && 'index' in workerData;
if (!isMainThread && !isAcceptor) {
  const bootMs = Number(process.env.BOOT_MS);
  if (isAmong('FAILING')) {
    report('fails');
    pause(bootMs / 2);
    throw new Error('injected fault');
  }
  if (isAmong('BLOCKED')) {
    report('blocks');
    pause(Number.POSITIVE_INFINITY);
  }
  const post = parentPort.postMessage.bind(parentPort);
  // The first message of a piscina thread tells the pool that the thread has loaded its file.
  parentPort.postMessage = (...args) => {
    parentPort.postMessage = post;
    report('has booted');
    post(...args);
  };
  pause(bootMs);
}

if (isAmong('EXITING')) {
  Atomics.wait = (...args) => {
    if (existsSync(process.env.BOOT_FILE)) {
      report('exits');
      pause(Number(process.env.DEATH_MS));
      process.exit(3);
    }
    return wait(...args);
  };
}
