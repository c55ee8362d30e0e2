/** Makes a process small: a share of a core, by a control group where one may be made. */

import type { ChildProcess } from 'node:child_process';
import { existsSync, mkdirSync, rmdirSync, writeFileSync } from 'node:fs';

const PERIOD_US = 10_000;

export interface CpuLimit {
  /** By what, for the figures. */
  mechanism: string;
  /** To be called when the process has ended. */
  remove: () => void;
}

export function limitCpu(child: ChildProcess, share: number): CpuLimit {
  const group = `/sys/fs/cgroup/cpu/weir-test-${child.pid}`;
  try {
    mkdirSync(group);
    writeFileSync(`${group}/cpu.cfs_period_us`, String(PERIOD_US));
    writeFileSync(`${group}/cpu.cfs_quota_us`, String(PERIOD_US * share));
    writeFileSync(`${group}/cgroup.procs`, String(child.pid));
    return { mechanism: 'a control group', remove: () => rmdirSync(group) };
  } catch {
    if (existsSync(group)) rmdirSync(group);
    return { mechanism: 'stops', remove: alternateStopAndContinue(child, share) };
  }
}

/** Stopped and let go on in turn, in steps that the timers of this process can make. */
function alternateStopAndContinue(child: ChildProcess, share: number): () => void {
  const goMs = 5;
  let timer: NodeJS.Timeout;
  const go = () => {
    child.kill('SIGCONT');
    timer = setTimeout(stop, goMs);
  };
  const stop = () => {
    child.kill('SIGSTOP');
    timer = setTimeout(go, goMs / share - goMs);
  };
  stop();
  return () => clearTimeout(timer);
}
