/**
 * The counters of all shards, as one thread uses them: from an identity to the table of its shard.
 * A failure in here is a failed assertion, which the transport answers as an internal error.
 */

import { SHARDS } from '../../core/constants.ts';
import type { FullTablePolicy } from '../../core/decision.ts';
import type { Identity } from '../../core/hash.ts';
import { shardOf } from '../table/shard.ts';
import { Batch } from './batch.ts';
import { CounterTable } from './table.ts';

export class Counters {
  /** Decides several checks together. */
  readonly batch: Batch;
  /** By shard. */
  readonly tables: readonly CounterTable[];

  /**
   * @param owner of the locks that this thread takes: see `lock.ts`
   * @param onWait called now and then while the thread waits for a lock
   */
  constructor(
    buffers: readonly SharedArrayBuffer[],
    owner: number,
    fullTablePolicy: FullTablePolicy,
    onWait: () => void,
  ) {
    if (buffers.length !== SHARDS) throw new Error(`${buffers.length} tables for ${SHARDS} shards`);
    this.tables = buffers.map((buffer, shard) => {
      return new CounterTable(buffer, shard, owner, fullTablePolicy, onWait);
    });
    this.batch = new Batch(this.tables, fullTablePolicy);
  }

  /** The table that has the counters of an identity. */
  tableOf(id: Identity): CounterTable {
    return this.tables[shardOf(id)];
  }
}
