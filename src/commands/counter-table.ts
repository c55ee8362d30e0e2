/** Counters as `weir inspect` and `weir explain` print them. */

import { formatDuration } from '../core/duration.ts';
import { isoTime } from '../shared-memory/clock.ts';
import { formatTable } from './output.ts';

interface Usage {
  used: number;
  remaining: number;
  reset: number;
}

export interface CounterFields {
  duration: number;
  limit: number;
  algorithms: Record<string, Usage>;
}

const HEADER = ['DURATION', 'ALGORITHM', 'LIMIT', 'USED', 'REMAINING', 'RESET'];

/** @returns a row for each counter and algorithm; undefined without counters */
export function counterTable(counters: readonly CounterFields[]): string | undefined {
  const rows = counters.flatMap(rowsOf);
  return rows.length === 0 ? undefined : formatTable(HEADER, rows).trimEnd();
}

/** One row for each algorithm. */
function rowsOf({ duration, limit, algorithms }: CounterFields): string[][] {
  return Object.entries(algorithms).map(([name, { used, remaining, reset }]) => {
    const amounts = [limit, used, remaining].map(String);
    return [formatDuration(duration), name, ...amounts, isoTime(reset)];
  });
}
