/**
 * How much V8 puts into one compiled function. A decision is small functions, each in its file;
 * together they are more than V8 inlines into one by default, and calls that are left take about a
 * tenth of a check. For all threads of the process; what was compiled before stays as it is.
 */

import { setFlagsFromString } from 'node:v8';

export function raiseInliningLimits(): void {
  setFlagsFromString('--max-inlined-bytecode-size=1500');
  setFlagsFromString('--max-inlined-bytecode-size-cumulative=4000');
}
