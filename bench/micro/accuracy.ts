/**
 * Measures the accuracy of the fixed and the sliding window against an exact log of allowed checks.
 * All three get the same arrivals on a virtual clock. Nothing is timed, so every run on every
 * machine has the same results.
 */

import { newDecision } from '../../src/core/decision.ts';
import { NO_BURST, RULE } from '../../src/core/window-rules.ts';
import { judgeFixed } from '../../src/engine/windows/fixed.ts';
import { type Cells, type Judge, newCells } from '../../src/engine/windows/rule.ts';
import { judgeSliding } from '../../src/engine/windows/sliding.ts';
import { addUsage } from '../../src/engine/windows/window.ts';
import {
  type Arrivals,
  boundaryBursts,
  boundaryThenDrain,
  burstArrivals,
  DURATION_MS,
  evenArrivals,
  everyMillisecond,
  fullBursts,
  LIMIT,
  poissonArrivals,
} from './arrivals.ts';

export interface LimitRule {
  limit: number;
  durationMs: number;
}

export interface Limiter {
  /** Decides a check. The times of successive calls never decrease. */
  allow: (nowMs: number, cost: number) => boolean;
}

/** The allowed checks of the last `spanMs`, including the present. */
export class SlidingLog {
  readonly #spanMs: number;
  readonly #entries: { atMs: number; cost: number }[] = [];
  #used = 0;

  constructor(spanMs: number) {
    this.#spanMs = spanMs;
  }

  usedAt(nowMs: number): number {
    const entries = this.#entries;
    while (entries.length > 0 && entries[0].atMs <= nowMs - this.#spanMs) {
      this.#used -= entries.shift()!.cost;
    }
    return this.#used;
  }

  add(nowMs: number, cost: number): void {
    this.#entries.push({ atMs: nowMs, cost });
    this.#used += cost;
  }
}

/** The exact limiter: it allows a check that fits with all allowed in the last `durationMs`. */
function logLimiter({ limit, durationMs }: LimitRule): Limiter {
  const log = new SlidingLog(durationMs);
  const allow = (nowMs: number, cost: number) => {
    if (log.usedAt(nowMs) + cost > limit) return false;
    log.add(nowMs, cost);
    return true;
  };
  return { allow };
}

/** A limiter on the cells of one counter, without a table. */
function cellLimiter(judge: Judge, { limit, durationMs }: LimitRule): Limiter {
  const cells: Cells = newCells();
  const terms = {
    limit,
    durationMs,
    cost: 0,
    rule: judge === judgeSliding ? RULE.sliding : RULE.fixed,
    burst: NO_BURST,
  };
  const decision = newDecision();
  const allow = (nowMs: number, cost: number) => {
    terms.cost = cost;
    judge(cells, nowMs, terms, decision);
    if (decision.allowed) addUsage(cells, decision.window, cost);
    return decision.allowed;
  };
  return { allow };
}

export const LIMITERS = {
  log: logLimiter,
  fixed: (rule: LimitRule) => cellLimiter(judgeFixed, rule),
  sliding: (rule: LimitRule) => cellLimiter(judgeSliding, rule),
};
export type LimiterName = keyof typeof LIMITERS;

/** The share of a window that counts as one burst. */
const BURST_SHARE = 1 / 60;

/** Runs one limiter on arrivals, and compares its decisions with logs of its allowed checks. */
export class LimiterTrial {
  tokensRequested = 0;
  tokensAllowed = 0;
  /** The most tokens allowed in any interval of `durationMs`, and of a sixtieth of it. */
  maxPerWindow = 0;
  maxPerSixtieth = 0;
  allowedChecks = 0;
  deniedChecks = 0;
  /** Allowed checks that exceed the limit by the log of this limiter. */
  wrongAllowed = 0;
  /** Denied checks that fit by the log of this limiter. */
  wrongDenied = 0;
  readonly #limiter: Limiter;
  readonly #limit: number;
  readonly #inWindow: SlidingLog;
  readonly #atOnce: SlidingLog;

  constructor(limiter: Limiter, { limit, durationMs }: LimitRule) {
    this.#limiter = limiter;
    this.#limit = limit;
    this.#inWindow = new SlidingLog(durationMs);
    this.#atOnce = new SlidingLog(durationMs * BURST_SHARE);
  }

  check(nowMs: number, cost: number): boolean {
    const allowed = this.#limiter.allow(nowMs, cost);
    const used = this.#inWindow.usedAt(nowMs) + cost;
    const fits = used <= this.#limit;
    this.tokensRequested += cost;
    if (!allowed) {
      this.deniedChecks++;
      if (fits) this.wrongDenied++;
      return false;
    }
    this.allowedChecks++;
    if (!fits) this.wrongAllowed++;
    this.tokensAllowed += cost;
    // The usage of an interval is highest when it ends with an allowed check.
    this.maxPerWindow = Math.max(this.maxPerWindow, used);
    this.maxPerSixtieth = Math.max(this.maxPerSixtieth, this.#atOnce.usedAt(nowMs) + cost);
    this.#inWindow.add(nowMs, cost);
    this.#atOnce.add(nowMs, cost);
    return true;
  }
}

/** The results of a trial. */
export interface AccuracyFigures {
  /** Share of the requested tokens. */
  allowed: number;
  /** Ratio to the tokens that the log allowed. */
  toLog: number;
  /** In multiples of the limit. */
  max: number;
  maxBurst: number;
  /** Shares of the allowed and of the denied checks; undefined without such checks. */
  wronglyAllowed: number | undefined;
  wronglyDenied: number | undefined;
}

function figuresOf(trial: LimiterTrial, log: LimiterTrial): AccuracyFigures {
  const share = (wrong: number, all: number) => (all === 0 ? undefined : wrong / all);
  return {
    allowed: trial.tokensAllowed / trial.tokensRequested,
    toLog: trial.tokensAllowed / log.tokensAllowed,
    max: trial.maxPerWindow / LIMIT,
    maxBurst: trial.maxPerSixtieth / LIMIT,
    wronglyAllowed: share(trial.wrongAllowed, trial.allowedChecks),
    wronglyDenied: share(trial.wrongDenied, trial.deniedChecks),
  };
}

export interface Accuracy extends Record<LimiterName, AccuracyFigures> {
  arrivals: string;
  /** Tokens requested per window, in multiples of the limit. */
  demand: number;
}

/** @param windows the number of windows, from the first check on */
export function compareLimiters(name: string, arrivals: Arrivals, windows: number): Accuracy {
  const rule = { limit: LIMIT, durationMs: DURATION_MS };
  const log = new LimiterTrial(LIMITERS.log(rule), rule);
  const fixed = new LimiterTrial(LIMITERS.fixed(rule), rule);
  const sliding = new LimiterTrial(LIMITERS.sliding(rule), rule);
  let end: number | undefined;
  for (const at of arrivals) {
    end ??= at + windows * DURATION_MS;
    if (at >= end) break;
    log.check(at, 1);
    fixed.check(at, 1);
    sliding.check(at, 1);
  }
  return {
    arrivals: name,
    demand: log.tokensRequested / LIMIT / windows,
    log: figuresOf(log, log),
    fixed: figuresOf(fixed, log),
    sliding: figuresOf(sliding, log),
  };
}

const WINDOWS = 3_000;

export function measureAccuracy(): Accuracy[] {
  const of = (name: string, arrivals: Arrivals) => compareLimiters(name, arrivals, WINDOWS);
  return [
    of('evenly', evenArrivals(0.9)),
    ...[0.9, 1.2, 5].map((demand) => of('Poisson', poissonArrivals(demand))),
    ...[0.5, 2].map((demand) => of('random bursts', burstArrivals(demand))),
    of('limit every 61 s', fullBursts(61_000)),
    of('limit at starts', fullBursts(DURATION_MS)),
    of('end and start', boundaryBursts()),
    of('end and through', boundaryThenDrain()),
    // Fewer windows suffice: each has 60,000 checks.
    compareLimiters('every ms', everyMillisecond(), WINDOWS / 50),
  ];
}

/** Columns under one title: one figure of each of these limiters. */
type ColumnGroup = [
  title: string,
  of: readonly LimiterName[],
  show: (of: AccuracyFigures) => string,
];

const ALL_LIMITERS: readonly LimiterName[] = ['log', 'fixed', 'sliding'];
/** For figures that are constant for the log. */
const WINDOW_LIMITERS: readonly LimiterName[] = ['fixed', 'sliding'];

const GROUPS: readonly ColumnGroup[] = [
  ['allowed, %', ALL_LIMITERS, ({ allowed }) => percent(allowed)],
  ['max in 60 s', ALL_LIMITERS, ({ max }) => max.toFixed(2)],
  ['max in 1 s', WINDOW_LIMITERS, ({ maxBurst }) => maxBurst.toFixed(2)],
  ['wrong allow, %', WINDOW_LIMITERS, ({ wronglyAllowed }) => percent(wronglyAllowed)],
  ['wrong deny, %', WINDOW_LIMITERS, ({ wronglyDenied }) => percent(wronglyDenied)],
];

function percent(share: number | undefined): string {
  return share === undefined ? '-' : (share * 100).toFixed(1);
}

/** @returns the lines of the table: two header lines and one line per result */
export function accuracyTable(results: readonly Accuracy[]): string[] {
  const start = (name: string, demand: string) => `${name.padEnd(16)}${demand.padStart(6)}`;
  const columns = (texts: readonly string[]) => {
    return texts.map((text, i) => text.padStart(i < texts.length - 1 ? 6 : 8)).join('');
  };
  const titles = GROUPS.map(([title, of]) => title.padStart(columns(of).length));
  const names = GROUPS.map(([, of]) => columns(of));
  const rows = results.map((result) => {
    const groups = GROUPS.map(([, of, show]) => columns(of.map((name) => show(result[name]))));
    return [start(result.arrivals, result.demand.toFixed(1)), ...groups];
  });
  const lines = [[start('', ''), ...titles], [start('', 'demand'), ...names], ...rows];
  return lines.map((parts) => parts.join(' '));
}
