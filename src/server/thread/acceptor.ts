/**
 * The entry of an acceptor thread; the main thread starts it as `acceptor.js`.
 *
 * Every uncaught error is fatal for the process: a limiter with half of its threads is worse than a
 * restarted one. The thread reports the error and the main thread ends the process. A thread that
 * ends without a `close` message blocks until then: the listening acceptor still distributes
 * connections to its Apps, and a connection to a closed App is a native fault.
 */

import { parentPort, workerData } from 'node:worker_threads';
import { StartError } from '../../core/errors.ts';
import { Acceptor } from '../acceptor.ts';
import type { AcceptorData, ToMain } from '../messages.ts';

const data: AcceptorData = workerData;
const mainPort = parentPort!;
const reportFatal = (reason: string) => {
  mainPort.postMessage({ kind: 'fatal', reason } satisfies ToMain);
};

process.on('uncaughtException', (error) => {
  const report = `acceptor ${data.index} failed: ${error.stack}`;
  reportFatal(error instanceof StartError ? error.message : report);
});

const acceptor = new Acceptor(data, mainPort, () => process.exit(0));
process.on('exit', (code) => {
  if (acceptor.isClosed) return;
  reportFatal(`acceptor ${data.index} ended by itself, with code ${code}`);
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
});
acceptor.start();
