/**
 * Decides whether a thread without a heartbeat is unresponsive, or only waits for a CPU. A watcher
 * polls the heartbeats of other threads. It counts the time that a thread misses them only as far
 * as the thread could have run:
 *
 *   state R         the CPU time that it used: the rest of the time it had no CPU
 *   state T, t      nothing: it is stopped
 *   asleep          the time since the last poll, if the thread was asleep then too. But it may
 *                   wait for another thread, as for helpers of V8 in a garbage collection. So if
 *                   others are in state R at both polls, only the CPU time of the one that used
 *                   least, and at least a fiftieth of the interval of the polls
 *   unknown         as asleep; without procfs, the interval of the polls
 *
 * A late poll counts only that fiftieth of sleep: what delayed the watcher may have delayed the
 * thread. So does one at which procfs could not be read. The fiftieth bounds how long a machine
 * that is always busy hides a thread that sleeps for ever: 500 polls for 2 s at polls of 200 ms.
 *
 * Procfs is read only while a heartbeat is overdue, and in a start or a stop. A wrong id in shared
 * memory makes a thread unknown or shows another one, and neither hides for ever that the thread is
 * unresponsive.
 */

import { monotonicMs } from './clock.ts';
import { kernelThreadId, type ProcessTimes, readProcessTimes } from './thread-times.ts';

/** Heartbeats and polls have the same interval, so one poll in between is often missed. */
const OVERDUE_POLLS = 2;

/** A poll that comes after so many intervals is late. Also the most that one poll counts. */
const LATE_POLLS = 2;

/** The part of an interval that a poll counts at least for a thread that is asleep. */
const SLEEP_SHARE_MIN = 1 / 50;

/** The time between two polls, and the threads at both of them. */
export interface PollInterval {
  ms: number;
  /** The planned interval. */
  pollMs: number;
  /** Undefined if no heartbeat was overdue at the first of the two polls, or the read failed. */
  before: ProcessTimes | undefined;
  /** Undefined if the read failed, and empty without procfs. */
  after: ProcessTimes | undefined;
  /** The id of the watcher's own thread, which runs at each poll. */
  watcher: number;
}

const isRunnable = (state: string) => state === 'R';
const isStopped = (state: string) => state === 'T' || state === 't';
const isAsleep = (state: string) => !isRunnable(state) && !isStopped(state);

/** The CPU time of a thread between two polls. A new thread can have the id of an older one. */
function usedMs({ ms, before, after }: PollInterval, thread: number): number {
  const was = before?.get(thread);
  const is = after?.get(thread);
  if (was === undefined || is === undefined) return 0;
  return Math.min(ms, Math.max(0, is.cpuMs - was.cpuMs));
}

/** The part of an interval in which no thread of the process lacked a CPU. */
export function computeProcessMs(interval: PollInterval, except?: number): number {
  const { ms, pollMs, before, after, watcher } = interval;
  if (after?.size === 0) return pollMs;
  const minMs = pollMs * SLEEP_SHARE_MIN;
  if (before === undefined || after === undefined || ms >= LATE_POLLS * pollMs) return minMs;
  const waiting = [...after].filter(([thread, { state }]) => {
    const wasRunnable = isRunnable(before.get(thread)?.state ?? '');
    return wasRunnable && isRunnable(state) && thread !== watcher && thread !== except;
  });
  return Math.max(minMs, Math.min(ms, ...waiting.map(([thread]) => usedMs(interval, thread))));
}

/** The part of an interval in which a thread could have run. */
function computeThreadMs(interval: PollInterval, thread: number): number {
  const { pollMs, before, after, watcher } = interval;
  const is = after?.get(thread);
  if (is === undefined || thread === watcher) return computeProcessMs(interval);
  if (isStopped(is.state)) return 0;
  // Bounded, in case the clock of CPU times jumps, or the machine was suspended.
  const cpuMs = Math.min(usedMs(interval, thread), LATE_POLLS * pollMs);
  const wasAsleep = isAsleep(before?.get(thread)?.state ?? is.state);
  if (!wasAsleep || !isAsleep(is.state)) return cpuMs;
  return Math.max(cpuMs, computeProcessMs(interval, thread));
}

/** The polls of a watcher: what threads could do between one and the next. */
export class PollTimes {
  readonly #pollMs: number;
  readonly #nowMs: () => number;
  readonly #readTimes: () => ProcessTimes | undefined;
  /** 0 without procfs: finding that out needs no descriptor, so a lack of them cannot hide it. */
  readonly #watcher = kernelThreadId();
  #lastMs: number;
  #ms = 0;
  #before: ProcessTimes | undefined;
  #after: ProcessTimes | undefined;
  #isRead = false;

  /** @param pollMs the interval at which `poll` is called */
  constructor(
    pollMs: number,
    nowMs = monotonicMs,
    readTimes: () => ProcessTimes | undefined = readProcessTimes,
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
    this.#isRead = false;
  }

  /** The time since the poll before this one. */
  get ms(): number {
    return this.#ms;
  }

  /** Reads the threads, once at a poll. The first of several polls in a row has nothing before. */
  readInterval(): PollInterval {
    if (!this.#isRead) this.#after = this.#watcher === 0 ? new Map() : this.#readTimes();
    this.#isRead = true;
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
  /** The part of it in which the thread could have run. */
  countedMs: number;
  /**
   * The last state in procfs, and how the thread spent the time; '' and 0 without procfs. Procfs is
   * not read at the first polls, so the figures do not add up to `silentMs`.
   */
  threadState: string;
  cpuMs: number;
  /** In state R without a CPU. */
  runnableMs: number;
  asleepMs: number;
}

const NO_SILENCE: Silence = {
  ...{ silentMs: 0, countedMs: 0, threadState: '', cpuMs: 0, runnableMs: 0, asleepMs: 0 },
};

/** The heartbeats of one thread, as a watcher sees them. */
export class HeartbeatWatch {
  #lastHeartbeats = -1;
  #missedPolls = 0;
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
      this.#silence = { ...NO_SILENCE };
      return;
    }
    this.#silence.silentMs += times.ms;
    if (++this.#missedPolls < OVERDUE_POLLS) return;
    const interval = times.readInterval();
    this.#silence.countedMs += computeThreadMs(interval, thread);
    this.#record(interval, thread);
  }

  /** The time since the last heartbeat in which the thread could have run. */
  get missedMs(): number {
    return this.#silence.countedMs;
  }

  /** In whole milliseconds. */
  get silence(): Silence {
    const silence = this.#silence;
    return {
      silentMs: Math.round(silence.silentMs),
      countedMs: Math.round(silence.countedMs),
      threadState: silence.threadState,
      cpuMs: Math.round(silence.cpuMs),
      runnableMs: Math.round(silence.runnableMs),
      asleepMs: Math.round(silence.asleepMs),
    };
  }

  #record(interval: PollInterval, thread: number): void {
    const { ms, before, after } = interval;
    const is = after?.get(thread);
    if (is === undefined) return;
    const silence = this.#silence;
    silence.threadState = is.state;
    if (before === undefined) return;
    const cpuMs = usedMs(interval, thread);
    silence.cpuMs += cpuMs;
    if (isRunnable(is.state)) silence.runnableMs += ms - cpuMs;
    if (isAsleep(is.state)) silence.asleepMs += ms - cpuMs;
  }
}

/** For a message about an unresponsive thread. */
export function describeSilence(silence: Silence): string {
  const { silentMs, countedMs, threadState, cpuMs, runnableMs, asleepMs } = silence;
  const text = `no heartbeat for ${silentMs} ms`;
  const counted = `${countedMs} ms of it count`;
  if (threadState === '') return `${text}; ${counted}`;
  return (
    `${text}, in which it used ${cpuMs} ms of CPU time, was runnable without a CPU for` +
    ` ${runnableMs} ms and asleep for ${asleepMs} ms; ${counted}; its state is ${threadState}`
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
