import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import { expect, test } from 'vitest';
import { SHARDS } from '../../../src/core/constants.ts';
import { groupsPerShard, lockAt } from '../../../src/engine/memory/layout.ts';
import { allocateTable } from '../../../src/engine/memory/table-memory.ts';
import { type ContentionTask, limitOf, type Tally } from './contention.thread.ts';

const THREAD = new URL('../../../dist/threads/contention.thread.js', import.meta.url);

function runThread(contender: ContentionTask): Promise<Tally> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(THREAD, { workerData: contender });
    worker.once('message', resolve);
    worker.once('error', reject);
  });
}

test('10^7 decisions of more threads than cores exceed no limit and deny no cost that fits', async () => {
  const threads = 2 * availableParallelism() + 1;
  const decisions = Math.ceil(10_400_000 / threads);
  const [hot, cold, windows] = [8, 4_000, 400];
  const groups = groupsPerShard(2 * 16_384, SHARDS);
  const tables = Array.from({ length: SHARDS }, (_, shard) => allocateTable(shard, groups));
  const shared = { tables, clock: new SharedArrayBuffer(4), readyCount: new SharedArrayBuffer(4) };
  const tallies = await Promise.all(
    Array.from({ length: threads }, (_, i) => {
      const options = { owner: i + 1, seed: 1 + i, decisions, threads };
      return runThread({ ...options, ...shared, hot, cold, windows });
    }),
  );

  let allowedTokens = 0;
  let exhausted = 0;
  const wrong: string[] = [];
  for (let id = 0; id < hot + cold; id++) {
    const limit = limitOf(id, hot);
    for (let window = 0; window < windows; window++) {
      const at = id * windows + window;
      const allowed = tallies.reduce((sum, tally) => sum + tally.tokensAllowed[at], 0);
      const denied = Math.min(...tallies.map((tally) => tally.smallestDenied[at]));
      if (allowed > limit) wrong.push(`${id}/${window}: ${allowed} of ${limit} allowed`);
      // A cost was denied correctly only if it still does not fit at the end of the window.
      if (allowed + denied <= limit) wrong.push(`${id}/${window}: ${denied} denied`);
      allowedTokens += allowed;
      if (denied < Number.POSITIVE_INFINITY) exhausted++;
    }
  }
  expect(wrong).toEqual([]);
  expect(tallies.reduce((sum, tally) => sum + tally.evicted, 0)).toBe(0);
  const total = tallies.reduce((sum, tally) => sum + tally.decisions, 0);
  expect(total).toBeGreaterThanOrEqual(10_000_000);
  const elapsed = Atomics.load(new Int32Array(shared.clock), 0);
  expect(elapsed).toBeGreaterThan(50_000);
  expect(exhausted).toBeGreaterThan(500);
  for (const table of tables) {
    for (let group = 0; group < groups; group++) {
      expect(Atomics.load(new Int32Array(table), lockAt(group))).toBe(0);
    }
  }
  console.info(
    `${threads} threads, ${total} decisions, ${allowedTokens} tokens allowed,` +
      ` ${exhausted} windows with denied checks, ${Math.floor(elapsed / 1_000)} s of windows`,
  );
});
