/** A namespace in the memory of one acceptor. Each acceptor has its own object. */

import type { Bytes } from './bytes.ts';
import { NAMESPACE_ID_PREFIX } from './constants.ts';
import type { Identity, NamespaceState } from './hash.ts';

/** The name that metrics and analytics give to all namespaces without figures of their own. */
export const OTHER_NAMESPACE = `${NAMESPACE_ID_PREFIX}other`;

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
  /** Undefined before the first decision. */
  sketches: IdentifierSketches | undefined;
}

/** What the identifiers of a namespace use in one hour. */
export interface IdentifierSketches {
  /** Since the Unix epoch. */
  readonly hour: number;
  /** Of denied checks; undefined where there was no room for it. */
  readonly denied: IdentifierSketch | undefined;
  /** Of the tokens of allowed checks. */
  readonly spent: IdentifierSketch | undefined;
}

export interface IdentifierSketch {
  /**
   * Adds to the count of an identifier.
   * @param amount above 0
   * @returns false if it is not counted: the caller must call `take`
   */
  add(identity: Identity, amount: number): boolean;
  /** Counts an identifier, and keeps it: the bytes from `from` to `to`, in UTF-8. */
  take(identity: Identity, amount: number, text: Bytes, from: number, to: number): void;
}
