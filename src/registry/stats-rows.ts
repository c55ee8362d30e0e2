/**
 * Which namespace counts in which row of the stats blocks, on the main thread. A row belongs to a
 * namespace from its first publication on. After a deletion, the row is free when no acceptor
 * counts in it any more. Its counts stay, since each acceptor alone writes its block: the next
 * namespace in the row begins at a base. Namespaces without a row share OTHER_NAMESPACES_ROW.
 */

import {
  type AcceptorStats,
  NAMESPACE_STATS,
  OTHER_NAMESPACES_ROW,
} from '../shared-memory/stats.ts';

/** A namespace with a row. */
export interface RowOwner {
  name: string;
  /** See `namespaceKey`. */
  key: string;
}

export class StatsRows {
  readonly #acceptors: readonly AcceptorStats[];
  /** By row; undefined where the row is free. */
  readonly #owners: (RowOwner | undefined)[] = [];
  /** The lowest one last. */
  readonly #freeRows: number[] = [];
  /** By the key of its owner. */
  readonly #rows = new Map<string, number>();
  /** By row: what earlier namespaces have counted, by stat. */
  readonly #bases: (readonly number[])[] = [];

  constructor(acceptors: readonly AcceptorStats[]) {
    this.#acceptors = acceptors;
  }

  /** The row of a namespace. It gets the lowest free one at the first call. */
  rowOf(owner: RowOwner): number {
    const known = this.#rows.get(owner.key);
    if (known !== undefined) return known;
    const row = this.#freeRows.pop() ?? this.#owners.length;
    if (row >= OTHER_NAMESPACES_ROW) return OTHER_NAMESPACES_ROW;
    this.#owners[row] = owner;
    this.#rows.set(owner.key, row);
    return row;
  }

  /** Frees the row of a deleted namespace. No acceptor may count in it any more. */
  release(key: string): void {
    const row = this.#rows.get(key);
    if (row === undefined) return;
    this.#rows.delete(key);
    this.#owners[row] = undefined;
    this.#freeRows.push(row);
    this.#freeRows.sort((a, b) => b - a);
    this.#bases[row] = NAMESPACE_STATS.map((stat) => this.sum(row, stat));
  }

  /** The namespaces by their rows; undefined where a row is free. */
  get owners(): readonly (RowOwner | undefined)[] {
    return this.#owners;
  }

  /** What the namespace in a row has counted. @param stat one of NAMESPACE_STAT */
  countOf(row: number, stat: number): number {
    return this.sum(row, stat) - (this.#bases[row]?.[stat] ?? 0);
  }

  /** What all namespaces that were in a row have counted. It never falls. */
  sum(row: number, stat: number): number {
    return this.#acceptors.reduce((sum, stats) => sum + stats.namespaceStat(row, stat), 0);
  }
}
