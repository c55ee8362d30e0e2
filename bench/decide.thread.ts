/** A thread that decides on shared tables as fast as it can, for as long as the bench says. */

import { parentPort, workerData } from 'node:worker_threads';
import { BATCH, decideSubject } from './subjects.ts';

export interface DecideThread {
  owner: number;
  tables: SharedArrayBuffer[];
  count: number;
  first: number;
  /** One int32: 0 before the start, 1 while it runs, 2 at its end. */
  phase: SharedArrayBuffer;
}

const { owner, tables, count, first, phase } = workerData as DecideThread;
const subject = decideSubject('', tables, count, first, owner);
const words = new Int32Array(phase);
for (let i = 0; i < (2 * count) / BATCH + 200; i++) subject.run();
parentPort!.postMessage('ready');
Atomics.wait(words, 0, 0);
let decisions = 0;
while (Atomics.load(words, 0) === 1) {
  subject.run();
  decisions += BATCH;
}
parentPort!.postMessage(decisions);
