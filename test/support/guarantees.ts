/**
 * The guarantees of docs/guarantees.md by label, and the measurements that tests record for them. A
 * measurement is part of the result of its test. `guarantee-reporter.ts` prints the table.
 */

import { TestRunner } from 'vitest';

export const GUARANTEES = {
  P1: 'no window allows more than its limit',
  P2: 'no check within the limit is denied',
  P3: 'every request gets exactly one response',
  P4: 'every acknowledged change is durable',
  P5: 'a request without a valid, permitted key gets nothing',
  P6: 'the usage lost in a restart is bounded',
  P7: 'memory is bounded',
  P8: 'the former throughput returns when a fault ends',
  P10: 'no input ends the process or makes it fail',
  P11: 'no secret is disclosed',
} as const;

export type GuaranteeName = keyof typeof GUARANTEES;

/** One measurement for one guarantee under one fault. */
export interface Measurement {
  guarantee: GuaranteeName;
  fault: string;
  /** Number of trials, with their unit: 200 kills, 10 000 000 decisions. */
  trials: string;
  /** The result, with the seed of a randomized test. */
  measured: string;
}

declare module 'vitest' {
  interface TaskMeta {
    figures?: Measurement[];
  }
}

/** Records a measurement of the running test. The test itself asserts the guarantee. */
export function recordMeasurement(
  guarantee: GuaranteeName,
  fault: string,
  trials: string,
  measured: string,
): void {
  const { meta } = TestRunner.getCurrentTest()!;
  meta.figures ??= [];
  meta.figures.push({ guarantee, fault, trials, measured });
}

/** Records measurements of several guarantees under the same fault. */
export function recordMeasurements(
  fault: string,
  trials: string,
  measured: Partial<Record<GuaranteeName, string>>,
): void {
  for (const [guarantee, text] of Object.entries(measured)) {
    recordMeasurement(guarantee as GuaranteeName, fault, trials, text);
  }
}

/** Whether `npm run test:long` runs: more trials, and cases that need minutes. */
export const IS_LONG = process.env.WEIR_TEST_LONG !== undefined;

/** Number of trials: `long` in `npm run test:long`, `quick` in the other levels. */
export function trialCount(quick: number, long: number): number {
  return IS_LONG ? long : quick;
}

/** The seed of a randomized test. WEIR_SEED repeats a run. Show it in a measurement. */
export function newSeed(): number {
  return Number(process.env.WEIR_SEED ?? Math.floor(Math.random() * 2 ** 31));
}
