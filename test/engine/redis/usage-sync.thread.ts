/**
 * A shard worker's view of its counters, in a thread with a small heap: adopts, reports and returns
 * those of a table, and hands them over. Each report is answered in a later turn, and counted.
 */

import { readdirSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';
import { newIdentity } from '../../../src/core/hash.ts';
import { EngineState } from '../../../src/engine/redis/engine-state.ts';
import { writeHandOver } from '../../../src/engine/redis/hand-over.ts';
import type { LeaseClient } from '../../../src/engine/redis/lease-client.ts';
import { LeaseTable } from '../../../src/engine/redis/lease-table.ts';
import { UsageSync } from '../../../src/engine/redis/usage-sync.ts';
import { allocateControl, Control } from '../../../src/shared-memory/control.ts';

export interface UsageTask {
  table: SharedArrayBuffer;
  state: SharedArrayBuffer;
  /** Before the end of the leases, and after it; monotonic ms. */
  nowMs: number;
  endMs: number;
  directory: string;
}

export interface UsageTally {
  /** Reports after a loss of memory, and of leases that have ended. */
  reported: number;
  returned: number;
  /** The most reports at the same time. */
  atOnce: number;
  /** Heartbeats in the one turn that adopts all slots, and turns before their file is begun. */
  heartbeats: number;
  turns: number;
}

const task = workerData as UsageTask;
const state = new EngineState(task.state);
const table = new LeaseTable(task.table, 0, state, 1, () => {});
const stats = new Control(allocateControl(1, 1)).workerStats(0);
let { nowMs } = task;
let calls = 0;
let pending = 0;
let atOnce = 0;

const client: Pick<LeaseClient, 'sync'> = {
  sync: (identity, key) => {
    calls++;
    atOnce = Math.max(atOnce, ++pending);
    table.withLock(identity, (lock) => {
      table.setDirty(lock, table.find(identity, key), false);
    });
    return new Promise((resolve) => {
      setImmediate(() => {
        pending--;
        resolve(true);
      });
    });
  },
};
const sync = new UsageSync({
  ...{ tables: [table], tableOf: () => table, client, state, stats, nowMs: () => nowMs },
  ...{ syncGcra: async () => true, reportGcra: async () => true, isUp: () => true },
});

async function countCalls(work: () => Promise<boolean>): Promise<number> {
  const before = calls;
  if (!(await work())) throw new Error('not all counters were reported');
  return calls - before;
}

const before = stats.heartbeats;
sync.adoptSlots();
const heartbeats = stats.heartbeats - before;
for (let group = 0; group < table.groups; group++) {
  const ids: { identity: ReturnType<typeof newIdentity>; endMs: number }[] = [];
  table.forEachSlotOf(group, (slot) => {
    const identity = table.readIdentity(slot, newIdentity());
    ids.push({ identity, endMs: table.readSlidingLeaseEnd(slot) });
  });
  for (const { identity, endMs } of ids) sync.returnAtEnd(identity, endMs);
}
await countCalls(() => sync.run());
const reported = await countCalls(() => sync.report(0));
nowMs = task.endMs;
const returned = await countCalls(() => sync.run());
let turns = 0;
const countTurn = () => {
  if (readdirSync(task.directory).length > 0) return;
  turns++;
  setImmediate(countTurn);
};
setImmediate(countTurn);
await writeHandOver(
  task.directory,
  0,
  { processId: 'a'.repeat(16), workers: 1, epochs: [''], members: [[]] },
  [table],
);
const tally: UsageTally = { reported, returned, atOnce, heartbeats, turns };
parentPort!.postMessage(tally);
