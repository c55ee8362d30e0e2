/**
 * Compares a server's decisions with the limits. It sums the decisions by counter and window. A
 * denial of a cost was right if the window had less than that cost left. The window then still has
 * less than that left at its end, so the final sums are enough.
 */

import { expect } from 'vitest';

interface WindowTotals {
  /** Tokens allowed. */
  allowed: number;
  /** The smallest denied cost; infinity if no check was denied. */
  smallestDenied: number;
}

interface LedgerReport {
  decisions: number;
  windows: number;
  /** The largest excess of a window over its limit; at most 0 if P1 holds. */
  maxExcess: number;
  /** Windows that denied a cost within the limit: 0 if P2 holds. */
  falseDenials: number;
  /** Tokens that these windows could still have allowed. */
  tokensMissing: number;
  /** Descriptions of the first few violations. */
  violations: string[];
}

const VIOLATIONS_SHOWN = 5;

export class Ledger {
  decisions = 0;
  /** By reset, then by counter id. */
  readonly #windows = new Map<number, Map<number, WindowTotals>>();
  readonly #limitOf: (id: number) => number;

  /** @param limitOf returns the limit of a counter */
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

  /** Tokens that a counter allowed in a window. */
  tokensAllowed(id: number, reset: number): number {
    return this.#windows.get(reset)?.get(id)?.allowed ?? 0;
  }

  /** Every decision was right. */
  expectExact(): void {
    const { maxExcess, falseDenials, violations } = this.report();
    expect([maxExcess <= 0, falseDenials, violations]).toEqual([true, 0, []]);
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
        if (allowed > limit) wrong.push(`${name}: allowed ${allowed} of ${limit}`);
        if (allowed + smallestDenied > limit) continue;
        falseDenials++;
        tokensMissing += limit - allowed;
        wrong.push(`${name}: denied ${smallestDenied} after ${allowed} of ${limit}`);
      }
    }
    const { decisions } = this;
    const shown = wrong.slice(0, VIOLATIONS_SHOWN);
    return { decisions, windows, maxExcess, falseDenials, tokensMissing, violations: shown };
  }
}
