/** What the commands for reservations and concurrency leases have in common. */

import { HOLD_TTL_MAX_MS, HOLD_TTL_MIN_MS } from '../core/constants.ts';
import { parseDuration } from './options.ts';
import { formatTimeFromNow } from './output.ts';

export const TTL_OPTION = {
  type: 'string',
  value: '<duration>',
  help: 'time after which it ends by itself, from 1s to 24h',
} as const;

/** @returns ms. @throws StartError */
export function parseTtl(value: string): number {
  return parseDuration('ttl', value, { minimumMs: HOLD_TTL_MIN_MS, maximumMs: HOLD_TTL_MAX_MS });
}

/** How a hold ends. @param name its noun and its id. @param expiresAt null without a record */
export function describeHold(name: string, id: string | null, expiresAt: number | null): string {
  if (id === null || expiresAt === null) return `no ${name}: there is no room for a record`;
  return `${name} ${id}, ends at ${formatTimeFromNow(expiresAt)}`;
}
