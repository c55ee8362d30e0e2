import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import { expect, test } from 'vitest';
import { newLeaseState } from '../../../src/engine/redis/counter/lease-state.ts';
import { allocateEngineState, EngineState } from '../../../src/engine/redis/engine-state.ts';
import { allocateLeaseTable } from '../../../src/engine/redis/lease-memory.ts';
import { LeaseTable } from '../../../src/engine/redis/lease-table.ts';
import { NO_SLOT } from '../../../src/engine/table/layout.ts';
import { trialCount } from '../../support/guarantees.ts';
import { brokenInvariants } from '../../support/lease-tables.ts';
import {
  CONTROL,
  DURATION_MS,
  identityOf,
  isAsyncId,
  type LeaseTally,
  type LeaseTask,
} from './lease-contention.thread.ts';

const THREAD = new URL('../../../dist/threads/lease-contention.thread.js', import.meta.url);
const IDS = 8;
const WINDOWS = 200;
/** As the supervisor counts them: above all acceptors. */
const FIRST_INCARNATION = 100;
const MAIN = 99;
/** Workers that die while they hold a lock. Most die between two operations. */
const BROKEN_LOCKS = trialCount(2, 10);

function share(threads: number) {
  const state = allocateEngineState(1, 1);
  // The times of the threads are Redis' times, and the offset of a bucket is not 0.
  new EngineState(state).setClock(0, 2 ** -20, 0);
  const control = new SharedArrayBuffer(12);
  const ledger = new SharedArrayBuffer(IDS * WINDOWS * 8);
  const table = allocateLeaseTable(0, 1);
  const task = { table, state, control, ledger, threads, ids: IDS, windows: WINDOWS };
  const words = new Int32Array(control);
  Atomics.store(words, CONTROL.window, 1);
  const own = new LeaseTable(table, 0, new EngineState(state), MAIN, () => {});
  return { task, words, ledger: new Float64Array(ledger), own };
}

function start(task: LeaseTask): { thread: Worker; tally: Promise<LeaseTally> } {
  const thread = new Worker(THREAD, { workerData: task });
  const tally = new Promise<LeaseTally>((resolve, reject) => {
    thread.once('message', resolve);
    thread.once('error', reject);
  });
  return { thread, tally };
}

function readState(own: LeaseTable, id: number) {
  const slot = own.find(identityOf(id), DURATION_MS);
  expect(slot).not.toBe(NO_SLOT);
  const state = newLeaseState();
  own.read(slot, state);
  return state;
}

test('more threads than cores use no token twice, and lose none', async () => {
  const acceptors = 2 * availableParallelism();
  const { task, words, ledger, own } = share(acceptors + 1);
  const worker = start({
    ...task,
    role: 'worker',
    owner: FIRST_INCARNATION,
    seed: 99,
    tokens: 0,
  });
  const running = Array.from({ length: acceptors }, (_, i) => {
    return start({
      ...task,
      role: 'acceptor',
      owner: i + 1,
      seed: i,
      tokens: trialCount(4_000, 20_000),
    }).tally;
  });
  const tallies = await Promise.all(running);
  Atomics.store(words, CONTROL.stop, 1);
  await worker.tally;

  expect(brokenInvariants(own)).toEqual([]);
  for (let id = 0; id < IDS; id++) {
    const sum = (at: number, of: 'used' | 'unreported') => {
      return tallies.reduce((all, tally) => all + tally[of][at], 0);
    };
    for (let window = 0; window < WINDOWS; window++) {
      const at = id * WINDOWS + window;
      if (isAsyncId(id, IDS)) continue;
      expect(sum(at, 'used')).toBeLessThanOrEqual(ledger[at]);
    }
    // Of the last two windows the slot knows all.
    const { window, spent, previousSpent, lease, reserved } = readState(own, id);
    const at = id * WINDOWS + window;
    expect(reserved).toBe(0);
    expect(spent).toBe(sum(at, 'used') + sum(at, 'unreported'));
    expect(previousSpent).toBe(sum(at - 1, 'used') + sum(at - 1, 'unreported'));
    if (!isAsyncId(id, IDS)) expect(spent + lease).toBe(ledger[at]);
  }
});

test('a worker that dies at any point leaves locks that can be broken, and no token twice', async () => {
  const { task, words, ledger, own } = share(1);
  let broken = 0;
  for (let run = 0; broken < BROKEN_LOCKS; run++) {
    Atomics.store(words, CONTROL.ready, 0);
    const owner = FIRST_INCARNATION + run;
    const worker = start({ ...task, role: 'worker', owner, seed: run, tokens: 0 });
    worker.tally.catch(() => {});
    while (Atomics.load(words, CONTROL.ready) === 0) await new Promise(setImmediate);
    // Not always at the same point after the start.
    for (let turn = 0; turn < run % 40; turn++) await new Promise(setImmediate);
    await worker.thread.terminate();
    broken += own.breakLocks(owner);
    expect(brokenInvariants(own)).toEqual([]);
    for (let id = 0; id < IDS; id++) {
      if (own.find(identityOf(id), DURATION_MS) === NO_SLOT) continue;
      const { window, spent, lease, reserved } = readState(own, id);
      if (window < 0) continue;
      // Tokens of an answer that was not taken over count as spent.
      expect(spent + reserved).toBeGreaterThanOrEqual(0);
      expect(spent + lease + reserved).toBeLessThanOrEqual(ledger[id * WINDOWS + window]);
      ledger[id * WINDOWS + window] = spent + lease + reserved;
    }
  }
}, 300_000);
