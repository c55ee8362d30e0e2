/**
 * One of several threads that check the same tables at once. All of them advance one shared clock.
 * The thread counts its decisions per identifier and window and posts the tally;
 * `contention.test.ts` verifies the sums.
 */

import { parentPort, workerData } from 'node:worker_threads';
import { newDecision, OUTCOME } from '../../../src/core/decision.ts';
import { Hasher, newIdentity } from '../../../src/core/hash.ts';
import { NO_BURST, RULE } from '../../../src/core/window-rules.ts';
import { shardOf } from '../../../src/engine/memory/shard.ts';
import { CounterTable } from '../../../src/engine/memory/table.ts';

export interface ContentionTask {
  owner: number;
  seed: number;
  decisions: number;
  tables: SharedArrayBuffer[];
  /** One int32: ms since START_MS. */
  clock: SharedArrayBuffer;
  /** One int32: how many threads are ready. */
  readyCount: SharedArrayBuffer;
  threads: number;
  hot: number;
  cold: number;
  windows: number;
}

export interface Tally {
  /** Per identifier and window: the allowed tokens, and the smallest denied cost or Infinity. */
  tokensAllowed: Float64Array;
  smallestDenied: Float64Array;
  decisions: number;
  evicted: number;
}

export const START_MS = 1_700_000_000_000;
export const DURATION_MS = 1_000;
const COSTS = [1, 1, 1, 1, 2, 3, 7, 0];

/** Limits are small enough that most windows of hot identifiers are exhausted. */
export function limitOf(id: number, hot: number): number {
  return id < hot ? 5_000 + id : 10 + (id % 7);
}

// The test imports the names above on its main thread, where no task runs.
if (parentPort !== null) runTask(workerData as ContentionTask);

function runTask(task: ContentionTask): void {
  const { owner, decisions, threads, hot, cold, windows } = task;
  const hasher = new Hasher(Buffer.from('0123456789abcdef'));
  const state = hasher.namespace('contention');
  const identity = newIdentity();
  const tables = task.tables.map((buffer, shard) => {
    return new CounterTable(buffer, shard, owner, 'deny', () => {});
  });
  const clock = new Int32Array(task.clock);
  const gate = new Int32Array(task.readyCount);
  const ids = Array.from({ length: hot + cold }, (_, i) => `id_${i}`);
  const tokensAllowed = new Float64Array(ids.length * windows);
  const smallestDenied = new Float64Array(ids.length * windows).fill(Number.POSITIVE_INFINITY);
  const decision = newDecision();
  let evicted = 0;
  let random = task.seed;
  const next = (below: number) => {
    random = (Math.imul(random, 1_664_525) + 1_013_904_223) | 0;
    return (random >>> 8) % below;
  };

  Atomics.add(gate, 0, 1);
  while (Atomics.load(gate, 0) < threads) Atomics.wait(gate, 0, Atomics.load(gate, 0), 1);

  for (let i = 0; i < decisions; i++) {
    if ((i & 2_047) === 0) Atomics.add(clock, 0, 1 + next(40));
    const id = next(4) === 0 ? hot + next(cold) : next(hot);
    const cost = COSTS[next(COSTS.length)];
    hasher.hash(state, ids[id], identity);
    const now = START_MS + Atomics.load(clock, 0);
    const terms = {
      limit: limitOf(id, hot),
      durationMs: DURATION_MS,
      cost,
      rule: RULE.fixed,
      burst: NO_BURST,
    };
    tables[shardOf(identity)].decide(identity, state[0], now, terms, true, decision);
    if (decision.outcome === OUTCOME.evicted) evicted++;
    const window = (decision.reset - START_MS) / DURATION_MS - 1;
    const at = id * windows + window;
    if (decision.allowed) tokensAllowed[at] += cost;
    else smallestDenied[at] = Math.min(smallestDenied[at], cost);
  }
  parentPort!.postMessage({ tokensAllowed, smallestDenied, decisions, evicted } satisfies Tally);
}
