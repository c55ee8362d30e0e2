/**
 * The shared memory of all threads, allocated on the main thread: control words, clock, tables,
 * queues, rings of events and recent decisions. The tables of the memory engine hold the counters
 * of the last run, restored from its checkpoints. A damaged checkpoint loses counters and is
 * reported in `restored`; it does not stop the start. The counters of the redis engine are in
 * Redis: checkpoints are not read nor written.
 */

import type { LoadedSettings } from '../config/load.ts';
import { CLOCK_AHEAD_MAX_MS } from '../core/constants.ts';
import { fingerprintOf } from '../engine/memory/checkpoint/format.ts';
import { CheckpointLoader } from '../engine/memory/checkpoint/loader.ts';
import { slotsFor } from '../engine/table/size.ts';
import type { EventPlan } from '../events/event-recorder.ts';
import { allocateRecentMemory } from '../recent-decisions/memory.ts';
import { Clock, ClockPublisher, systemMs } from '../shared-memory/clock.ts';
import { allocateControl, Control } from '../shared-memory/control.ts';
import { type AllocatedEngine, allocateEngine } from './engine-host.ts';
import { allocateEvents } from './events.ts';

export interface SharedState extends AllocatedEngine {
  controlBuffer: SharedArrayBuffer;
  control: Control;
  clockPublisher: ClockPublisher;
  clock: Clock;
  /** Undefined where decisions become no events. */
  events: EventPlan | undefined;
  /** By thread; undefined where recent decisions are off. */
  recentDecisions: readonly SharedArrayBuffer[] | undefined;
  /** Slots of all counter tables. */
  slots: number;
}

export function restoreSharedState(
  settings: LoadedSettings,
  directory: string,
  hashKey: Uint8Array,
): SharedState {
  const { acceptors, workers, counters, rls } = settings;
  const controlBuffer = allocateControl(acceptors, workers, rls?.threads);
  const control = new Control(controlBuffer);
  const keyFingerprint = fingerprintOf(hashKey);
  const loader = new CheckpointLoader(directory, keyFingerprint, systemMs() + CLOCK_AHEAD_MAX_MS);
  const clockPublisher = new ClockPublisher(control, loader.latestStartedMs);
  const clock = new Clock(control);
  const engine = allocateEngine(settings, directory, keyFingerprint, loader, controlBuffer, clock);
  return {
    controlBuffer,
    control,
    clockPublisher,
    clock,
    events: allocateEvents(settings, control),
    recentDecisions: allocateRecentDecisions(settings, control),
    slots: slotsFor(counters),
    ...engine,
  };
}

function allocateRecentDecisions(
  { recentDecisions }: LoadedSettings,
  { acceptorCount }: Control,
): readonly SharedArrayBuffer[] | undefined {
  if (recentDecisions === 'off') return undefined;
  return Array.from({ length: acceptorCount }, (_, thread) => allocateRecentMemory(thread));
}
