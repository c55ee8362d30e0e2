/**
 * How much memory this process may have: that of the machine, or less where its control group, or
 * one around it, has a limit, as a container with `--memory 128m` or a pod with `limits.memory`
 * does. The kernel kills a process that goes beyond the limit of its group.
 */

import { totalmem } from 'node:os';
import { join } from 'node:path';
import {
  type GroupLimit,
  lowestLimit,
  parsePositiveInteger,
  readGroupFile,
} from './control-group.ts';

export interface MemoryLimit {
  bytes: number;
  /** The file that sets it, or a word for the machine. */
  source: string;
}

/**
 * @param root where `proc` and `sys` are
 * @param machineBytes the memory of the machine
 */
export function memoryLimit(root = '/', machineBytes = totalmem()): MemoryLimit {
  const controller = {
    name: 'memory',
    v1: limitReader('memory.limit_in_bytes'),
    v2: limitReader('memory.max'),
  };
  const { value, path } = lowestLimit(root, controller);
  // Version 1 says "no limit" by a number beyond the memory of any machine.
  if (value < machineBytes) return { bytes: value, source: path };
  return { bytes: machineBytes, source: 'the memory of this machine' };
}

function limitReader(name: string): (group: string) => GroupLimit {
  return (group) => {
    const path = join(group, name);
    return { value: parsePositiveInteger(readGroupFile(path)), path };
  };
}
