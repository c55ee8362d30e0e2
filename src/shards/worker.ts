/**
 * A shard worker: a thread of the piscina pool, with all tables at hand. Its task counts the live
 * counters of one shard. A task that fails rejects its run, and the pool replaces the thread.
 */

import { workerData } from 'piscina';
import { countLive } from '../counters/census.ts';
import { CounterTable } from '../counters/table.ts';

export interface ShardWorkerData {
  tables: SharedArrayBuffer[];
}

export interface CensusTask {
  shard: number;
  nowMs: number;
}

/** A census takes no lock, so any number may stand for the owner. */
const NO_OWNER = 1;

const tables = (workerData as ShardWorkerData).tables.map((buffer, shard) => {
  return new CounterTable(buffer, shard, NO_OWNER, 'deny');
});

export default function census({ shard, nowMs }: CensusTask): number {
  return countLive(tables[shard], nowMs);
}
