/**
 * A shard worker: a task of the piscina pool that ends only when it is told to. It holds some of
 * the shards, does what acceptors hand over for them, sweeps them and writes their checkpoints. It
 * sleeps when there is nothing to do, and shows in its lane that it lives.
 *
 * It may die at any point: the supervisor breaks its locks and starts the task again, which goes on
 * where the rings stand. Damaged shared memory is its result, and the end of the process.
 */

import { type MessagePort, threadId } from 'node:worker_threads';
import { workerData } from 'piscina';
import { WORKER_HEARTBEAT_MS } from '../../core/constants.ts';
import type { FullTablePolicy } from '../../core/decision.ts';
import { MemoryError } from '../../core/errors.ts';
import type { Identity } from '../../core/hash.ts';
import { Clock } from '../../shared-memory/clock.ts';
import { Control } from '../../shared-memory/control.ts';
import { WAKE_UP_FLAG, type WorkerStats } from '../../shared-memory/stats.ts';
import { shardOf, workerOf } from '../memory/shard.ts';
import { CounterTable } from '../memory/table.ts';
import { CheckQueueConsumer } from './check-queue-consumer.ts';
import { type CheckpointPlan, CheckpointScheduler } from './checkpoint-scheduler.ts';
import { attachChannel } from './queue.ts';
import { SweepScheduler } from './sweep-scheduler.ts';
import { pause, sleep } from './wake-up.ts';

/** What every thread of the pool is started with. */
export interface ShardWorkerData {
  control: SharedArrayBuffer;
  tables: SharedArrayBuffer[];
  /** By acceptor and worker. */
  channels: SharedArrayBuffer[][];
  fullTablePolicy: FullTablePolicy;
  checkpointPlan: CheckpointPlan;
}

/** One run of a worker. */
export interface WorkerRun {
  index: number;
  /** From FIRST_INCARNATION on, and never the same twice: its locks carry it. */
  incarnation: number;
  /** Where each acceptor hears of its answers; none where acceptors decide themselves. */
  notificationPorts: MessagePort[];
}

/** Entries taken from one ring before the next has its turn. */
const ENTRIES_PER_TURN_MAX = 128;
/**
 * Deductions are not urgent: between looks a worker that has some rests for so long without asking
 * to be rung for, which would cost the acceptors more than the deductions do; and so often in vain
 * before it sleeps.
 */
const PAUSE_MS = 2;
const PAUSES_BEFORE_SLEEP = 10;

const data = workerData as ShardWorkerData;

/** @returns when it was told to stop, or with what it found wrong in shared memory */
export default function run({
  index,
  incarnation,
  notificationPorts,
}: WorkerRun): string | undefined {
  try {
    const control = new Control(data.control);
    const lane = control.workerStats(index);
    if (!lane.startRun(incarnation, threadId)) throw new Error('this run has been given up');
    const clock = new Clock(control);
    const beat = () => lane.heartbeat();
    const tables = data.tables.map((buffer, shard) => {
      if (workerOf(shard, control.workerCount) !== index) return undefined;
      return new CounterTable(buffer, shard, incarnation, data.fullTablePolicy, beat);
    });
    const tableOf = (id: Identity) => {
      const table = tables[shardOf(id)];
      if (table === undefined)
        throw new MemoryError(`shard ${shardOf(id)} came to worker ${index}`);
      return table;
    };
    const inboxes = data.channels.map((links, acceptor) => {
      const link = attachChannel(links[index], acceptor, index);
      return new CheckQueueConsumer(link, tableOf, clock, lane, notificationPorts[acceptor]);
    });
    const own = tables.filter((table) => table !== undefined);
    const sweeps = new SweepScheduler(own, incarnation, lane);
    const checkpoints = new CheckpointScheduler(own, incarnation, data.checkpointPlan, lane);
    const naps = notificationPorts.length === 0 ? PAUSES_BEFORE_SLEEP : 0;
    try {
      runLoop(inboxes, sweeps, checkpoints, clock, lane, naps);
      // Nobody decides any more, and what was handed over is done: this one forgets nothing.
      checkpoints.writeFinalRound(clock.nowMs());
    } finally {
      checkpoints.close();
    }
    return undefined;
  } catch (error) {
    if (error instanceof MemoryError) return error.message;
    throw error;
  } finally {
    // The thread may go on with another run, which has doors of its own.
    for (const door of notificationPorts) door.close();
  }
}

/** @param pausesBeforeSleep how often to rest in vain before going to sleep */
function runLoop(
  consumers: readonly CheckQueueConsumer[],
  sweeps: SweepScheduler,
  checkpoints: CheckpointScheduler,
  clock: Clock,
  stats: WorkerStats,
  pausesBeforeSleep: number,
): void {
  const hasWork = () => consumers.some((inbox) => !inbox.isEmpty()) || stats.isStopping;
  let napsLeft = 0;
  for (;;) {
    stats.heartbeat();
    // Read before the rings are: what was put in before the stop is done before it.
    const { isStopping } = stats;
    let served = 0;
    for (const inbox of consumers) served += inbox.processEntries(ENTRIES_PER_TURN_MAX);
    if (served === 0 && isStopping) return;
    if (served > 0) napsLeft = pausesBeforeSleep;
    const nowMs = clock.nowMs();
    const sleepMs = Math.min(sweeps.step(nowMs), checkpoints.step(nowMs));
    if (sleepMs === 0 || served >= ENTRIES_PER_TURN_MAX) continue;
    if (napsLeft > 0) {
      napsLeft--;
      pause(stats.words, WAKE_UP_FLAG, PAUSE_MS);
    } else if (served === 0) {
      sleep(stats.words, WAKE_UP_FLAG, Math.min(sleepMs, WORKER_HEARTBEAT_MS), hasWork);
    }
  }
}
