/**
 * The figures that are not in the database yet. Nothing is counted for them: they are the
 * differences between two readings of the stats blocks, in which acceptors count every decision. So
 * the sum of all figures is what was counted, to the last check. A reading belongs to the minute of
 * the reading before it. Readings are taken at the end of each minute, so it is the right one,
 * except for checks in the ms by which the main thread was late.
 */

import { ANALYTICS_MINUTE_NAMESPACES_MAX, ANALYTICS_PENDING_MAX } from '../core/constants.ts';
import {
  addFigures,
  FIGURES,
  type FigureName,
  type Figures,
  figuresOf,
  NO_FIGURES,
} from '../core/figures.ts';
import { OTHER_NAMESPACE } from '../core/namespace.ts';
import {
  type AcceptorStats,
  NAMESPACE_STAT,
  OTHER_NAMESPACES_ROW,
} from '../shared-memory/stats.ts';
import type { FiguresEntry } from './database.ts';
import { GRANULARITY_MS } from './granularity.ts';

export class NamespaceFigures {
  readonly #stats: readonly AcceptorStats[];
  /** The keys of namespaces by their row in the stats blocks; undefined for a free row. */
  readonly #keysByRow: () => readonly (string | undefined)[];
  /** What was read so far, by row. */
  readonly #totals: (Figures | undefined)[] = [];
  /** By minute and namespace. */
  readonly #pending = new Map<string, FiguresEntry>();
  /** The minute that figures belong to, and the namespaces that have figures in it. */
  #minute: number;
  #minuteKeys = new Set<string>();

  constructor(
    stats: readonly AcceptorStats[],
    keysByRow: () => readonly (string | undefined)[],
    nowMs: number,
  ) {
    this.#stats = stats;
    this.#keysByRow = keysByRow;
    this.#minute = minuteOf(nowMs);
  }

  /** Reads what was counted since the last reading. */
  read(nowMs: number): void {
    for (const [row, key] of this.#keysByRow().entries()) {
      if (key !== undefined) this.#readRow(row, key);
    }
    this.#readRow(OTHER_NAMESPACES_ROW, OTHER_NAMESPACE);
    const minute = minuteOf(nowMs);
    if (minute === this.#minute) return;
    this.#minute = minute;
    this.#minuteKeys = new Set();
  }

  get pending(): readonly FiguresEntry[] {
    return [...this.#pending.values()];
  }

  /** Forgets all that is pending: it is in the database. */
  clear(): void {
    this.#pending.clear();
  }

  /** Forgets what is pending of a deleted namespace. It must have been read before. */
  delete(key: string): void {
    for (const [place, { namespace }] of this.#pending) {
      if (namespace === key) this.#pending.delete(place);
    }
  }

  #readRow(row: number, key: string): void {
    const before = this.#totals[row] ?? NO_FIGURES;
    const total = (name: FigureName) => {
      const stat = NAMESPACE_STAT[name];
      return this.#stats.reduce((sum, stats) => sum + stats.namespaceStat(row, stat), 0);
    };
    // There may be many rows, and most of them are the same as before.
    if (FIGURES.every(({ name }) => total(name) === before[name])) return;
    const figures = figuresOf(total);
    this.#totals[row] = figures;
    this.#add(
      key,
      figuresOf((name) => figures[name] - before[name]),
    );
  }

  #add(key: string, figures: Figures): void {
    const minute = this.#minute;
    const namespace = this.#hasOwnFigures(minute, key) ? key : OTHER_NAMESPACE;
    const place = placeOf(minute, namespace);
    const entry = this.#pending.get(place) ?? { namespace, minute, figures: NO_FIGURES };
    this.#pending.set(place, { ...entry, figures: addFigures(entry.figures, figures) });
  }

  #hasOwnFigures(minute: number, key: string): boolean {
    if (this.#pending.has(placeOf(minute, key))) return true;
    // While the database cannot be written, memory is bounded; one entry a minute is for the rest.
    if (this.#pending.size >= ANALYTICS_PENDING_MAX) return false;
    if (this.#minuteKeys.has(key)) return true;
    if (this.#minuteKeys.size >= ANALYTICS_MINUTE_NAMESPACES_MAX) return false;
    this.#minuteKeys.add(key);
    return true;
  }
}

function minuteOf(ms: number): number {
  return Math.floor(ms / GRANULARITY_MS.minute);
}

function placeOf(minute: number, namespace: string): string {
  return `${minute} ${namespace}`;
}
