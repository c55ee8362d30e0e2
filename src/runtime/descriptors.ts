/**
 * How many connections may be open: as many as asked for, or as the process's limit of descriptors
 * leaves beside what else it opens. So a connection too many is accepted and told so, while there
 * are descriptors for it, for the store and for the admin port. Read on the main thread, once.
 */

import { readFileSync } from 'node:fs';
import { RESERVED_DESCRIPTORS, RESERVED_DESCRIPTORS_PER_THREAD } from '../core/constants.ts';
import { StartError } from '../core/errors.ts';

/** @returns undefined where the system does not say; Node has raised it as far as it may */
export function descriptorLimit(): number | undefined {
  try {
    const [, soft] =
      /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? [];
    return soft === undefined ? undefined : Number(soft);
  } catch {
    return undefined;
  }
}

/** @throws StartError when there are too few descriptors to serve anybody */
export function fitConnections(
  descriptors: number | undefined,
  requested: number,
  threads: number,
): number {
  if (descriptors === undefined) return requested;
  const kept = RESERVED_DESCRIPTORS + threads * RESERVED_DESCRIPTORS_PER_THREAD;
  if (descriptors <= kept) {
    throw new StartError(
      `the process may open ${descriptors} files (ulimit -n), of which weir keeps ${kept} for` +
        ' itself: allow more',
    );
  }
  return Math.min(requested, descriptors - kept);
}
