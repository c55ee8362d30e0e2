/**
 * Preloaded into every thread of a server under test by `node --import`. Each thread of a piscina
 * pool says on standard error when it begins to boot and when it has loaded its file. Between the
 * two it takes BOOT_MS longer than it would. The first thread of the shard workers' pool, which
 * has the id BOOT_FIRST, exits DEATH_MS after there is a file BOOT_FILE.
 */

import { existsSync, writeSync } from 'node:fs';
import { isMainThread, parentPort, threadId, workerData } from 'node:worker_threads';

const isAcceptor = workerData !== null && workerData !== undefined && 'index' in workerData;
const say = (what) => writeSync(2, `thread ${threadId} ${what}\n`);

function spin(ms) {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

if (!isMainThread && !isAcceptor) {
  say('boots');
  const post = parentPort.postMessage.bind(parentPort);
  // piscina sends the first message of a thread when the thread has loaded its file.
  parentPort.postMessage = (...args) => {
    parentPort.postMessage = post;
    say('has booted');
    post(...args);
  };
  spin(Number(process.env.BOOT_MS));
}

if (threadId === Number(process.env.BOOT_FIRST)) {
  const wait = Atomics.wait;
  Atomics.wait = (...args) => {
    if (existsSync(process.env.BOOT_FILE)) {
      say('dies');
      spin(Number(process.env.DEATH_MS));
      process.exit(3);
    }
    return wait(...args);
  };
}
