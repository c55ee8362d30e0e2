/**
 * Measures contestants alternately, round after round, so that other load on the machine affects
 * all of them alike. Ratios are computed within a round. The results are medians over the rounds,
 * and for ratios also the minimum and the maximum.
 */

import type { LoadMeasurement } from './load-generator.ts';
import { cpuSeconds, residentBytes } from './servers.ts';

export interface Contestant {
  name: string;
  /** All processes that serve it. */
  pids: readonly number[];
  run: () => Promise<LoadMeasurement>;
}

export interface Range {
  median: number;
  min: number;
  max: number;
}

/** The results of a contestant. Latencies are in us. */
export interface ContestantFigures {
  requestsPerSecond: number;
  p50: number;
  p99: number;
  p999: number;
  p9999: number | undefined;
  /** The longest of all rounds. */
  max: number | undefined;
  /** Of the rounds. */
  p99Range: Range;
  /** us of CPU of all threads, user and system. */
  cpuPerRequest: number | undefined;
  residentMiB: number | undefined;
  /** Relative to the first contestant in the same round. */
  throughputRatio: Range;
  /** Undefined if the generator's resolution of 1 ms makes it 0. */
  p50Ratio: Range | undefined;
  p99Ratio: Range | undefined;
  cpuRatio: Range | undefined;
}

export interface RoundMeasurement extends LoadMeasurement {
  rate: number;
  cpu: number | undefined;
}

/**
 * @param contestants the first is the baseline of the others
 * @param progress called with a description of the next step
 */
export async function measureAlternating(
  contestants: readonly Contestant[],
  rounds: number,
  progress: (what: string) => void,
): Promise<ContestantFigures[]> {
  const all = await measureRounds(contestants, rounds, progress);
  return summarizeRounds(contestants, all);
}

/** @returns the rounds of each contestant */
async function measureRounds(
  contestants: readonly Contestant[],
  rounds: number,
  progress: (what: string) => void,
): Promise<RoundMeasurement[][]> {
  const all: RoundMeasurement[][] = contestants.map(() => []);
  for (let round = 0; round < rounds; round++) {
    const entries = [...contestants.entries()];
    // In both directions, so that a place in the order favours none.
    for (const [i, contestant] of round % 2 === 0 ? entries : entries.reverse()) {
      progress(`round ${round + 1}, ${contestant.name}`);
      all[i].push(await measureRound(contestant));
    }
  }
  return all;
}

/**
 * As `measureRounds`, with all contestants under load at once: they share the CPU, and what else
 * happens on the machine meanwhile. This shows smaller differences, but neither the throughput nor
 * the latency of a server that is alone.
 */
export async function measureRoundsAtOnce(
  contestants: readonly Contestant[],
  rounds: number,
): Promise<RoundMeasurement[][]> {
  const all: RoundMeasurement[][] = contestants.map(() => []);
  for (let round = 0; round < rounds; round++) {
    const measured = await Promise.all(contestants.map(measureRound));
    for (const [i, of] of measured.entries()) all[i].push(of);
  }
  return all;
}

/** @param all the rounds of each contestant */
export function summarizeRounds(
  contestants: readonly Contestant[],
  all: readonly (readonly RoundMeasurement[])[],
): ContestantFigures[] {
  return contestants.map(({ pids }, i) => summarize(pids, all[i], all[0]));
}

async function measureRound({ name, pids, run }: Contestant): Promise<RoundMeasurement> {
  const before = sumKnown(pids, cpuSeconds);
  const figures = await run();
  const after = sumKnown(pids, cpuSeconds);
  if (figures.errors > 0) throw new Error(`${name}: ${figures.errors} errors`);
  const cpu =
    before === undefined || after === undefined
      ? undefined
      : ((after - before) / figures.requests) * 1e6;
  return { ...figures, rate: figures.requests / figures.seconds, cpu };
}

function summarize(
  pids: readonly number[],
  rounds: readonly RoundMeasurement[],
  baseline: readonly RoundMeasurement[],
): ContestantFigures {
  const bytes = sumKnown(pids, residentBytes);
  const cpus = rounds.flatMap(({ cpu }) => cpu ?? []);
  const longest = rounds.flatMap(({ max }) => max ?? []);
  const p9999s = rounds.flatMap(({ p9999 }) => p9999 ?? []);
  const ratio = (of: (round: RoundMeasurement) => number): Range | undefined => {
    if (baseline.some((round) => of(round) === 0)) return undefined;
    return rangeOf(rounds.map((round, i) => of(round) / of(baseline[i])));
  };
  return {
    requestsPerSecond: median(rounds.map(({ rate }) => rate)),
    p50: median(rounds.map(({ p50 }) => p50)),
    p99: median(rounds.map(({ p99 }) => p99)),
    p999: median(rounds.map(({ p999 }) => p999)),
    p9999: p9999s.length === 0 ? undefined : median(p9999s),
    max: longest.length === 0 ? undefined : Math.max(...longest),
    p99Range: rangeOf(rounds.map(({ p99 }) => p99)),
    cpuPerRequest: cpus.length === 0 ? undefined : median(cpus),
    residentMiB: bytes === undefined ? undefined : bytes / 2 ** 20,
    throughputRatio: rangeOf(rounds.map(({ rate }, i) => rate / baseline[i].rate)),
    p50Ratio: ratio(({ p50 }) => p50),
    p99Ratio: ratio(({ p99 }) => p99),
    cpuRatio: cpus.length === 0 ? undefined : ratio(({ cpu }) => cpu ?? 0),
  };
}

/** Undefined if one of the values is unknown. */
function sumKnown(
  pids: readonly number[],
  what: (pid: number) => number | undefined,
): number | undefined {
  const values = pids.map(what);
  return values.every((value) => value !== undefined)
    ? values.reduce((sum, value) => sum + value, 0)
    : undefined;
}

export function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];
}

export function rangeOf(values: readonly number[]): Range {
  return { median: median(values), min: Math.min(...values), max: Math.max(...values) };
}
