/**
 * Several that are measured in turn, round after round, so that what else the machine does strikes
 * all of them alike. A ratio is made within a round; what is reported are the medians over the
 * rounds, and of a ratio its smallest and largest as well.
 */

import { median } from '../micro/thread-scaling.ts';
import type { LoadMeasurement } from './load-generator.ts';
import { cpuSeconds, residentBytes } from './servers.ts';

export interface Contestant {
  name: string;
  /** Of all processes that serve it. */
  pids: readonly number[];
  run: () => Promise<LoadMeasurement>;
}

export interface RatioRange {
  median: number;
  least: number;
  most: number;
}

/** What was found of one of them; latencies in us. */
export interface ContestantFigures {
  requestsPerSecond: number;
  p50: number;
  p99: number;
  p999: number;
  p9999: number | undefined;
  /** us of CPU, all threads of the server, user and system. */
  cpuPerRequest: number | undefined;
  residentMiB: number | undefined;
  /** To the first contestant, in the same round. */
  throughputRatio: RatioRange;
  /** Undefined where the generator knows latencies by the millisecond, and it took none. */
  p50Ratio: RatioRange | undefined;
  p99Ratio: RatioRange | undefined;
  cpuRatio: RatioRange | undefined;
}

interface RoundMeasurement extends LoadMeasurement {
  rate: number;
  cpu: number | undefined;
}

/**
 * @param contestants of which the first is what the others are measured against
 * @param progress is told what comes next
 */
export async function measureAlternating(
  contestants: readonly Contestant[],
  rounds: number,
  progress: (what: string) => void,
): Promise<ContestantFigures[]> {
  const all: RoundMeasurement[][] = contestants.map(() => []);
  for (let round = 0; round < rounds; round++) {
    for (const [i, contestant] of contestants.entries()) {
      progress(`round ${round + 1}, ${contestant.name}`);
      all[i].push(await measureRound(contestant));
    }
  }
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
  const p9999s = rounds.flatMap(({ p9999 }) => p9999 ?? []);
  const ratio = (of: (round: RoundMeasurement) => number): RatioRange | undefined => {
    if (baseline.some((round) => of(round) === 0)) return undefined;
    return rangeOf(rounds.map((round, i) => of(round) / of(baseline[i])));
  };
  return {
    requestsPerSecond: median(rounds.map(({ rate }) => rate)),
    p50: median(rounds.map(({ p50 }) => p50)),
    p99: median(rounds.map(({ p99 }) => p99)),
    p999: median(rounds.map(({ p999 }) => p999)),
    p9999: p9999s.length === 0 ? undefined : median(p9999s),
    cpuPerRequest: cpus.length === 0 ? undefined : median(cpus),
    residentMiB: bytes === undefined ? undefined : bytes / 2 ** 20,
    throughputRatio: rangeOf(rounds.map(({ rate }, i) => rate / baseline[i].rate)),
    p50Ratio: ratio(({ p50 }) => p50),
    p99Ratio: ratio(({ p99 }) => p99),
    cpuRatio: cpus.length === 0 ? undefined : ratio(({ cpu }) => cpu ?? 0),
  };
}

/** Undefined where it is not known of each. */
function sumKnown(
  pids: readonly number[],
  what: (pid: number) => number | undefined,
): number | undefined {
  const values = pids.map(what);
  return values.every((value) => value !== undefined)
    ? values.reduce((sum, value) => sum + value, 0)
    : undefined;
}

export function rangeOf(values: number[]): RatioRange {
  return { median: median(values), least: Math.min(...values), most: Math.max(...values) };
}
