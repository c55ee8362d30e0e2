import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import { expect, test } from 'vitest';
import { SHARDS } from '../../../src/core/constants.ts';
import { Hasher, newIdentity } from '../../../src/core/hash.ts';
import { newLocation } from '../../../src/engine/memory/group.ts';
import { groupsPerShard, latestMsAt, lockAt } from '../../../src/engine/memory/layout.ts';
import { shardOf } from '../../../src/engine/memory/shard.ts';
import { CounterTable } from '../../../src/engine/memory/table.ts';
import { allocateTable } from '../../../src/engine/memory/table-memory.ts';
import { trialCount } from '../../support/guarantees.ts';
import { countOccupiedSlots, readStoredUsage } from '../../support/limiter-model.ts';
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

function runThread(contender: ContentionTask): Promise<Tally> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(THREAD, { workerData: contender });
    worker.once('message', resolve);
    worker.once('error', reject);
  });
}

/** Per 1 000 checks. They are far below what is usual, and show that the test tests something. */
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
    const clock = new Int32Array(new SharedArrayBuffer(4)).fill(2_000);
    const shared = { tables: buffers, clock: clock.buffer, readyCount: new SharedArrayBuffer(4) };
    const tallies = await Promise.all(
      Array.from({ length: threads }, (_, i) => {
        const minChecks = Math.ceil(wanted / threads);
        return runThread({ owner: i + 1, seed: 1 + i, hasBatches, minChecks, threads, ...shared });
      }),
    );

    // Violations: a batch that is not all or nothing, a lock out of order or not released, more
    // locks than checks, an eviction.
    expect(tallies.flatMap(({ violations }) => violations)).toEqual([]);
    const tables = buffers.map((buffer, shard) => {
      return new CounterTable(buffer, shard, threads + 1, 'deny', () => {});
    });
    for (const { words } of tables) {
      for (let group = 0; group < groups; group++) expect(words[lockAt(group)]).toBe(0);
    }

    const sum = (what: (tally: Tally) => number) =>
      tallies.reduce((total, tally) => total + what(tally), 0);
    const hasher = new Hasher(Buffer.from(HASH_KEY));
    const state = hasher.namespace(NAMESPACE);
    const wrong: string[] = [];
    const figures = { tokens: 0, windowsUsed: 0, windowsDenied: 0, tokensInTables: 0 };
    let storedCount = 0;
    for (let number = 0; number < COUNTERS; number++) {
      const { identifier, durationMs, limit, kind } = counterSpec(number);
      const consumed = (window: number) =>
        window < 0 ? 0 : sum((tally) => tally.consumed[number * WINDOWS + window]);
      let before = 0;
      for (let window = 0; window < WINDOWS; window++) {
        const at = number * WINDOWS + window;
        const used = consumed(window);
        const seen = Math.max(...tallies.map((tally) => tally.maxUsageSeen[at]));
        const denied = Math.min(...tallies.map((tally) => tally.smallestDenied[at]));
        const name = `${kind} counter ${number}, window ${window}`;
        if (used > limit) wrong.push(`${name}: ${used} of ${limit} consumed`);
        // The last consumer saw all tokens of the window. Only carried usage can add to that.
        const carried = kind === 'fixed' ? 0 : before;
        if (seen < used || seen > used + carried) wrong.push(`${name}: ${seen} seen of ${used}`);
        // A denied cost still does not fit at the end of the window.
        if (used + carried + denied <= limit) wrong.push(`${name}: ${denied} denied at ${used}`);
        figures.tokens += used;
        if (used > 0) figures.windowsUsed++;
        if (denied < Number.POSITIVE_INFINITY) figures.windowsDenied++;
        before = used;
      }
      const id = hasher.hash(state, identifier, newIdentity());
      const { group, doubles } = tables[shardOf(id)];
      const use = readStoredUsage(tables, id, durationMs);
      const location = newLocation();
      group.locate(id, location);
      const latest = doubles[latestMsAt(location.lock)];
      const window = Math.floor(latest / durationMs) - Math.floor(START_MS / durationMs);
      const [current, previous] = [consumed(window), consumed(window - 1)];
      if (use !== undefined) storedCount++;
      const inTable = [Number(use?.current ?? 0), Number(use?.previous ?? 0)];
      figures.tokensInTables += inTable[0] + inTable[1];
      if (inTable[0] !== current || inTable[1] !== previous) {
        wrong.push(`${kind} counter ${number}: ${inTable} stored, ${current},${previous} consumed`);
      }
    }
    expect(wrong).toEqual([]);
    expect(countOccupiedSlots(tables)).toBe(storedCount);

    const elapsedMs = Atomics.load(clock, 0);
    const [checks, singles] = [sum((tally) => tally.checks), sum((tally) => tally.singleChecks)];
    const [requests, passed] = [sum((tally) => tally.requests), sum((tally) => tally.passed)];
    console.info(
      `${threads} threads, ${checks} checks in ${requests} batches, of which ${passed} passed, and` +
        ` ${singles} single ones in ${elapsedMs} ms; ${JSON.stringify(figures)};` +
        ` ${sum((tally) => tally.locks)} locks, ${sum((tally) => tally.waitSteps)} steps of waiting`,
    );
    const thousands = (checks + singles) / 1_000;
    expect(thousands).toBeGreaterThanOrEqual(wanted / 1_000);
    expect(elapsedMs).toBeGreaterThan(LEAST.elapsedMs * thousands);
    expect(figures.windowsDenied).toBeGreaterThan(LEAST.windowsDenied * thousands);
    if (!hasBatches) return;
    expect(passed).toBeGreaterThan(requests / 20);
    expect(requests - passed).toBeGreaterThan(requests / 20);
  },
);
