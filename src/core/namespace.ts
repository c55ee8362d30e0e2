/** A namespace in the memory of one acceptor. Each acceptor has its own object. */

import type { NamespaceState } from './hash.ts';

export interface Namespace {
  readonly name: string;
  /** Undefined until it is durable. */
  id: string | undefined;
  hashState: NamespaceState;
  /** Counts of decisions: a row of the acceptor's stats block, or memory of its own before that. */
  decisionCounts: Float64Array;
  /** The trie roots of the override patterns that match its name, as of `trieVersion`. */
  trieRoots: Int32Array;
  trieVersion: number;
}
