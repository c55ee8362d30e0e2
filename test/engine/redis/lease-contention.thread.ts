/**
 * One of several threads on one lease table. Acceptors decide checks, alone and as parts of
 * batches. The worker plays Redis: it lends tokens, takes leases back, and enters windows. Each
 * thread counts what it did per identifier and window; `lease-contention.test.ts` verifies the sums.
 */

import { parentPort, workerData } from 'node:worker_threads';
import { newDecision } from '../../../src/core/decision.ts';
import { NO_BURST, RULE } from '../../../src/core/window-rules.ts';
import {
  addToLease,
  moveStateToWindow,
  newLeaseState,
} from '../../../src/engine/redis/counter/lease-state.ts';
import { EngineState } from '../../../src/engine/redis/engine-state.ts';
import { LeaseTable, VERDICT } from '../../../src/engine/redis/lease-table.ts';
import { NO_SLOT } from '../../../src/engine/table/layout.ts';

export interface LeaseTask {
  role: 'acceptor' | 'worker';
  owner: number;
  seed: number;
  /**
   * An acceptor uses so many tokens of each kind, and goes on until WINDOWS_MIN. A worker runs
   * until `stop`.
   */
  tokens: number;
  table: SharedArrayBuffer;
  state: SharedArrayBuffer;
  /** int32: the window | how many threads are ready | 1: the worker stops. */
  control: SharedArrayBuffer;
  threads: number;
  ids: number;
  windows: number;
  /** float64, by identifier and window: tokens lent, tokens answered. Written around each step. */
  ledger: SharedArrayBuffer;
}

/** By identifier and window. */
export interface LeaseTally {
  used: Float64Array;
  /** Tokens of asynchronous checks. */
  unreported: Float64Array;
  checks: number;
}

export const CONTROL = { window: 0, ready: 1, stop: 2 } as const;
export const DURATION_MS = 1_000;
export const LIMIT = 1_000_000;
const WINDOWS_MIN = 10;

/** The first identifiers have synchronous checks, the others asynchronous ones. */
export function isAsyncId(id: number, ids: number): boolean {
  return id >= ids / 2;
}

export function identityOf(id: number) {
  // Few buckets, so that threads meet.
  return { h0: id, h1: id << 20, h2: id & 3, h3: id + 1 };
}

// The test imports the names above on its main thread, where no task runs.
if (parentPort !== null) runTask(workerData as LeaseTask);

function runTask(task: LeaseTask): void {
  const control = new Int32Array(task.control);
  const table = new LeaseTable(task.table, 0, new EngineState(task.state), task.owner, () => {});
  let random = task.seed;
  const next = (below: number) => {
    random = (Math.imul(random, 1_664_525) + 1_013_904_223) | 0;
    return (random >>> 8) % below;
  };
  Atomics.add(control, CONTROL.ready, 1);
  while (Atomics.load(control, CONTROL.ready) < task.threads) Atomics.wait(control, 0, -1, 1);
  const tally = task.role === 'worker' ? work(task, table, next) : decide(task, table, next);
  parentPort!.postMessage(tally);
}

function decide(task: LeaseTask, table: LeaseTable, next: (below: number) => number): LeaseTally {
  const { ids, windows, tokens } = task;
  const control = new Int32Array(task.control);
  const used = new Float64Array(ids * windows);
  const unreported = new Float64Array(ids * windows);
  const decision = newDecision();
  const rules = [RULE.fixed, RULE.sliding];
  const check = { limit: LIMIT, durationMs: DURATION_MS, cost: 1, rule: rules[0], burst: NO_BURST };
  let checks = 0;
  let usedTokens = 0;
  let unreportedTokens = 0;
  while (
    usedTokens < tokens ||
    unreportedTokens < tokens ||
    Atomics.load(control, CONTROL.window) < WINDOWS_MIN
  ) {
    if ((checks & 127) === 0) Atomics.wait(control, 0, -1, 0);
    const id = next(ids);
    const identity = identityOf(id);
    const window = Atomics.load(control, CONTROL.window);
    const nowMs = window * DURATION_MS + next(DURATION_MS);
    check.cost = 1 + next(3);
    check.rule = rules[next(2)];
    checks++;
    if (isAsyncId(id, ids)) {
      const verdict = table.decideAsync(identity, nowMs, check, decision);
      if (verdict === VERDICT.needsTokens || !decision.allowed) continue;
      unreported[id * windows + decision.window] += check.cost;
      unreportedTokens += check.cost;
    } else if (next(4) === 0) {
      const verdict = table.reserve(identity, nowMs, check, decision);
      if (verdict === VERDICT.needsTokens || !decision.allowed) continue;
      if (next(2) === 0) table.abort(identity, DURATION_MS, decision.window, check.cost);
      else {
        table.commit(identity, DURATION_MS, decision.window, check.cost);
        used[id * windows + decision.window] += check.cost;
        usedTokens += check.cost;
      }
    } else {
      const verdict = table.decide(identity, nowMs, check, decision);
      if (verdict === VERDICT.needsTokens || !decision.allowed) continue;
      used[id * windows + decision.window] += check.cost;
      usedTokens += check.cost;
    }
  }
  return { used, unreported, checks };
}

function work(task: LeaseTask, table: LeaseTable, next: (below: number) => number): LeaseTally {
  const { ids, windows } = task;
  const control = new Int32Array(task.control);
  const ledger = new Float64Array(task.ledger);
  const state = newLeaseState();
  let checks = 0;
  while (Atomics.load(control, CONTROL.stop) === 0) {
    checks++;
    if (next(2_000) === 0) {
      const window = Atomics.load(control, CONTROL.window);
      if (window < windows - 1) Atomics.store(control, CONTROL.window, window + 1);
    }
    const id = next(ids);
    const identity = identityOf(id);
    const window = Atomics.load(control, CONTROL.window);
    const lock = table.lockFor(identity);
    table.acquire(lock);
    const found = table.find(identity, DURATION_MS);
    const nowMs = window * DURATION_MS;
    const slot = found === NO_SLOT ? table.insert(identity, 1, DURATION_MS, nowMs) : found;
    table.read(slot, state);
    moveStateToWindow(state, window);
    const at = id * windows + state.window;
    const returned = next(3) === 0 ? state.lease : 0;
    state.lease -= returned;
    const lent = next(40);
    addToLease(state, lent, 1, true);
    state.deadlineMs = (state.window + 1) * DURATION_MS;
    ledger[at] += lent;
    table.write(slot, state);
    ledger[at] -= returned;
    table.release(lock);
  }
  return { used: new Float64Array(), unreported: new Float64Array(), checks };
}
