/**
 * The states that an identifier may have after a crash, computed from the answers to its only
 * client. A state has the tokens of reservations and leases until they end, and those of commits for
 * ever. The changes of an identifier are saved in their order, so a crash leaves the state after one
 * of them.
 */

/** Clocks of a server and of a test differ by this at most, and expiry is late by this at most. */
const CLOCK_SLACK_MS = 300;

interface Change {
  /** When its response was received; infinite if there was none. */
  acknowledgedMs: number;
  hold: string;
  /** What the hold uses from now on, 0 if it has ended. */
  tokens: number;
  /** Unix time in ms; infinite if the tokens stay counted. */
  expiresAt: number;
}

/** The changes that are missing in a state. */
export interface HistoryLoss {
  lost: number;
  /** When the oldest of them was acknowledged, by `performance.now()`. */
  oldestMs: number;
}

/** What is in use in a time of which only the bounds are known. */
type Range = readonly [least: number, most: number];

export class HoldHistory {
  readonly #changes: Change[] = [];
  /** What was in use before the first change. */
  readonly #base: number;
  readonly #now: State;

  constructor(base = 0) {
    this.#base = base;
    this.#now = new State(base);
  }

  record(hold: string, tokens: number, expiresAt: number, acknowledgedMs = performance.now()) {
    const change = { acknowledgedMs, hold, tokens, expiresAt };
    this.#changes.push(change);
    this.#now.apply(change);
  }

  /** A request without a response: it may have been decided. */
  recordPending(hold: string, tokens: number, expiresAt: number): void {
    this.record(hold, tokens, expiresAt, Number.POSITIVE_INFINITY);
  }

  /** What is in use after all changes. The times are Unix times in ms. */
  range(fromMs: number, untilMs: number): Range {
    this.#now.prune(fromMs);
    return this.#now.range(fromMs, untilMs);
  }

  /**
   * Finds the latest state in which so many tokens are in use.
   * @returns undefined if there is none
   */
  lossIn(tokens: number, fromMs: number, untilMs: number): HistoryLoss | undefined {
    const state = new State(this.#base);
    const isIn = ([least, most]: Range) => least <= tokens && tokens <= most;
    let found = isIn(state.range(fromMs, untilMs)) ? 0 : -1;
    for (const [i, change] of this.#changes.entries()) {
      state.apply(change);
      if (isIn(state.range(fromMs, untilMs))) found = i + 1;
    }
    if (found < 0) return undefined;
    const missing = this.#changes.slice(found).map(({ acknowledgedMs }) => acknowledgedMs);
    const lost = missing.filter((ms) => Number.isFinite(ms));
    return { lost: lost.length, oldestMs: lost[0] ?? Number.POSITIVE_INFINITY };
  }
}

class State {
  #settled: number;
  readonly #live = new Map<string, Change>();

  constructor(settled: number) {
    this.#settled = settled;
  }

  apply(change: Change): void {
    this.#live.delete(change.hold);
    if (change.expiresAt === Number.POSITIVE_INFINITY) this.#settled += change.tokens;
    else if (change.tokens > 0) this.#live.set(change.hold, change);
  }

  range(fromMs: number, untilMs: number): Range {
    let least = this.#settled;
    let most = this.#settled;
    for (const { tokens, expiresAt } of this.#live.values()) {
      if (expiresAt > untilMs + CLOCK_SLACK_MS) least += tokens;
      if (expiresAt > fromMs - CLOCK_SLACK_MS) most += tokens;
    }
    return [least, most];
  }

  /** Forgets holds that have ended by themselves. */
  prune(nowMs: number): void {
    for (const [hold, { expiresAt }] of this.#live) {
      if (expiresAt < nowMs - CLOCK_SLACK_MS) this.#live.delete(hold);
    }
  }
}
