/**
 * The shared memory of all threads, allocated on the main thread: control words, clock, tables,
 * queues and rings of events. The tables of the memory engine hold the counters of the last run,
 * restored from its checkpoints. A damaged checkpoint loses counters and is reported in `restored`;
 * it does not stop the start. The counters of the redis engine are in Redis: checkpoints are not
 * read nor written.
 */

import type { LoadedSettings } from '../config/load.ts';
import { CLOCK_AHEAD_MAX_MS } from '../core/constants.ts';
import { allocateMemoryEngine } from '../engine/memory/allocate.ts';
import { fingerprintOf } from '../engine/memory/checkpoint/format.ts';
import { CheckpointLoader, type RestoreResult } from '../engine/memory/checkpoint/loader.ts';
import type { CheckpointPlan } from '../engine/memory/shard-worker/checkpoint-scheduler.ts';
import { allocateRedisEngine } from '../engine/redis/allocate.ts';
import { slotsFor } from '../engine/table/size.ts';
import { attachTable } from '../engine/table/table-memory.ts';
import type { EventPlan } from '../events/event-recorder.ts';
import type { EngineData } from '../server/create-engine.ts';
import { Clock, ClockPublisher, systemMs } from '../shared-memory/clock.ts';
import { allocateControl, Control } from '../shared-memory/control.ts';
import { allocateEvents } from './events.ts';

export interface SharedState {
  controlBuffer: SharedArrayBuffer;
  control: Control;
  clockPublisher: ClockPublisher;
  clock: Clock;
  engineData: EngineData;
  /** Undefined where decisions become no events. */
  events: EventPlan | undefined;
  /** Slots of all counter tables. */
  slots: number;
  /** Only the memory engine writes checkpoints. */
  checkpointPlan: CheckpointPlan;
  /** Undefined for the redis engine. */
  restored: RestoreResult | undefined;
  /** Whether there are checkpoints that the redis engine does not use. */
  hasUnusedCheckpoints: boolean;
}

export function restoreSharedState(
  settings: LoadedSettings,
  directory: string,
  hashKey: Uint8Array,
): SharedState {
  const { acceptors, workers, counters } = settings;
  const controlBuffer = allocateControl(acceptors, workers);
  const control = new Control(controlBuffer);
  const keyFingerprint = fingerprintOf(hashKey);
  const loader = new CheckpointLoader(directory, keyFingerprint, systemMs() + CLOCK_AHEAD_MAX_MS);
  const clockPublisher = new ClockPublisher(control, loader.latestStartedMs);
  const clock = new Clock(control);
  const { decide, onFull: fullTablePolicy, redis } = settings;
  const state = {
    controlBuffer,
    control,
    clockPublisher,
    clock,
    events: allocateEvents(settings),
    slots: slotsFor(counters),
    checkpointPlan: { directory, intervalMs: settings.checkpointMs, keyFingerprint },
  };
  if (redis !== undefined) {
    const options = { settings: redis, fullTablePolicy, directory };
    const engineData = allocateRedisEngine(control, counters, options, clock);
    const hasUnusedCheckpoints = loader.latestStartedMs > 0;
    return { ...state, engineData, restored: undefined, hasUnusedCheckpoints };
  }
  const engineData = allocateMemoryEngine(control, counters, { decide, fullTablePolicy });
  const tables = engineData.tables.map((buffer, shard) => attachTable(buffer, shard));
  const restored = loader.restoreInto(tables, clock.nowMs());
  return { ...state, engineData, restored, hasUnusedCheckpoints: false };
}
