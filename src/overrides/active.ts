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

/** A check that an override may change. */
export interface OverridableCheck extends Check {
  /** Read only where patterns apply to the namespace: a getter may have to build it. */
  readonly identifier: string;
  /** Whether to set `overrideId`: the text of an id costs an allocation. */
  readonly needsOverrideId: boolean;
}

export class ActiveOverrides {
  #exact: ExactTable | undefined;
  #trie: Trie | undefined;
  /** Invalidates the roots that namespaces cache of an earlier trie. */
  #trieVersion = 0;

  /** Takes over what has changed; what is left out stays as it is. */
  activate({ exact, trie }: Partial<PublishedTables>): void {
    if (exact !== undefined) this.#exact = exact === null ? undefined : new ExactTable(exact);
    if (trie === undefined) return;
    this.#trie = trie === null ? undefined : new Trie(trie);
    this.#trieVersion++;
  }

  /**
   * Replaces limit and duration of a check by those of the override that applies to it. The check
   * is asynchronous if either of the two is. The id is copied out of the tables at once: their
   * buffers are rewritten before a check that a worker decides gets its response.
   * @param check as its request has it, without the id of an override
   * @param identity the hash of the check's namespace and identifier
   * @returns whether an override applies
   */
  resolve(check: OverridableCheck, identity: Identity): boolean {
    const exact = this.#exact;
    if (exact !== undefined) {
      // Exact texts come before all patterns.
      const record = exact.find(identity);
      if (record >= 0) {
        check.limit = exact.limit(record);
        check.durationMs = exact.durationMs(record);
        check.isAsync ||= exact.isAsync(record);
        if (check.needsOverrideId) check.overrideId = exact.id(record);
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
    if (check.needsOverrideId) check.overrideId = trie.id(value);
    return true;
  }

  /** The patterns of namespaces are matched once for each namespace and trie. */
  #findRoots(namespace: Namespace, trie: Trie): void {
    namespace.trieRoots = trie.rootsFor(namespace.name);
    namespace.trieVersion = this.#trieVersion;
  }
}
