/**
 * The shared memory of all threads, allocated on the main thread: control words, clock, tables and
 * queues. The tables hold the counters of the last run, restored from its checkpoints. A damaged
 * checkpoint loses counters and is reported in `restored`; it does not stop the start.
 */

import type { Settings } from '../config/schema.ts';
import { CLOCK_AHEAD_MAX_MS } from '../core/constants.ts';
import { fingerprintOf } from '../engine/memory/checkpoint/format.ts';
import { CheckpointLoader, type RestoreResult } from '../engine/memory/checkpoint/loader.ts';
import { allocateMemoryEngine, restoreCounters } from '../engine/worker/allocate.ts';
import type { CheckpointPlan } from '../engine/worker/checkpoint-scheduler.ts';
import { slotsFor } from '../engine/worker/size.ts';
import type { EngineData } from '../server/create-engine.ts';
import { Clock, ClockPublisher, systemMs } from '../shared-memory/clock.ts';
import { allocateControl, Control } from '../shared-memory/control.ts';

export interface SharedState {
  controlBuffer: SharedArrayBuffer;
  control: Control;
  clockPublisher: ClockPublisher;
  clock: Clock;
  engineData: EngineData;
  /** Slots of all counter tables. */
  slots: number;
  checkpointPlan: CheckpointPlan;
  restored: RestoreResult;
}

export function restoreSharedState(
  settings: Settings,
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
  const { decide, onFull: fullTablePolicy } = settings;
  const engineData = allocateMemoryEngine(control, counters, { decide, fullTablePolicy });
  const restored = restoreCounters(engineData, loader, clock.nowMs());
  return {
    controlBuffer,
    control,
    clockPublisher,
    clock,
    engineData,
    slots: slotsFor(counters),
    checkpointPlan: { directory, intervalMs: settings.checkpointMs, keyFingerprint },
    restored,
  };
}
