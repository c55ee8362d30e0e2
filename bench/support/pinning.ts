/** Pins processes to a CPU, by taskset of util-linux. */

import { spawnSync } from 'node:child_process';
import { availableParallelism } from 'node:os';

/** Whether a server and a generator can have a CPU each. */
export const canPin =
  availableParallelism() > 1 && spawnSync('taskset', ['-c', '0', 'true']).status === 0;

/** @param cpu its number; undefined for any @returns a command and its arguments */
export function pinned(
  cpu: number | undefined,
  command: string,
  args: readonly string[],
): [command: string, args: string[]] {
  if (cpu === undefined) return [command, [...args]];
  return ['taskset', ['-c', String(cpu), command, ...args]];
}
