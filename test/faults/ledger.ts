/**
 * What a server has answered, and what it may have answered: every decision is noted by its counter
 * and window, and the sums are held against the limits. A refusal of a cost was right when the
 * window had not so much left, and so has not at its end either.
 */

export interface Window {
  /** Tokens admitted. */
  admitted: number;
  /** The smallest cost that was refused; infinity where none was. */
  refused: number;
}

export interface Verdict {
  decisions: number;
  windows: number;
  /** The most that a window has admitted beyond its limit; at most 0 where P1 holds. */
  excess: number;
  /** Windows that refused what would have fitted: 0 where P2 holds. */
  falseRefusals: number;
  /** Tokens that these windows had left. */
  missing: number;
  /** A few of what is wrong, in words. */
  wrong: string[];
}

const SHOWN = 5;

export class Ledger {
  decisions = 0;
  /** By reset, and by id. */
  readonly #windows = new Map<number, Map<number, Window>>();
  readonly #limitOf: (id: number) => number;

  /** @param limitOf the limit of each counter */
  constructor(limitOf: (id: number) => number) {
    this.#limitOf = limitOf;
  }

  note(id: number, reset: number, cost: number, admitted: boolean): void {
    this.decisions++;
    let windows = this.#windows.get(reset);
    if (windows === undefined) {
      windows = new Map();
      this.#windows.set(reset, windows);
    }
    let window = windows.get(id);
    if (window === undefined) {
      window = { admitted: 0, refused: Number.POSITIVE_INFINITY };
      windows.set(id, window);
    }
    if (admitted) window.admitted += cost;
    else window.refused = Math.min(window.refused, cost);
  }

  /** What was admitted of a counter in a window. */
  admitted(id: number, reset: number): number {
    return this.#windows.get(reset)?.get(id)?.admitted ?? 0;
  }

  verdict(): Verdict {
    let excess = Number.NEGATIVE_INFINITY;
    let falseRefusals = 0;
    let missing = 0;
    let windows = 0;
    const wrong: string[] = [];
    for (const [reset, byId] of this.#windows) {
      windows += byId.size;
      for (const [id, { admitted, refused }] of byId) {
        const limit = this.#limitOf(id);
        const name = `${id}/${reset}`;
        excess = Math.max(excess, admitted - limit);
        if (admitted > limit) wrong.push(`${name}: ${admitted} of ${limit} admitted`);
        if (admitted + refused > limit) continue;
        falseRefusals++;
        missing += limit - admitted;
        wrong.push(`${name}: ${refused} refused at ${admitted} of ${limit}`);
      }
    }
    const { decisions } = this;
    const shown = wrong.slice(0, SHOWN);
    return { decisions, windows, excess, falseRefusals, missing, wrong: shown };
  }
}
