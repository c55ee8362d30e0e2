/**
 * Limits one running process to a share of a core: by a cgroup where one can be created, else by
 * signals. `cpu-group.ts` makes groups that several processes share from their start.
 */

import type { ChildProcess } from 'node:child_process';
import { existsSync, mkdirSync, rmdirSync, writeFileSync } from 'node:fs';

const PERIOD_US = 10_000;

interface CpuLimit {
  /** How the share is enforced, for the measurements. */
  mechanism: string;
  /** Call it when the process has ended. */
  remove: () => void;
}

export function limitCpu(child: ChildProcess, share: number): CpuLimit {
  const group = `/sys/fs/cgroup/cpu/weir-test-${child.pid}`;
  try {
    mkdirSync(group);
    writeFileSync(`${group}/cpu.cfs_period_us`, String(PERIOD_US));
    writeFileSync(`${group}/cpu.cfs_quota_us`, String(PERIOD_US * share));
    writeFileSync(`${group}/cgroup.procs`, String(child.pid));
    return { mechanism: 'a cgroup', remove: () => rmdirSync(group) };
  } catch {
    if (existsSync(group)) rmdirSync(group);
    return { mechanism: 'SIGSTOP', remove: alternateStopAndContinue(child, share) };
  }
}

/** Sends SIGSTOP and SIGCONT in turn, in steps that timers of this process can make. */
function alternateStopAndContinue(child: ChildProcess, share: number): () => void {
  const runMs = 5;
  let timer: NodeJS.Timeout;
  const resume = () => {
    child.kill('SIGCONT');
    timer = setTimeout(stop, runMs);
  };
  const stop = () => {
    child.kill('SIGSTOP');
    timer = setTimeout(resume, runMs / share - runMs);
  };
  stop();
  return () => clearTimeout(timer);
}
