/**
 * One of several threads that make the same requests in the same order at once. It counts in shared
 * memory which requests it decides; `request-contention.test.ts` verifies the counts.
 */

import { parentPort, workerData } from 'node:worker_threads';
import { RequestTable } from '../../../src/engine/requests/request-table.ts';

export interface RequestTask {
  /** The owner of its locks. */
  owner: number;
  threads: number;
  table: SharedArrayBuffer;
  /** int32: how many threads are ready, then for each request how often it was decided. */
  shared: SharedArrayBuffer;
}

/** The answers that differ from that of the thread that decided, and how many were repetitions. */
export interface RequestTally {
  wrong: number;
  repetitions: number;
}

const NOW_MS = 1_795_000_000_000;

// The test imports the types above on its main thread, where no task runs.
if (parentPort !== null) runTask(workerData as RequestTask);

function runTask({ owner, threads, table, shared }: RequestTask): void {
  const words = new Int32Array(shared);
  const requests = new RequestTable(table, 0, owner, () => {});
  const tally: RequestTally = { wrong: 0, repetitions: 0 };
  Atomics.add(words, 0, 1);
  while (Atomics.load(words, 0) < threads);
  for (let number = 1; number < words.length; number++) {
    const hash = { h0: 0, h1: number, h2: -number, h3: 1 };
    const answer = requests.answer({ key: hash, parameters: hash }, NOW_MS, () => {
      // Not atomic: the lock alone protects it.
      words[number]++;
      const numbers = { limit: number, remaining: number, reset: number, inUse: number };
      return { allowed: true, ...numbers, id: undefined, expiresAt: number };
    });
    const { limit, remaining, reset, inUse, expiresAt, isRepetition } = answer!;
    const isSame = [limit, remaining, reset, inUse, expiresAt].every((one) => one === number);
    if (!isSame) tally.wrong++;
    if (isRepetition) tally.repetitions++;
  }
  parentPort!.postMessage(tally);
}
