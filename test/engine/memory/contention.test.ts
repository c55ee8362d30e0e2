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

test('more threads than cores, 10^7 decisions and many windows: no token too many, none too few', async () => {
  const contenders = 2 * availableParallelism() + 1;
  const decisions = Math.ceil(10_400_000 / contenders);
  const [hot, cold, windows] = [8, 4_000, 400];
  const groups = groupsPerShard(2 * 16_384, SHARDS);
  const tables = Array.from({ length: SHARDS }, (_, shard) => allocateTable(shard, groups));
  const shared = { tables, clock: new SharedArrayBuffer(4), readyCount: new SharedArrayBuffer(4) };
  const tallies = await Promise.all(
    Array.from({ length: contenders }, (_, i) => {
      const own = { owner: i + 1, seed: 1 + i, decisions, threads: contenders };
      return runThread({ ...own, ...shared, hot, cold, windows });
    }),
  );

  let admittedTokens = 0;
  let exhausted = 0;
  const wrong: string[] = [];
  for (let id = 0; id < hot + cold; id++) {
    const limit = limitOf(id, hot);
    for (let window = 0; window < windows; window++) {
      const at = id * windows + window;
      const admitted = tallies.reduce((sum, tally) => sum + tally.tokensAllowed[at], 0);
      const refused = Math.min(...tallies.map((tally) => tally.smallestDenied[at]));
      if (admitted > limit) wrong.push(`${id}/${window}: ${admitted} of ${limit} admitted`);
      // A refusal of c was right if the window had not c tokens left, and so has not at its end.
      if (admitted + refused <= limit) wrong.push(`${id}/${window}: ${refused} refused`);
      admittedTokens += admitted;
      if (refused < Number.POSITIVE_INFINITY) exhausted++;
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
    `${contenders} threads, ${total} decisions, ${admittedTokens} tokens admitted,` +
      ` ${exhausted} windows with refusals, ${Math.floor(elapsed / 1_000)} s of windows`,
  );
});
