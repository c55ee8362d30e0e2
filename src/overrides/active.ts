/**
 * The overrides that one acceptor applies to its checks and acquires. It reads the two tables that
 * were last published to it. It activates both in one turn of the event loop, so that each check
 * sees one published version and never a mix of two. After the acceptor has acknowledged a version,
 * it never reads an earlier one, so that the buffers of earlier versions can be reused.
 */

import type { Check } from '../core/check.ts';
import type { Identity } from '../core/hash.ts';
import type { Namespace } from '../core/namespace.ts';
import { ExactTable } from './exact.ts';
import { NO_CONCURRENCY } from './id.ts';
import { Trie } from './trie.ts';

/** The buffers of the tables; null if no override of that kind exists. */
export interface PublishedTables {
  exact: SharedArrayBuffer | null;
  trie: SharedArrayBuffer | null;
}

/** A check that an override may change. */
export interface OverridableCheck extends Check {
  /** Whether to set `overrideId`: the text of an id costs an allocation. */
  readonly needsOverrideId: boolean;
}

/** An acquire of a lease that an override may change. */
export interface OverridableAcquire {
  readonly namespace: Namespace;
  readonly identifier: string;
  limit: number;
}

/** No override applies to a check or an acquire. */
export const NOT_OVERRIDDEN = -1;

export class ActiveOverrides {
  #exact: ExactTable | undefined;
  #trie: Trie | undefined;
  /** Counts tries: the roots that a namespace has cached of an earlier one are not used. */
  #trieVersion = 0;
  readonly #onSteps: (count: number) => void;
  /** Counts activations: the usage rows of one are not valid after the next. */
  activation = 0;

  /** @param onSteps called with the steps of each search, of a namespace or of an identifier */
  constructor(onSteps: (count: number) => void = () => {}) {
    this.#onSteps = onSteps;
  }

  /** Replaces the given tables and keeps the others. */
  activate({ exact, trie }: Partial<PublishedTables>): void {
    this.activation++;
    if (exact !== undefined) this.#exact = exact === null ? undefined : new ExactTable(exact);
    if (trie === undefined) return;
    this.#trie = trie === null ? undefined : new Trie(trie);
    this.#trieVersion++;
  }

  /**
   * Replaces limit and duration of a check by those of the override that applies to it; its window
   * rule, cost and burst stay, and a burst above the limit means the limit. The check is
   * asynchronous if either of the two is. The id is copied out of the tables at once: their buffers
   * are rewritten before a check that a worker decides gets its response.
   * @param check as its request has it, without the id of an override
   * @param identity the hash of the check's namespace and identifier
   * @returns the usage row of the override that applies, or NOT_OVERRIDDEN. Valid until
   *   the next activation: then the row may belong to another override.
   */
  resolve(check: OverridableCheck, identity: Identity): number {
    const exact = this.#exact;
    if (exact !== undefined) {
      // An exact override takes precedence over all patterns.
      const offset = exact.find(identity);
      if (offset >= 0) {
        check.limit = exact.limit(offset);
        check.durationMs = exact.durationMs(offset);
        check.isAsync ||= exact.isAsync(offset);
        if (check.needsOverrideId) check.overrideId = exact.id(offset);
        return exact.usageRow(offset);
      }
    }
    const trie = this.#trie;
    if (trie === undefined) return NOT_OVERRIDDEN;
    const { namespace } = check;
    if (namespace.trieVersion !== this.#trieVersion) this.#findRoots(namespace, trie);
    if (namespace.trieRoots.length === 0) return NOT_OVERRIDDEN;
    const valueIndex = trie.find(namespace.trieRoots, check.identifier);
    this.#onSteps(trie.steps);
    if (valueIndex < 0) return NOT_OVERRIDDEN;
    check.limit = trie.limit(valueIndex);
    check.durationMs = trie.durationMs(valueIndex);
    check.isAsync ||= trie.isAsync(valueIndex);
    if (check.needsOverrideId) check.overrideId = trie.id(valueIndex);
    return trie.usageRow(valueIndex);
  }

  /** The id of the override that applies to the checks of an identifier now. */
  idFor(namespace: Namespace, identifier: string, identity: Identity): string | undefined {
    const offset = this.#exact?.find(identity) ?? -1;
    if (offset >= 0) return this.#exact?.id(offset);
    const trie = this.#trie;
    if (trie === undefined) return undefined;
    if (namespace.trieVersion !== this.#trieVersion) this.#findRoots(namespace, trie);
    const valueIndex = trie.find(namespace.trieRoots, identifier);
    return valueIndex < 0 ? undefined : trie.id(valueIndex);
  }

  /**
   * Replaces the limit of an acquire by the concurrency of the override that applies to it, which
   * is the one that would apply to a check. An override without one leaves the limit as it is.
   * @param identity the hash of its namespace and identifier
   * @returns the usage row of an override that replaces the limit, as `resolve`
   */
  resolveAcquire(acquire: OverridableAcquire, identity: Identity): number {
    const offset = this.#exact?.find(identity) ?? -1;
    if (offset >= 0) return replaceLimit(acquire, this.#exact!, offset);
    const trie = this.#trie;
    if (trie === undefined) return NOT_OVERRIDDEN;
    const { namespace } = acquire;
    if (namespace.trieVersion !== this.#trieVersion) this.#findRoots(namespace, trie);
    if (namespace.trieRoots.length === 0) return NOT_OVERRIDDEN;
    const valueIndex = trie.find(namespace.trieRoots, acquire.identifier);
    this.#onSteps(trie.steps);
    return valueIndex < 0 ? NOT_OVERRIDDEN : replaceLimit(acquire, trie, valueIndex);
  }

  /** Namespace patterns are matched once for each namespace and trie. */
  #findRoots(namespace: Namespace, trie: Trie): void {
    namespace.trieRoots = trie.rootsFor(namespace.name);
    namespace.trieVersion = this.#trieVersion;
    this.#onSteps(trie.steps);
  }
}

/** @param at where the table has the override */
function replaceLimit(acquire: OverridableAcquire, table: ExactTable | Trie, at: number): number {
  const concurrency = table.concurrency(at);
  if (concurrency === NO_CONCURRENCY) return NOT_OVERRIDDEN;
  acquire.limit = concurrency;
  return table.usageRow(at);
}
