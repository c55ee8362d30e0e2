/**
 * The overrides as one acceptor applies them to its checks. It reads the two tables that were last
 * published to it, both taken over in one turn of its loop, so that every check is answered by one
 * published version and never by a mixture. When it has said that it has switched, it reads the
 * tables before no more, and they are written anew.
 */

import type { Check } from '../core/check.ts';
import type { Identity } from '../core/hash.ts';
import type { Namespace } from '../core/namespace.ts';
import { ExactTable } from './exact.ts';
import { Trie } from './trie.ts';

/** The buffers of the tables; null where there is no override of that kind. */
export interface PublishedTables {
  exact: SharedArrayBuffer | null;
  trie: SharedArrayBuffer | null;
}

/** A check with what patterns are matched with, which is asked for only where there are any. */
export interface OverridableCheck extends Check {
  readonly identifier: string;
}

export class ActiveOverrides {
  #exact: ExactTable | undefined;
  #trie: Trie | undefined;
  /** Tells tries apart, for what a namespace remembers of one. */
  #trieVersion = 0;
  /** Where the override lies that governed the last check: in the one table or the other. */
  #exactOffset = -1;
  #trieValueIndex = -1;

  /** Takes over what has changed; what is left out stays as it is. */
  activate({ exact, trie }: Partial<PublishedTables>): void {
    if (exact !== undefined) this.#exact = exact === null ? undefined : new ExactTable(exact);
    if (trie === undefined) return;
    this.#trie = trie === null ? undefined : new Trie(trie);
    this.#trieVersion++;
  }

  /**
   * Puts limit and duration of the override that governs a check in the place of its own; the check
   * is asynchronous if either says so.
   * @param identity the hash of its namespace and identifier
   * @returns whether there is an override
   */
  resolve(check: OverridableCheck, identity: Identity): boolean {
    this.#exactOffset = -1;
    this.#trieValueIndex = -1;
    const exact = this.#exact;
    if (exact !== undefined) {
      // Exact texts come before all patterns.
      const record = exact.find(identity);
      if (record >= 0) {
        check.limit = exact.limit(record);
        check.durationMs = exact.durationMs(record);
        check.isAsync ||= exact.isAsync(record);
        this.#exactOffset = record;
        return true;
      }
    }
    const trie = this.#trie;
    if (trie === undefined) return false;
    const { namespace } = check;
    if (namespace.trieVersion !== this.#trieVersion) this.#findRoots(namespace, trie);
    if (namespace.trieRoots.length === 0) return false;
    const value = trie.find(namespace.trieRoots, check.identifier);
    if (value < 0) return false;
    check.limit = trie.limit(value);
    check.durationMs = trie.durationMs(value);
    check.isAsync ||= trie.isAsync(value);
    this.#trieValueIndex = value;
    return true;
  }

  /** The id of the override that `govern` has just found, if it did. */
  resolvedId(): string | undefined {
    if (this.#exactOffset >= 0) return this.#exact!.id(this.#exactOffset);
    return this.#trieValueIndex >= 0 ? this.#trie!.id(this.#trieValueIndex) : undefined;
  }

  /** The patterns of namespaces are matched once for each namespace and trie. */
  #findRoots(namespace: Namespace, trie: Trie): void {
    namespace.trieRoots = trie.rootsFor(namespace.name);
    namespace.trieVersion = this.#trieVersion;
  }
}
