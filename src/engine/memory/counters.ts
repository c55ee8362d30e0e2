/**
 * The counters of all shards, as one thread uses them: from an identity to the table of its shard.
 * A failure in here is a failed assertion, which the transport answers as an internal error.
 */

import { SHARDS } from '../../core/constants.ts';
import type { CheckParameters, FullTablePolicy, TableDecision } from '../../core/decision.ts';
import type { Identity } from '../../core/hash.ts';
import type { RuleNumber } from '../../core/window-rules.ts';
import { Batch } from './batch.ts';
import { shardOf } from './shard.ts';
import { CounterTable, type InspectedCounter } from './table.ts';

export class Counters {
  /** Decides several checks together. */
  readonly batch: Batch;
  readonly #tables: CounterTable[];

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

  /** Decides one check, and counts it, as `CounterTable.decide` does. @returns `decision` */
  decide(
    id: Identity,
    namespaceTag: number,
    nowMs: number,
    parameters: CheckParameters,
    decision: TableDecision,
  ): TableDecision {
    this.#tables[shardOf(id)].decide(id, namespaceTag, nowMs, parameters, true, decision);
    return decision;
  }

  /**
   * Decides one check without counting it: by `CounterTable.peek`, and where that gives no decision
   * by `CounterTable.decide`.
   * @returns `decision`
   */
  peek(
    id: Identity,
    namespaceTag: number,
    nowMs: number,
    parameters: CheckParameters,
    decision: TableDecision,
  ): TableDecision {
    const table = this.#tables[shardOf(id)];
    if (!table.peek(id, nowMs, parameters, decision)) {
      table.decide(id, namespaceTag, nowMs, parameters, false, decision);
    }
    return decision;
  }

  /** Gives tokens back, as `CounterTable.refund` does. */
  refund(
    id: Identity,
    nowMs: number,
    window: number,
    durationMs: number,
    cost: number,
    rule?: RuleNumber,
  ): number {
    return this.#tables[shardOf(id)].refund(id, nowMs, window, durationMs, cost, rule);
  }

  /** Removes counters, as `CounterTable.reset` does. */
  reset(id: Identity, nowMs: number, durationMs?: number, rule?: RuleNumber): number {
    return this.#tables[shardOf(id)].reset(id, nowMs, durationMs, rule);
  }

  /** Reads counters, as `CounterTable.inspect` does. */
  inspect(id: Identity, nowMs: number, durationMs?: number, rule?: RuleNumber): InspectedCounter[] {
    return this.#tables[shardOf(id)].inspect(id, nowMs, durationMs, rule);
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
}
