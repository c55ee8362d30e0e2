/**
 * A shard worker: a task of the piscina pool that runs until a stop is requested. For its shards it
 * processes the queues of all acceptors, sweeps, ends expired holds and writes checkpoints. It
 * sleeps when there is no work, and writes heartbeats to its stats block.
 *
 * It may die at any point: the supervisor breaks its locks and starts the task again, which resumes
 * the queues. Where shared memory is damaged it returns a description, and the supervisor ends the
 * process.
 */

import { threadId } from 'node:worker_threads';
import { WORKER_HEARTBEAT_MS } from '../../../core/constants.ts';
import type { FullTablePolicy } from '../../../core/decision.ts';
import { MemoryError } from '../../../core/errors.ts';
import type { Identity } from '../../../core/hash.ts';
import { requirePackage } from '../../../core/packages.ts';
import { Clock } from '../../../shared-memory/clock.ts';
import { Control } from '../../../shared-memory/control.ts';
import { WAKE_UP_FLAG, type WorkerStats } from '../../../shared-memory/stats.ts';
import { kernelThreadId } from '../../../shared-memory/thread-times.ts';
import type { WorkerRun } from '../../engine.ts';
import type { HoldPolicies } from '../../hold-engine.ts';
import { HoldTable } from '../../holds/hold-table.ts';
import { CheckQueueConsumer } from '../../queue/check-queue-consumer.ts';
import { attachChannel } from '../../queue/queue.ts';
import { pause, sleep } from '../../queue/wake-up.ts';
import { shardOf, workerOf } from '../../table/shard.ts';
import { ShardHolds } from '../shard-holds.ts';
import { CounterTable } from '../table.ts';
import { type CheckpointPlan, CheckpointScheduler } from './checkpoint-scheduler.ts';
import { EntryProcessor } from './entry-processor.ts';
import { HoldScheduler } from './hold-scheduler.ts';
import { SweepScheduler } from './sweep-scheduler.ts';

/** The data of every thread of the pool. */
export interface MemoryWorkerData {
  control: SharedArrayBuffer;
  tables: SharedArrayBuffer[];
  holds: SharedArrayBuffer[];
  /** By acceptor and worker. */
  channels: SharedArrayBuffer[][];
  fullTablePolicy: FullTablePolicy;
  holdPolicies: HoldPolicies;
  checkpointPlan: CheckpointPlan;
}

/** The most entries of one queue before the next queue is processed. */
const ENTRIES_PER_TURN_MAX = 128;
/**
 * Deductions are not urgent, and to wake a worker costs an acceptor more than a deduction. So a
 * worker that has made some does not sleep at once: it polls its queues every PAUSE_MS, and sleeps
 * after PAUSES_BEFORE_SLEEP polls that find nothing.
 */
const PAUSE_MS = 2;
const PAUSES_BEFORE_SLEEP = 10;

const data = requirePackage('piscina').workerData as MemoryWorkerData;

/** @returns undefined after a requested stop; a description of damaged shared memory */
export default function run({
  index,
  incarnation,
  notificationPorts,
}: WorkerRun): string | undefined {
  try {
    const control = new Control(data.control);
    const stats = control.workerStats(index);
    if (!stats.startRun(incarnation, threadId, kernelThreadId())) {
      throw new Error(`run ${incarnation} of worker ${index} was given up before it started`);
    }
    const clock = new Clock(control);
    const heartbeat = () => stats.heartbeat();
    const tables = data.tables.map((buffer, shard) => {
      if (workerOf(shard, control.workerCount) !== index) return undefined;
      return new CounterTable(buffer, shard, incarnation, data.fullTablePolicy, heartbeat);
    });
    const tableOf = (id: Identity) => {
      const table = tables[shardOf(id)];
      if (table === undefined) {
        throw new MemoryError(`worker ${index} received an entry of shard ${shardOf(id)}`);
      }
      return table;
    };
    const processors = data.channels.map((channels, acceptor) => {
      const channel = attachChannel(channels[index], acceptor, index);
      const queue = new CheckQueueConsumer(channel, stats, notificationPorts[acceptor]);
      return new EntryProcessor(queue, tableOf, clock, stats);
    });
    const shards = tables.flatMap((table, shard) => {
      if (table === undefined) return [];
      return [{ table, holds: new HoldTable(data.holds[shard], shard, incarnation, heartbeat) }];
    });
    const expiries = new HoldScheduler(
      shards.map(({ table, holds }) => new ShardHolds(table, holds, data.holdPolicies)),
      stats,
    );
    const sweeps = new SweepScheduler(
      shards.map(({ table }) => table),
      incarnation,
      stats,
    );
    const checkpoints = new CheckpointScheduler(shards, incarnation, data.checkpointPlan, stats);
    const pauses = notificationPorts.length === 0 ? PAUSES_BEFORE_SLEEP : 0;
    try {
      runLoop(processors, [sweeps, expiries, checkpoints], clock, stats, pauses);
      // No thread decides any more, and the queues are empty: this round is complete.
      checkpoints.writeFinalRound(clock.nowMs());
    } finally {
      checkpoints.close();
    }
    return undefined;
  } catch (error) {
    if (error instanceof MemoryError) return error.message;
    throw error;
  } finally {
    // The thread may continue with another run, which has ports of its own.
    for (const port of notificationPorts) port.close();
  }
}

/** Work that is done a step at a time. */
interface Scheduler {
  /** @returns the ms until the next step */
  step(nowMs: number): number;
}

/** @param pausesBeforeSleep the pauses without work before the worker sleeps */
function runLoop(
  processors: readonly EntryProcessor[],
  schedulers: readonly Scheduler[],
  clock: Clock,
  stats: WorkerStats,
  pausesBeforeSleep: number,
): void {
  const hasWork = () => processors.some((processor) => processor.hasEntries()) || stats.isStopping;
  let pausesLeft = 0;
  for (;;) {
    stats.heartbeat();
    // Read before the queues: entries from before the stop are processed.
    const { isStopping } = stats;
    let processed = 0;
    for (const processor of processors) {
      processed += processor.processEntries(ENTRIES_PER_TURN_MAX);
    }
    if (processed === 0 && isStopping) return;
    if (processed > 0) pausesLeft = pausesBeforeSleep;
    const nowMs = clock.nowMs();
    let sleepMs = WORKER_HEARTBEAT_MS;
    for (const scheduler of schedulers) sleepMs = Math.min(sleepMs, scheduler.step(nowMs));
    if (sleepMs === 0 || processed >= ENTRIES_PER_TURN_MAX) continue;
    if (pausesLeft > 0) {
      pausesLeft--;
      pause(stats.words, WAKE_UP_FLAG, PAUSE_MS);
    } else if (processed === 0) {
      sleep(stats.words, WAKE_UP_FLAG, sleepMs, hasWork);
    }
  }
}
