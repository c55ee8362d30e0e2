/** Whether a program that a test runs is installed. */

import { spawnSync } from 'node:child_process';

/** Whether to skip tests of a program: it is not installed, and this is not CI. */
export function isMissing(program: string, ...args: string[]): boolean {
  return spawnSync(program, args).error !== undefined && process.env.CI === undefined;
}
