/**
 * One of several threads that decide checks on the same tables at once, many together and single
 * ones in between, on a common clock that they push forward together. It tallies what it was
 * answered per counter and window; `together-contention.test.ts` judges the sums.
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
  /** Checks to decide together, at least. */
  minChecks: number;
  tables: SharedArrayBuffer[];
  /** One int32: ms since START_MS. */
  clock: SharedArrayBuffer;
  /** One int32: how many threads are ready. */
  readyCount: SharedArrayBuffer;
  threads: number;
}

export interface Tally {
  /** Per counter and window: tokens of what passed, whether together or alone. */
  consumed: Float64Array<ArrayBuffer>;
  /** The most that an answer showed as used, together with what was carried over. */
  maxUsageSeen: Float64Array<ArrayBuffer>;
  /** The least that was refused, with what those before it in its request took; or Infinity. */
  smallestDenied: Float64Array<ArrayBuffer>;
  requests: number;
  passed: number;
  checks: number;
  passedChecks: number;
  singleChecks: number;
  locks: number;
  /** Steps of waiting for locks in all, and for one. */
  waitSteps: number;
  maxWaitSteps: number;
  violations: string[];
}

export const START_MS = 1_700_000_000_000;
export const NAMESPACE = 'together';
export const HASH_KEY = '0123456789abcdef';
export const WINDOWS = 300;
export const [HOT, COLD, LEDGERS] = [64, 2_000, 8];
export const COUNTERS = HOT + COLD + LEDGERS;

/** How the checks of a counter are judged. */
export const KINDS = ['fixed', 'sliding', 'either'] as const;

export interface CounterSpec {
  identifier: string;
  durationMs: number;
  limit: number;
  kind: (typeof KINDS)[number];
}

/**
 * Two durations of an identifier are two counters. The ledgers have a window that does not end, and
 * a limit that is not reached: what they hold in the end is all that ever passed.
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

/** Nothing to do where the test imports the names above. */
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
    ...{ requests: 0, passed: 0, checks: 0, passedChecks: 0, singleChecks: 0 },
    ...{ locks: 0, waitSteps: 0, maxWaitSteps: 0, violations: [] },
  };
  const wrong = (what: string) => {
    if (tally.violations.length < 10) tally.violations.push(`thread ${owner}: ${what}`);
  };

  let steps = 0;
  let held = 0;
  let taken = 0;
  let latest = -1;
  const tables = task.tables.map((buffer, shard) => {
    const table = new CounterTable(buffer, shard, owner, 'deny', () => steps++);
    const acquire = table.acquire.bind(table);
    const release = table.release.bind(table);
    table.acquire = (lock) => {
      const place = shard * 2 ** 31 + lock;
      if (held > 0 && place <= latest) wrong(`lock ${lock} of ${shard} taken out of order`);
      steps = 0;
      acquire(lock);
      tally.waitSteps += steps;
      tally.maxWaitSteps = Math.max(tally.maxWaitSteps, steps);
      latest = place;
      held++;
      taken++;
    };
    table.release = (lock) => {
      release(lock);
      held--;
    };
    return table;
  });
  const together = new Batch(tables, 'deny');

  const counters = Array.from({ length: COUNTERS }, (_, i) => counterSpec(i));
  const clock = new Int32Array(task.clock);
  const gate = new Int32Array(task.readyCount);
  const decision = newDecision();
  const drawn = new Int32Array(MULTI_LIMIT_MAX);
  const terms = Array.from({ length: MULTI_LIMIT_MAX }, (): CheckParameters => {
    return { limit: 0, durationMs: 0, cost: 0, rule: RULE.fixed, burst: NO_BURST };
  });
  /** What the checks of a request take of each counter. */
  const own = new Float64Array(COUNTERS);
  let random = task.seed;
  const next = (below: number) => {
    random = (Math.imul(random, 1_664_525) + 1_013_904_223) | 0;
    return (random >>> 8) % below;
  };
  /** A clock that was read some time ago, now and then. */
  const now = () => START_MS + Atomics.load(clock, 0) - (next(16) === 0 ? next(1_500) : 0);

  /** Draws a counter from a small set, which overlaps with others. */
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
  /** @returns where a counter and the window of its answer are tallied */
  const placeOf = (number: number, { window, outcome }: TableDecision): number => {
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
    const at = placeOf(number, of);
    if (!of.allowed) {
      tally.smallestDenied[at] = Math.min(tally.smallestDenied[at], own[number] + cost);
      return;
    }
    own[number] += cost;
    if (passed) tally.consumed[at] += cost;
    tally.maxUsageSeen[at] = Math.max(tally.maxUsageSeen[at], limit - of.remaining);
  };

  Atomics.add(gate, 0, 1);
  while (Atomics.load(gate, 0) < threads) Atomics.wait(gate, 0, Atomics.load(gate, 0), 1);

  while (tally.checks < task.minChecks) {
    if (next(8) === 0) Atomics.add(clock, 0, 1 + next(40));
    const kind = next(4);
    const size = 1 + next([4, 25, MULTI_LIMIT_MAX, MULTI_LIMIT_MAX][kind]);
    const base = next(COLD);
    together.begin();
    for (let i = 0; i < size; i++) {
      const number = draw(kind, base);
      drawn[i] = number;
      check(number, terms[i]);
      hasher.hash(state, counters[number].identifier, id);
      together.add(id, state[0], terms[i]);
    }
    taken = 0;
    const passed = together.decide(now());
    if (held !== 0) wrong(`${held} locks held behind a request`);
    if (taken > size) wrong(`${taken} locks for ${size} checks`);
    tally.locks += taken;
    tally.requests++;
    tally.checks += size;
    if (passed) {
      tally.passed++;
      tally.passedChecks += size;
    }
    let admitted = 0;
    for (let i = 0; i < size; i++) {
      const answer = together.decision(i);
      if (answer.allowed) admitted++;
      tallyOne(drawn[i], terms[i], answer, passed);
    }
    if (passed !== (admitted === size)) wrong(`${passed}, but ${admitted} of ${size} admitted`);
    for (let i = 0; i < size; i++) own[drawn[i]] = 0;

    for (let singles = next(6); singles > 0; singles--) {
      const number = draw(kind, base);
      check(number, terms[0]);
      hasher.hash(state, counters[number].identifier, id);
      tables[shardOf(id)].decide(id, state[0], now(), terms[0], true, decision);
      if (held !== 0) wrong(`${held} locks held behind a check`);
      tallyOne(number, terms[0], decision, decision.allowed);
      own[number] = 0;
      tally.singleChecks++;
    }
  }
  const { consumed, maxUsageSeen, smallestDenied } = tally;
  parentPort!.postMessage(tally, [consumed.buffer, maxUsageSeen.buffer, smallestDenied.buffer]);
}
