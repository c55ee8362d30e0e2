/** Programs that use CPU beside servers under test: these then have to wait for a CPU. */

import { type ChildProcess, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';

/** Ends with the process that started it. */
const LOOP = 'while kill -0 $PPID; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done';

/** A CPU that this process may use. */
export function anyCpu(): string {
  const status = readFileSync('/proc/self/status', 'utf8');
  return /^Cpus_allowed_list:\s*(\d+)/m.exec(status)![1];
}

/**
 * @param commandPrefix words before the command of each loop
 * @returns a function that ends the loops
 */
export function startBusyLoops(count: number, commandPrefix: readonly string[] = []): () => void {
  const [program, ...args] = [...commandPrefix, 'sh', '-c', LOOP];
  const loops = Array.from({ length: count }, (): ChildProcess => {
    return spawn(program, args, { stdio: 'ignore' });
  });
  return () => {
    for (const loop of loops) loop.kill('SIGKILL');
  };
}
