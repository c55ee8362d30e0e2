/**
 * The thread of a delay proxy. It has a thread of its own because a busy event loop would add to
 * the delays: see `delay-proxy.ts`, which sends it the conditions.
 */

import { connect, createServer } from 'node:net';
import { parentPort, workerData } from 'node:worker_threads';

const HOST = '127.0.0.1';
/** A timer has a resolution of 1 ms, which is longer than many round trips. */
const TIMER_MS = 2;
/** Between two looks at the sockets the thread sleeps for so long, if bytes are due soon. */
const NAP_MS = 0.1;
/** The kernel wakes a thread later than asked. */
const NAP_LATE_MS = 0.06;

const { port, done, conditions } = workerData;
const nap = new Int32Array(new SharedArrayBuffer(4));
const pairs = new Set();
/** Queues with bytes under way. */
const active = new Set();
let timer;
let isTurnNext = false;

function turn() {
  isTurnNext = false;
  const nowMs = performance.now();
  let nextMs = Number.POSITIVE_INFINITY;
  for (const queue of active) {
    while (queue.length > 0 && queue[0].atMs <= nowMs) queue.shift().send();
    if (queue.length === 0) active.delete(queue);
    else nextMs = Math.min(nextMs, queue[0].atMs);
  }
  if (active.size === 0) return;
  const leftMs = nextMs - performance.now();
  if (leftMs > TIMER_MS) {
    timer = setTimeout(turn, leftMs - 1);
    return;
  }
  const napMs = Math.min(NAP_MS, leftMs - NAP_LATE_MS);
  if (napMs > 0) Atomics.wait(nap, 0, 0, napMs);
  takeNextTurn();
}

function takeNextTurn() {
  if (isTurnNext) return;
  clearTimeout(timer);
  isTurnNext = true;
  setImmediate(turn);
}

/** Copies one direction. */
function forward(from, to) {
  const queue = [];
  let lastMs = 0;
  const schedule = (send) => {
    const { delayMs, jitterMs } = conditions;
    const nowMs = performance.now();
    const arrivesMs = nowMs + delayMs + jitterMs * Math.random();
    lastMs = Math.max(arrivesMs, lastMs);
    if (queue.length === 0 && lastMs <= nowMs) {
      send();
      return;
    }
    queue.push({ atMs: lastMs, send });
    active.add(queue);
    takeNextTurn();
  };
  from.on('data', (chunk) => {
    if (conditions.isBlackhole) return;
    schedule(() => {
      if (!conditions.isBlackhole && to.writable) to.write(chunk);
    });
  });
  from.on('end', () => {
    if (!conditions.isBlackhole) schedule(() => to.end());
  });
}

const proxy = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
  if (conditions.refuses) {
    client.destroy();
    return;
  }
  const server = connect({ port, host: HOST, allowHalfOpen: true, noDelay: true });
  const pair = { client, server };
  pairs.add(pair);
  const end = () => {
    client.destroy();
    server.destroy();
    pairs.delete(pair);
  };
  for (const socket of [client, server]) {
    socket.on('error', end);
    socket.on('close', end);
  }
  forward(client, server);
  forward(server, client);
});

const actions = {
  set: ({ changes }) => Object.assign(conditions, changes),
  cut: () => {
    for (const { client, server } of pairs) {
      client.resetAndDestroy();
      server.destroy();
    }
  },
  halfClose: () => {
    for (const { client } of pairs) client.end();
  },
  close: () => process.exit(),
};

parentPort.on('message', (message) => {
  actions[message.action](message);
  Atomics.add(done, 0, 1);
  Atomics.notify(done, 0);
});

proxy.listen(0, HOST, () => parentPort.postMessage(proxy.address().port));
