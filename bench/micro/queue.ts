/**
 * Measures the round trip of a check through the queues to a real shard worker, which is a piscina
 * task in a separate thread. This thread polls the reply queue for the decision.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { MessageChannel } from 'node:worker_threads';
import { Piscina } from 'piscina';
import { CHECKPOINT_INTERVAL_MAX_MS } from '../../src/core/constants.ts';
import { Hasher, newIdentity } from '../../src/core/hash.ts';
import { NO_BURST, RULE } from '../../src/core/window-rules.ts';
import type { WorkerRun } from '../../src/engine/engine.ts';
import { ENTRY_KIND } from '../../src/engine/memory/entry-kinds.ts';
import type { MemoryWorkerData } from '../../src/engine/memory/shard-worker/memory-worker.ts';
import { CheckQueueProducer } from '../../src/engine/queue/check-queue-producer.ts';
import {
  allocateChannel,
  attachChannel,
  QueueConsumer,
  REPLY_QUEUE,
} from '../../src/engine/queue/queue.ts';
import { wakeUp } from '../../src/engine/queue/wake-up.ts';
import { ClockPublisher } from '../../src/shared-memory/clock.ts';
import { allocateControl, Control } from '../../src/shared-memory/control.ts';
import { WAKE_UP_FLAG } from '../../src/shared-memory/stats.ts';
import { HASH_KEY } from '../support/override-sets.ts';
import { allocateHolds, allocateTables, type BenchSubject } from './check-steps.ts';

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
  const channel = allocateChannel(0, 0);
  const directory = mkdtempSync(join(tmpdir(), 'weir-bench-'));
  const tables = allocateTables();
  const workerData: MemoryWorkerData = {
    control: buffer,
    tables,
    holds: allocateHolds(tables),
    channels: [[channel]],
    fullTablePolicy: 'deny',
    holdPolicies: { whenFull: 'deny', onExpiry: 'release' },
    checkpointPlan: { directory, intervalMs: CHECKPOINT_INTERVAL_MAX_MS, keyFingerprint: [0, 0] },
  };
  const pool = new Piscina({
    filename: new URL('../memory-worker.js', import.meta.url).href,
    workerData,
    minThreads: 1,
    maxThreads: 1,
    atomics: 'disabled',
  });
  const { port1, port2 } = new MessageChannel();
  port1.unref();
  const stats = control.workerStats(0);
  stats.expectRun(INCARNATION);
  const task: WorkerRun = { index: 0, incarnation: INCARNATION, notificationPorts: [port2] };
  const ended = pool.run(task, { transferList: [port2] });

  const memory = attachChannel(channel, 0, 0);
  const producer = new CheckQueueProducer(memory, stats);
  const replies = new QueueConsumer(memory, REPLY_QUEUE);
  const hasher = new Hasher(HASH_KEY);
  const state = hasher.namespace('default');
  const id = newIdentity();
  let serial = 0;
  /** Enqueues the checks, wakes the worker once, and polls for all replies. */
  const roundTrip = (checks: number) => () => {
    for (let i = 0; i < checks; i++) {
      serial = (serial + 1) % 10_000;
      hasher.hash(state, `user_${serial}`, id);
      producer.enqueue(ENTRY_KIND.check, id, state[0], PARAMETERS, NO_BURST);
    }
    producer.wakeWorker();
    for (let received = 0; received < checks; ) {
      if (replies.isEmpty()) continue;
      replies.releaseFirst();
      received++;
    }
  };
  const one = roundTrip(1);
  const whenAsleep = () => {
    // The worker falls asleep after its reply. The wake-up flag shows when it sleeps.
    while (Atomics.load(stats.words, WAKE_UP_FLAG) === 0);
    const start = performance.now();
    one();
    return { overriddenDuration: performance.now() - start };
  };
  return {
    subjects: [
      { name: 'queue round trip, worker asleep', count: 1, run: whenAsleep },
      { name: 'queue round trip, one by one', count: 1, run: one },
      { name: `queue round trip, ${BATCH} at once`, count: BATCH, run: roundTrip(BATCH) },
    ],
    stop: async () => {
      stats.requestStop();
      wakeUp(stats.words, WAKE_UP_FLAG);
      await ended;
      await pool.destroy();
      rmSync(directory, { recursive: true });
    },
  };
}
