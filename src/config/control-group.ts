/**
 * The limits of this process's control group and of the groups around it, in both versions of
 * control groups, read where they are usually mounted.
 *
 * In a container the path of the group may be that of the host, which does not exist there, while
 * the mount begins with the group itself. So every directory between the mount and the path is
 * read, and the lowest limit counts. A file that is missing or cannot be read sets no limit.
 */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';

export interface GroupLimit {
  /** Infinity where no group sets a limit. */
  value: number;
  /** The file or the directory that sets it. */
  path: string;
}

/** How a controller's limit is read from the directory of a group; Infinity for no limit. */
export interface Controller {
  name: string;
  v1: (group: string) => GroupLimit;
  v2: (group: string) => GroupLimit;
}

const NO_LIMIT: GroupLimit = { value: Number.POSITIVE_INFINITY, path: '' };

/** @param root where `proc` and `sys` are */
export function lowestLimit(root: string, { name, v1, v2 }: Controller): GroupLimit {
  const groups = join(root, 'sys/fs/cgroup');
  let lowest = NO_LIMIT;
  for (const line of readGroupFile(join(root, 'proc/self/cgroup')).split('\n')) {
    // Hierarchy, its controllers, the path of the group, which may have colons of its own.
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

/** The text of a file of a group; empty where it cannot be read. */
export function readGroupFile(path: string): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return '';
  }
}

/** A positive integer, as the kernel writes it; Infinity for any other text. */
export function parsePositiveInteger(text = ''): number {
  return /^[1-9]\d*$/.test(text) ? Number(text) : Number.POSITIVE_INFINITY;
}

/** The lowest limit of a group and of the groups around it. */
function lowestAlongPath(mount: string, path: string, read: Controller['v1']): GroupLimit {
  // Dots stand for directories outside of the mount.
  const names = path.split('/').filter((name) => name !== '' && name !== '..');
  const around = Array.from({ length: names.length + 1 }, (_, depth) => {
    return read(join(mount, ...names.slice(0, depth)));
  });
  return around.reduce(lowerLimit);
}

function lowerLimit(one: GroupLimit, other: GroupLimit): GroupLimit {
  return other.value < one.value ? other : one;
}
