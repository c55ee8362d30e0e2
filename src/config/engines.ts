/** The engines that WEIR_ENGINE names, and the size of a table of each. */

import { leaseTableBytes } from '../engine/redis/lease-layout.ts';
import { tableBytes } from '../engine/table/layout.ts';

/** The bytes of a table of so many groups. */
export const TABLE_BYTES = { memory: tableBytes, redis: leaseTableBytes } as const;

export type EngineName = keyof typeof TABLE_BYTES;
export const ENGINE_NAMES = Object.keys(TABLE_BYTES) as EngineName[];
