/**
 * The threads of this process as the kernel sees them: whether each one runs, waits for a CPU or
 * sleeps, and the CPU time that it has used. Read from procfs, which only Linux has, and not every
 * sandbox. `proc_pid_stat(5)` and `proc_pid_schedstat(5)` describe the files.
 */

import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

/** The unit of CPU times in stat: the kernel gives all programs 100 ticks in a second. */
const TICK_MS = 10;
/** The unit of CPU times in schedstat is the ns. */
const NS_PER_MS = 1e6;

/** Fields of a stat line, counted from the first one behind the name of the thread. */
const FIELD = { state: 0, userTicks: 11, systemTicks: 12 } as const;

export interface ThreadTimes {
  /** One letter: R runs or waits for a CPU, S and D sleep, T and t are stopped. */
  state: string;
  cpuMs: number;
}

/** By the id of the thread in the kernel. Empty where the CPU time is not counted. */
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

/**
 * @param directory with a directory for each thread
 * @returns undefined if they cannot be read, as without a free descriptor
 */
export function readProcessTimes(directory = '/proc/self/task'): ProcessTimes | undefined {
  const times = new Map<number, ThreadTimes>();
  try {
    for (const name of readdirSync(directory)) {
      const stat = readThreadFile(`${directory}/${name}/stat`);
      // Some kernels lack this file, or have only zeros in it.
      const schedstat = readThreadFile(`${directory}/${name}/schedstat`);
      if (stat !== undefined) times.set(Number(name), parseTimes(stat, schedstat));
    }
  } catch {
    return undefined;
  }
  // A sandbox may have these files and not count the CPU time: every process has used some.
  const isCounted = [...times.values()].some(({ cpuMs }) => cpuMs > 0);
  return isCounted ? times : new Map();
}

/** @returns undefined if there is no such file, as when the thread has ended since it was listed */
function readThreadFile(file: string): string | undefined {
  try {
    return readFileSync(file, 'latin1');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ESRCH') return undefined;
    throw error;
  }
}

/**
 * @param stat the name of the thread is in parentheses, and may contain some
 * @param schedstat begins with the CPU time
 */
export function parseTimes(stat: string, schedstat = ''): ThreadTimes {
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const ticks = Number(fields[FIELD.userTicks]) + Number(fields[FIELD.systemTicks]);
  const ns = Number.parseInt(schedstat, 10);
  return { state: fields[FIELD.state], cpuMs: ns > 0 ? ns / NS_PER_MS : ticks * TICK_MS };
}
