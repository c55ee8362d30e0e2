/**
 * A shard worker: a task of the piscina pool that ends only when it is told to. It holds some of
 * the shards, does what acceptors hand over for them, and sweeps them. It sleeps when there is
 * nothing to do, and shows in its lane that it lives.
 *
 * It may die at any point: the supervisor breaks its locks and starts the task again, which goes on
 * where the rings stand. Damaged shared memory is its result, and the end of the process.
 */

import { type MessagePort, threadId } from 'node:worker_threads';
import { workerData } from 'piscina';
import { Control } from '../control.ts';
import type { OnFull } from '../counters/decision.ts';
import type { Identity } from '../counters/hash.ts';
import { Sweeper } from '../counters/sweep.ts';
import { CounterTable } from '../counters/table.ts';
import { MemoryError } from '../errors.ts';
import { BELL, WORK, type WorkerLane } from '../lanes.ts';
import { SWEEP_MS, WORKER_LOOK_MS } from '../limits.ts';
import { Clock } from '../time.ts';
import { nap, sleep } from './bell.ts';
import { Inbox } from './inbox.ts';
import { attachLink } from './ring.ts';
import { shardOf, workerOf } from './shard.ts';

/** What every thread of the pool is started with. */
export interface ShardWorkerData {
  control: SharedArrayBuffer;
  tables: SharedArrayBuffer[];
  /** By acceptor and worker. */
  links: SharedArrayBuffer[][];
  onFull: OnFull;
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
    const sweepers = tables.flatMap((table) => {
      return table === undefined ? [] : [new Sweeper(table, incarnation)];
    });
    const rounds = new Rounds(sweepers, lane);
    work(inboxes, rounds, clock, lane, doors.length === 0 ? NAPS : 0);
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
  rounds: Rounds,
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
    const sleepMs = rounds.step(clock.nowMs());
    if (sleepMs === 0 || served >= SERVE_MOST) continue;
    if (napsLeft > 0) {
      napsLeft--;
      nap(lane.words, BELL, NAP_MS);
    } else if (served === 0) {
      sleep(lane.words, BELL, Math.min(sleepMs, WORKER_LOOK_MS), hasWork);
    }
  }
}

/** Sweeps all shards of a worker in turn, a step at a time, and rests between two rounds. */
class Rounds {
  readonly #sweepers: readonly Sweeper[];
  readonly #lane: WorkerLane;
  #at = 0;
  #nextMs = 0;

  constructor(sweepers: readonly Sweeper[], lane: WorkerLane) {
    this.#sweepers = sweepers;
    this.#lane = lane;
  }

  /** @returns how long there is nothing to sweep, 0 in the middle of a round */
  step(nowMs: number): number {
    if (nowMs < this.#nextMs) return this.#nextMs - nowMs;
    const sweeper = this.#sweepers[this.#at];
    const before = sweeper.removed;
    if (sweeper.step(nowMs)) this.#at++;
    this.#lane.add(WORK.swept, sweeper.removed - before);
    if (this.#at < this.#sweepers.length) return 0;
    this.#at = 0;
    this.#nextMs = nowMs + SWEEP_MS;
    this.#lane.set(
      WORK.live,
      this.#sweepers.reduce((sum, { live }) => sum + live, 0),
    );
    return SWEEP_MS;
  }
}
