/**
 * The ring there and back: a check handed over to a real shard worker, a piscina task in a thread
 * of its own, and its decision awaited here by looking for it.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { MessageChannel } from 'node:worker_threads';
import { Piscina } from 'piscina';
import { CHECKPOINT_INTERVAL_MAX_MS } from '../../src/core/constants.ts';
import { Hasher, newIdentity } from '../../src/core/hash.ts';
import { NO_BURST, RULE } from '../../src/core/window-rules.ts';
import { CheckQueueProducer } from '../../src/engine/worker/check-queue-producer.ts';
import {
  allocateChannel,
  attachChannel,
  QueueConsumer,
  REPLY_QUEUE,
} from '../../src/engine/worker/queue.ts';
import { wakeUp } from '../../src/engine/worker/wake-up.ts';
import type { ShardWorkerData, WorkerRun } from '../../src/engine/worker/worker.ts';
import { ClockPublisher } from '../../src/shared-memory/clock.ts';
import { allocateControl, Control } from '../../src/shared-memory/control.ts';
import { WAKE_UP_FLAG } from '../../src/shared-memory/stats.ts';
import { HASH_KEY } from '../support/override-sets.ts';
import { allocateTables, type BenchSubject } from './check-steps.ts';

const BATCH = 64;
const PARAMETERS = {
  limit: 1_000_000,
  durationMs: 60_000,
  cost: 1,
  rule: RULE.fixed,
  burst: NO_BURST,
};
const INCARNATION = 100;

export interface QueueBench {
  subjects: BenchSubject[];
  stop: () => Promise<void>;
}

export function startQueueBench(): QueueBench {
  const buffer = allocateControl(1, 1);
  const control = new Control(buffer);
  new ClockPublisher(control);
  const link = allocateChannel(0, 0);
  const directory = mkdtempSync(join(tmpdir(), 'weir-bench-'));
  const workerData: ShardWorkerData = {
    control: buffer,
    tables: allocateTables(),
    channels: [[link]],
    fullTablePolicy: 'deny',
    checkpointPlan: { directory, intervalMs: CHECKPOINT_INTERVAL_MAX_MS, keyFingerprint: [0, 0] },
  };
  const pool = new Piscina({
    filename: new URL('../worker.js', import.meta.url).href,
    workerData,
    minThreads: 1,
    maxThreads: 1,
    atomics: 'disabled',
  });
  const { port1, port2 } = new MessageChannel();
  port1.unref();
  const lane = control.workerStats(0);
  lane.expectRun(INCARNATION);
  const task: WorkerRun = { index: 0, incarnation: INCARNATION, notificationPorts: [port2] };
  const ended = pool.run(task, { transferList: [port2] });

  const memory = attachChannel(link, 0, 0);
  const handoff = new CheckQueueProducer(memory, lane);
  const replies = new QueueConsumer(memory, REPLY_QUEUE);
  const hasher = new Hasher(HASH_KEY);
  const state = hasher.namespace('default');
  const id = newIdentity();
  let serial = 0;
  /** Hands over so many checks, rings once, and waits for all answers. */
  const thereAndBack = (checks: number) => () => {
    for (let i = 0; i < checks; i++) {
      serial = (serial + 1) % 10_000;
      hasher.hash(state, `user_${serial}`, id);
      handoff.enqueueCheck(id, state[0], PARAMETERS);
    }
    handoff.wakeWorker();
    for (let answers = 0; answers < checks; ) {
      if (replies.isEmpty()) continue;
      replies.releaseFirst();
      answers++;
    }
  };
  const one = thereAndBack(1);
  const whenAsleep = () => {
    // Its sleep begins behind the answer; the bell says when.
    while (Atomics.load(lane.words, WAKE_UP_FLAG) === 0);
    const start = performance.now();
    one();
    return { overriddenDuration: performance.now() - start };
  };
  return {
    subjects: [
      { name: 'ring there and back, worker asleep', count: 1, run: whenAsleep },
      { name: 'ring there and back, one by one', count: 1, run: one },
      { name: `ring there and back, ${BATCH} at once`, count: BATCH, run: thereAndBack(BATCH) },
    ],
    stop: async () => {
      lane.requestStop();
      wakeUp(lane.words, WAKE_UP_FLAG);
      await ended;
      await pool.destroy();
      rmSync(directory, { recursive: true });
    },
  };
}
