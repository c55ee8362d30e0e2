/**
 * What the tables of overrides are made from, on the main thread. The exact ones are kept in a
 * table like those that are published, so that a change costs one slot; those with a star are kept
 * in the order of precedence, in which the trie is built.
 */

import { Hasher, type Identity } from '../core/hash.ts';
import { encodeValues, type SerializedWildcards } from './build.ts';
import { WritableExactTable } from './exact.ts';
import type { OverrideValue } from './id.ts';
import { VALUE_DOUBLES } from './layout.ts';
import {
  collapseStars,
  comparePrecedence,
  escapeStars,
  isPattern,
  type TextPrecedence,
  textPrecedence,
} from './pattern.ts';

/** An override as the tables hold it. */
export interface OverrideEntry extends OverrideValue {
  /** Names it, for as long as it is there. */
  row: number;
  namespace: string;
  /** Whether that is a pattern of names. A name may have a star as well, which means nothing. */
  isNamespacePattern: boolean;
  identifier: string;
}

export function isExact({ isNamespacePattern, identifier }: OverrideEntry): boolean {
  return !isNamespacePattern && !isPattern(identifier);
}

/** The exact overrides, as the table that copies of are published. */
export class ExactOverrideSet {
  readonly table = new WritableExactTable();
  isChanged = false;
  readonly #hasher: Hasher;

  constructor(hashKey: Uint8Array) {
    this.#hasher = new Hasher(hashKey);
  }

  put(override: OverrideEntry): void {
    this.isChanged = true;
    this.table.put(this.#identify(override), override);
  }

  remove(override: OverrideEntry): void {
    this.isChanged = true;
    this.table.remove(this.#identify(override));
  }

  #identify({ namespace, identifier }: OverrideEntry): Identity {
    this.#hasher.hash(this.#hasher.namespace(namespace), identifier);
    return this.#hasher;
  }
}

interface Wildcard {
  namespace: TextPrecedence;
  identifier: TextPrecedence;
  override: OverrideEntry;
  /** What the trie holds of it, made once: all are written at each change. */
  encodedValue: Float64Array;
}

/** The overrides with a star, in order of precedence. */
export class WildcardOverrideSet {
  isChanged = false;
  readonly #sorted: Wildcard[] = [];

  get count(): number {
    return this.#sorted.length;
  }

  put(override: OverrideEntry): void {
    this.isChanged = true;
    const wildcard = wildcardOf(override);
    const place = this.#indexOf(wildcard);
    const isKnown = this.#isAt(place, wildcard);
    this.#sorted.splice(place, isKnown ? 1 : 0, wildcard);
  }

  remove(override: OverrideEntry): void {
    this.isChanged = true;
    const wildcard = wildcardOf(override);
    const place = this.#indexOf(wildcard);
    if (!this.#isAt(place, wildcard)) throw new Error(`there is no override ${override.row}`);
    this.#sorted.splice(place, 1);
  }

  serialize(): SerializedWildcards {
    const { count } = this;
    const lengths = new Int32Array(2 * count);
    const values = new Float64Array(VALUE_DOUBLES * count);
    let text = '';
    for (const [rank, { override, encodedValue }] of this.#sorted.entries()) {
      const { namespace, isNamespacePattern, identifier } = override;
      const texts = [isNamespacePattern ? collapseStars(namespace) : escapeStars(namespace)];
      texts.push(collapseStars(identifier));
      text += texts.join('');
      lengths.set(
        texts.map(({ length }) => length),
        2 * rank,
      );
      values.set(encodedValue, VALUE_DOUBLES * rank);
    }
    return { text, lengths, values };
  }

  /** Where it stands, or would. */
  #indexOf(wildcard: Wildcard): number {
    let low = 0;
    let high = this.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (comparePrecedence(this.#sorted[middle], wildcard) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Whether what stands there has the same texts, and then it is the same override. */
  #isAt(index: number, wildcard: Wildcard): boolean {
    if (index === this.count) return false;
    const found = this.#sorted[index];
    if (comparePrecedence(found, wildcard) !== 0) return false;
    if (found.override.row === wildcard.override.row) return true;
    const rows = `${found.override.row} and ${wildcard.override.row}`;
    throw new Error(`the overrides ${rows} have the same texts`);
  }
}

function wildcardOf(override: OverrideEntry): Wildcard {
  const { namespace, isNamespacePattern, identifier } = override;
  return {
    namespace: textPrecedence(namespace, isNamespacePattern),
    identifier: textPrecedence(identifier),
    override,
    encodedValue: encodeValues([override]),
  };
}
