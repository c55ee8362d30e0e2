/**
 * All shards' counters, as one acceptor sees them: hash, shard, decision, count. One per thread.
 * A failure in here is a failed assertion; the route wrapper answers it with a 500.
 */

import { COUNT, type Lane } from '../control.ts';
import { SHARDS } from '../limits.ts';
import type { Clock } from '../time.ts';
import { Hasher, type NamespaceState } from './hash.ts';
import { CounterTable, newDecision, type OnFull, OUTCOME, type TableDecision } from './table.ts';

const SHARD_SHIFT = 32 - Math.log2(SHARDS);

/** The top bits of the first word of a hash say the shard. */
export function shardOf(hash: Hasher): number {
  return hash.h0 >>> SHARD_SHIFT;
}

export class Counters {
  readonly #hasher: Hasher;
  readonly #tables: CounterTable[];
  readonly #clock: Clock;
  readonly #lane: Lane;
  readonly #decision = newDecision();

  /** @param owner the incarnation of this thread, which its locks carry */
  constructor(
    buffers: readonly SharedArrayBuffer[],
    hashKey: Uint8Array,
    owner: number,
    onFull: OnFull,
    clock: Clock,
    lane: Lane,
  ) {
    if (buffers.length !== SHARDS) throw new Error(`${buffers.length} tables for ${SHARDS} shards`);
    this.#hasher = new Hasher(hashKey);
    this.#tables = buffers.map((buffer, shard) => new CounterTable(buffer, shard, owner, onFull));
    this.#clock = clock;
    this.#lane = lane;
  }

  /** What `decide` takes for a namespace. */
  namespaceState(name: string): NamespaceState {
    return this.#hasher.namespace(name);
  }

  /** Decides and counts one check. The answer is overwritten by the next. */
  decide(
    namespace: NamespaceState,
    identifier: string,
    limit: number,
    durationMs: number,
    cost: number,
  ): TableDecision {
    const decision = this.#decision;
    this.#hasher.hash(namespace, identifier);
    const table = this.#tables[shardOf(this.#hasher)];
    const nowMs = this.#clock.nowMs();
    table.decide(this.#hasher, namespace, nowMs, limit, durationMs, cost, decision);
    this.#lane.count(decision.admitted ? COUNT.admitted : COUNT.refused);
    if (decision.outcome === OUTCOME.evicted) this.#lane.count(COUNT.liveEvictions);
    else if (decision.outcome === OUTCOME.full) this.#lane.count(COUNT.fullTable);
    return decision;
  }
}
