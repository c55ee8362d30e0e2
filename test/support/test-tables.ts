/** The counter tables of all shards in one thread, for tests. */

import { COUNTERS_MIN, HOLDS_MIN, SHARDS, SLOTS_PER_COUNTER } from '../../src/core/constants.ts';
import {
  type FullTablePolicy,
  newDecision,
  OUTCOME,
  type TableDecision,
} from '../../src/core/decision.ts';
import { Hasher, newIdentity } from '../../src/core/hash.ts';
import { NO_BURST, RULE, type RuleNumber } from '../../src/core/window-rules.ts';
import { HoldTable } from '../../src/engine/holds/hold-table.ts';
import { allocateHolds } from '../../src/engine/holds/layout.ts';
import { Batch } from '../../src/engine/memory/batch.ts';
import { Sweeper } from '../../src/engine/memory/sweep.ts';
import { CounterTable } from '../../src/engine/memory/table.ts';
import { groupsPerShard } from '../../src/engine/table/layout.ts';
import { shardOf } from '../../src/engine/table/shard.ts';
import { allocateTable } from '../../src/engine/table/table-memory.ts';

const NOW_MS = 1_700_000_000_000;
const MINUTE_MS = 60_000;

interface CheckOptions {
  limit?: number;
  duration?: number;
  cost?: number;
  now?: number;
  /** false: the check inserts its counter, and a later deduction counts its cost. */
  isCounted?: boolean;
  rule?: RuleNumber;
  burst?: number;
}

function termsOf({ limit = 10, duration = MINUTE_MS, cost = 1, ...of }: CheckOptions) {
  const { rule = RULE.fixed, burst = NO_BURST } = of;
  return { limit, durationMs: duration, cost, rule, burst };
}

/** One check of a batch. */
export interface BatchCheck extends Omit<CheckOptions, 'now' | 'counts'> {
  identifier: string;
  namespace?: string;
}

/** The tables of all shards for a capacity. Each call passes its own time. */
export class TestTables {
  /** The identity of the identifier of the last call. */
  readonly id = newIdentity();
  readonly #hasher = new Hasher(Buffer.from('0123456789abcdef'));
  readonly tables: CounterTable[];
  readonly holdTables: HoldTable[];
  readonly sweepers: Sweeper[];
  readonly batch: Batch;
  readonly decision = newDecision();
  evicted = 0;
  full = 0;

  constructor(counters: number, onFull: FullTablePolicy = 'deny') {
    const groups = groupsPerShard(counters * SLOTS_PER_COUNTER, SHARDS);
    this.tables = Array.from({ length: SHARDS }, (_, shard) => {
      return new CounterTable(allocateTable(shard, groups), shard, 1, onFull, () => {});
    });
    this.holdTables = this.tables.map(({ groups }, shard) => {
      return new HoldTable(allocateHolds(shard, HOLDS_MIN, groups), shard, 1, () => {});
    });
    this.sweepers = this.tables.map((table) => new Sweeper(table, 1));
    this.batch = new Batch(this.tables, onFull);
  }

  decide(identifier: string, options: CheckOptions = {}, namespace = 'default') {
    const { now = NOW_MS, isCounted = true } = options;
    const [tag] = this.#hash(namespace, identifier);
    const table = this.tables[shardOf(this.id)];
    table.decide(this.id, tag, now, termsOf(options), isCounted, this.decision);
    if (this.decision.outcome === OUTCOME.evicted) this.evicted++;
    if (this.decision.outcome === OUTCOME.full) this.full++;
    return this.decision;
  }

  /** Decides a batch of checks. @returns whether it passes, and the decision of each check */
  decideBatch(checks: BatchCheck[], now = NOW_MS): { passed: boolean; answers: TableDecision[] } {
    const { batch, id } = this;
    batch.begin();
    for (const check of checks) {
      const [tag] = this.#hash(check.namespace ?? 'default', check.identifier);
      batch.add(id, tag, termsOf(check));
    }
    const passed = batch.decide(now);
    return { passed, answers: checks.map((_, number) => ({ ...batch.decision(number) })) };
  }

  peek(identifier: string, options: CheckOptions = {}) {
    this.#hash('default', identifier);
    const table = this.tables[shardOf(this.id)];
    const { now = NOW_MS } = options;
    const hasDecision = table.peek(this.id, now, termsOf(options), this.decision);
    return hasDecision ? this.decision : undefined;
  }

  deduct(identifier: string, options: CheckOptions & { window: number }): number {
    const { now = NOW_MS, window } = options;
    const [tag] = this.#hash('default', identifier);
    return this.tables[shardOf(this.id)].deduct(this.id, tag, now, window, termsOf(options));
  }

  /** Refunds tokens to an identifier. @returns the number of refunded tokens */
  refund(identifier: string, options: CheckOptions & { window: number }): number {
    const { duration = MINUTE_MS, cost = 1, now = NOW_MS, rule = RULE.fixed, window } = options;
    this.#hash('default', identifier);
    return this.tables[shardOf(this.id)].refund(this.id, rule, duration, window, cost, now);
  }

  /** Removes counters of an identifier. @returns the number of removed counters */
  reset(identifier: string, duration?: number, rule?: RuleNumber, now = NOW_MS): number {
    this.#hash('default', identifier);
    return this.tables[shardOf(this.id)].reset(this.id, now, duration, rule);
  }

  inspect(identifier: string, duration?: number, rule?: RuleNumber, now = NOW_MS) {
    this.#hash('default', identifier);
    return this.tables[shardOf(this.id)].inspect(this.id, now, duration, rule);
  }

  /** What the checks of an identifier would get, decided as one batch. */
  explain(identifier: string, checks: CheckOptions[], now = NOW_MS, namespace = 'default') {
    const [tag] = this.#hash(namespace, identifier);
    const batch = { checks: checks.map(termsOf), isBatch: true };
    return this.tables[shardOf(this.id)].explain(this.id, tag, now, () => batch);
  }

  /** Sweeps all tables. @returns the number of live counters */
  countLive(now = NOW_MS): number {
    return this.sweepers.reduce((sum, sweeper) => {
      while (!sweeper.step(now));
      return sum + sweeper.liveCount;
    }, 0);
  }

  /** The tag of a namespace in its counters. */
  tagOf(namespace: string): number {
    return this.#hash(namespace, '')[0];
  }

  readonly #states = new Map<string, Int32Array>();

  #hash(namespace: string, identifier: string): Int32Array {
    const state = this.#states.get(namespace) ?? this.#hasher.namespace(namespace);
    this.#states.set(namespace, state);
    this.#hasher.hash(state, identifier, this.id);
    return state;
  }
}

/** Tables full of counters that have all denied a check, of the given number of namespaces. */
export function tablesOfDeniedCounters(onFull: FullTablePolicy, namespaces: number): TestTables {
  const tables = new TestTables(COUNTERS_MIN, onFull);
  for (let i = 0; i < 10 * COUNTERS_MIN; i++) {
    const name = `ns_${i % namespaces}`;
    if (tables.decide(`g${i}`, { limit: 1 }, name).outcome === OUTCOME.full) continue;
    tables.decide(`g${i}`, { limit: 1 }, name);
  }
  return tables;
}
