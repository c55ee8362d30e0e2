/** A namespace as one acceptor knows it. Belongs to that acceptor's thread. */

import type { NamespaceState } from './hash.ts';

export interface Namespace {
  readonly name: string;
  /** Undefined until it is durable. */
  id: string | undefined;
  hashState: NamespaceState;
  /** Where its decisions are counted: in the acceptor's lane as soon as it has a row there. */
  decisionCounts: Float64Array;
  /** What the patterns of overrides say of its name, as of a version of the trie. */
  trieRoots: Int32Array;
  trieVersion: number;
}
