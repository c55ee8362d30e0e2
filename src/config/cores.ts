/**
 * How many cores this process may keep busy: those that it may run on, or fewer where its control
 * group, or one around it, has a limit of CPU time, as a container with `--cpus 1.5` does. Node 20
 * knows of the first alone.
 *
 * Both versions of control groups are read where they are usually mounted. In a container the path
 * of the group may be that of the host, which is not there, while the mount begins with the group
 * itself; so what there is between the mount and the path is looked at, and the least counts. What
 * is missing or cannot be read sets no limit.
 */

import { readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';

/** @returns a number that may have a fraction */
export function coresAllowed(): number {
  return Math.min(availableParallelism(), cpuLimit('/'));
}

/** @param root where `proc` and `sys` are. @returns Infinity where there is no limit */
export function cpuLimit(root: string): number {
  const groups = join(root, 'sys/fs/cgroup');
  let least = Number.POSITIVE_INFINITY;
  for (const line of read(join(root, 'proc/self/cgroup')).split('\n')) {
    // Hierarchy, its controllers, the path of the group, which may have colons of its own.
    const [, controllers, path] = /^\d+:([^:]*):\/(.*)$/.exec(line) ?? [];
    if (path === undefined) continue;
    if (controllers === '') {
      for (const mount of [groups, join(groups, 'unified')]) {
        least = Math.min(least, leastOf(mount, path, limitOfV2));
      }
    } else if (controllers.split(',').includes('cpu')) {
      for (const mount of [join(groups, controllers), join(groups, 'cpu')]) {
        least = Math.min(least, leastOf(mount, path, limitOfV1));
      }
    }
  }
  return least;
}

/** The least limit of a group and of those around it. */
function leastOf(mount: string, path: string, limitOf: (group: string) => number): number {
  // What lies outside of the mount is shown by dots.
  const names = path.split('/').filter((name) => name !== '' && name !== '..');
  const around = Array.from({ length: names.length + 1 }, (_, depth) => {
    return limitOf(join(mount, ...names.slice(0, depth)));
  });
  return Math.min(...around);
}

function limitOfV2(group: string): number {
  const [quota, period] = read(join(group, 'cpu.max')).trim().split(' ');
  return ratio(quota, period);
}

function limitOfV1(group: string): number {
  const word = (name: string) => read(join(group, name)).trim();
  return ratio(word('cpu.cfs_quota_us'), word('cpu.cfs_period_us'));
}

function ratio(quota: string, period: string | undefined): number {
  const isNumber = (text = '') => /^[1-9]\d{0,14}$/.test(text);
  return isNumber(quota) && isNumber(period)
    ? Number(quota) / Number(period)
    : Number.POSITIVE_INFINITY;
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
