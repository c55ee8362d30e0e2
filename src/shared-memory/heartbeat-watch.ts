/**
 * Decides whether a thread without a heartbeat is unresponsive, or only waits for a CPU. A watcher
 * polls the heartbeats of other threads. It counts the time that a thread misses them only as far
 * as the thread could have run:
 *
 *   state R         the CPU time that it used: the rest of the time it had no CPU
 *   state T, t      nothing: it is stopped
 *   asleep          the time since the last poll, if the thread was asleep then too. But it may
 *                   wait for another thread, as for helpers of V8 in a garbage collection. So if
 *                   others are in state R, only the CPU time of the one that used least
 *   unknown         as asleep; without procfs, the interval of the polls
 *
 * A late poll counts no sleep: what delayed the watcher may have delayed the thread. Procfs is read
 * only while a heartbeat is overdue, and in a start or a stop. A wrong id in shared memory makes a
 * thread unknown or shows another one, and neither hides for ever that the thread is unresponsive.
 */

import { monotonicMs } from './clock.ts';
import { kernelThreadId, type ProcessTimes, readProcessTimes } from './thread-times.ts';

/** Heartbeats and polls have the same interval, so one poll in between is often missed. */
const OVERDUE_POLLS = 2;

/** The time between two polls, and the threads at both of them. */
export interface PollInterval {
  ms: number;
  /** The planned interval. */
  pollMs: number;
  /** Undefined where no heartbeat was overdue at the first of the two polls. */
  before: ProcessTimes | undefined;
  after: ProcessTimes;
  /** The id of the watcher's own thread, which runs at each poll. */
  watcher: number;
}

const isRunnable = (state: string) => state === 'R';
const isStopped = (state: string) => state === 'T' || state === 't';
const isAsleep = (state: string) => !isRunnable(state) && !isStopped(state);

/** The CPU time of a thread between two polls. A new thread can have the id of an older one. */
function usedMs(before: ProcessTimes, after: ProcessTimes, thread: number): number {
  const cpuMs = (times: ProcessTimes) => times.get(thread)?.cpuMs ?? 0;
  return Math.max(0, cpuMs(after) - cpuMs(before));
}

/** The part of an interval in which no thread of the process lacked a CPU. */
export function computeProcessMs(interval: PollInterval, except?: number): number {
  const { ms, pollMs, before, after, watcher } = interval;
  if (after.size === 0) return pollMs;
  if (before === undefined || ms >= 2 * pollMs) return 0;
  const waiting = [...after].filter(([thread, { state }]) => {
    return isRunnable(state) && thread !== watcher && thread !== except;
  });
  return Math.min(ms, ...waiting.map(([thread]) => usedMs(before, after, thread)));
}

/** The part of an interval in which a thread could have run. */
export function computeThreadMs(interval: PollInterval, thread: number): number {
  const { before, after, watcher } = interval;
  const is = after.get(thread);
  if (is === undefined || thread === watcher) return computeProcessMs(interval);
  const was = before?.get(thread);
  if (before === undefined || was === undefined || isStopped(is.state)) return 0;
  const cpuMs = usedMs(before, after, thread);
  if (!isAsleep(is.state) || !isAsleep(was.state)) return cpuMs;
  return Math.max(cpuMs, computeProcessMs(interval, thread));
}

/** The polls of a watcher: what threads could do between one and the next. */
export class PollTimes {
  readonly #pollMs: number;
  readonly #nowMs: () => number;
  readonly #readTimes: () => ProcessTimes;
  readonly #watcher = kernelThreadId();
  #lastMs: number;
  #ms = 0;
  #before: ProcessTimes | undefined;
  #after: ProcessTimes | undefined;

  /** @param pollMs the interval at which `poll` is called */
  constructor(
    pollMs: number,
    nowMs = monotonicMs,
    readTimes: () => ProcessTimes = readProcessTimes,
  ) {
    this.#pollMs = pollMs;
    this.#nowMs = nowMs;
    this.#readTimes = readTimes;
    this.#lastMs = nowMs();
  }

  /** Begins a poll. */
  poll(): void {
    const nowMs = this.#nowMs();
    this.#ms = nowMs - this.#lastMs;
    this.#lastMs = nowMs;
    this.#before = this.#after;
    this.#after = undefined;
  }

  /** The time since the poll before this one. */
  get ms(): number {
    return this.#ms;
  }

  /** Reads the threads, once at a poll. The first of several polls in a row has nothing before. */
  readInterval(): PollInterval {
    this.#after ??= this.#readTimes();
    return {
      ms: this.#ms,
      pollMs: this.#pollMs,
      before: this.#before,
      after: this.#after,
      watcher: this.#watcher,
    };
  }
}

/** What was seen of a thread since its last heartbeat. */
export interface Silence {
  /** Since the poll that saw the last heartbeat. */
  silentMs: number;
  /** The last state in procfs, and how the time was spent; '' and 0 without procfs. */
  threadState: string;
  cpuMs: number;
  /** In state R without a CPU. */
  runnableMs: number;
  asleepMs: number;
}

const NO_SILENCE: Silence = {
  ...{ silentMs: 0, threadState: '', cpuMs: 0, runnableMs: 0, asleepMs: 0 },
};

/** The heartbeats of one thread, as a watcher sees them. */
export class HeartbeatWatch {
  #lastHeartbeats = -1;
  #missedPolls = 0;
  #missedMs = 0;
  #silence = { ...NO_SILENCE };

  /**
   * Call it at each poll.
   * @param heartbeats a number that changes with each heartbeat
   * @param thread the id in the kernel that the thread has announced
   */
  observe(times: PollTimes, heartbeats: number, thread: number): void {
    if (!Object.is(heartbeats, this.#lastHeartbeats)) {
      this.#lastHeartbeats = heartbeats;
      this.#missedPolls = 0;
      this.#missedMs = 0;
      this.#silence = { ...NO_SILENCE };
      return;
    }
    this.#silence.silentMs += times.ms;
    if (++this.#missedPolls < OVERDUE_POLLS) return;
    const interval = times.readInterval();
    this.#missedMs += computeThreadMs(interval, thread);
    this.#record(interval, thread);
  }

  /** The time since the last heartbeat in which the thread could have run. */
  get missedMs(): number {
    return this.#missedMs;
  }

  get silence(): Silence {
    const { silentMs, ...rest } = this.#silence;
    return { silentMs: Math.round(silentMs), ...rest };
  }

  #record({ ms, before, after }: PollInterval, thread: number): void {
    const is = after.get(thread);
    if (is === undefined) return;
    const silence = this.#silence;
    silence.threadState = is.state;
    if (before === undefined) return;
    const cpuMs = usedMs(before, after, thread);
    const restMs = Math.max(0, Math.round(ms - cpuMs));
    silence.cpuMs += cpuMs;
    if (isRunnable(is.state)) silence.runnableMs += restMs;
    if (isAsleep(is.state)) silence.asleepMs += restMs;
  }
}

/** For a message about an unresponsive thread. */
export function describeSilence(silence: Silence): string {
  const { silentMs, threadState, cpuMs, runnableMs, asleepMs } = silence;
  const text = `no heartbeat for ${silentMs} ms`;
  if (threadState === '') return text;
  return (
    `${text}, in which it used ${cpuMs} ms of CPU time, was runnable without a CPU for` +
    ` ${runnableMs} ms and asleep for ${asleepMs} ms; its state is ${threadState}`
  );
}

/**
 * Calls back once the threads of this process could run for a time. The wait of a starved process
 * is longer.
 * @returns what to call before that time is over
 */
export function afterProcessMs(ms: number, pollMs: number, onTimeout: () => void): () => void {
  const times = new PollTimes(pollMs);
  let leftMs = ms;
  const timer = setInterval(() => {
    times.poll();
    leftMs -= computeProcessMs(times.readInterval());
    if (leftMs > 0) return;
    clearInterval(timer);
    onTimeout();
  }, pollMs);
  return () => clearInterval(timer);
}

/** @returns whether the work was done in a time in which the threads of this process could run */
export function completesWithin(
  ms: number,
  pollMs: number,
  work: Promise<unknown>,
): Promise<boolean> {
  return new Promise((resolve) => {
    const stopWaiting = afterProcessMs(ms, pollMs, () => resolve(false));
    work.then(() => {
      stopWaiting();
      resolve(true);
    });
  });
}
