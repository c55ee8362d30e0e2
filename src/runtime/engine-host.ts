/**
 * Allocates the engine of the process, on the main thread: the shared memory of its engines on all
 * threads, and what the host runs. See `decision-thread/create-engine.ts` too.
 */

import type { LoadedSettings } from '../config/load.ts';
import type { EngineData } from '../decision-thread/create-engine.ts';
import type { HostedEngine } from '../engine/engine.ts';
import { HoldTable } from '../engine/holds/hold-table.ts';
import { openHorizon } from '../engine/holds/lease-horizon.ts';
import { allocateMemoryEngine } from '../engine/memory/allocate.ts';
import type { HashKeyFingerprint } from '../engine/memory/checkpoint/format.ts';
import type { CheckpointLoader, RestoreResult } from '../engine/memory/checkpoint/loader.ts';
import type { CheckpointPlan } from '../engine/memory/shard-worker/checkpoint-scheduler.ts';
import { HostedMemoryEngine } from '../engine/memory/shard-worker/hosted-engine.ts';
import { allocateRedisEngine } from '../engine/redis/allocate.ts';
import { HostedRedisEngine } from '../engine/redis/hosted-engine.ts';
import { MAIN_THREAD_OWNER } from '../engine/table/lock.ts';
import { attachTable } from '../engine/table/table-memory.ts';
import type { Clock } from '../shared-memory/clock.ts';
import { Control } from '../shared-memory/control.ts';

export interface AllocatedEngine {
  engineData: EngineData;
  hostedEngine: HostedEngine;
  /** Undefined for an engine without checkpoints. */
  checkpointPlan: CheckpointPlan | undefined;
  /** What was restored from the checkpoints. */
  restored: RestoreResult | undefined;
  /** Whether there are checkpoints that the engine does not use. */
  hasUnusedCheckpoints: boolean;
}

export function allocateEngine(
  settings: LoadedSettings,
  directory: string,
  keyFingerprint: HashKeyFingerprint,
  checkpoints: CheckpointLoader,
  controlBuffer: SharedArrayBuffer,
  clock: Clock,
): AllocatedEngine {
  const { redis, decide, counters, holds, onFull: fullTablePolicy, onHoldExpiry } = settings;
  const control = new Control(controlBuffer);
  const holdPolicies = { whenFull: fullTablePolicy, onExpiry: onHoldExpiry };
  if (redis !== undefined) {
    const options = { settings: redis, holdPolicies, holds, directory };
    const engineData = allocateRedisEngine(control, counters, options, clock);
    return {
      engineData,
      hostedEngine: new HostedRedisEngine(engineData, controlBuffer),
      checkpointPlan: undefined,
      restored: undefined,
      hasUnusedCheckpoints: checkpoints.latestStartedMs > 0,
    };
  }
  const leaseHorizon =
    settings.onLostLeases === 'wait' ? openHorizon(directory, clock.nowMs()) : undefined;
  const options = { counters, holds, decide, fullTablePolicy, holdPolicies, leaseHorizon };
  const engineData = allocateMemoryEngine(control, options);
  const tables = engineData.tables.map((buffer, shard) => attachTable(buffer, shard));
  const holdTables = engineData.holds.map((buffer, shard) => {
    return new HoldTable(buffer, shard, MAIN_THREAD_OWNER, () => {});
  });
  const checkpointPlan = { directory, intervalMs: settings.checkpointMs, keyFingerprint };
  return {
    engineData,
    hostedEngine: new HostedMemoryEngine(engineData, controlBuffer, checkpointPlan),
    checkpointPlan,
    restored: checkpoints.restoreInto(tables, holdTables, clock.nowMs()),
    hasUnusedCheckpoints: false,
  };
}
