import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import { expect, test } from 'vitest';
import { allocateRequests } from '../../../src/engine/requests/layout.ts';
import { trialCount } from '../../support/guarantees.ts';
import type { RequestTally, RequestTask } from './request-contention.thread.ts';

const THREAD = new URL('../../../dist/threads/request-contention.thread.js', import.meta.url);
const REQUESTS = trialCount(50_000, 1_000_000);

function runThread(task: RequestTask): Promise<RequestTally> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(THREAD, { workerData: task });
    worker.once('message', resolve);
    worker.once('error', reject);
  });
}

test('requests that more threads than cores repeat at once are decided once', async () => {
  const threads = availableParallelism() + 1;
  const shared = new SharedArrayBuffer(4 * (REQUESTS + 1));
  const task = { threads, table: allocateRequests(0, REQUESTS), shared };
  const tallies = await Promise.all(
    Array.from({ length: threads }, (_, i) => runThread({ owner: i + 1, ...task })),
  );
  const [, ...decided] = new Int32Array(shared);
  expect(decided.filter((count) => count !== 1)).toEqual([]);
  expect(tallies.filter(({ wrong }) => wrong > 0)).toEqual([]);
  const repetitions = tallies.reduce((sum, tally) => sum + tally.repetitions, 0);
  expect(repetitions).toBe((threads - 1) * REQUESTS);
});
