/**
 * The entry of a thread of the rate limit service; the main thread starts it as `rls.js`.
 *
 * Every uncaught error is fatal for the process, as in an acceptor: the thread reports the error
 * and the main thread ends the process.
 */

import { parentPort, workerData } from 'node:worker_threads';
import { StartError } from '../../core/errors.ts';
import type { FromRlsThread, RlsThreadData } from '../messages.ts';
import { RlsThread } from '../rls-thread.ts';

const data: RlsThreadData = workerData;
const mainPort = parentPort!;

process.on('uncaughtException', (error) => {
  const report = `RLS thread ${data.index} failed: ${error.stack}`;
  const reason = error instanceof StartError ? error.message : report;
  mainPort.postMessage({ kind: 'fatal', reason } satisfies FromRlsThread);
});

new RlsThread(data, mainPort, () => process.exit(0)).start();
