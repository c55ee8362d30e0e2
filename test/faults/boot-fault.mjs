/**
 * Preloaded into every thread of a server under test by `node --import`. Each thread of a piscina
 * pool says on standard error when it begins to boot and when it has loaded its file. Between the
 * two it takes BOOT_MS longer than it would. Threads are named by their ids in the variables below.
 *
 * Those of DYING, which are shard workers, exit DEATH_MS after they find a file BOOT_FILE. The one
 * of FAILING throws while it boots, and the one of HANGING never ends to boot.
 */

import { existsSync, writeSync } from 'node:fs';
import { isMainThread, parentPort, threadId, workerData } from 'node:worker_threads';

const isAmong = (name) => (process.env[name] ?? '').split(',').includes(String(threadId));
const say = (what) => writeSync(2, `thread ${threadId} ${what}\n`);

function spin(ms) {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

const isAcceptor = typeof workerData === 'object' && workerData !== null && 'index' in workerData;
if (!isMainThread && !isAcceptor) {
  const bootMs = Number(process.env.BOOT_MS);
  if (isAmong('FAILING')) {
    say('fails');
    spin(bootMs / 2);
    throw new Error('a fault of the test');
  }
  if (isAmong('HANGING')) {
    say('hangs');
    spin(Number.POSITIVE_INFINITY);
  }
  say('boots');
  const post = parentPort.postMessage.bind(parentPort);
  // piscina sends the first message of a thread when the thread has loaded its file.
  parentPort.postMessage = (...args) => {
    parentPort.postMessage = post;
    say('has booted');
    post(...args);
  };
  spin(bootMs);
}

if (isAmong('DYING')) {
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
