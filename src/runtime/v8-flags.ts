/**
 * V8's flags, for all threads of the process. Functions that were compiled before stay as they are.
 */

import { setFlagsFromString } from 'node:v8';

const FLAGS = [
  // A decision is made of small functions in several files, more than V8 inlines by default, and
  // the calls that remain take about a tenth of a check.
  '--max-inlined-bytecode-size=1500',
  '--max-inlined-bytecode-size-cumulative=4000',
  // Nearly all objects of a young generation are dead when an acceptor collects it, and little is
  // left for other threads to do. Where weir has one core, they would take it for up to 4 ms.
  '--no-parallel-scavenge',
  '--no-concurrent-array-buffer-sweeping',
];

export function setV8Flags(): void {
  for (const flag of FLAGS) setFlagsFromString(flag);
}
