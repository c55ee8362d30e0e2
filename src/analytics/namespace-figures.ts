/**
 * The figures that are not in the database yet. Nothing is counted for them: they are the
 * differences between two readings of the stats blocks, in which acceptors count every decision. So
 * the sum of all figures is what was counted, to the last check. A reading belongs to the minute of
 * the reading before it. Readings are taken at the end of each minute, so it is the right one,
 * except for checks in the ms by which the main thread was late.
 */

import { ANALYTICS_MINUTE_NAMESPACES_MAX, ANALYTICS_PENDING_MAX } from '../core/constants.ts';
import { OTHER_NAMESPACE } from '../core/namespace.ts';
import {
  type AcceptorStats,
  NAMESPACE_STAT,
  OTHER_NAMESPACES_ROW,
} from '../shared-memory/stats.ts';
import type { FiguresEntry } from './database.ts';
import { addFigures, type Figures, GRANULARITY_MS, NO_FIGURES } from './figures.ts';

export class NamespaceFigures {
  readonly #stats: readonly AcceptorStats[];
  /** The names of namespaces by their row in the stats blocks. */
  readonly #namesByRow: () => readonly string[];
  /** What was read so far, by row. */
  readonly #totals: (Figures | undefined)[] = [];
  /** By minute and namespace. */
  readonly #pending = new Map<string, FiguresEntry>();
  /** The minute that figures belong to, and the namespaces that have figures in it. */
  #minute: number;
  #minuteNames = new Set<string>();

  constructor(stats: readonly AcceptorStats[], namesByRow: () => readonly string[], nowMs: number) {
    this.#stats = stats;
    this.#namesByRow = namesByRow;
    this.#minute = minuteOf(nowMs);
  }

  /** Reads what was counted since the last reading. */
  read(nowMs: number): void {
    const names = this.#namesByRow();
    for (const [row, name] of names.entries()) this.#readRow(row, name);
    this.#readRow(OTHER_NAMESPACES_ROW, OTHER_NAMESPACE);
    const minute = minuteOf(nowMs);
    if (minute === this.#minute) return;
    this.#minute = minute;
    this.#minuteNames = new Set();
  }

  get pending(): readonly FiguresEntry[] {
    return [...this.#pending.values()];
  }

  /** Forgets all that is pending: it is in the database. */
  clear(): void {
    this.#pending.clear();
  }

  #readRow(row: number, name: string): void {
    const before = this.#totals[row] ?? NO_FIGURES;
    const total = (stat: number) => {
      return this.#stats.reduce((sum, stats) => sum + stats.namespaceStat(row, stat), 0);
    };
    const allowed = total(NAMESPACE_STAT.allowed);
    const denied = total(NAMESPACE_STAT.denied);
    const tokensAllowed = total(NAMESPACE_STAT.tokensAllowed);
    const tokensDenied = total(NAMESPACE_STAT.tokensDenied);
    if (allowed === before.allowed && denied === before.denied) {
      // A thread counts a decision first, and its tokens right after that.
      const isSame = tokensAllowed === before.tokensAllowed && tokensDenied === before.tokensDenied;
      if (isSame) return;
    }
    this.#totals[row] = { allowed, denied, tokensAllowed, tokensDenied };
    this.#add(name, {
      allowed: allowed - before.allowed,
      denied: denied - before.denied,
      tokensAllowed: tokensAllowed - before.tokensAllowed,
      tokensDenied: tokensDenied - before.tokensDenied,
    });
  }

  #add(name: string, figures: Figures): void {
    const minute = this.#minute;
    const namespace = this.#hasOwnFigures(minute, name) ? name : OTHER_NAMESPACE;
    const key = keyOf(minute, namespace);
    const entry = this.#pending.get(key) ?? { namespace, minute, figures: NO_FIGURES };
    this.#pending.set(key, { ...entry, figures: addFigures(entry.figures, figures) });
  }

  #hasOwnFigures(minute: number, name: string): boolean {
    if (this.#pending.has(keyOf(minute, name))) return true;
    // While the database cannot be written, memory is bounded; one entry a minute is for the rest.
    if (this.#pending.size >= ANALYTICS_PENDING_MAX) return false;
    if (this.#minuteNames.has(name)) return true;
    if (this.#minuteNames.size >= ANALYTICS_MINUTE_NAMESPACES_MAX) return false;
    this.#minuteNames.add(name);
    return true;
  }
}

function minuteOf(ms: number): number {
  return Math.floor(ms / GRANULARITY_MS.minute);
}

function keyOf(minute: number, namespace: string): string {
  return `${minute} ${namespace}`;
}
