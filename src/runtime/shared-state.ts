/**
 * The shared memory of all threads, allocated on the main thread: control words, clock, tables and
 * queues. The tables hold the counters of the last run, restored from its checkpoints. A damaged
 * checkpoint loses counters and is reported in `restored`; it does not stop the start.
 */

import type { Settings } from '../config/schema.ts';
import { CLOCK_AHEAD_MAX_MS, SHARDS, SLOTS_PER_COUNTER } from '../core/constants.ts';
import { fingerprintOf } from '../engine/memory/checkpoint/format.ts';
import { CheckpointLoader, type RestoreResult } from '../engine/memory/checkpoint/loader.ts';
import { GROUP_SLOTS, groupsPerShard } from '../engine/memory/layout.ts';
import { allocateTable, attachTable } from '../engine/memory/table-memory.ts';
import type { CheckpointPlan } from '../engine/worker/checkpoint-scheduler.ts';
import { allocateChannel } from '../engine/worker/queue.ts';
import { Clock, ClockPublisher, systemMs } from '../shared-memory/clock.ts';
import { allocateControl, Control } from '../shared-memory/control.ts';

export interface SharedState {
  controlBuffer: SharedArrayBuffer;
  control: Control;
  clockPublisher: ClockPublisher;
  clock: Clock;
  /** By shard. */
  tables: SharedArrayBuffer[];
  /** By acceptor and shard worker. */
  channels: SharedArrayBuffer[][];
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
  const groups = groupsPerShard(counters * SLOTS_PER_COUNTER, SHARDS);
  const tables = Array.from({ length: SHARDS }, (_, shard) => allocateTable(shard, groups));
  const restored = loader.restoreInto(tables.map(attachTable), clock.nowMs());
  const channels = Array.from({ length: acceptors }, (_row, acceptor) => {
    return Array.from({ length: workers }, (_, worker) => allocateChannel(acceptor, worker));
  });
  return {
    controlBuffer,
    control,
    clockPublisher,
    clock,
    tables,
    channels,
    slots: groups * GROUP_SLOTS * SHARDS,
    checkpointPlan: { directory, intervalMs: settings.checkpointMs, keyFingerprint },
    restored,
  };
}
