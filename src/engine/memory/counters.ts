/**
 * All shards' counters, as one acceptor sees them: identifier to hash, hash to shard, decision. One
 * per thread. A failure in here is a failed assertion; the route wrapper answers it with a 500.
 */

import type { Bytes } from '../../core/bytes.ts';
import { SHARDS } from '../../core/constants.ts';
import {
  type CheckParameters,
  type FullTablePolicy,
  newDecision,
  type TableDecision,
} from '../../core/decision.ts';
import { Hasher, type Identity, type NamespaceState } from '../../core/hash.ts';
import { Batch } from './batch.ts';
import { shardOf } from './shard.ts';
import { CounterTable } from './table.ts';

export class Counters {
  /** Decides many checks at once. */
  readonly batch: Batch;
  readonly #hasher: Hasher;
  readonly #tables: CounterTable[];
  readonly #decision = newDecision();

  /**
   * @param owner the incarnation of this thread, which its locks carry
   * @param onWait called now and then while the thread waits for a lock
   */
  constructor(
    buffers: readonly SharedArrayBuffer[],
    hashKey: Uint8Array,
    owner: number,
    fullTablePolicy: FullTablePolicy,
    onWait: () => void,
  ) {
    if (buffers.length !== SHARDS) throw new Error(`${buffers.length} tables for ${SHARDS} shards`);
    this.#hasher = new Hasher(hashKey);
    this.#tables = buffers.map((buffer, shard) => {
      return new CounterTable(buffer, shard, owner, fullTablePolicy, onWait);
    });
    this.batch = new Batch(this.#tables, fullTablePolicy);
  }

  /** What `identify` takes for a namespace. */
  namespaceState(name: string): NamespaceState {
    return this.#hasher.namespace(name);
  }

  /** Hashes an identifier in a namespace. What it returns is overwritten by the next. */
  identify(namespace: NamespaceState, identifier: string): Identity {
    this.#hasher.hash(namespace, identifier);
    return this.#hasher;
  }

  /** The same of an identifier that is there in UTF-8. */
  identifyBytes(namespace: NamespaceState, memory: Bytes, from: number, to: number): Identity {
    this.#hasher.hashBytes(namespace, memory, from, to);
    return this.#hasher;
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
}
