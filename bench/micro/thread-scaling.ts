/**
 * Measures decisions of one thread and of two concurrent threads in alternating rounds, and reports
 * the medians. Also measures the duration of a decision with more threads than cores, where the
 * scheduler may suspend a thread that holds a lock.
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
  /** Decisions per second of all threads. */
  rate: number;
  /** The duration of each decision in us; empty unless timed. */
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
    { name: 'distinct identifiers, 10,000 a thread', count: 10_000, isDistinct: true },
    { name: 'the same 10,000 identifiers', count: 10_000, isDistinct: false },
    { name: 'one hot identifier', count: 1, isDistinct: false },
  ];
  for (const { name, count, isDistinct } of cases) {
    const rates: number[][] = [[], []];
    for (let round = 0; round < ROUNDS; round++) {
      for (const threads of [1, 2]) {
        rates[threads - 1].push((await runThreads(threads, count, isDistinct)).rate);
      }
    }
    results.push({ name, one: median(rates[0]), two: median(rates[1]) });
  }
  return results;
}

/** Four threads per core. Distinct identifiers show the delays of the scheduler alone. */
export async function measureOversubscription(): Promise<OversubscriptionResult[]> {
  const threads = 4 * availableParallelism();
  const results: OversubscriptionResult[] = [];
  for (const isDistinct of [true, false]) {
    const { durationsUs } = await runThreads(threads, 4, isDistinct, true);
    durationsUs.sort();
    const quantile = (share: number) => durationsUs[Math.floor(share * (durationsUs.length - 1))];
    const identifiers = isDistinct ? '4 identifiers each' : 'the same 4 identifiers';
    const name = `${threads} threads, ${identifiers}`;
    results.push({ name, medianUs: quantile(0.5), p999Us: quantile(0.999), maxUs: quantile(1) });
  }
  return results;
}
