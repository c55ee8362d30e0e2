/** Memory cgroups for servers under test, in version 1 or 2. Creating one requires root. */

import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { commandPrefixFor, removeGroup } from './control-group.ts';

const ROOT = '/sys/fs/cgroup';
const FILES = {
  v1: { at: join(ROOT, 'memory'), limit: 'memory.limit_in_bytes', kills: 'memory.oom_control' },
  v2: { at: ROOT, limit: 'memory.max', kills: 'memory.events' },
} as const;

interface MemoryGroup {
  /** Words before a command that make it run in the group. */
  commandPrefix: string[];
  limitFile: string;
  /** What cannot be reclaimed: anonymous and kernel memory. */
  unreclaimableMiB: () => number;
  /** Number of processes in the group that the kernel killed. */
  oomKills: () => number;
  remove: () => Promise<void>;
}

let serial = 0;

/** @returns undefined if no group can be created */
export function createMemoryGroup(limitMiB: number | undefined): MemoryGroup | undefined {
  const version = existsSync(join(FILES.v1.at, FILES.v1.limit)) ? 'v1' : 'v2';
  const files = FILES[version];
  const path = join(files.at, `weir-test-${process.pid}-${serial++}`);
  try {
    mkdirSync(path);
  } catch {
    return undefined;
  }
  try {
    const bytes = limitMiB === undefined ? undefined : String(limitMiB * 2 ** 20);
    if (bytes !== undefined) writeFileSync(join(path, files.limit), bytes);
  } catch {
    rmdirSync(path);
    return undefined;
  }
  const figure = (file: string, name: string) => {
    const text = readFileSync(join(path, file), 'utf8');
    return Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(text)?.[1] ?? 0);
  };
  const used = {
    v1: () => {
      const kernel = Number(readFileSync(join(path, 'memory.kmem.usage_in_bytes'), 'utf8'));
      return figure('memory.stat', 'total_rss') + kernel;
    },
    v2: () => figure('memory.stat', 'anon') + figure('memory.stat', 'kernel'),
  };
  return {
    commandPrefix: commandPrefixFor(path),
    limitFile: join(path, files.limit),
    unreclaimableMiB: () => used[version]() / 2 ** 20,
    oomKills: () => figure(files.kills, 'oom_kill'),
    remove: () => removeGroup(path),
  };
}

/** Whether to run tests with a memory limit. @throws in CI, if they cannot run */
export const hasMemoryGroups = await canCreateMemoryGroup();

async function canCreateMemoryGroup(): Promise<boolean> {
  const group = createMemoryGroup(128);
  await group?.remove();
  if (group === undefined && process.env.CI !== undefined) {
    throw new Error('this machine lets the tests create no control group with a memory limit');
  }
  return group !== undefined;
}
