/**
 * Decisions by one thread and by two at once, in turn, several rounds: medians and their ratio. And
 * how long one takes where there are more threads than cores, which stop each other anywhere, also
 * while they hold a lock.
 */

import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import type { DecideResult, DecideThread } from './decide.thread.ts';
import { allocateTables } from './subjects.ts';

const ROUNDS = 5;
const ROUND_MS = 400;

export interface Scaling {
  name: string;
  one: number;
  two: number;
}

export interface Crowd {
  name: string;
  medianUs: number;
  p999Us: number;
  mostUs: number;
}

interface Run {
  /** Decisions a second by all threads together. */
  rate: number;
  /** How long each took, in us, where that was asked for. */
  tookUs: Float64Array;
}

async function run(threads: number, count: number, apart: boolean, timed = false): Promise<Run> {
  const tables = allocateTables();
  const phase = new SharedArrayBuffer(4);
  const words = new Int32Array(phase);
  const workers = Array.from({ length: threads }, (_, i) => {
    const workerData: DecideThread = {
      owner: i + 1,
      tables,
      count,
      first: apart ? i * count : 0,
      phase,
      timed,
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
  const tookUs = new Float64Array(results.reduce((sum, result) => sum + result.tookUs.length, 0));
  let at = 0;
  for (const result of results) {
    tookUs.set(result.tookUs, at);
    at += result.tookUs.length;
  }
  return { rate: decisions / seconds, tookUs };
}

export function median(values: number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];
}

export async function measureScaling(): Promise<Scaling[]> {
  const results: Scaling[] = [];
  const cases = [
    { name: 'distinct identifiers, 10,000 a thread', count: 10_000, apart: true },
    { name: 'the same 10,000 identifiers', count: 10_000, apart: false },
    { name: 'one hot identifier', count: 1, apart: false },
  ];
  for (const { name, count, apart } of cases) {
    const rates: number[][] = [[], []];
    for (let round = 0; round < ROUNDS; round++) {
      for (const threads of [1, 2]) {
        rates[threads - 1].push((await run(threads, count, apart)).rate);
      }
    }
    results.push({ name, one: median(rates[0]), two: median(rates[1]) });
  }
  return results;
}

/** Four threads for each core; those whose identifiers lie apart show what is the scheduler's. */
export async function measureCrowd(): Promise<Crowd[]> {
  const threads = 4 * availableParallelism();
  const results: Crowd[] = [];
  for (const apart of [true, false]) {
    const { tookUs } = await run(threads, 4, apart, true);
    tookUs.sort();
    const quantile = (share: number) => tookUs[Math.floor(share * (tookUs.length - 1))];
    const name = `${threads} threads, ${apart ? '4 identifiers each' : 'the same 4 identifiers'}`;
    results.push({ name, medianUs: quantile(0.5), p999Us: quantile(0.999), mostUs: quantile(1) });
  }
  return results;
}
