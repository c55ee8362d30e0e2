/** A namespace in the memory of one acceptor. Each acceptor has its own object. */

import type { Bytes } from './bytes.ts';
import { NAMESPACE_ID_PREFIX } from './constants.ts';
import type { Identity, NamespaceState } from './hash.ts';

/** The name that metrics and analytics give to all namespaces without figures of their own. */
export const OTHER_NAMESPACE = `${NAMESPACE_ID_PREFIX}other`;

/**
 * The text that the counters, overrides and figures of a namespace go by. It is the name, unless a
 * namespace of this name was deleted before: then it has a number too, and nothing that is left of
 * the deleted namespace is found again. No name begins like such a key.
 * @param predecessor the row of the deleted namespace in the store
 */
export function namespaceKey(name: string, predecessor: number | undefined): string {
  return predecessor === undefined ? name : `${NAMESPACE_ID_PREFIX}${predecessor}.${name}`;
}

export interface Namespace {
  readonly name: string;
  /** Undefined until it is durable. */
  id: string | undefined;
  hashState: NamespaceState;
  /** Counts of decisions: a row of the acceptor's stats block, or memory of its own before that. */
  decisionCounts: Float64Array;
  /** The trie roots of the overrides whose namespace matches its name, as of `trieVersion`. */
  trieRoots: Int32Array;
  trieVersion: number;
  /**
   * The hour of the two sketches, since the Unix epoch; 0 before the first decision. They are not
   * in an object of their own, as each check would read one more cache line.
   */
  sketchHour: number;
  /** Of denied checks; undefined where there was no room for it. */
  deniedSketch: IdentifierSketch | undefined;
  /** Of the tokens of allowed checks. */
  spentSketch: IdentifierSketch | undefined;
  /** The period of the last sample of its allowed checks among the recent decisions. */
  sampledPeriod: number;
  /** See `namespaceKey`. */
  readonly key: string;
  /**
   * Whether it is not registered and will not be, so that its identifiers are not counted, as no
   * query can name it: it was deleted, there is no room for it, or only checks without a cost,
   * which create no namespace, have used it.
   */
  isTransient: boolean;
}

/** No decision of the namespace is a sample yet, or recent decisions are off. */
export const NO_PERIOD = 0;

/** What a namespace has before its first decision. */
export const UNRECORDED = {
  sketchHour: 0,
  deniedSketch: undefined,
  spentSketch: undefined,
  sampledPeriod: NO_PERIOD,
} as const;

export interface IdentifierSketch {
  /**
   * Adds to the count of an identifier.
   * @param amount above 0
   * @returns below 0 if it is not counted: the caller must call `take` with this number
   */
  add(identity: Identity, amount: number): number;
  /**
   * Counts an identifier, and keeps it.
   * @param left what `add` has returned
   * @param text the bytes from `from` to `to` are the identifier in UTF-8
   */
  take(
    identity: Identity,
    amount: number,
    left: number,
    text: Bytes,
    from: number,
    to: number,
  ): void;
}
