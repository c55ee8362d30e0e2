/**
 * What the tables of overrides are made from, on the main thread. The exact ones are kept as the
 * records of their table, hashed once, so that a change costs one of them; those with a star are
 * kept in the order of precedence, in which the trie is built.
 */

import { Hasher } from '../counters/hash.ts';
import type { Wildcards } from './build.ts';
import { RECORD, RECORD_BYTES, RECORD_WORDS } from './exact.ts';
import { VALUE_DOUBLES } from './layout.ts';
import {
  comparePrecedence,
  isPattern,
  literal,
  type Ranked,
  ranked,
  simplified,
} from './pattern.ts';

/** An override as the tables hold it. */
export interface PlacedOverride {
  /** Names it, for as long as it is there. */
  row: number;
  namespace: string;
  /** Whether that is a pattern of names. A name may have a star as well, which means nothing. */
  isOfPattern: boolean;
  identifier: string;
  limit: number;
  durationMs: number;
  isAsync: boolean;
}

export function isExact({ isOfPattern, identifier }: PlacedOverride): boolean {
  return !isOfPattern && !isPattern(identifier);
}

/** The records of the table of exact overrides, one behind the other in shared memory. */
export class ExactRegister {
  buffer = new SharedArrayBuffer(64 * RECORD_BYTES);
  records = 0;
  changed = false;
  readonly #hasher: Hasher;
  /** The number of the record of each row, and the rows by number. */
  readonly #numbers = new Map<number, number>();
  readonly #rows: number[] = [];

  constructor(hashKey: Uint8Array) {
    this.#hasher = new Hasher(hashKey);
  }

  put({ row, namespace, identifier, limit, durationMs, isAsync }: PlacedOverride): void {
    let number = this.#numbers.get(row);
    if (number === undefined) {
      number = this.records++;
      this.#numbers.set(row, number);
      this.#rows[number] = row;
      this.#makeRoom();
    }
    this.changed = true;
    const words = new Int32Array(this.buffer, number * RECORD_BYTES, RECORD_WORDS);
    this.#hasher.hash(this.#hasher.namespace(namespace), identifier);
    const { h0, h1, h2, h3 } = this.#hasher;
    words.set([h0, h1, h2, h3], RECORD.hash);
    const doubles = new Float64Array(this.buffer, number * RECORD_BYTES, RECORD_WORDS / 2);
    doubles[RECORD.limit] = limit;
    doubles[RECORD.durationMs] = isAsync ? -durationMs : durationMs;
  }

  /** The last record takes the place of the one that goes. */
  remove({ row }: PlacedOverride): void {
    const number = this.#numbers.get(row)!;
    const last = --this.records;
    this.changed = true;
    new Uint8Array(this.buffer).copyWithin(
      number * RECORD_BYTES,
      last * RECORD_BYTES,
      (last + 1) * RECORD_BYTES,
    );
    this.#rows[number] = this.#rows[last];
    this.#numbers.set(this.#rows[number], number);
    this.#rows.length = last;
    this.#numbers.delete(row);
  }

  #makeRoom(): void {
    if (this.records * RECORD_BYTES <= this.buffer.byteLength) return;
    const larger = new SharedArrayBuffer(2 * this.buffer.byteLength);
    new Uint8Array(larger).set(new Uint8Array(this.buffer));
    this.buffer = larger;
  }
}

interface Wildcard {
  namespace: Ranked;
  identifier: Ranked;
  override: PlacedOverride;
}

/** The overrides with a star, in order of precedence. */
export class WildcardRegister {
  changed = false;
  readonly #sorted: Wildcard[] = [];

  get count(): number {
    return this.#sorted.length;
  }

  put(override: PlacedOverride): void {
    this.changed = true;
    const wildcard = wildcardOf(override);
    const place = this.#placeOf(wildcard);
    const isKnown = this.#isAt(place, wildcard);
    this.#sorted.splice(place, isKnown ? 1 : 0, wildcard);
  }

  remove(override: PlacedOverride): void {
    this.changed = true;
    const wildcard = wildcardOf(override);
    const place = this.#placeOf(wildcard);
    if (!this.#isAt(place, wildcard)) throw new Error(`there is no override ${override.row}`);
    this.#sorted.splice(place, 1);
  }

  toWrite(): Wildcards {
    const { count } = this;
    const lengths = new Int32Array(2 * count);
    const values = new Float64Array(VALUE_DOUBLES * count);
    let text = '';
    for (const [rank, { override }] of this.#sorted.entries()) {
      const { namespace, isOfPattern, identifier, limit, durationMs, isAsync } = override;
      const texts = [isOfPattern ? simplified(namespace) : literal(namespace)];
      texts.push(simplified(identifier));
      text += texts.join('');
      lengths.set(
        texts.map(({ length }) => length),
        2 * rank,
      );
      values.set([limit, durationMs, Number(isAsync)], VALUE_DOUBLES * rank);
    }
    return { text, lengths, values };
  }

  /** Where it stands, or would. */
  #placeOf(wildcard: Wildcard): number {
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
  #isAt(place: number, wildcard: Wildcard): boolean {
    if (place === this.count) return false;
    const found = this.#sorted[place];
    if (comparePrecedence(found, wildcard) !== 0) return false;
    if (found.override.row === wildcard.override.row) return true;
    const rows = `${found.override.row} and ${wildcard.override.row}`;
    throw new Error(`the overrides ${rows} have the same texts`);
  }
}

function wildcardOf(override: PlacedOverride): Wildcard {
  const { namespace, isOfPattern, identifier } = override;
  return {
    namespace: ranked(namespace, isOfPattern),
    identifier: ranked(identifier),
    override,
  };
}
