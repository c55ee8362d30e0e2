/** The holds of an engine, the worker of its shards, and a clock that a test moves. */

import type { Check } from '../../src/core/check.ts';
import { HOLDS_MIN } from '../../src/core/constants.ts';
import type { FullTablePolicy } from '../../src/core/decision.ts';
import { createEngine } from '../../src/decision-thread/create-engine.ts';
import type { ExpiredHoldPolicy } from '../../src/engine/hold-engine.ts';
import { HoldTable } from '../../src/engine/holds/hold-table.ts';
import { allocateMemoryEngine } from '../../src/engine/memory/allocate.ts';
import { MemoryHolds } from '../../src/engine/memory/memory-holds.ts';
import { ShardHolds } from '../../src/engine/memory/shard-holds.ts';
import { HoldScheduler } from '../../src/engine/memory/shard-worker/hold-scheduler.ts';
import { CounterTable } from '../../src/engine/memory/table.ts';
import { Clock } from '../../src/shared-memory/clock.ts';
import { allocateControl, Control } from '../../src/shared-memory/control.ts';
import { START_MS } from './limiter-model.ts';

/** One group in each shard. */
export const HOLD_ENGINE_COUNTERS = 1_024;
const WORKER = 1_000;
const control = new Control(allocateControl(1, 1));
export const acceptorStats = control.acceptorStats(0);
export const workerStats = control.workerStats(0);

/** A clock that a test moves, forward and back. */
class SteppedClock extends Clock {
  ms = START_MS;

  override nowMs(): number {
    return this.ms;
  }

  override monotonicMs(): number {
    return this.ms;
  }

  override wallMs(monotonicMs: number): number {
    return monotonicMs;
  }
}

/** An engine with the worker of its shards, whose memory can be made new. */
export function newHoldEngine(
  onExpiry: ExpiredHoldPolicy,
  whenFull: FullTablePolicy = 'deny',
  fullTablePolicy: FullTablePolicy = 'deny',
) {
  const data = allocateMemoryEngine(control, {
    ...{ counters: HOLD_ENGINE_COUNTERS, holds: HOLDS_MIN, decide: 'in-place', fullTablePolicy },
    holdPolicies: { whenFull, onExpiry },
  });
  const buffers = [...data.tables, ...data.holds].map((buffer) => new Int32Array(buffer));
  const initial = buffers.map((words) => words.slice());
  const clock = new SteppedClock(control);
  const engine = createEngine(data, 0, control, clock);
  const { holds } = engine;
  if (!(holds instanceof MemoryHolds)) throw new Error('the engine is not that in memory');
  const holdTables = data.holds.map((buffer, shard) => {
    return new HoldTable(buffer, shard, WORKER, () => {});
  });
  const shards = data.tables.map((buffer, shard) => {
    const counters = new CounterTable(buffer, shard, WORKER, fullTablePolicy, () => {});
    return new ShardHolds(counters, holdTables[shard], data.holdPolicies);
  });
  const decide = (check: Check, startedMs = clock.ms) => {
    const completion = { complete: () => {}, fail: () => {} };
    return { ...engine.decide(check, startedMs, undefined, completion)! };
  };
  return {
    ...{ engine, holds, clock, holdTables, decide },
    newScheduler: () => new HoldScheduler(shards, workerStats),
    restore: () => {
      for (const [index, words] of buffers.entries()) words.set(initial[index]);
    },
    /** The tokens that count, also those beyond a limit. */
    used: (check: Check) => {
      const probe = { ...check, cost: 0, limit: 1_000_000 };
      return probe.limit - decide(probe).remaining;
    },
  };
}
