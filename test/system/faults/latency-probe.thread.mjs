/**
 * A client on its own thread, so that load in the test does not delay its clock readings. It sends
 * checks one after the other on one connection. On a message it replies with all latencies in ms,
 * sorted ascending, and exits.
 */

import { connect } from 'node:net';
import { parentPort, workerData } from 'node:worker_threads';

const { port, bytes } = workerData;
const latenciesMs = [];
let sentAt = 0;
const socket = connect(port, '127.0.0.1');
const send = () => {
  sentAt = performance.now();
  socket.write(bytes);
};
socket.setNoDelay(true);
socket.on('connect', send);
socket.on('data', () => {
  latenciesMs.push(performance.now() - sentAt);
  setTimeout(send, 1);
});
parentPort.on('message', () => {
  parentPort.postMessage(latenciesMs.sort((a, b) => a - b));
  process.exit();
});
