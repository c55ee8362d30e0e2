import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { expect, test } from 'vitest';
import { newLeaseState } from '../../../src/engine/redis/counter/lease-state.ts';
import { NO_SLOT } from '../../../src/engine/table/layout.ts';
import { START_MS, TestLeases, testIdentity, WINDOW } from '../../support/lease-tables.ts';
import { removeDirectory, temporaryDirectory } from '../../support/server.ts';
import type { UsageTally, UsageTask } from './usage-sync.thread.ts';

const THREAD = new URL('../../../dist/threads/usage-sync.thread.js', import.meta.url);
const MINUTE = 60_000;
const NOW_MS = START_MS + 10_000;
const GROUPS = 400;
const COUNTERS = 80_000;
/** The thread alone uses some 7 MB. A name of each counter needs 12 MB more. */
const HEAP_MB = 14;

/** Counters with leases for sliding windows, whose ends differ by the drift of clocks. */
function newTable(): { leases: TestLeases; counters: number } {
  const leases = new TestLeases(GROUPS);
  const { table } = leases;
  const state = newLeaseState();
  let counters = 0;
  for (let n = 0; n < COUNTERS; n++) {
    const slot = table.insert(testIdentity(n), 1, MINUTE, NOW_MS);
    if (slot === NO_SLOT) continue;
    counters++;
    table.read(slot, state);
    Object.assign(state, {
      ...{ window: WINDOW, spent: 3, lease: 5, lentLimit: 100, lastLimit: 100 },
      ...{ coversSliding: true, deadlineMs: START_MS + MINUTE - (n % 30) },
    });
    table.write(slot, state);
  }
  return { leases, counters };
}

test('a worker keeps no list of its counters, and is alive while it visits all of them', async () => {
  const { leases, counters } = newTable();
  const directory = temporaryDirectory();
  const workerData: UsageTask = {
    ...{ table: leases.buffer, state: leases.stateBuffer, directory },
    ...{ nowMs: NOW_MS, endMs: START_MS + MINUTE },
  };
  const resourceLimits = { maxOldGenerationSizeMb: HEAP_MB };
  try {
    const thread = new Worker(THREAD, { workerData, resourceLimits });
    const [tally] = (await once(thread, 'message')) as [UsageTally];
    expect(tally).toMatchObject({ reported: counters, returned: counters });
    expect(tally.atOnce).toBeLessThanOrEqual(128);
    expect(tally.heartbeats).toBe(GROUPS);
    expect(tally.turns).toBeGreaterThan(10);
  } finally {
    removeDirectory(directory);
  }
});
