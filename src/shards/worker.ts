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
import { Control } from '../control.ts';
import type { OnFull } from '../counters/decision.ts';
import type { Identity } from '../counters/hash.ts';
import { CounterTable } from '../counters/table.ts';
import { MemoryError } from '../errors.ts';
import { BELL, type WorkerLane } from '../lanes.ts';
import { WORKER_LOOK_MS } from '../limits.ts';
import { Clock } from '../time.ts';
import { nap, sleep } from './bell.ts';
import { type CheckpointPlan, Checkpoints } from './checkpoints.ts';
import { Inbox } from './inbox.ts';
import { attachLink } from './ring.ts';
import { shardOf, workerOf } from './shard.ts';
import { Sweeps } from './sweeps.ts';

/** What every thread of the pool is started with. */
export interface ShardWorkerData {
  control: SharedArrayBuffer;
  tables: SharedArrayBuffer[];
  /** By acceptor and worker. */
  links: SharedArrayBuffer[][];
  onFull: OnFull;
  checkpoints: CheckpointPlan;
}

/** One run of a worker. */
export interface Run {
  index: number;
  /** From FIRST_INCARNATION on, and never the same twice: its locks carry it. */
  incarnation: number;
  /** Where each acceptor hears of its answers; none where acceptors decide themselves. */
  doors: MessagePort[];
}

/** Entries taken from one ring before the next has its turn. */
const SERVE_MOST = 128;
/**
 * Deductions are not urgent: between looks a worker that has some rests for so long without asking
 * to be rung for, which would cost the acceptors more than the deductions do; and so often in vain
 * before it sleeps.
 */
const NAP_MS = 2;
const NAPS = 10;

const data = workerData as ShardWorkerData;

/** @returns when it was told to stop, or with what it found wrong in shared memory */
export default function run({ index, incarnation, doors }: Run): string | undefined {
  try {
    const control = new Control(data.control);
    const lane = control.workerLane(index);
    if (!lane.enter(incarnation, threadId)) throw new Error('this run has been given up');
    const clock = new Clock(control);
    const beat = () => lane.beat();
    const tables = data.tables.map((buffer, shard) => {
      if (workerOf(shard, control.workers) !== index) return undefined;
      return new CounterTable(buffer, shard, incarnation, data.onFull, beat);
    });
    const tableOf = (id: Identity) => {
      const table = tables[shardOf(id)];
      if (table === undefined)
        throw new MemoryError(`shard ${shardOf(id)} came to worker ${index}`);
      return table;
    };
    const inboxes = data.links.map((links, acceptor) => {
      const link = attachLink(links[index], acceptor, index);
      return new Inbox(link, tableOf, clock, lane, doors[acceptor]);
    });
    const own = tables.filter((table) => table !== undefined);
    const sweeps = new Sweeps(own, incarnation, lane);
    const checkpoints = new Checkpoints(own, incarnation, data.checkpoints, lane);
    const naps = doors.length === 0 ? NAPS : 0;
    try {
      work(inboxes, sweeps, checkpoints, clock, lane, naps);
      // Nobody decides any more, and what was handed over is done: this one forgets nothing.
      checkpoints.writeLast(clock.nowMs());
    } finally {
      checkpoints.close();
    }
    return undefined;
  } catch (error) {
    if (error instanceof MemoryError) return error.message;
    throw error;
  } finally {
    // The thread may go on with another run, which has doors of its own.
    for (const door of doors) door.close();
  }
}

/** @param naps how often to rest in vain before going to sleep */
function work(
  inboxes: readonly Inbox[],
  sweeps: Sweeps,
  checkpoints: Checkpoints,
  clock: Clock,
  lane: WorkerLane,
  naps: number,
): void {
  const hasWork = () => inboxes.some((inbox) => !inbox.isEmpty()) || lane.isStopping;
  let napsLeft = 0;
  for (;;) {
    lane.beat();
    // Read before the rings are: what was put in before the stop is done before it.
    const { isStopping } = lane;
    let served = 0;
    for (const inbox of inboxes) served += inbox.serve(SERVE_MOST);
    if (served === 0 && isStopping) return;
    if (served > 0) napsLeft = naps;
    const nowMs = clock.nowMs();
    const sleepMs = Math.min(sweeps.step(nowMs), checkpoints.step(nowMs));
    if (sleepMs === 0 || served >= SERVE_MOST) continue;
    if (napsLeft > 0) {
      napsLeft--;
      nap(lane.words, BELL, NAP_MS);
    } else if (served === 0) {
      sleep(lane.words, BELL, Math.min(sleepMs, WORKER_LOOK_MS), hasWork);
    }
  }
}
