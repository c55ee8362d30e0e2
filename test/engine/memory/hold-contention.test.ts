import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import { expect, test } from 'vitest';
import { HoldTable } from '../../../src/engine/holds/hold-table.ts';
import { AT, allocateHolds } from '../../../src/engine/holds/layout.ts';
import { ShardHolds } from '../../../src/engine/memory/shard-holds.ts';
import { CounterTable } from '../../../src/engine/memory/table.ts';
import { allocateTable } from '../../../src/engine/table/table-memory.ts';
import { trialCount } from '../../support/guarantees.ts';
import { expectConsistent } from '../../support/hold-tables.ts';
import {
  type HoldContentionTask,
  type HoldTally,
  IDENTITIES,
  limitOf,
  START_MS,
} from './hold-contention.thread.ts';

const THREAD = new URL('../../../dist/threads/hold-contention.thread.js', import.meta.url);

function runThread(task: HoldContentionTask): Promise<HoldTally> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(THREAD, { workerData: task });
    worker.once('message', resolve);
    worker.once('error', reject);
  });
}

test('holds of more threads than cores end once, and leave what was committed', async () => {
  const threads = 2 * availableParallelism() + 1;
  // Eight groups, and records that run out.
  const [counters, holds] = [allocateTable(0, 8), allocateHolds(0, 1_024, 8)];
  const { buffer: shared } = new Int32Array(new SharedArrayBuffer(8)).fill(1_000, 0, 1);
  const wanted = trialCount(200_000, 4_000_000);
  const minCalls = Math.ceil(wanted / threads);
  const tallies = await Promise.all(
    Array.from({ length: threads }, (_, index) => {
      const own = { owner: index + 1, isWorker: index === 0 };
      return runThread({ ...own, threads, minCalls, counters, holds, shared });
    }),
  );
  expect(tallies.flatMap(({ violations }) => violations)).toEqual([]);

  const table = new HoldTable(holds, 0, threads + 1, () => {});
  expectConsistent(table);
  const counterTable = new CounterTable(counters, 0, threads + 1, 'deny', () => {});
  const shard = new ShardHolds(counterTable, table, { whenFull: 'deny', onExpiry: 'release' });
  const endMs = START_MS + 10 * new Int32Array(shared)[0];
  shard.expire(endMs, Number.POSITIVE_INFINITY);
  expectConsistent(table);
  expect(table.memory.words[AT.queueLength]).toBe(0);
  const sum = (what: (tally: HoldTally) => number) => {
    return tallies.reduce((total, tally) => total + what(tally), 0);
  };
  const consumed = IDENTITIES.map((_, number) => sum((tally) => tally.consumed[number]));
  const used = IDENTITIES.map((id) => counterTable.inspect(id, endMs)[0]?.used ?? 0);
  expect(used).toEqual(consumed);
  // A late commit is charged beyond the limit; nothing else is.
  const counts = {
    commits: sum(({ commits }) => commits),
    late: sum(({ lateCommits }) => lateCommits),
    expired: sum(({ expired }) => expired),
    unknown: sum(({ unknown }) => unknown),
    leases: sum(({ leases }) => leases),
  };
  for (const [number, tokens] of used.entries()) {
    expect(tokens).toBeLessThanOrEqual(limitOf(number) + counts.late);
  }
  console.info(JSON.stringify({ threads, used, ...counts }));
  for (const count of Object.values(counts)) expect(count).toBeGreaterThan(0);
});
