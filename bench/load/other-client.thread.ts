/** A client that sends one check after the other, and reports the slowest response. */

import { once } from 'node:events';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { parentPort, workerData } from 'node:worker_threads';

export interface OtherClientTask {
  port: number;
  /** A whole request. */
  check: Uint8Array;
}

const INTERVAL_MS = 2;

const { port, check } = workerData as OtherClientTask;
const socket = connect(port, '127.0.0.1').setNoDelay(true);
await once(socket, 'connect');
let slowestMs = 0;
// Sent after each measurement: the slowest response since the message before.
parentPort!.on('message', () => {
  parentPort!.postMessage(slowestMs);
  slowestMs = 0;
});
for (;;) {
  const before = performance.now();
  socket.write(check);
  await once(socket, 'data');
  slowestMs = Math.max(slowestMs, performance.now() - before);
  await sleep(INTERVAL_MS);
}
