/** Decisions by one thread and by two at once, in turn, several rounds: medians and their ratio. */

import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import type { DecideThread } from './decide.thread.ts';
import { allocateTables } from './subjects.ts';

const ROUNDS = 5;
const ROUND_MS = 400;

export interface Scaling {
  name: string;
  one: number;
  two: number;
}

/** @returns decisions a second by so many threads together */
async function rate(threads: number, count: number, apart: boolean): Promise<number> {
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
  const decisions = await Promise.all(counts);
  await Promise.all(exits);
  return decisions.reduce((sum, [made]) => sum + made, 0) / seconds;
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
      for (const threads of [1, 2]) rates[threads - 1].push(await rate(threads, count, apart));
    }
    results.push({ name, one: median(rates[0]), two: median(rates[1]) });
  }
  return results;
}
