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
import { shardOf } from '../../../src/engine/memory/shard.ts';
import { CounterTable } from '../../../src/engine/memory/table.ts';

export interface ContentionTask {
  owner: number;
  seed: number;
  /** Batches with single checks between them, or single checks only. */
  hasBatches: boolean;
  /** The number of checks that the thread decides at least. */
  minChecks: number;
  tables: SharedArrayBuffer[];
  /** One int32: ms since START_MS. */
  clock: SharedArrayBuffer;
  /** One int32: how many threads are ready. */
  readyCount: SharedArrayBuffer;
  threads: number;
}

export interface Tally {
  /** Per counter and window: the tokens of passed batches and allowed single checks. */
  consumed: Float64Array<ArrayBuffer>;
  /** The highest usage that a decision showed, carried usage included. */
  maxUsageSeen: Float64Array<ArrayBuffer>;
  /** The smallest denied cost plus the earlier costs of its batch on the counter, or Infinity. */
  smallestDenied: Float64Array<ArrayBuffer>;
  requests: number;
  passed: number;
  checks: number;
  singleChecks: number;
  locks: number;
  /** Wait steps for all locks. */
  waitSteps: number;
  violations: string[];
}

export const START_MS = 1_700_000_000_000;
export const NAMESPACE = 'together';
export const HASH_KEY = '0123456789abcdef';
export const WINDOWS = 300;
export const [HOT, COLD, LEDGERS] = [64, 2_000, 8];
export const COUNTERS = HOT + COLD + LEDGERS;

/** The window rules of the checks of a counter. */
export const KINDS = ['fixed', 'sliding', 'either'] as const;

export interface CounterSpec {
  identifier: string;
  durationMs: number;
  limit: number;
  kind: (typeof KINDS)[number];
}

/**
 * Two durations of an identifier are two counters. The window of a ledger does not end during the
 * test, and its limit is never reached. Its final usage is the sum of all allowed costs.
 */
export function counterSpec(number: number): CounterSpec {
  const kind = KINDS[number % KINDS.length];
  const isLedger = number >= HOT + COLD;
  const isHot = number < HOT;
  return {
    identifier: `id_${number >> 1}`,
    durationMs: isLedger ? 100_000_000 + (number & 1) * 300_000_000 : 1_000 * (1 + (number & 1)),
    limit: isLedger ? AMOUNT_MAX : (isHot ? 400 : 20) + (number % 7),
    kind,
  };
}

const COSTS = [1, 1, 1, 1, 2, 3, 7, 0];

// The test imports the names above on its main thread, where no task runs.
if (parentPort !== null) runTask(workerData as ContentionTask);

function runTask(task: ContentionTask): void {
  const { owner, threads } = task;
  const hasher = new Hasher(Buffer.from(HASH_KEY));
  const state = hasher.namespace(NAMESPACE);
  const id = newIdentity();
  const tally: Tally = {
    consumed: new Float64Array(COUNTERS * WINDOWS),
    maxUsageSeen: new Float64Array(COUNTERS * WINDOWS),
    smallestDenied: new Float64Array(COUNTERS * WINDOWS).fill(Number.POSITIVE_INFINITY),
    ...{ requests: 0, passed: 0, checks: 0, singleChecks: 0, locks: 0, waitSteps: 0 },
    violations: [],
  };
  const wrong = (what: string) => {
    if (tally.violations.length < 10) tally.violations.push(`thread ${owner}: ${what}`);
  };

  let steps = 0;
  let held = 0;
  let acquired = 0;
  let latest = -1;
  const tables = task.tables.map((buffer, shard) => {
    const table = new CounterTable(buffer, shard, owner, 'deny', () => steps++);
    const acquire = table.acquire.bind(table);
    const release = table.release.bind(table);
    table.acquire = (lock) => {
      const position = shard * 2 ** 31 + lock;
      if (held > 0 && position <= latest) wrong(`lock ${lock} of ${shard} acquired out of order`);
      steps = 0;
      acquire(lock);
      tally.waitSteps += steps;
      latest = position;
      held++;
      acquired++;
    };
    table.release = (lock) => {
      release(lock);
      held--;
    };
    return table;
  });
  const batch = new Batch(tables, 'deny');

  const counters = Array.from({ length: COUNTERS }, (_, i) => counterSpec(i));
  const clock = new Int32Array(task.clock);
  const gate = new Int32Array(task.readyCount);
  const decision = newDecision();
  const drawn = new Int32Array(MULTI_LIMIT_MAX);
  const terms = Array.from({ length: MULTI_LIMIT_MAX }, (): CheckParameters => {
    return { limit: 0, durationMs: 0, cost: 0, rule: RULE.fixed, burst: NO_BURST };
  });
  /** Per counter: the tokens of the allowed checks of the current request. */
  const requestTokens = new Float64Array(COUNTERS);
  let random = task.seed;
  const next = (below: number) => {
    random = (Math.imul(random, 1_664_525) + 1_013_904_223) | 0;
    return (random >>> 8) % below;
  };
  /** The shared clock. One reading in 16 is up to 1.5 s old, as of a delayed thread. */
  const now = () => START_MS + Atomics.load(clock, 0) - (next(16) === 0 ? next(1_500) : 0);

  /** Draws a counter from a small set, which overlaps with the sets of other requests. */
  const draw = (kind: number, base: number): number => {
    if (next(32) === 0) return HOT + COLD + next(LEDGERS);
    if (kind < 2) return (base + next(12)) % HOT;
    if (kind === 2 || next(4) > 0) return HOT + ((base + next(150)) % COLD);
    return (base + next(HOT)) % HOT;
  };
  const check = (number: number, into: CheckParameters): void => {
    const { limit, durationMs, kind } = counters[number];
    into.limit = limit;
    into.durationMs = durationMs;
    into.cost = COSTS[next(COSTS.length)];
    into.rule =
      kind === 'sliding' || (kind === 'either' && next(2) === 0) ? RULE.sliding : RULE.fixed;
  };
  /** @returns the tally index of a counter and the window of its decision */
  const tallyIndex = (number: number, { window, outcome }: TableDecision): number => {
    const { durationMs } = counters[number];
    const from = window - Math.floor(START_MS / durationMs);
    if (from < 0 || from >= WINDOWS) wrong(`window ${from} of counter ${number}`);
    if (outcome !== OUTCOME.decided) wrong(`outcome ${outcome} of counter ${number}`);
    return number * WINDOWS + from;
  };
  const tallyOne = (
    number: number,
    { limit, cost }: CheckParameters,
    of: TableDecision,
    passed: boolean,
  ) => {
    const at = tallyIndex(number, of);
    if (!of.allowed) {
      tally.smallestDenied[at] = Math.min(tally.smallestDenied[at], requestTokens[number] + cost);
      return;
    }
    requestTokens[number] += cost;
    if (passed) tally.consumed[at] += cost;
    tally.maxUsageSeen[at] = Math.max(tally.maxUsageSeen[at], limit - of.remaining);
  };

  const decideRandomBatch = (kind: number, base: number): void => {
    const size = 1 + next([4, 25, MULTI_LIMIT_MAX, MULTI_LIMIT_MAX][kind]);
    batch.begin();
    for (let i = 0; i < size; i++) {
      const number = draw(kind, base);
      drawn[i] = number;
      check(number, terms[i]);
      hasher.hash(state, counters[number].identifier, id);
      batch.add(id, state[0], terms[i]);
    }
    acquired = 0;
    const passed = batch.decide(now());
    if (held !== 0) wrong(`${held} locks held after a request`);
    if (acquired > size) wrong(`${acquired} locks for ${size} checks`);
    tally.locks += acquired;
    tally.requests++;
    tally.checks += size;
    if (passed) tally.passed++;
    let allowed = 0;
    for (let i = 0; i < size; i++) {
      const answer = batch.decision(i);
      if (answer.allowed) allowed++;
      tallyOne(drawn[i], terms[i], answer, passed);
    }
    if (passed !== (allowed === size)) wrong(`${passed}, but ${allowed} of ${size} allowed`);
    for (let i = 0; i < size; i++) requestTokens[drawn[i]] = 0;
  };
  const decideRandomCheck = (kind: number, base: number): void => {
    const number = draw(kind, base);
    check(number, terms[0]);
    hasher.hash(state, counters[number].identifier, id);
    tables[shardOf(id)].decide(id, state[0], now(), terms[0], true, decision);
    if (held !== 0) wrong(`${held} locks held after a check`);
    tallyOne(number, terms[0], decision, decision.allowed);
    requestTokens[number] = 0;
    tally.singleChecks++;
  };

  Atomics.add(gate, 0, 1);
  while (Atomics.load(gate, 0) < threads) Atomics.wait(gate, 0, Atomics.load(gate, 0), 1);

  while (tally.checks + tally.singleChecks < task.minChecks) {
    // So often that a window of a second has about as many checks in both modes.
    if (next(task.hasBatches ? 8 : 300) === 0) Atomics.add(clock, 0, 1 + next(40));
    const kind = next(4);
    const base = next(COLD);
    if (task.hasBatches) decideRandomBatch(kind, base);
    const singles = task.hasBatches ? next(6) : 1;
    for (let i = 0; i < singles; i++) decideRandomCheck(kind, base);
  }
  const { consumed, maxUsageSeen, smallestDenied } = tally;
  parentPort!.postMessage(tally, [consumed.buffer, maxUsageSeen.buffer, smallestDenied.buffer]);
}
