/**
 * What a server has answered, and what it may have answered: every decision is noted by its counter
 * and window, and the sums are held against the limits. A refusal of a cost was right when the
 * window had not so much left, and so has not at its end either.
 */

export interface WindowTotals {
  /** Tokens admitted. */
  allowed: number;
  /** The smallest cost that was refused; infinity where none was. */
  smallestDenied: number;
}

export interface LedgerReport {
  decisions: number;
  windows: number;
  /** The most that a window has admitted beyond its limit; at most 0 where P1 holds. */
  maxExcess: number;
  /** Windows that refused what would have fitted: 0 where P2 holds. */
  falseDenials: number;
  /** Tokens that these windows had left. */
  tokensMissing: number;
  /** A few of what is wrong, in words. */
  violations: string[];
}

const VIOLATIONS_SHOWN = 5;

export class Ledger {
  decisions = 0;
  /** By reset, and by id. */
  readonly #windows = new Map<number, Map<number, WindowTotals>>();
  readonly #limitOf: (id: number) => number;

  /** @param limitOf the limit of each counter */
  constructor(limitOf: (id: number) => number) {
    this.#limitOf = limitOf;
  }

  record(id: number, reset: number, cost: number, allowed: boolean): void {
    this.decisions++;
    let windows = this.#windows.get(reset);
    if (windows === undefined) {
      windows = new Map();
      this.#windows.set(reset, windows);
    }
    let window = windows.get(id);
    if (window === undefined) {
      window = { allowed: 0, smallestDenied: Number.POSITIVE_INFINITY };
      windows.set(id, window);
    }
    if (allowed) window.allowed += cost;
    else window.smallestDenied = Math.min(window.smallestDenied, cost);
  }

  /** What was admitted of a counter in a window. */
  tokensAllowed(id: number, reset: number): number {
    return this.#windows.get(reset)?.get(id)?.allowed ?? 0;
  }

  report(): LedgerReport {
    let maxExcess = Number.NEGATIVE_INFINITY;
    let falseDenials = 0;
    let tokensMissing = 0;
    let windows = 0;
    const wrong: string[] = [];
    for (const [reset, byId] of this.#windows) {
      windows += byId.size;
      for (const [id, { allowed, smallestDenied }] of byId) {
        const limit = this.#limitOf(id);
        const name = `${id}/${reset}`;
        maxExcess = Math.max(maxExcess, allowed - limit);
        if (allowed > limit) wrong.push(`${name}: ${allowed} of ${limit} admitted`);
        if (allowed + smallestDenied > limit) continue;
        falseDenials++;
        tokensMissing += limit - allowed;
        wrong.push(`${name}: ${smallestDenied} refused at ${allowed} of ${limit}`);
      }
    }
    const { decisions } = this;
    const shown = wrong.slice(0, VIOLATIONS_SHOWN);
    return { decisions, windows, maxExcess, falseDenials, tokensMissing, violations: shown };
  }
}
