import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import { expect, test } from 'vitest';
import { SHARDS } from '../../../src/core/constants.ts';
import { Hasher, newIdentity } from '../../../src/core/hash.ts';
import { CounterTable } from '../../../src/engine/memory/table.ts';
import { locate, newLocation } from '../../../src/engine/table/group.ts';
import { groupsPerShard, latestMsAt } from '../../../src/engine/table/layout.ts';
import { shardOf } from '../../../src/engine/table/shard.ts';
import { allocateTable } from '../../../src/engine/table/table-memory.ts';
import { trialCount } from '../../support/guarantees.ts';
import { readStoredUsage } from '../../support/limiter-model.ts';
import {
  COUNTERS,
  type ContentionTask,
  counterSpec,
  HASH_KEY,
  NAMESPACE,
  START_MS,
  type Tally,
  WINDOWS,
} from './contention.thread.ts';

const THREAD = new URL('../../../dist/threads/contention.thread.js', import.meta.url);

function runThread(task: ContentionTask): Promise<Tally> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(THREAD, { workerData: task });
    worker.once('message', resolve);
    worker.once('error', reject);
  });
}

/** Per 1 000 checks: far below what is usual. They show that windows end, and that they deny. */
const LEAST = { elapsedMs: 40, windowsDenied: 0.25 };

test.each([
  ['batches', true, trialCount(100_000, 1_100_000)],
  ['single checks', false, trialCount(100_000, 3_000_000)],
])(
  '%s of more threads than cores: all or nothing, each token counted once',
  async (_, hasBatches, wanted) => {
    const threads = 2 * availableParallelism() + 1;
    const groups = groupsPerShard(2 * 16_384, SHARDS);
    const buffers = Array.from({ length: SHARDS }, (_, shard) => allocateTable(shard, groups));
    const clock = new Int32Array(new SharedArrayBuffer(8)).fill(2_000, 0, 1);
    const minChecks = Math.ceil(wanted / threads);
    const task = { hasBatches, minChecks, threads, tables: buffers, shared: clock.buffer };
    const tallies = await Promise.all(
      Array.from({ length: threads }, (_, i) => runThread({ owner: i + 1, ...task })),
    );
    // A batch that is not all or nothing, an eviction, or a window out of range.
    expect(tallies.flatMap(({ violations }) => violations)).toEqual([]);

    const tables = buffers.map((buffer, shard) => {
      return new CounterTable(buffer, shard, threads + 1, 'deny', () => {});
    });
    const sum = (what: (tally: Tally) => number) => {
      return tallies.reduce((total, tally) => total + what(tally), 0);
    };
    const hasher = new Hasher(Buffer.from(HASH_KEY));
    const state = hasher.namespace(NAMESPACE);
    const location = newLocation();
    const wrong: string[] = [];
    let windowsDenied = 0;
    for (let number = 0; number < COUNTERS; number++) {
      const { identifier, durationMs, limit } = counterSpec(number);
      const consumed = (window: number) =>
        sum((tally) => tally.consumed[number * WINDOWS + window]);
      for (let window = 0; window < WINDOWS; window++) {
        const at = number * WINDOWS + window;
        const used = consumed(window);
        const denied = Math.min(...tallies.map((tally) => tally.smallestDenied[at]));
        // A denied cost still does not fit at the end of the window.
        if (used > limit || used + denied <= limit) {
          wrong.push(`counter ${number}, window ${window}: ${denied} denied, ${used} of ${limit}`);
        }
        if (denied < Number.POSITIVE_INFINITY) windowsDenied++;
      }
      const id = hasher.hash(state, identifier, newIdentity());
      const table = tables[shardOf(id)];
      const { doubles, words } = table;
      locate(table, id, location);
      expect(words[location.lock]).toBe(0);
      const latestMs = doubles[latestMsAt(location.lock)];
      const window = Math.floor(latestMs / durationMs) - Math.floor(START_MS / durationMs);
      const stored = Number(readStoredUsage(tables, id, durationMs)?.current ?? 0);
      if (stored !== consumed(window)) {
        wrong.push(`counter ${number}: ${stored} stored, ${consumed(window)} consumed`);
      }
    }
    expect(wrong).toEqual([]);

    const [checks, batches, passed] = [
      sum((tally) => tally.checks),
      sum((tally) => tally.batches),
      sum((tally) => tally.passedBatches),
    ];
    const waitSteps = sum((tally) => tally.waitSteps);
    const of = { threads, checks, batches, passed, windowsDenied, elapsedMs: clock[0], waitSteps };
    console.info(JSON.stringify(of));
    expect(checks).toBeGreaterThanOrEqual(wanted);
    expect(clock[0]).toBeGreaterThan((LEAST.elapsedMs * checks) / 1_000);
    expect(windowsDenied).toBeGreaterThan((LEAST.windowsDenied * checks) / 1_000);
    if (hasBatches) {
      expect(passed).toBeGreaterThan(batches / 20);
      expect(batches - passed).toBeGreaterThan(batches / 20);
    }
  },
);
