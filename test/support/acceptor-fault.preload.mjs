/**
 * Preloaded into every thread of a server under test by `node --import`. When the file FAULT_FILE
 * exists, it causes the fault FAULT in acceptor FAULT_ACCEPTOR (the first by default) and reports
 * it on standard error. It does nothing in other threads. The fault `delay` needs no file: the
 * acceptor receives each publication 2.5 s late, later than an acceptor may be unresponsive. With
 * `slowDisk` each fsync takes 2.2 s.
 */

import fs, { existsSync, writeSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { parentPort, workerData } from 'node:worker_threads';

/** The acceptor that gets the fault. */
const TARGET = Number(process.env.FAULT_ACCEPTOR ?? 0);

const sleepFor = (ms) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

const FAULTS = {
  throw: () => {
    throw new Error('injected fault');
  },
  reject: () => {
    Promise.reject(new Error('injected fault'));
  },
  exit: () => process.exit(3),
  assertion: () => {
    String.prototype.isWellFormed = () => {
      throw new Error('an internal detail');
    };
  },
  address: () => {
    String.prototype.lastIndexOf = () => {
      throw new Error('an internal detail');
    };
  },
  block: () => {
    for (;;);
  },
  wait: () => sleepFor(Number.POSITIVE_INFINITY),
  slowDisk: () => {
    const { fsyncSync } = fs;
    fs.fsyncSync = (file) => {
      sleepFor(2_200);
      fsyncSync(file);
      writeSync(2, 'fsync was slow\n');
    };
    syncBuiltinESMExports();
  },
};

if (workerData?.index === TARGET && process.env.FAULT === 'delay') {
  const on = parentPort.on.bind(parentPort);
  parentPort.on = (name, listener) =>
    on(name, (message) =>
      setTimeout(listener, message.kind === 'publication' ? 2_500 : 0, message),
    );
} else if (workerData?.index === TARGET) {
  const poll = setInterval(() => {
    if (!existsSync(process.env.FAULT_FILE)) return;
    clearInterval(poll);
    writeSync(2, 'fault injected\n');
    FAULTS[process.env.FAULT]();
  }, 10).unref();
}
