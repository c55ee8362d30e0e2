/** Memory control groups in which the tests start servers: made by root, in either version. */

import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const ROOT = '/sys/fs/cgroup';
const FILES = {
  v1: { at: join(ROOT, 'memory'), limit: 'memory.limit_in_bytes', kills: 'memory.oom_control' },
  v2: { at: ROOT, limit: 'memory.max', kills: 'memory.events' },
} as const;

export interface MemoryGroup {
  /** A command that runs another one in the group. */
  commandPrefix: string[];
  limitFile: string;
  /** What cannot be reclaimed: anonymous and kernel memory. */
  unreclaimableMiB: () => number;
  /** How many processes the kernel has killed in it. */
  oomKills: () => number;
  remove: () => Promise<void>;
}

let serial = 0;

/** @returns undefined where no group can be made */
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
    commandPrefix: ['sh', '-c', `echo $$ > ${join(path, 'cgroup.procs')} && exec "$@"`, 'sh'],
    limitFile: join(path, files.limit),
    unreclaimableMiB: () => used[version]() / 2 ** 20,
    oomKills: () => figure(files.kills, 'oom_kill'),
    remove: async () => {
      // Processes that have just ended are in it for a moment.
      for (let i = 0; i < 100; i++) {
        try {
          rmdirSync(path);
          return;
        } catch {
          await new Promise((resolve) => setTimeout(resolve, 50));
        }
      }
      throw new Error(`${path} cannot be removed`);
    },
  };
}

export const hasMemoryGroups = await canCreateMemoryGroup();

async function canCreateMemoryGroup(): Promise<boolean> {
  const group = createMemoryGroup(128);
  await group?.remove();
  return group !== undefined;
}
