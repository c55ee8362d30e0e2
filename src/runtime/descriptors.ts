/**
 * How many connections may be open: as many as configured, or as the process's limit of open files
 * leaves beside the files that weir opens itself. So a connection over the limit is accepted and
 * gets a response, and descriptors are left for the store and the admin port.
 */

import { readFileSync } from 'node:fs';
import type { LoadedSettings } from '../config/load.ts';
import { RESERVED_DESCRIPTORS, RESERVED_DESCRIPTORS_PER_THREAD } from '../core/constants.ts';
import { StartError } from '../core/errors.ts';

export interface ConnectionPlan {
  /** The limit of open files; undefined where the system does not show it. */
  descriptors: number | undefined;
  /** The connections that may be open at once. */
  connectionsMax: number;
}

/** @throws StartError when no descriptor is left for a connection */
export function planConnections(settings: LoadedSettings): ConnectionPlan {
  const descriptors = descriptorLimit();
  const { acceptors, workers, rls } = settings;
  const threads = acceptors + workers + (rls?.threads ?? 0);
  return {
    descriptors,
    connectionsMax: fitConnections(descriptors, settings.connections, threads),
  };
}

/**
 * The soft limit of open files, which Node raises to the hard limit when it starts.
 * @returns undefined where the system does not show it
 */
export function descriptorLimit(): number | undefined {
  try {
    const [, soft] =
      /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? [];
    return soft === undefined ? undefined : Number(soft);
  } catch {
    return undefined;
  }
}

/** @throws StartError when no descriptor is left for a connection */
export function fitConnections(
  descriptors: number | undefined,
  requested: number,
  threads: number,
): number {
  if (descriptors === undefined) return requested;
  const reserved = RESERVED_DESCRIPTORS + threads * RESERVED_DESCRIPTORS_PER_THREAD;
  if (descriptors <= reserved) {
    throw new StartError(
      `the limit of open files (ulimit -n) must be above ${reserved}, which weir reserves for` +
        ` itself; got ${descriptors}`,
    );
  }
  return Math.min(requested, descriptors - reserved);
}
