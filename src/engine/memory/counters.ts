/**
 * The counters of all shards, as one thread uses them: from an identity to the table of its shard.
 * A failure in here is a failed assertion, which the transport answers as an internal error.
 */

import { SHARDS } from '../../core/constants.ts';
import {
  type CheckParameters,
  type FullTablePolicy,
  newDecision,
  type TableDecision,
} from '../../core/decision.ts';
import type { Identity } from '../../core/hash.ts';
import { Batch } from './batch.ts';
import { shardOf } from './shard.ts';
import { type CounterSnapshot, CounterTable } from './table.ts';

export type { CounterSnapshot };

export class Counters {
  /** Decides many checks at once. */
  readonly batch: Batch;
  readonly #tables: CounterTable[];
  readonly #decision = newDecision();

  /**
   * @param owner the incarnation of this thread, which its locks carry
   * @param onWait called now and then while the thread waits for a lock
   */
  constructor(
    buffers: readonly SharedArrayBuffer[],
    owner: number,
    fullTablePolicy: FullTablePolicy,
    onWait: () => void,
  ) {
    if (buffers.length !== SHARDS) throw new Error(`${buffers.length} tables for ${SHARDS} shards`);
    this.#tables = buffers.map((buffer, shard) => {
      return new CounterTable(buffer, shard, owner, fullTablePolicy, onWait);
    });
    this.batch = new Batch(this.#tables, fullTablePolicy);
  }

  /** Decides one check, as `CounterTable.decide` does. The answer is overwritten by the next. */
  decide(
    id: Identity,
    namespaceTag: number,
    nowMs: number,
    parameters: CheckParameters,
    isDeducted = true,
  ): TableDecision {
    const decision = this.#decision;
    this.#tables[shardOf(id)].decide(id, namespaceTag, nowMs, parameters, isDeducted, decision);
    return decision;
  }

  /**
   * Judges one check as `CounterTable.look` does, and where that is no answer as `decide` does,
   * without counting it.
   */
  peek(
    id: Identity,
    namespaceTag: number,
    nowMs: number,
    parameters: CheckParameters,
  ): TableDecision {
    const decision = this.#decision;
    if (this.#tables[shardOf(id)].peek(id, nowMs, parameters, decision)) return decision;
    return this.decide(id, namespaceTag, nowMs, parameters, false);
  }

  /** Gives tokens back, as `CounterTable.refund` does. */
  refund(id: Identity, nowMs: number, window: number, durationMs: number, cost: number): number {
    return this.#tables[shardOf(id)].refund(id, nowMs, window, durationMs, cost);
  }

  /** Removes counters, as `CounterTable.reset` does. */
  reset(id: Identity, nowMs: number, durationMs: number | undefined): number {
    return this.#tables[shardOf(id)].reset(id, nowMs, durationMs);
  }

  /** Counts the cost of a check without a decision, as `CounterTable.deduct` does. */
  deduct(
    id: Identity,
    namespaceTag: number,
    nowMs: number,
    window: number,
    parameters: CheckParameters,
  ): number {
    return this.#tables[shardOf(id)].deduct(id, namespaceTag, nowMs, window, parameters);
  }

  /** Reads the counters of an identity, of one duration or of all, and changes none. */
  inspect(id: Identity, nowMs: number, durationMs: number | undefined): CounterSnapshot[] {
    return this.#tables[shardOf(id)].inspect(id, nowMs, durationMs);
  }
}
