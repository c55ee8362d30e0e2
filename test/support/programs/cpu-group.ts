/** Control groups with a limit of CPU time, in version 1 or 2. Creating one requires root. */

import { existsSync, mkdirSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { commandPrefixFor, removeGroup } from './control-group.ts';

const ROOT = '/sys/fs/cgroup';
/** The default of container runtimes. */
const PERIOD_US = 100_000;

interface CpuGroup {
  /** Words before a command that make it run in the group. */
  commandPrefix: string[];
  /** Call it when its processes have ended. */
  remove: () => Promise<void>;
}

let serial = 0;

/** @param share of a core. @returns undefined if no group can be created */
export function createCpuGroup(share: number): CpuGroup | undefined {
  const quotaUs = PERIOD_US * share;
  const isV1 = existsSync(join(ROOT, 'cpu/cpu.cfs_quota_us'));
  const path = join(ROOT, isV1 ? 'cpu' : '', `weir-test-${process.pid}-${serial++}`);
  try {
    mkdirSync(path);
  } catch {
    return undefined;
  }
  try {
    if (isV1) {
      writeFileSync(join(path, 'cpu.cfs_period_us'), String(PERIOD_US));
      writeFileSync(join(path, 'cpu.cfs_quota_us'), String(quotaUs));
    } else writeFileSync(join(path, 'cpu.max'), `${quotaUs} ${PERIOD_US}`);
  } catch {
    rmdirSync(path);
    return undefined;
  }
  return {
    commandPrefix: commandPrefixFor(path),
    remove: () => removeGroup(path),
  };
}

/** Whether to run tests with a limit of CPU time. @throws in CI, if they cannot run */
export const hasCpuGroups = await canCreateCpuGroup();

async function canCreateCpuGroup(): Promise<boolean> {
  const group = createCpuGroup(1);
  await group?.remove();
  if (group === undefined && process.env.CI !== undefined) {
    throw new Error('this machine lets the tests create no control group with a limit of CPU time');
  }
  return group !== undefined;
}
