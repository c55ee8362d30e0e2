/**
 * What the tables of overrides are made from, on the main thread. The exact ones are kept as the
 * records of their table, hashed once, so that a change costs one of them; those with a star are
 * kept in both orders that the trie is built from.
 */

import { Hasher } from '../counters/hash.ts';
import type { Wildcards } from './build.ts';
import { RECORD, RECORD_BYTES, RECORD_WORDS } from './exact.ts';
import { comparePrecedence, isPattern, type Ranked, ranked, simplified } from './pattern.ts';
import { VALUE_DOUBLES } from './trie.ts';

/** An override as the tables hold it. */
export interface PlacedOverride {
  /** Names it, for as long as it is there. */
  row: number;
  /** A name, or a pattern of names. */
  namespace: string;
  identifier: string;
  limit: number;
  durationMs: number;
  isAsync: boolean;
}

export function isExact({ namespace, identifier }: PlacedOverride): boolean {
  return !isPattern(namespace) && !isPattern(identifier);
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
  /** The two with their stars simplified, by which the trie is sorted. */
  texts: [string, string];
  rank: number;
  override: PlacedOverride;
}

/** The overrides with a star, in order of precedence and in that of the trie. */
export class WildcardRegister {
  changed = false;
  readonly #byPrecedence: Wildcard[] = [];
  readonly #byText: Wildcard[] = [];

  get count(): number {
    return this.#byText.length;
  }

  put(override: PlacedOverride): void {
    this.changed = true;
    const wildcard = wildcardOf(override);
    const place = placeIn(this.#byPrecedence, wildcard, comparePrecedence);
    const known = this.#byPrecedence[place];
    if (known?.override.row === override.row) {
      known.override = override;
      return;
    }
    this.#byPrecedence.splice(place, 0, wildcard);
    this.#byText.splice(placeIn(this.#byText, wildcard, compareTexts), 0, wildcard);
  }

  remove(override: PlacedOverride): void {
    this.changed = true;
    const wildcard = wildcardOf(override);
    this.#byPrecedence.splice(placeIn(this.#byPrecedence, wildcard, comparePrecedence), 1);
    this.#byText.splice(placeIn(this.#byText, wildcard, compareTexts), 1);
  }

  sorted(): Wildcards {
    const { count } = this;
    const values = new Float64Array(VALUE_DOUBLES * count);
    let at = 0;
    for (let rank = 0; rank < count; rank++) {
      const wildcard = this.#byPrecedence[rank];
      wildcard.rank = rank;
      values[at++] = wildcard.override.limit;
      values[at++] = wildcard.override.durationMs;
      values[at++] = Number(wildcard.override.isAsync);
    }
    let text = '';
    const lengths = new Int32Array(2 * count);
    const ranks = new Int32Array(count);
    for (let i = 0; i < count; i++) {
      const { texts, rank } = this.#byText[i];
      text += texts[0] + texts[1];
      lengths[2 * i] = texts[0].length;
      lengths[2 * i + 1] = texts[1].length;
      ranks[i] = rank;
    }
    return { text, lengths, ranks, values };
  }
}

function wildcardOf(override: PlacedOverride): Wildcard {
  const { namespace, identifier } = override;
  return {
    namespace: ranked(namespace),
    identifier: ranked(identifier),
    texts: [simplified(namespace), simplified(identifier)],
    rank: 0,
    override,
  };
}

/** By the units of their texts; where these are equal, by precedence, so that no two are. */
function compareTexts(a: Wildcard, b: Wildcard): number {
  for (const i of [0, 1]) {
    if (a.texts[i] < b.texts[i]) return -1;
    if (a.texts[i] > b.texts[i]) return 1;
  }
  return comparePrecedence(a, b);
}

/** Where an item stands in a sorted list, or would. */
function placeIn<T>(sorted: readonly T[], item: T, compare: (a: T, b: T) => number): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (compare(sorted[middle], item) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}
