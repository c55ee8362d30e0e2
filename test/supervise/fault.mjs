/**
 * Preloaded into every thread of a server under test by `node --import`. In the first acceptor it
 * causes the fault named by FAULT a little after the start; anywhere else it does nothing.
 */

import { workerData } from 'node:worker_threads';

const FAULTS = {
  throw: () => {
    throw new Error('a fault of the test');
  },
  reject: () => {
    Promise.reject(new Error('a fault of the test'));
  },
  exit: () => process.exit(3),
  assertion: () => {
    String.prototype.isWellFormed = () => {
      throw new Error('an internal detail');
    };
  },
  hang: () => {
    for (;;);
  },
};

if (workerData?.index === 0) setTimeout(FAULTS[process.env.FAULT], 500);
