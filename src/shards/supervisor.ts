/**
 * Keeps the shard workers running, on the main thread. A run that throws, exits, hangs or cannot
 * begin is followed by another, at once or after a wait that doubles while runs end early. Before
 * it begins, the locks of the one before are broken, which nobody else may do, and only when its
 * thread has ended or gone on to something else. Rings and shards lie in shared memory: the next
 * run goes on where they stand.
 *
 * Signs of life are counted in looks of this thread, as for acceptors. A worker that found its
 * memory damaged ends the process.
 */

import type { MessagePort } from 'node:worker_threads';
import type { Control } from '../control.ts';
import { attachTable, type Table } from '../counters/buffer.ts';
import { lockOf } from '../counters/layout.ts';
import { breakLock } from '../counters/lock.ts';
import { BELL, type WorkerLane } from '../lanes.ts';
import {
  ACCEPTORS_MAX,
  DISK_LOOKS_MISSED,
  THREAD_BOOT_MS,
  WORKER_BACKOFF_MS,
  WORKER_LOOK_MS,
  WORKER_LOOKS_MISSED,
} from '../limits.ts';
import type { Log } from '../observe/log.ts';
import { dieAtOnce } from '../supervise/fatal.ts';
import { ring } from './bell.ts';
import { ShardPool } from './pool.ts';
import { ENTRIES, ringDepth } from './ring.ts';
import { workerOf } from './shard.ts';
import type { ShardWorkerData } from './worker.ts';

/** Behind those of the acceptors. */
const FIRST_INCARNATION = ACCEPTORS_MAX + 1;

/** A run that went on for so many looks was no early end. */
const SETTLED_LOOKS = 3;

/**
 * How long the workers may take to empty their rings and to write all counters at the end; and how
 * long none of them may be at it.
 */
const STOP_MOST_MS = 20_000;
const STOP_IDLE_MS = 2_000;
/** How long all threads may take to end after that; some 10 ms are usual on an idle machine. */
const STOP_END_MS = 5_000;

/** How long a thread may take to end when it is told to, before it is left alone. */
const END_MS = 1_000;
/** The longest that a run is waited for to begin; the wait doubles while runs do not. */
const BOOT_MOST_MS = 12 * THREAD_BOOT_MS;

const STOPPED = 'it was told to stop';
const HANGS = 'it hangs';
const NOT_BEGUN = 'it did not begin';

const after = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms).unref());

interface Shepherd {
  index: number;
  lane: WorkerLane;
  beats: number;
  missed: number;
  /** Looks since its run was submitted, and since it has begun. */
  looks: number;
  lived: number;
  /** Whether a run is submitted, which may not have begun. */
  isSubmitted: boolean;
  /** Why this thread ended the run itself, if it did. */
  verdict: string | undefined;
  abort: AbortController;
  earlyEnds: number;
  kept: Promise<void>;
}

export class ShardWorkers {
  replaced = 0;
  readonly #pool: ShardPool;
  readonly #tables: Table[];
  readonly #links: Int32Array[];
  readonly #doors: (worker: number) => MessagePort[];
  readonly #log: Log;
  readonly #workers: Shepherd[];
  readonly #watch: NodeJS.Timeout;
  #incarnation = FIRST_INCARNATION;
  /** Nobody waits for the workers any more. */
  #ended = false;

  /** @param doors makes the ends of new channels to all acceptors, where they wait for answers */
  constructor(
    data: ShardWorkerData,
    control: Control,
    doors: (worker: number) => MessagePort[],
    log: Log,
  ) {
    this.#tables = data.tables.map(attachTable);
    this.#links = data.links.flat().map((link) => new Int32Array(link));
    this.#doors = doors;
    this.#log = log;
    this.#pool = new ShardPool(control.workers, data, (error) => this.#threadFailed(error));
    this.#workers = control.workerLanes().map((lane, index) => ({
      index,
      lane,
      beats: 0,
      missed: 0,
      looks: 0,
      lived: 0,
      isSubmitted: false,
      verdict: undefined,
      abort: new AbortController(),
      earlyEnds: 0,
      kept: Promise.resolve(),
    }));
    for (const worker of this.#workers) worker.kept = this.#keep(worker);
    this.#watch = setInterval(() => this.#look(), WORKER_LOOK_MS);
  }

  get wanted(): number {
    return this.#workers.length;
  }

  /** Workers whose run has begun and shows that it lives. */
  get running(): number {
    return this.#workers.filter(({ lane, missed }) => {
      return lane.thread !== 0 && missed < WORKER_LOOKS_MISSED / 2;
    }).length;
  }

  /**
   * Lets the workers empty their rings, which nobody fills any more, and write the last checkpoint,
   * and ends them. One that dies over it is still followed by another.
   */
  async stop(): Promise<void> {
    for (const { lane } of this.#workers) {
      lane.stop();
      ring(lane.words, BELL);
    }
    const isDone = await Promise.race([this.#allKept(), this.#outOfPatience()]);
    if (!isDone) this.#log.error('shard workers did not come to write the last checkpoint');
    this.#ended = true;
    clearInterval(this.#watch);
    // A thread may still be booting though another one has done the work it was started for.
    const hasBooted = await within(THREAD_BOOT_MS, this.#pool.booted());
    if (!hasBooted) this.#log.warn('a thread for a shard worker was ended before it had booted');
    const left = this.#links.reduce((sum, link) => sum + ringDepth(link, ENTRIES), 0);
    if (left > 0) this.#log.warn({ entries: left }, 'shard workers left entries in their rings');
    const hung = setTimeout(() => dieAtOnce('a shard worker does not end'), STOP_END_MS);
    await this.#pool.destroy();
    clearTimeout(hung);
  }

  async #allKept(): Promise<true> {
    await Promise.all(this.#workers.map(({ kept }) => kept));
    return true;
  }

  /** Resolves when none has been at work for a while, or when it takes too long. */
  async #outOfPatience(): Promise<false> {
    let idleMs = 0;
    for (let ms = 0; ms < STOP_MOST_MS && idleMs < STOP_IDLE_MS; ms += WORKER_LOOK_MS) {
      await after(WORKER_LOOK_MS);
      idleMs = this.#workers.some(({ lane }) => lane.thread !== 0) ? 0 : idleMs + WORKER_LOOK_MS;
    }
    return false;
  }

  async #keep(worker: Shepherd): Promise<void> {
    while (!this.#ended) {
      const cause = await this.#run(worker);
      if (cause === STOPPED || this.#ended) return;
      this.replaced++;
      worker.earlyEnds = worker.lived < SETTLED_LOOKS ? worker.earlyEnds + 1 : 0;
      const waitMs = doubled(WORKER_BACKOFF_MS.first, worker.earlyEnds, WORKER_BACKOFF_MS.most);
      this.#log.error({ worker: worker.index, cause, waitMs }, 'a shard worker is replaced');
      await after(waitMs);
    }
  }

  /** One run, from its submission until nothing of it is left. @returns why it ended */
  async #run(worker: Shepherd): Promise<string> {
    const { index, lane } = worker;
    const incarnation = this.#incarnation++;
    const doors = this.#doors(index);
    worker.looks = 0;
    worker.lived = 0;
    worker.missed = 0;
    worker.verdict = undefined;
    worker.abort = new AbortController();
    lane.expect(incarnation);
    worker.isSubmitted = true;
    let cause = STOPPED;
    try {
      const damage = await this.#pool.run({ index, incarnation, doors }, worker.abort.signal);
      if (damage !== undefined) dieAtOnce(`shard worker ${index} failed: ${damage}`);
    } catch (error) {
      cause = worker.verdict ?? (error instanceof Error ? error.message : String(error));
      // Of a run that never began.
      for (const door of doors) door.close();
    }
    worker.isSubmitted = false;
    const { thread } = lane;
    lane.expect(0);
    await this.#pool.ended(thread);
    this.#breakLocks(index, incarnation);
    return cause;
  }

  #breakLocks(index: number, incarnation: number): void {
    for (const [shard, { words, groups }] of this.#tables.entries()) {
      if (workerOf(shard, this.#workers.length) !== index) continue;
      for (let group = 0; group < groups; group++) breakLock(words, lockOf(group), incarnation);
    }
  }

  #look(): void {
    for (const worker of this.#workers) {
      const { lane } = worker;
      worker.looks++;
      if (!worker.isSubmitted || worker.verdict !== undefined) continue;
      if (lane.thread === 0) {
        const bootMs = doubled(THREAD_BOOT_MS, worker.earlyEnds, BOOT_MOST_MS);
        if (worker.looks * WORKER_LOOK_MS >= bootMs) this.#giveUp(worker, NOT_BEGUN, true);
        continue;
      }
      worker.lived++;
      // Read before the heartbeat, which a worker that leaves the disk makes before it says so.
      const most = lane.isAtDisk ? DISK_LOOKS_MISSED : WORKER_LOOKS_MISSED;
      const { beats } = lane;
      worker.missed = beats === worker.beats ? worker.missed + 1 : 0;
      worker.beats = beats;
      if (worker.missed >= most) {
        worker.verdict = HANGS;
        void this.#pool.end(lane.thread);
      }
    }
  }

  /**
   * A thread failed that had no run yet. piscina starts none in its place, so that a run may wait
   * for it for ever; the next run that is submitted makes piscina start one.
   */
  #threadFailed(error: Error): void {
    if (this.#ended || this.#pool.size >= this.#workers.length) return;
    for (const worker of this.#workers) {
      if (worker.lane.thread === 0) this.#giveUp(worker, error.message, false);
    }
  }

  /**
   * Ends a run that has not begun: whatever thread was meant for it is none of those that run.
   * @param endsBooting whether threads that are booting are ended too: they take too long
   */
  #giveUp(worker: Shepherd, verdict: string, endsBooting: boolean): void {
    if (!worker.isSubmitted || worker.verdict !== undefined) return;
    const { abort } = worker;
    worker.verdict = verdict;
    worker.lane.expect(0);
    const running = this.#workers.map(({ lane }) => lane.thread);
    const others = this.#pool.endOthers(running, endsBooting);
    Promise.race([others, after(END_MS)]).then(() => abort.abort());
  }
}

/** @returns whether something was done in time */
function within(ms: number, done: Promise<unknown>): Promise<boolean> {
  return Promise.race([done.then(() => true), after(ms).then(() => false)]);
}

function doubled(first: number, times: number, most: number): number {
  return Math.min(most, first * 2 ** Math.min(times, 20));
}
