/**
 * Decisions by one thread and by two at once, in turn, several rounds: medians and their ratio. And
 * how long one takes where there are more threads than cores, which stop each other anywhere, also
 * while they hold a lock.
 */

import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import { median } from '../support/rounds.ts';
import { allocateTables } from './check-steps.ts';
import type { DecideResult, DecideTask } from './decide.thread.ts';

const ROUNDS = 5;
const ROUND_MS = 400;

export interface ScalingResult {
  name: string;
  one: number;
  two: number;
}

export interface OversubscriptionResult {
  name: string;
  medianUs: number;
  p999Us: number;
  maxUs: number;
}

interface ThreadRun {
  /** Decisions a second by all threads together. */
  rate: number;
  /** How long each took, in us, where that was asked for. */
  durationsUs: Float64Array;
}

async function runThreads(
  threads: number,
  count: number,
  hasDistinctIdentifiers: boolean,
  isTimed = false,
): Promise<ThreadRun> {
  const tables = allocateTables();
  const phase = new SharedArrayBuffer(4);
  const words = new Int32Array(phase);
  const workers = Array.from({ length: threads }, (_, i) => {
    const workerData: DecideTask = {
      owner: i + 1,
      tables,
      count,
      first: hasDistinctIdentifiers ? i * count : 0,
      phase,
      isTimed,
    };
    return new Worker(new URL('./decide.thread.js', import.meta.url), { workerData });
  });
  const exits = workers.map((worker) => once(worker, 'exit'));
  await Promise.all(workers.map((worker) => once(worker, 'message')));
  const counts = workers.map((worker) => once(worker, 'message'));
  const start = performance.now();
  Atomics.store(words, 0, 1);
  Atomics.notify(words, 0);
  await new Promise((resolve) => setTimeout(resolve, ROUND_MS));
  Atomics.store(words, 0, 2);
  const seconds = (performance.now() - start) / 1_000;
  const results = (await Promise.all(counts)).map(([result]): DecideResult => result);
  await Promise.all(exits);
  const decisions = results.reduce((sum, result) => sum + result.decisions, 0);
  const durationsUs = new Float64Array(
    results.reduce((sum, result) => sum + result.durationsUs.length, 0),
  );
  let at = 0;
  for (const result of results) {
    durationsUs.set(result.durationsUs, at);
    at += result.durationsUs.length;
  }
  return { rate: decisions / seconds, durationsUs };
}

export async function measureScaling(): Promise<ScalingResult[]> {
  const results: ScalingResult[] = [];
  const cases = [
    { name: 'distinct identifiers, 10,000 a thread', count: 10_000, apart: true },
    { name: 'the same 10,000 identifiers', count: 10_000, apart: false },
    { name: 'one hot identifier', count: 1, apart: false },
  ];
  for (const { name, count, apart } of cases) {
    const rates: number[][] = [[], []];
    for (let round = 0; round < ROUNDS; round++) {
      for (const threads of [1, 2]) {
        rates[threads - 1].push((await runThreads(threads, count, apart)).rate);
      }
    }
    results.push({ name, one: median(rates[0]), two: median(rates[1]) });
  }
  return results;
}

/** Four threads for each core; those whose identifiers lie apart show what is the scheduler's. */
export async function measureOversubscription(): Promise<OversubscriptionResult[]> {
  const threads = 4 * availableParallelism();
  const results: OversubscriptionResult[] = [];
  for (const apart of [true, false]) {
    const { durationsUs } = await runThreads(threads, 4, apart, true);
    durationsUs.sort();
    const quantile = (share: number) => durationsUs[Math.floor(share * (durationsUs.length - 1))];
    const name = `${threads} threads, ${apart ? '4 identifiers each' : 'the same 4 identifiers'}`;
    results.push({ name, medianUs: quantile(0.5), p999Us: quantile(0.999), maxUs: quantile(1) });
  }
  return results;
}
