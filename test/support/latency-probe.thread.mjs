/**
 * A client on a thread of its own, so that what loads the test delays no reading of its clock: one
 * check after the other on one connection, until it hears anything; then it tells how long each
 * took, in ms, shortest first.
 */

import { connect } from 'node:net';
import { parentPort, workerData } from 'node:worker_threads';

const { port, bytes } = workerData;
const took = [];
let sentAt = 0;
const socket = connect(port, '127.0.0.1');
const send = () => {
  sentAt = performance.now();
  socket.write(bytes);
};
socket.setNoDelay(true);
socket.on('connect', send);
socket.on('data', () => {
  took.push(performance.now() - sentAt);
  setTimeout(send, 1);
});
parentPort.on('message', () => {
  parentPort.postMessage(took.sort((a, b) => a - b));
  process.exit();
});
