/**
 * The threads of this process as the kernel sees them: whether each one runs, waits for a CPU or
 * sleeps, and the CPU time that it has used. Read from procfs, which only Linux has, and not every
 * sandbox: without it there are no threads. `proc_pid_stat(5)` describes the files.
 */

import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

/** The unit of CPU times in procfs: the kernel gives all programs 100 ticks in a second. */
const TICK_MS = 10;

/** Fields of a stat line, counted from the first one behind the name of the thread. */
const FIELD = { state: 0, userTicks: 11, systemTicks: 12 } as const;

export interface ThreadTimes {
  /** One letter: R runs or waits for a CPU, S and D sleep, T and t are stopped. */
  state: string;
  cpuMs: number;
}

/** By the id of the thread in the kernel. Empty without procfs. */
export type ProcessTimes = ReadonlyMap<number, ThreadTimes>;

/** The id of this thread in the kernel, which is not Node's `threadId`; 0 without procfs. */
export function kernelThreadId(): number {
  try {
    // As in 4711/task/4712.
    return Number(readlinkSync('/proc/thread-self').split('/').at(-1));
  } catch {
    return 0;
  }
}

/** @param directory with a directory for each thread */
export function readProcessTimes(directory = '/proc/self/task'): ProcessTimes {
  const times = new Map<number, ThreadTimes>();
  for (const name of listThreads(directory)) {
    try {
      times.set(Number(name), parseStat(readFileSync(`${directory}/${name}/stat`, 'latin1')));
    } catch {
      // The thread has ended since it was listed.
    }
  }
  // A sandbox may have these files and not count the CPU time: every process has used some.
  const isCounted = [...times.values()].some(({ cpuMs }) => cpuMs > 0);
  return isCounted ? times : new Map();
}

function listThreads(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}

/** @param line a stat file: the name of the thread is in parentheses, and may contain some */
export function parseStat(line: string): ThreadTimes {
  const fields = line.slice(line.lastIndexOf(')') + 2).split(' ');
  const ticks = Number(fields[FIELD.userTicks]) + Number(fields[FIELD.systemTicks]);
  return { state: fields[FIELD.state], cpuMs: ticks * TICK_MS };
}
