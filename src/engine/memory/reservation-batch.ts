/**
 * Makes reservations: a batch of checks, and a record for each of them in the same step. The locks
 * of holds are taken after those of all groups, in the order of the shards.
 */

import type { Check } from '../../core/check.ts';
import { type FullTablePolicy, OUTCOME } from '../../core/decision.ts';
import { type HoldId, newSecret } from '../hold-id.ts';
import type { HoldTable } from '../holds/hold-table.ts';
import { NONE, referenceOf } from '../holds/layout.ts';
import { shardOf } from '../table/shard.ts';
import type { Batch, BatchCompanion } from './batch.ts';

export class ReservationBatch implements BatchCompanion {
  /** What the last call of `decide` has recorded, and whether there was no room for it. */
  id: HoldId | undefined;
  expiresAt = 0;
  isFull = false;
  readonly #batch: Batch;
  readonly #tables: readonly HoldTable[];
  readonly #whenFull: FullTablePolicy;
  #checks: readonly Check[] = [];
  #ttlMs = 0;
  /** Those whose locks are held, in ascending order. */
  #shards: number[] = [];

  /** @param tables by shard */
  constructor(batch: Batch, tables: readonly HoldTable[], whenFull: FullTablePolicy) {
    this.#batch = batch;
    this.#tables = tables;
    this.#whenFull = whenFull;
  }

  /** Decides the checks as one, and records them if all are allowed. @returns whether they are */
  decide(checks: readonly Check[], nowMs: number, ttlMs: number): boolean {
    this.id = undefined;
    this.expiresAt = 0;
    this.isFull = false;
    this.#checks = checks;
    this.#ttlMs = ttlMs;
    const batch = this.#batch;
    batch.begin();
    for (const check of checks) batch.add(check.identity, check.namespace.hashState[0], check);
    return batch.decide(nowMs, this);
  }

  begin(nowMs: number): boolean {
    const shards = this.#checks.map(({ identity }) => shardOf(identity)).sort((a, b) => a - b);
    this.#shards = [];
    let now = nowMs;
    try {
      for (const [position, shard] of shards.entries()) {
        const table = this.#tables[shard];
        if (shard !== shards[position - 1]) {
          table.lock();
          this.#shards.push(shard);
          now = Math.max(now, table.advanceTime(nowMs));
        }
        const needed = position - shards.indexOf(shard) + 1;
        if (needed > table.room) this.isFull = true;
      }
    } catch (error) {
      this.end();
      throw error;
    }
    this.expiresAt = now + this.#ttlMs;
    return !this.isFull || this.#whenFull === 'allow';
  }

  record(): void {
    if (this.isFull) return;
    const secret = newSecret();
    let nextOfList = NONE;
    for (let number = this.#checks.length - 1; number >= 0; number--) {
      const { identity, namespace, rule, durationMs, limit, cost } = this.#checks[number];
      const { window, outcome } = this.#batch.decision(number);
      const shard = shardOf(identity);
      const hold = {
        isLease: false,
        isMember: number > 0,
        nextOfList,
        listLength: this.#checks.length,
        identity,
        namespace: namespace.hashState,
        rule,
        durationMs,
        window,
        limit,
        // The policy for a full table of counters has allowed it without counting it.
        amount: outcome === OUTCOME.full ? 0 : cost,
        expiresAt: this.expiresAt,
      };
      this.id = this.#tables[shard].add(hold, this.expiresAt - this.#ttlMs, secret);
      nextOfList = referenceOf(shard, this.id.record);
    }
  }

  end(): void {
    for (const shard of this.#shards) this.#tables[shard].unlock();
  }
}
