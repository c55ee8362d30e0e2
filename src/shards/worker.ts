/**
 * A shard worker: a thread of the piscina pool, with all tables at hand. Its task counts the live
 * counters of one shard. A task that fails rejects its run, and the pool replaces the thread.
 */

import { workerData } from 'piscina';
import { countLive } from '../counters/census.ts';
import { attachTable } from '../counters/table.ts';

export interface ShardWorkerData {
  tables: SharedArrayBuffer[];
}

export interface CensusTask {
  shard: number;
  nowMs: number;
}

const tables = (workerData as ShardWorkerData).tables.map(attachTable);

export default function census({ shard, nowMs }: CensusTask): number {
  return countLive(tables[shard], nowMs);
}
