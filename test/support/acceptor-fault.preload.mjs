/**
 * Preloaded into every thread of a server under test by `node --import`. In the first acceptor,
 * or that of FAULT_ACCEPTOR, it causes the fault named by FAULT when there is a file FAULT_FILE, and
 * says so on standard error; anywhere else it does nothing. `late` is an acceptor that hears of
 * changes later than one may hang.
 */

import { existsSync, writeSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';

/** Which acceptor it strikes. */
const STRUCK = Number(process.env.FAULT_ACCEPTOR ?? 0);

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
  address: () => {
    String.prototype.lastIndexOf = () => {
      throw new Error('an internal detail');
    };
  },
  hang: () => {
    for (;;);
  },
};

if (workerData?.index === STRUCK && process.env.FAULT === 'late') {
  const on = parentPort.on.bind(parentPort);
  parentPort.on = (name, hear) =>
    on(name, (message) => setTimeout(hear, message.kind === 'publication' ? 1_500 : 0, message));
} else if (workerData?.index === STRUCK) {
  const looking = setInterval(() => {
    if (!existsSync(process.env.FAULT_FILE)) return;
    clearInterval(looking);
    writeSync(2, 'the fault strikes\n');
    FAULTS[process.env.FAULT]();
  }, 10).unref();
}
