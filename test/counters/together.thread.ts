/**
 * One of several threads that decide checks on the same tables at once, many together and single
 * ones in between, on a common clock that they push forward together. It tallies what it was
 * answered per counter and window; `together-contention.test.ts` judges the sums.
 */

import { parentPort, workerData } from 'node:worker_threads';
import { newDecision, OUTCOME, type TableDecision } from '../../src/counters/decision.ts';
import { Hasher } from '../../src/counters/hash.ts';
import { CounterTable } from '../../src/counters/table.ts';
import { Together } from '../../src/counters/together.ts';
import type { Terms } from '../../src/counters/window.ts';
import { AMOUNT_MAX, MULTI_LIMIT_MAX } from '../../src/limits.ts';
import { shardOf } from '../../src/shards/shard.ts';

export interface Contender {
  owner: number;
  seed: number;
  /** Checks to decide together, at least. */
  items: number;
  tables: SharedArrayBuffer[];
  /** One int32: ms since START_MS. */
  clock: SharedArrayBuffer;
  /** One int32: how many threads are ready. */
  gate: SharedArrayBuffer;
  contenders: number;
}

export interface Tally {
  /** Per counter and window: tokens of what passed, whether together or alone. */
  consumed: Float64Array<ArrayBuffer>;
  /** The most that an answer showed as used, together with what was carried over. */
  seen: Float64Array<ArrayBuffer>;
  /** The least that was refused, with what those before it in its request took; or Infinity. */
  refused: Float64Array<ArrayBuffer>;
  requests: number;
  passed: number;
  items: number;
  passedItems: number;
  singles: number;
  locks: number;
  /** Steps of waiting for locks in all, and for one. */
  steps: number;
  mostSteps: number;
  wrong: string[];
}

export const START_MS = 1_700_000_000_000;
export const NAMESPACE = 'together';
export const HASH_KEY = '0123456789abcdef';
export const WINDOWS = 300;
export const [HOT, COLD, LEDGERS] = [64, 2_000, 8];
export const COUNTERS = HOT + COLD + LEDGERS;

/** How the checks of a counter are judged. */
export const KINDS = ['fixed', 'sliding', 'either'] as const;

export interface Counter {
  identifier: string;
  durationMs: number;
  limit: number;
  kind: (typeof KINDS)[number];
}

/**
 * Two durations of an identifier are two counters. The ledgers have a window that does not end, and
 * a limit that is not reached: what they hold in the end is all that ever passed.
 */
export function counterOf(number: number): Counter {
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
if (parentPort !== null) contend(workerData as Contender);

function contend(task: Contender): void {
  const { owner, contenders } = task;
  const hasher = new Hasher(Buffer.from(HASH_KEY));
  const state = hasher.namespace(NAMESPACE);
  const tally: Tally = {
    consumed: new Float64Array(COUNTERS * WINDOWS),
    seen: new Float64Array(COUNTERS * WINDOWS),
    refused: new Float64Array(COUNTERS * WINDOWS).fill(Number.POSITIVE_INFINITY),
    ...{ requests: 0, passed: 0, items: 0, passedItems: 0, singles: 0 },
    ...{ locks: 0, steps: 0, mostSteps: 0, wrong: [] },
  };
  const wrong = (what: string) => {
    if (tally.wrong.length < 10) tally.wrong.push(`thread ${owner}: ${what}`);
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
      tally.steps += steps;
      tally.mostSteps = Math.max(tally.mostSteps, steps);
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
  const together = new Together(tables, 'deny');

  const counters = Array.from({ length: COUNTERS }, (_, i) => counterOf(i));
  const clock = new Int32Array(task.clock);
  const gate = new Int32Array(task.gate);
  const decision = newDecision();
  const drawn = new Int32Array(MULTI_LIMIT_MAX);
  const terms = Array.from({ length: MULTI_LIMIT_MAX }, (): Terms => {
    return { limit: 0, durationMs: 0, cost: 0, isSliding: false };
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
  const check = (number: number, into: Terms): void => {
    const { limit, durationMs, kind } = counters[number];
    into.limit = limit;
    into.durationMs = durationMs;
    into.cost = COSTS[next(COSTS.length)];
    into.isSliding = kind === 'sliding' || (kind === 'either' && next(2) === 0);
  };
  /** @returns where a counter and the window of its answer are tallied */
  const placeOf = (number: number, { window, outcome }: TableDecision): number => {
    const { durationMs } = counters[number];
    const from = window - Math.floor(START_MS / durationMs);
    if (from < 0 || from >= WINDOWS) wrong(`window ${from} of counter ${number}`);
    if (outcome !== OUTCOME.decided) wrong(`outcome ${outcome} of counter ${number}`);
    return number * WINDOWS + from;
  };
  const tallyOne = (number: number, { limit, cost }: Terms, of: TableDecision, passed: boolean) => {
    const at = placeOf(number, of);
    if (!of.admitted) {
      tally.refused[at] = Math.min(tally.refused[at], own[number] + cost);
      return;
    }
    own[number] += cost;
    if (passed) tally.consumed[at] += cost;
    tally.seen[at] = Math.max(tally.seen[at], limit - of.remaining);
  };

  Atomics.add(gate, 0, 1);
  while (Atomics.load(gate, 0) < contenders) Atomics.wait(gate, 0, Atomics.load(gate, 0), 1);

  while (tally.items < task.items) {
    if (next(8) === 0) Atomics.add(clock, 0, 1 + next(40));
    const kind = next(4);
    const size = 1 + next([4, 25, MULTI_LIMIT_MAX, MULTI_LIMIT_MAX][kind]);
    const base = next(COLD);
    together.begin();
    for (let i = 0; i < size; i++) {
      const number = draw(kind, base);
      drawn[i] = number;
      check(number, terms[i]);
      hasher.hash(state, counters[number].identifier);
      together.add(hasher, state[0], terms[i]);
    }
    taken = 0;
    const passed = together.decide(now());
    if (held !== 0) wrong(`${held} locks held behind a request`);
    if (taken > size) wrong(`${taken} locks for ${size} checks`);
    tally.locks += taken;
    tally.requests++;
    tally.items += size;
    if (passed) {
      tally.passed++;
      tally.passedItems += size;
    }
    let admitted = 0;
    for (let i = 0; i < size; i++) {
      const answer = together.decision(i);
      if (answer.admitted) admitted++;
      tallyOne(drawn[i], terms[i], answer, passed);
    }
    if (passed !== (admitted === size)) wrong(`${passed}, but ${admitted} of ${size} admitted`);
    for (let i = 0; i < size; i++) own[drawn[i]] = 0;

    for (let singles = next(6); singles > 0; singles--) {
      const number = draw(kind, base);
      check(number, terms[0]);
      hasher.hash(state, counters[number].identifier);
      tables[shardOf(hasher)].decide(hasher, state[0], now(), terms[0], true, decision);
      if (held !== 0) wrong(`${held} locks held behind a check`);
      tallyOne(number, terms[0], decision, decision.admitted);
      own[number] = 0;
      tally.singles++;
    }
  }
  const { consumed, seen, refused } = tally;
  parentPort!.postMessage(tally, [consumed.buffer, seen.buffer, refused.buffer]);
}
