/**
 * The memory engine on the main thread: what its shard workers run, the locks of a worker that has
 * died, the removal of the counters of deleted namespaces, and the end of the lease horizon.
 */

import { describeStorageError } from '../../../core/errno.ts';
import type { Log } from '../../../core/log.ts';
import { Clock } from '../../../shared-memory/clock.ts';
import { Control } from '../../../shared-memory/control.ts';
import { WORKER_STAT } from '../../../shared-memory/stats.ts';
import type { HoldStats, HostedEngine } from '../../engine.ts';
import { AT, DOUBLE_AT, HoldMemory } from '../../holds/layout.ts';
import { closeHorizon, horizonFailures, type LeaseHorizonData } from '../../holds/lease-horizon.ts';
import { recoverHolds } from '../../holds/rebuild.ts';
import { lockAt } from '../../table/layout.ts';
import { breakLock } from '../../table/lock.ts';
import { workerOf } from '../../table/shard.ts';
import { attachTable } from '../../table/table-memory.ts';
import type { MemoryEngineData } from '../allocate.ts';
import { NamespaceRemoval } from '../removal.ts';
import type { CheckpointPlan } from './checkpoint-scheduler.ts';
import type { MemoryWorkerData } from './memory-worker.ts';

const REMOVAL_STEP_INTERVAL_MS = 1;

export class HostedMemoryEngine implements HostedEngine {
  readonly file = new URL('./memory-worker.js', import.meta.url);
  readonly workerData: MemoryWorkerData;
  readonly channels: SharedArrayBuffer[][];
  readonly notifiesAcceptors: boolean;
  readonly #tables: readonly SharedArrayBuffer[];
  readonly #holds: readonly HoldMemory[];
  readonly #horizon: LeaseHorizonData | undefined;
  readonly #control: Control;
  readonly #clock: Clock;
  #removalTimer: NodeJS.Timeout | undefined;

  constructor(
    { engine: _, decide, leaseHorizon, ...shared }: MemoryEngineData,
    control: SharedArrayBuffer,
    checkpointPlan: CheckpointPlan,
  ) {
    this.workerData = { control, ...shared, checkpointPlan };
    this.channels = shared.channels;
    this.notifiesAcceptors = decide === 'worker';
    this.#tables = shared.tables;
    this.#holds = shared.holds.map((buffer, shard) => new HoldMemory(buffer, shard));
    this.#horizon = leaseHorizon;
    this.#control = new Control(control);
    this.#clock = new Clock(this.#control);
  }

  breakLocks(worker: number, incarnation: number): void {
    for (const [shard, buffer] of this.#tables.entries()) {
      if (workerOf(shard, this.#control.workerCount) !== worker) continue;
      const { words, groups } = attachTable(buffer, shard);
      // First the holds: a thread that waits for a group would wait for them too.
      recoverHolds(this.workerData.holds[shard], shard, incarnation);
      for (let group = 0; group < groups; group++) breakLock(words, lockAt(group), incarnation);
    }
  }

  /** Read without the locks: as of a moment ago. */
  holdStats(): HoldStats {
    const sum = (read: (memory: HoldMemory) => number) => {
      return this.#holds.reduce((total, memory) => total + read(memory), 0);
    };
    return {
      capacity: sum(({ capacity }) => capacity),
      reservations: sum(({ words }) => words[AT.liveReservations]),
      reservedTokens: sum(({ doubles }) => doubles[DOUBLE_AT.heldTokens]),
      leases: sum(({ words }) => words[AT.liveLeases]),
      leasedTokens: sum(({ doubles }) => doubles[DOUBLE_AT.leasedTokens]),
      leaseWaitMs: Math.max(0, (this.#horizon?.waitUntilMs ?? 0) - this.#clock.nowMs()),
      horizon: this.#horizon && horizonFailures(this.#horizon),
    };
  }

  afterDrain(isComplete: boolean, log: Log): void {
    if (this.#horizon === undefined) return;
    // Otherwise the next start waits: it does not know the leases since an earlier checkpoint.
    const workers = this.#control.allWorkerStats();
    const isSaved = workers.every((stats) => stats.get(WORKER_STAT.checkpointErrno) === 0);
    if (!isComplete || !isSaved) return;
    try {
      closeHorizon(this.#horizon, this.#clock.nowMs());
    } catch (error) {
      const cause = describeStorageError(error);
      log.warn(`the lease horizon cannot be removed, so the next start waits for it: ${cause}`);
    }
  }

  removeNamespaces(tags: ReadonlySet<number>): Promise<void> {
    const removal = new NamespaceRemoval(
      this.#tables.map((buffer, shard) => attachTable(buffer, shard)),
      tags,
    );
    return new Promise((resolve) => {
      // Each step is in a turn of its own, between the other work of this thread.
      this.#removalTimer = setInterval(() => {
        if (!removal.step(this.#clock.nowMs())) return;
        clearInterval(this.#removalTimer);
        resolve();
      }, REMOVAL_STEP_INTERVAL_MS);
    });
  }

  close(): void {
    clearInterval(this.#removalTimer);
  }
}
