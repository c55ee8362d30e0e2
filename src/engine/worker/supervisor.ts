/**
 * Keeps the shard workers running, on the main thread. A run that throws, exits, is unresponsive or
 * does not start is followed by another, at once or after a wait that doubles while runs end early.
 * Before the next run starts, this thread breaks the locks of the last one: no other thread may,
 * and only when the thread of the run has ended or runs something else. Queues and shards are in
 * shared memory, so the next run continues where they are.
 *
 * A worker that has no CPU is not unresponsive: see `heartbeat-watch.ts`. The timeouts of a start
 * and of a stop count only time in which all threads could run. A worker that finds its memory
 * damaged ends the process.
 */

import type { MessagePort } from 'node:worker_threads';
import {
  ACCEPTORS_MAX,
  DISK_UNRESPONSIVE_MS,
  THREAD_BOOT_MS,
  WORKER_BACKOFF_MS,
  WORKER_HEARTBEAT_MS,
  WORKER_UNRESPONSIVE_MS,
} from '../../core/constants.ts';
import { killProcess } from '../../core/fatal.ts';
import type { Log } from '../../core/log.ts';
import type { Control } from '../../shared-memory/control.ts';
import {
  afterProcessMs,
  completesWithin,
  computeProcessMs,
  HeartbeatWatch,
  PollTimes,
} from '../../shared-memory/heartbeat-watch.ts';
import { WAKE_UP_FLAG, type WorkerStats } from '../../shared-memory/stats.ts';
import type { HostedEngine } from '../engine.ts';
import { CHECK_QUEUE, queueDepth } from '../queue/queue.ts';
import { wakeUp } from '../queue/wake-up.ts';
import { ShardPool } from './pool.ts';

/** The incarnation of the first run. The numbers up to ACCEPTORS_MAX are owners of locks too. */
const FIRST_INCARNATION = ACCEPTORS_MAX + 1;

/** A run that lasts for so many polls has not ended early. */
const EARLY_END_POLLS = 3;

/** How long the workers may take to empty their queues and to write all counters at the end. */
const STOP_TIMEOUT_MS = 20_000;
/** How long none of them may be running in that time: a successor waits, and boots. */
const STOP_IDLE_TIMEOUT_MS = WORKER_BACKOFF_MS.max + THREAD_BOOT_MS;
/** How long all threads may take to end after that: about 10 ms on an idle machine. */
const STOP_TERMINATION_TIMEOUT_MS = 5_000;

/** How long a terminated thread is waited for. */
const TERMINATION_TIMEOUT_MS = 1_000;
/** The longest wait for a run to start. It doubles while runs do not start. */
const BOOT_TIMEOUT_MAX_MS = 12 * THREAD_BOOT_MS;

const CAUSE_STOPPED = 'stopped';
const CAUSE_UNRESPONSIVE = 'unresponsive';
const CAUSE_NOT_STARTED = 'did not start';

const delay = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms).unref());

interface SupervisedWorker {
  index: number;
  stats: WorkerStats;
  watch: HeartbeatWatch;
  /** The time since its run was submitted in which all threads could run. */
  waitedMs: number;
  /** Polls since its run started. */
  pollsSinceStart: number;
  /** Whether a run is submitted; it may not have started. */
  isSubmitted: boolean;
  /** Why this thread ended the run, where it did. */
  terminationCause: string | undefined;
  abort: AbortController;
  earlyEnds: number;
  /** Whether it has ended a run as requested. */
  hasStopped: boolean;
  supervision: Promise<void>;
}

export class ShardWorkerSupervisor {
  replacementCount = 0;
  readonly #pool: ShardPool;
  readonly #engine: HostedEngine;
  readonly #channels: Int32Array[];
  readonly #openNotificationPorts: (worker: number) => MessagePort[];
  readonly #log: Log;
  readonly #workers: SupervisedWorker[];
  readonly #times = new PollTimes(WORKER_HEARTBEAT_MS);
  readonly #pollTimer: NodeJS.Timeout;
  #nextIncarnation = FIRST_INCARNATION;
  /** Whether the workers are no longer waited for. */
  #hasEnded = false;

  /** @param openNotificationPorts opens a port to each acceptor that waits for replies */
  constructor(
    engine: HostedEngine,
    control: Control,
    openNotificationPorts: (worker: number) => MessagePort[],
    log: Log,
  ) {
    this.#engine = engine;
    this.#channels = engine.channels.flat().map((buffer) => new Int32Array(buffer));
    this.#openNotificationPorts = openNotificationPorts;
    this.#log = log;
    this.#pool = new ShardPool(control.workerCount, engine, (error) => {
      this.#onThreadFailure(error);
    });
    this.#workers = control.allWorkerStats().map((stats, index) => ({
      index,
      stats,
      watch: new HeartbeatWatch(),
      waitedMs: 0,
      pollsSinceStart: 0,
      isSubmitted: false,
      terminationCause: undefined,
      abort: new AbortController(),
      earlyEnds: 0,
      hasStopped: false,
      supervision: Promise.resolve(),
    }));
    for (const worker of this.#workers) worker.supervision = this.#supervise(worker);
    this.#pollTimer = setInterval(() => this.#poll(), WORKER_HEARTBEAT_MS);
  }

  /** Workers whose run has started and shows heartbeats. */
  get runningCount(): number {
    return this.#workers.filter(({ stats, watch }) => {
      return stats.threadId !== 0 && watch.missedMs < WORKER_UNRESPONSIVE_MS / 2;
    }).length;
  }

  /**
   * Lets the workers empty their queues, to which nothing is added any more, write the last
   * checkpoint and end. A worker that dies meanwhile is still replaced.
   * @returns false if they do not in time
   */
  async drain(): Promise<boolean> {
    for (const { stats } of this.#workers) {
      stats.requestStop();
      wakeUp(stats.words, WAKE_UP_FLAG);
    }
    const isDone = await Promise.race([this.#allStopped(), this.#stopTimeout()]);
    if (isDone) return true;
    const workers = this.#workers.filter(({ hasStopped }) => !hasStopped).map(({ index }) => index);
    this.#log.error({ workers }, 'shard workers did not write their last checkpoint in time');
    return false;
  }

  /** Ends all threads. */
  async stop(): Promise<void> {
    this.#hasEnded = true;
    clearInterval(this.#pollTimer);
    // A thread may still be starting though another one has done its work.
    const hasBooted = await completesWithin(
      THREAD_BOOT_MS,
      WORKER_HEARTBEAT_MS,
      this.#pool.waitForBoot(),
    );
    if (!hasBooted) this.#log.warn('a thread for a shard worker was ended before it had started');
    const entries = this.#channels.reduce((sum, words) => sum + queueDepth(words, CHECK_QUEUE), 0);
    if (entries > 0) this.#log.warn({ entries }, 'shard workers left entries in their queues');
    const stopWaiting = afterProcessMs(STOP_TERMINATION_TIMEOUT_MS, WORKER_HEARTBEAT_MS, () => {
      killProcess('the threads of the shard workers do not end');
    });
    await this.#pool.destroy();
    stopWaiting();
  }

  async #allStopped(): Promise<true> {
    await Promise.all(this.#workers.map(({ supervision }) => supervision));
    return true;
  }

  /** Resolves when no worker has run for a while, or when it takes too long. */
  async #stopTimeout(): Promise<false> {
    const times = new PollTimes(WORKER_HEARTBEAT_MS);
    let ms = 0;
    let idleMs = 0;
    while (ms < STOP_TIMEOUT_MS && idleMs < STOP_IDLE_TIMEOUT_MS) {
      await delay(WORKER_HEARTBEAT_MS);
      times.poll();
      const processMs = computeProcessMs(times.readInterval());
      ms += processMs;
      idleMs = this.#workers.some(({ stats }) => stats.threadId !== 0) ? 0 : idleMs + processMs;
    }
    return false;
  }

  async #supervise(worker: SupervisedWorker): Promise<void> {
    while (!this.#hasEnded) {
      const cause = await this.#run(worker);
      worker.hasStopped = cause === CAUSE_STOPPED;
      if (worker.hasStopped || this.#hasEnded) return;
      this.replacementCount++;
      worker.earlyEnds = worker.pollsSinceStart < EARLY_END_POLLS ? worker.earlyEnds + 1 : 0;
      const waitMs = computeBackoffMs(
        WORKER_BACKOFF_MS.initial,
        worker.earlyEnds,
        WORKER_BACKOFF_MS.max,
      );
      const seen = cause === CAUSE_UNRESPONSIVE ? worker.watch.silence : {};
      this.#log.error(
        { worker: worker.index, cause, ...seen, waitMs },
        'a shard worker is replaced',
      );
      await delay(waitMs);
    }
  }

  /** One run, from its submission until its locks are broken. @returns why it ended */
  async #run(worker: SupervisedWorker): Promise<string> {
    const { index, stats } = worker;
    const incarnation = this.#nextIncarnation++;
    const notificationPorts = this.#openNotificationPorts(index);
    worker.watch = new HeartbeatWatch();
    worker.waitedMs = 0;
    worker.pollsSinceStart = 0;
    worker.terminationCause = undefined;
    worker.abort = new AbortController();
    stats.expectRun(incarnation);
    worker.isSubmitted = true;
    let cause = CAUSE_STOPPED;
    try {
      const damage = await this.#pool.run(
        { index, incarnation, notificationPorts },
        worker.abort.signal,
      );
      if (damage !== undefined) killProcess(`shard worker ${index} failed: ${damage}`);
    } catch (error) {
      cause = worker.terminationCause ?? (error instanceof Error ? error.message : String(error));
      // The run may not have started, and then closes none.
      for (const port of notificationPorts) port.close();
    }
    worker.isSubmitted = false;
    const { threadId } = stats;
    stats.expectRun(0);
    await this.#pool.waitForEnd(threadId);
    this.#engine.breakLocks(index, incarnation);
    return cause;
  }

  #poll(): void {
    this.#times.poll();
    for (const worker of this.#workers) {
      const { stats, watch } = worker;
      if (!worker.isSubmitted || worker.terminationCause !== undefined) continue;
      if (stats.threadId === 0) {
        const startMs = computeBackoffMs(THREAD_BOOT_MS, worker.earlyEnds, BOOT_TIMEOUT_MAX_MS);
        worker.waitedMs += computeProcessMs(this.#times.readInterval());
        if (worker.waitedMs >= startMs) this.#abandonRun(worker, CAUSE_NOT_STARTED, true);
        continue;
      }
      worker.pollsSinceStart++;
      // Read before the heartbeats: a worker that is done with the disk shows one first.
      const missedMaxMs = stats.isWaitingForDisk ? DISK_UNRESPONSIVE_MS : WORKER_UNRESPONSIVE_MS;
      watch.observe(this.#times, stats.heartbeats, stats.kernelThreadId);
      if (watch.missedMs >= missedMaxMs) {
        worker.terminationCause = CAUSE_UNRESPONSIVE;
        void this.#terminate(worker);
      }
    }
  }

  /** A thread that hangs in native code ends only after that, and until then has no successor. */
  async #terminate({ index, stats, watch }: SupervisedWorker): Promise<void> {
    const { silence } = watch;
    const stopWaiting = afterProcessMs(TERMINATION_TIMEOUT_MS, WORKER_HEARTBEAT_MS, () => {
      this.#log.error({ worker: index, ...silence }, 'an unresponsive shard worker does not end');
    });
    await this.#pool.terminate(stats.threadId);
    stopWaiting();
  }

  /**
   * A thread failed before it had a run. piscina does not replace it, so a run may wait for it for
   * ever. The next run that is submitted makes piscina start a thread.
   */
  #onThreadFailure(error: Error): void {
    if (this.#hasEnded || this.#pool.size >= this.#workers.length) return;
    for (const worker of this.#workers) {
      if (worker.stats.threadId === 0) this.#abandonRun(worker, error.message, false);
    }
  }

  /**
   * Ends a run that has not started, and with it all threads that run nothing.
   * @param includesBooting whether to end threads that are still starting: they take too long
   */
  #abandonRun(worker: SupervisedWorker, cause: string, includesBooting: boolean): void {
    if (!worker.isSubmitted || worker.terminationCause !== undefined) return;
    const { abort } = worker;
    worker.terminationCause = cause;
    worker.stats.expectRun(0);
    const running = this.#workers.map(({ stats }) => stats.threadId);
    const others = this.#pool.terminateOthers(running, includesBooting);
    Promise.race([others, delay(TERMINATION_TIMEOUT_MS)]).then(() => abort.abort());
  }
}

function computeBackoffMs(first: number, doublings: number, max: number): number {
  return Math.min(max, first * 2 ** Math.min(doublings, 20));
}
