/** Live reservations and leases as `weir inspect` and `weir explain` print them. */

import { formatDuration } from '../core/duration.ts';
import { isoTime } from '../shared-memory/clock.ts';
import { formatTable } from './output.ts';

export interface HoldFields {
  reserved: number;
  inUse: number;
  live: number;
  list: {
    kind: string;
    handle: string;
    tokens: number;
    limit: number;
    duration?: number;
    algorithm?: string;
    expiresAt: number;
  }[];
}

const HEADER = ['KIND', 'HANDLE', 'TOKENS', 'LIMIT', 'DURATION', 'ALGORITHM', 'ENDS'];

/** @returns undefined without live holds */
export function holdTable(holds: HoldFields | undefined): string | undefined {
  if (holds === undefined || holds.live === 0) return undefined;
  const { reserved, inUse, live, list } = holds;
  const shown = list.length < live ? `, the first ${list.length} to end` : '';
  const tokens = `reserved ${reserved}, in use ${inUse}`;
  const title = `Live reservations and leases: ${live}${shown}; ${tokens}`;
  const rows = list.map(({ kind, handle, tokens, limit, duration, algorithm, expiresAt }) => {
    const window = duration === undefined ? '-' : formatDuration(duration);
    const amounts = [tokens, limit].map(String);
    return [kind, handle, ...amounts, window, algorithm ?? '-', isoTime(expiresAt)];
  });
  return `${title}\n${formatTable(HEADER, rows).trimEnd()}`;
}
