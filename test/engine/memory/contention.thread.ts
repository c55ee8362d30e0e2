/**
 * One of several threads that decide batches and single checks on the same tables at once. All of
 * them advance one shared clock. The thread counts its decisions per counter and window and posts
 * the tally; `contention.test.ts` verifies the sums.
 */

import { parentPort, workerData } from 'node:worker_threads';
import { AMOUNT_MAX, MULTI_LIMIT_MAX } from '../../../src/core/constants.ts';
import {
  type CheckParameters,
  newDecision,
  OUTCOME,
  type TableDecision,
} from '../../../src/core/decision.ts';
import { Hasher, newIdentity } from '../../../src/core/hash.ts';
import { NO_BURST, RULE } from '../../../src/core/window-rules.ts';
import { Batch } from '../../../src/engine/memory/batch.ts';
import { CounterTable } from '../../../src/engine/memory/table.ts';
import { shardOf } from '../../../src/engine/table/shard.ts';
import { seededRandom } from '../../support/seeded-random.ts';

export interface ContentionTask {
  /** The owner of its locks, and the seed of its checks. */
  owner: number;
  /** Batches with single checks between them, or single checks only. */
  hasBatches: boolean;
  /** The number of checks that the thread decides at least. */
  minChecks: number;
  threads: number;
  tables: SharedArrayBuffer[];
  /** Two int32: ms since START_MS, and how many threads are ready. */
  shared: SharedArrayBuffer;
}

export interface Tally {
  /** Per counter and window: the tokens of passed batches and allowed single checks. */
  consumed: Float64Array<ArrayBuffer>;
  /** The smallest denied cost plus the earlier costs of its batch on the counter, or Infinity. */
  smallestDenied: Float64Array<ArrayBuffer>;
  checks: number;
  batches: number;
  passedBatches: number;
  /** Wait steps for all locks. */
  waitSteps: number;
  violations: string[];
}

export const START_MS = 1_700_000_000_000;
export const NAMESPACE = 'together';
export const HASH_KEY = '0123456789abcdef';
export const WINDOWS = 300;
const [HOT, COLD, LEDGERS] = [64, 2_000, 8];
const LIMITED = HOT + COLD;
export const COUNTERS = LIMITED + LEDGERS;

/**
 * Two durations of an identifier are two counters. The window of a ledger does not end during the
 * test, and its limit is never reached. Its final usage is the sum of all allowed costs.
 */
export function counterSpec(number: number) {
  const identifier = `id_${number >> 1}`;
  const odd = number & 1;
  if (number < LIMITED) {
    const limit = (number < HOT ? 400 : 20) + (number % 7);
    return { identifier, durationMs: 1_000 * (1 + odd), limit };
  }
  return { identifier, durationMs: 100_000_000 + odd * 300_000_000, limit: AMOUNT_MAX };
}

const COSTS = [1, 1, 1, 1, 2, 3, 7, 0];
/** The most checks of a request, and the counters that it uses: so many neighbours of these. */
const REQUEST_KINDS = [
  { sizeMax: 4, spread: 12, among: HOT },
  { sizeMax: 25, spread: 12, among: HOT },
  { sizeMax: MULTI_LIMIT_MAX, spread: 150, among: LIMITED },
];

// The test imports the names above on its main thread, where no task runs.
if (parentPort !== null) runTask(workerData as ContentionTask);

function runTask({ owner, hasBatches, minChecks, threads, ...task }: ContentionTask): void {
  const hasher = new Hasher(Buffer.from(HASH_KEY));
  const state = hasher.namespace(NAMESPACE);
  const id = newIdentity();
  const tally: Tally = {
    consumed: new Float64Array(COUNTERS * WINDOWS),
    smallestDenied: new Float64Array(COUNTERS * WINDOWS).fill(Number.POSITIVE_INFINITY),
    ...{ checks: 0, batches: 0, passedBatches: 0, waitSteps: 0, violations: [] },
  };
  const wrong = (what: string) => {
    if (tally.violations.length < 10) tally.violations.push(`thread ${owner}: ${what}`);
  };
  const tables = task.tables.map((buffer, shard) => {
    return new CounterTable(buffer, shard, owner, 'deny', () => tally.waitSteps++);
  });
  const batch = new Batch(tables, 'deny');
  const counters = Array.from({ length: COUNTERS }, (_, i) => counterSpec(i));
  const shared = new Int32Array(task.shared);
  const decision = newDecision();
  const numbers = new Int32Array(MULTI_LIMIT_MAX);
  const terms = Array.from({ length: MULTI_LIMIT_MAX }, (): CheckParameters => {
    return { limit: 0, durationMs: 0, cost: 0, rule: RULE.fixed, burst: NO_BURST };
  });
  /** Per counter: the tokens of the allowed checks of the current request. */
  const requestTokens = new Float64Array(COUNTERS);
  const next = seededRandom(owner);
  /** The shared clock. One reading in 16 is up to 1.5 s old, as of a delayed thread. */
  const now = () => START_MS + Atomics.load(shared, 0) - (next(16) === 0 ? next(1_500) : 0);

  /** Draws a check: the counter into `numbers`, its terms into `terms`, its identity into `id`. */
  const draw = (i: number, base: number, { spread, among }: (typeof REQUEST_KINDS)[number]) => {
    const number = next(32) === 0 ? LIMITED + next(LEDGERS) : (base + next(spread)) % among;
    const { identifier, limit, durationMs } = counters[number];
    numbers[i] = number;
    Object.assign(terms[i], { limit, durationMs, cost: COSTS[next(COSTS.length)] });
    hasher.hash(state, identifier, id);
  };
  const count = (i: number, { window, outcome, allowed }: TableDecision, passed: boolean) => {
    const number = numbers[i];
    const { cost } = terms[i];
    const from = window - Math.floor(START_MS / counters[number].durationMs);
    if (from < 0 || from >= WINDOWS) wrong(`window ${from} of counter ${number}`);
    if (outcome !== OUTCOME.decided) wrong(`outcome ${outcome} of counter ${number}`);
    const at = number * WINDOWS + from;
    if (allowed) {
      requestTokens[number] += cost;
      if (passed) tally.consumed[at] += cost;
    } else {
      tally.smallestDenied[at] = Math.min(tally.smallestDenied[at], requestTokens[number] + cost);
    }
  };
  const decideBatch = (base: number, kind: (typeof REQUEST_KINDS)[number]): void => {
    const size = 1 + next(kind.sizeMax);
    batch.begin();
    for (let i = 0; i < size; i++) {
      draw(i, base, kind);
      batch.add(id, state[0], terms[i]);
    }
    const passed = batch.decide(now());
    let allowed = 0;
    for (let i = 0; i < size; i++) {
      if (batch.decision(i).allowed) allowed++;
      count(i, batch.decision(i), passed);
    }
    if (passed !== (allowed === size)) wrong(`${passed}, but ${allowed} of ${size} allowed`);
    for (let i = 0; i < size; i++) requestTokens[numbers[i]] = 0;
    tally.checks += size;
    tally.batches++;
    if (passed) tally.passedBatches++;
  };
  const decideCheck = (base: number, kind: (typeof REQUEST_KINDS)[number]): void => {
    draw(0, base, kind);
    tables[shardOf(id)].decide(id, state[0], now(), terms[0], true, decision);
    count(0, decision, decision.allowed);
    requestTokens[numbers[0]] = 0;
    tally.checks++;
  };

  Atomics.add(shared, 1, 1);
  while (Atomics.load(shared, 1) < threads) Atomics.wait(shared, 1, Atomics.load(shared, 1), 1);

  while (tally.checks < minChecks) {
    // So often that a window of a second has about as many checks in both modes.
    if (next(hasBatches ? 8 : 300) === 0) Atomics.add(shared, 0, 1 + next(40));
    const kind = REQUEST_KINDS[next(REQUEST_KINDS.length)];
    const base = next(COLD);
    if (hasBatches) decideBatch(base, kind);
    const singles = hasBatches ? next(6) : 1;
    for (let i = 0; i < singles; i++) decideCheck(base, kind);
  }
  const { consumed, smallestDenied } = tally;
  parentPort!.postMessage(tally, [consumed.buffer, smallestDenied.buffer]);
}
