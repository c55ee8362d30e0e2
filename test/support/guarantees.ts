/**
 * The promises that the README makes, by the names that the tests give them, and what those tests
 * have measured of each. Figures go with the result of their test to `reporter.ts`, which prints
 * the table.
 */

import { TestRunner } from 'vitest';
import { scaledCount } from './test-scale.ts';

export const GUARANTEES = {
  P1: 'no window admits more than its limit',
  P2: 'nothing is refused that fits',
  P3: 'every request has one answer',
  P4: 'what was acknowledged is kept',
  P5: 'nobody without a valid, permitted key gets anything',
  P6: 'what a restart forgets is bounded',
  P7: 'memory is bounded',
  P8: 'the former rate is back when a fault is gone',
  P10: 'no input ends the process, or makes it fail',
  P11: 'no secret gets out',
} as const;

export type GuaranteeName = keyof typeof GUARANTEES;

/** One figure of one promise under one fault. */
export interface Measurement {
  guarantee: GuaranteeName;
  fault: string;
  /** How often it was tried: 200 kills, 10 000 000 decisions. */
  trials: string;
  /** What came of it, with the seed where it was random. */
  measured: string;
}

declare module 'vitest' {
  interface TaskMeta {
    figures?: Measurement[];
  }
}

/** Notes what the running test has measured of a promise. It is for the test to fail where due. */
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

export const IS_LONG = process.env.WEIR_FAULTS === 'long';

/** How often something is tried: in the long set, and in the quick one that belongs to all tests. */
export function trialCount(quick: number, long: number): number {
  return IS_LONG ? long : scaledCount(quick);
}

/** The seed of what is random in a test; WEIR_SEED repeats a run. To be shown in a figure. */
export function newSeed(): number {
  return Number(process.env.WEIR_SEED ?? Math.floor(Math.random() * 2 ** 31));
}
