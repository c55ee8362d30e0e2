/**
 * Preloaded into every thread of a server under test by `node --import`. In the first acceptor it
 * causes the fault named by FAULT when there is a file FAULT_FILE, and says so on standard error;
 * anywhere else it does nothing. `late` is a first acceptor that takes longer to start than one may
 * hang.
 */

import { existsSync, writeSync } from 'node:fs';
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

if (workerData?.index === 0 && process.env.FAULT === 'late') {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_500);
} else if (workerData?.index === 0) {
  const looking = setInterval(() => {
    if (!existsSync(process.env.FAULT_FILE)) return;
    clearInterval(looking);
    writeSync(2, 'the fault strikes\n');
    FAULTS[process.env.FAULT]();
  }, 10).unref();
}
