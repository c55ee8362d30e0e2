/**
 * How many cores this process may keep busy: those that it may run on, or fewer where its control
 * group, or one around it, has a limit of CPU time, as a container with `--cpus 1.5` does. Node 20
 * knows of the first alone.
 */

import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import {
  type GroupLimit,
  lowestLimit,
  parsePositiveInteger,
  readGroupFile,
} from './control-group.ts';

/** @returns a number that may have a fraction */
export function availableCores(): number {
  return Math.min(availableParallelism(), cpuLimit('/'));
}

/** @param root where `proc` and `sys` are. @returns Infinity where there is no limit */
export function cpuLimit(root: string): number {
  return lowestLimit(root, { name: 'cpu', v1: readLimitV1, v2: readLimitV2 }).value;
}

function readLimitV2(group: string): GroupLimit {
  const path = join(group, 'cpu.max');
  const [quota, period] = readGroupFile(path).split(' ');
  return { value: ratio(quota, period), path };
}

function readLimitV1(group: string): GroupLimit {
  const text = (name: string) => readGroupFile(join(group, name));
  return { value: ratio(text('cpu.cfs_quota_us'), text('cpu.cfs_period_us')), path: group };
}

function ratio(quota: string, period: string | undefined): number {
  const [time, of] = [parsePositiveInteger(quota), parsePositiveInteger(period)];
  return Number.isFinite(time) && Number.isFinite(of) ? time / of : Number.POSITIVE_INFINITY;
}
