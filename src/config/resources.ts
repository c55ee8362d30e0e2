/**
 * The CPU time and the memory that this process may use: those of the machine, or less if its
 * control group or a surrounding group has a limit. A container with `--cpus 1.5`, or a pod with
 * `limits.memory`, has one. Node 20 ignores the CPU limit of a group. The kernel kills a process
 * that exceeds the memory limit of its group.
 *
 * Both versions of control groups are read where they are usually mounted. In a container the path
 * of the group may be that of the host, which does not exist there, while the mount begins with the
 * group itself. So every directory between the mount and the path is read, and the lowest limit
 * counts. A file that is missing or cannot be read sets no limit.
 */

import { readFileSync } from 'node:fs';
import { availableParallelism, totalmem } from 'node:os';
import { join } from 'node:path';

export interface MemoryLimit {
  bytes: number;
  /** The file that sets the limit, or a description of the machine. */
  source: string;
}

interface GroupLimit {
  /** Infinity for no limit. */
  value: number;
  /** The file or the directory that sets the limit. */
  path: string;
}

/** Reads the limit of one group from its directory. */
type LimitReader = (group: string) => GroupLimit;

/** A controller, and its limits in both versions of control groups. */
interface Controller {
  name: string;
  v1: LimitReader;
  v2: LimitReader;
}

const NO_LIMIT: GroupLimit = { value: Number.POSITIVE_INFINITY, path: '' };

/** @returns a number that may have a fraction */
export function availableCores(): number {
  return Math.min(availableParallelism(), cpuLimit('/'));
}

/** @param root the directory of `proc` and `sys`. @returns cores; Infinity for no limit */
export function cpuLimit(root: string): number {
  return lowestLimit(root, { name: 'cpu', v1: readCpuLimitV1, v2: readCpuLimitV2 }).value;
}

/**
 * @param root the directory of `proc` and `sys`
 * @param machineBytes the memory of the machine
 */
export function memoryLimit(root = '/', machineBytes = totalmem()): MemoryLimit {
  const { value, path } = lowestLimit(root, {
    name: 'memory',
    v1: memoryLimitReader('memory.limit_in_bytes'),
    v2: memoryLimitReader('memory.max'),
  });
  // In version 1 "no limit" is a number larger than the memory of any machine.
  if (value < machineBytes) return { bytes: value, source: path };
  return { bytes: machineBytes, source: 'the memory of this machine' };
}

function readCpuLimitV2(group: string): GroupLimit {
  const path = join(group, 'cpu.max');
  const [quota, period] = readGroupFile(path).split(' ');
  return { value: coresOf(quota, period), path };
}

function readCpuLimitV1(group: string): GroupLimit {
  const read = (name: string) => readGroupFile(join(group, name));
  return { value: coresOf(read('cpu.cfs_quota_us'), read('cpu.cfs_period_us')), path: group };
}

function coresOf(quota: string, period: string | undefined): number {
  const [timeUs, periodUs] = [parsePositiveInteger(quota), parsePositiveInteger(period)];
  const isLimited = Number.isFinite(timeUs) && Number.isFinite(periodUs);
  return isLimited ? timeUs / periodUs : Number.POSITIVE_INFINITY;
}

function memoryLimitReader(name: string): LimitReader {
  return (group) => {
    const path = join(group, name);
    return { value: parsePositiveInteger(readGroupFile(path)), path };
  };
}

/** The lowest limit of a controller, of this process's group and the groups around it. */
function lowestLimit(root: string, { name, v1, v2 }: Controller): GroupLimit {
  const groups = join(root, 'sys/fs/cgroup');
  let lowest = NO_LIMIT;
  for (const line of readGroupFile(join(root, 'proc/self/cgroup')).split('\n')) {
    // Hierarchy, controllers, and the path of the group, which may contain colons.
    const [, controllers, path] = /^\d+:([^:]*):\/(.*)$/.exec(line) ?? [];
    if (path === undefined) continue;
    if (controllers === '') {
      for (const mount of [groups, join(groups, 'unified')]) {
        lowest = lowerLimit(lowest, lowestAlongPath(mount, path, v2));
      }
    } else if (controllers.split(',').includes(name)) {
      for (const mount of [join(groups, controllers), join(groups, name)]) {
        lowest = lowerLimit(lowest, lowestAlongPath(mount, path, v1));
      }
    }
  }
  return lowest;
}

function lowestAlongPath(mount: string, path: string, read: LimitReader): GroupLimit {
  // `..` leads out of the mount.
  const names = path.split('/').filter((name) => name !== '' && name !== '..');
  const limits = Array.from({ length: names.length + 1 }, (_, depth) => {
    return read(join(mount, ...names.slice(0, depth)));
  });
  return limits.reduce(lowerLimit);
}

function lowerLimit(one: GroupLimit, other: GroupLimit): GroupLimit {
  return other.value < one.value ? other : one;
}

/** The text of a file; '' if it cannot be read. */
function readGroupFile(path: string): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return '';
  }
}

/** Infinity for any text that is not a positive integer. */
function parsePositiveInteger(text = ''): number {
  return /^[1-9]\d*$/.test(text) ? Number(text) : Number.POSITIVE_INFINITY;
}
