/**
 * How often each override has applied, and when it last did, on the main thread. Acceptors count
 * checks in usage rows (`usage-counts.ts`). A row belongs to an override from its publication
 * on. After a deletion, the row is free when no acceptor counts in it any more. Its counts stay,
 * since each acceptor alone writes its block: a new owner, and what the database has of an
 * override, begin at a base. The last check needs no base: a new owner's is later than all others.
 */

import { USAGE_ROWS } from '../core/constants.ts';
import type { Clock } from '../shared-memory/clock.ts';
import type { UsageCounts } from '../shared-memory/usage-counts.ts';

/** How an override was used. */
export interface OverrideUsage {
  /** Checks to which it applied. */
  applied: number;
  /** Unix time in ms of the last one; 0 if there was none. */
  lastAppliedMs: number;
}

/** The use of an override since the last entry. */
export interface UsageEntry extends OverrideUsage {
  id: string;
}

const UNUSED: OverrideUsage = { applied: 0, lastAppliedMs: 0 };

export class UsageRows {
  /** Unix time in ms from which on checks are counted. */
  readonly sinceMs: number;
  readonly #counts: readonly UsageCounts[];
  readonly #clock: Pick<Clock, 'nowMs' | 'wallMs'>;
  /** By the id of its override. */
  readonly #rows = new Map<string, number>();
  /** By row: the id of its override; undefined where the row is free. */
  readonly #owners: (string | undefined)[] = [];
  readonly #freeRows: number[] = [];
  /** By row: how many of the counted checks are in an entry, or were those of earlier owners. */
  readonly #bases = new Float64Array(USAGE_ROWS);
  /** The row from which the next entries are read. */
  #nextRow = 0;

  /** @param counts of each acceptor */
  constructor(counts: readonly UsageCounts[], clock: Pick<Clock, 'nowMs' | 'wallMs'>) {
    this.#counts = counts;
    this.#clock = clock;
    this.sinceMs = clock.nowMs();
  }

  /** The row of an override. It gets a free one at the first call. */
  rowOf(id: string): number {
    const known = this.#rows.get(id);
    if (known !== undefined) return known;
    const row = this.#freeRows.pop() ?? this.#owners.length;
    if (row === USAGE_ROWS) throw new Error('all usage rows of overrides are in use');
    this.#owners[row] = id;
    this.#rows.set(id, row);
    return row;
  }

  /** Frees the rows of deleted overrides. No acceptor may count in them any more. */
  release(ids: readonly string[]): void {
    for (const id of ids) {
      const row = this.#rows.get(id);
      if (row === undefined) continue;
      this.#rows.delete(id);
      this.#owners[row] = undefined;
      this.#freeRows.push(row);
      this.#bases[row] = this.#count(row);
    }
  }

  /** The use of an override since the last entry. */
  usageOf(id: string): OverrideUsage {
    const row = this.#rows.get(id);
    return row === undefined ? UNUSED : this.#usageIn(row);
  }

  /**
   * The use of overrides that were used since their last entry.
   * @param rowsMax how many rows are read; the next call reads the ones that follow
   * @param entriesMax the most entries
   */
  newEntries(rowsMax: number, entriesMax: number): UsageEntry[] {
    const entries: UsageEntry[] = [];
    const rows = this.#owners.length;
    for (let read = Math.min(rows, rowsMax); read > 0 && entries.length < entriesMax; read--) {
      const row = this.#nextRow < rows ? this.#nextRow : 0;
      this.#nextRow = row + 1;
      const id = this.#owners[row];
      if (id === undefined) continue;
      const usage = this.#usageIn(row);
      if (usage.applied > 0) entries.push({ id, ...usage });
    }
    return entries;
  }

  /** The rows with and without an owner: the number of rows that entries are read from. */
  get count(): number {
    return this.#owners.length;
  }

  /** Entries were written to the database. */
  addWritten(entries: readonly UsageEntry[]): void {
    for (const { id, applied } of entries) {
      const row = this.#rows.get(id);
      if (row !== undefined) this.#bases[row] += applied;
    }
  }

  #usageIn(row: number): OverrideUsage {
    // The count is read before its time: see `UsageCounts`.
    const applied = this.#count(row) - this.#bases[row];
    if (applied === 0) return UNUSED;
    let lastMs = 0;
    for (const counts of this.#counts) lastMs = Math.max(lastMs, counts.lastMs(row));
    return { applied, lastAppliedMs: this.#clock.wallMs(lastMs) };
  }

  #count(row: number): number {
    let count = 0;
    for (const counts of this.#counts) count += counts.count(row);
    return count;
  }
}
