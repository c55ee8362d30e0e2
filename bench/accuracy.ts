/**
 * How accurate the two ways to judge a counter are: the fixed window and the sliding one, as pure
 * functions of a counter's cells, beside a log of all that was admitted, on the same arrivals. By
 * the virtual clock of those; nothing is timed, so every run and every machine gives the same.
 */

import { judgeFixed } from '../src/counters/fixed.ts';
import { judgeSliding } from '../src/counters/sliding.ts';
import { type Cells, count, type Judge, NO_WINDOW } from '../src/counters/window.ts';
import {
  type Arrivals,
  bursts,
  DURATION_MS,
  endAndStart,
  endAndThrough,
  evenly,
  everyMs,
  LIMIT,
  limitEvery,
  poisson,
} from './arrivals.ts';

export interface Rule {
  limit: number;
  durationMs: number;
}

export interface Limiter {
  /** Asked at times that never run back. */
  admit: (nowMs: number, cost: number) => boolean;
}

/** What was admitted in the last `spanMs`, now included: each admission is kept for so long. */
export class Log {
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

/** The exact one: admits what fits beside all that it admitted in the last `durationMs`. */
function byLog({ limit, durationMs }: Rule): Limiter {
  const log = new Log(durationMs);
  const admit = (nowMs: number, cost: number) => {
    if (log.usedAt(nowMs) + cost > limit) return false;
    log.add(nowMs, cost);
    return true;
  };
  return { admit };
}

/** A counter of the table without the table: its cells are judged, and what passes is counted. */
function byCells(judge: Judge, { limit, durationMs }: Rule): Limiter {
  const cells: Cells = { newest: NO_WINDOW, current: 0, previous: 0 };
  const terms = { limit, durationMs, cost: 0, isSliding: judge === judgeSliding };
  const decision = { admitted: false, remaining: 0, reset: 0, window: 0 };
  const admit = (nowMs: number, cost: number) => {
    terms.cost = cost;
    judge(cells, nowMs, terms, decision);
    if (decision.admitted) count(cells, decision.window, cost);
    return decision.admitted;
  };
  return { admit };
}

export const LIMITERS = {
  log: byLog,
  fixed: (rule: Rule) => byCells(judgeFixed, rule),
  sliding: (rule: Rule) => byCells(judgeSliding, rule),
};
export type LimiterName = keyof typeof LIMITERS;

/** What counts as at once: this part of a window. */
const AT_ONCE = 1 / 60;

/** One limiter under arrivals, watched by logs of what it admits. */
export class Trial {
  asked = 0;
  admitted = 0;
  /** The most tokens in any `durationMs`, wherever it begins, and in a sixtieth of that. */
  most = 0;
  mostAtOnce = 0;
  admissions = 0;
  refusals = 0;
  /** Admissions for which a log of all that this limiter admitted had no room. */
  wrongAdmissions = 0;
  /** Refusals for which it had. */
  wrongRefusals = 0;
  readonly #limiter: Limiter;
  readonly #limit: number;
  readonly #inWindow: Log;
  readonly #atOnce: Log;

  constructor(limiter: Limiter, { limit, durationMs }: Rule) {
    this.#limiter = limiter;
    this.#limit = limit;
    this.#inWindow = new Log(durationMs);
    this.#atOnce = new Log(durationMs * AT_ONCE);
  }

  ask(nowMs: number, cost: number): boolean {
    const admitted = this.#limiter.admit(nowMs, cost);
    const used = this.#inWindow.usedAt(nowMs) + cost;
    const fits = used <= this.#limit;
    this.asked += cost;
    if (!admitted) {
      this.refusals++;
      if (fits) this.wrongRefusals++;
      return false;
    }
    this.admissions++;
    if (!fits) this.wrongAdmissions++;
    this.admitted += cost;
    // What an interval holds is most where it ends with an admission.
    this.most = Math.max(this.most, used);
    this.mostAtOnce = Math.max(this.mostAtOnce, this.#atOnce.usedAt(nowMs) + cost);
    this.#inWindow.add(nowMs, cost);
    this.#atOnce.add(nowMs, cost);
    return true;
  }
}

/** What a trial found, by which it is compared with others. */
export interface Figures {
  /** Of the tokens that were asked for. */
  admitted: number;
  /** For each token that the log admitted. */
  toLog: number;
  /** In limits. */
  most: number;
  mostAtOnce: number;
  /** Of its admissions, and of its refusals; undefined where it made none. */
  wronglyAdmitted: number | undefined;
  wronglyRefused: number | undefined;
}

function figuresOf(trial: Trial, log: Trial): Figures {
  const share = (wrong: number, all: number) => (all === 0 ? undefined : wrong / all);
  return {
    admitted: trial.admitted / trial.asked,
    toLog: trial.admitted / log.admitted,
    most: trial.most / LIMIT,
    mostAtOnce: trial.mostAtOnce / LIMIT,
    wronglyAdmitted: share(trial.wrongAdmissions, trial.admissions),
    wronglyRefused: share(trial.wrongRefusals, trial.refusals),
  };
}

export interface Accuracy extends Record<LimiterName, Figures> {
  arrivals: string;
  /** For each window, in limits. */
  asked: number;
}

/** @param windows for how many, from the first check on */
export function judgeAll(name: string, arrivals: Arrivals, windows: number): Accuracy {
  const rule = { limit: LIMIT, durationMs: DURATION_MS };
  const log = new Trial(LIMITERS.log(rule), rule);
  const fixed = new Trial(LIMITERS.fixed(rule), rule);
  const sliding = new Trial(LIMITERS.sliding(rule), rule);
  let end: number | undefined;
  for (const at of arrivals) {
    end ??= at + windows * DURATION_MS;
    if (at >= end) break;
    log.ask(at, 1);
    fixed.ask(at, 1);
    sliding.ask(at, 1);
  }
  return {
    arrivals: name,
    asked: log.asked / LIMIT / windows,
    log: figuresOf(log, log),
    fixed: figuresOf(fixed, log),
    sliding: figuresOf(sliding, log),
  };
}

const WINDOWS = 3_000;

export function measureAccuracy(): Accuracy[] {
  const of = (name: string, arrivals: Arrivals) => judgeAll(name, arrivals, WINDOWS);
  return [
    of('evenly', evenly(0.9)),
    ...[0.9, 1.2, 5].map((demand) => of('Poisson', poisson(demand))),
    ...[0.5, 2].map((demand) => of('random bursts', bursts(demand))),
    of('limit every 61 s', limitEvery(61_000)),
    of('limit at starts', limitEvery(DURATION_MS)),
    of('end and start', endAndStart()),
    of('end and through', endAndThrough()),
    // As telling after fewer: 60,000 checks a window.
    judgeAll('every ms', everyMs(), WINDOWS / 50),
  ];
}

/** Columns under a title: a figure of each of these. */
type Group = [title: string, of: readonly LimiterName[], show: (of: Figures) => string];

const ALL: readonly LimiterName[] = ['log', 'fixed', 'sliding'];
/** Where a log has nothing to say. */
const JUDGES: readonly LimiterName[] = ['fixed', 'sliding'];

const GROUPS: readonly Group[] = [
  ['admitted, %', ALL, ({ admitted }) => percent(admitted)],
  ['most in 60 s', ALL, ({ most }) => most.toFixed(2)],
  ['most in 1 s', JUDGES, ({ mostAtOnce }) => mostAtOnce.toFixed(2)],
  ['wrongly adm., %', JUDGES, ({ wronglyAdmitted }) => percent(wronglyAdmitted)],
  ['wrongly ref., %', JUDGES, ({ wronglyRefused }) => percent(wronglyRefused)],
];

function percent(share: number | undefined): string {
  return share === undefined ? '-' : (share * 100).toFixed(1);
}

/** @returns its lines, two of head and one for each of the results */
export function accuracyTable(results: readonly Accuracy[]): string[] {
  const start = (name: string, asked: string) => `${name.padEnd(16)}${asked.padStart(5)}`;
  const columns = (texts: readonly string[]) => {
    return texts.map((text, i) => text.padStart(i < texts.length - 1 ? 6 : 8)).join('');
  };
  const titles = GROUPS.map(([title, of]) => title.padStart(columns(of).length));
  const names = GROUPS.map(([, of]) => columns(of));
  const rows = results.map((result) => {
    const groups = GROUPS.map(([, of, show]) => columns(of.map((name) => show(result[name]))));
    return [start(result.arrivals, result.asked.toFixed(1)), ...groups];
  });
  const lines = [[start('', ''), ...titles], [start('', 'asked'), ...names], ...rows];
  return lines.map((parts) => parts.join(' '));
}
