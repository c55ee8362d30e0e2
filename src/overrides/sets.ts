/**
 * The overrides on the main thread, from which the published tables are written. Exact overrides
 * are in a table of the published layout, so that a change costs one slot. Wildcard overrides are
 * in order of precedence, as the trie needs them.
 */

import { Hasher, type Identity, newIdentity } from '../core/hash.ts';
import { encodeValues, type SerializedWildcards } from './build.ts';
import { addressBits } from './cidr.ts';
import { WritableExactTable } from './exact.ts';
import { NO_CONCURRENCY, type OverrideValue } from './id.ts';
import { VALUE_DOUBLES } from './layout.ts';
import { collapseStars, escapeStars, isPattern, matchesPattern, STAR } from './pattern.ts';
import {
  blockPrecedence,
  comparePrecedence,
  type OverridePrecedence,
  type PrecedenceReason,
  type TextPrecedence,
  textPrecedence,
} from './precedence.ts';

export interface OverrideEntry extends OverrideValue {
  /** The row in the store, which identifies the override until it is removed. */
  row: number;
  namespace: string;
  /** That of the namespace, for an override of one: see `namespaceKey`. Default: its name. */
  namespaceKey?: string;
  /** If false, `namespace` is a name, in which a star is an ordinary character. */
  isNamespacePattern: boolean;
  identifier: string;
  /** Whether `identifier` is a CIDR block, in canonical form. */
  isCidr?: boolean;
  /** The end, Unix time in ms. The tables do not have it. */
  expiresMs?: number;
  /** Whether it is a block, in whose identifier a star is a character. */
  isBlocking?: true;
  /** Why an identifier is blocked. */
  reason?: string;
}

type OverridePlace = Pick<OverrideEntry, 'namespace' | 'namespaceKey' | 'identifier'>;

/** An override that matches a check. */
export type OverrideMatch = Omit<OverrideEntry, 'row' | 'namespaceKey' | 'usageRow'>;

/** An override that matches a check, and another one that takes precedence. */
export interface LosingOverride extends OverrideMatch {
  /** Why the other one takes precedence. */
  precedence: PrecedenceReason;
}

/** All overrides that match a check. */
export interface OverrideMatches {
  /** The one that applies. */
  winner: OverrideMatch | undefined;
  /** The next ones in order of precedence, up to the requested number. */
  losers: LosingOverride[];
  /** How many match, the winner included. */
  count: number;
}

export function isExact({
  isNamespacePattern,
  identifier,
  isCidr,
  isBlocking,
}: Pick<OverrideEntry, 'isNamespacePattern' | 'identifier' | 'isCidr' | 'isBlocking'>): boolean {
  if (isBlocking === true) return true;
  return !isNamespacePattern && isCidr !== true && !isPattern(identifier);
}

/** A block, which the table has in place of the override of the same identifier. */
interface Blocked {
  block: ExactOverride;
  override: ExactOverride | undefined;
}
type ExactOverride = Omit<OverrideEntry, 'row'>;

/**
 * The overrides whose namespace and identifier are both exact, and blocks. A check finds either in
 * one lookup: while an identifier is blocked, the table has the block instead of the override.
 */
export class ExactOverrideSet {
  readonly table = new WritableExactTable();
  isChanged = false;
  readonly #hasher: Hasher;
  readonly #id = newIdentity();
  /** The ends of those that have one, by `placeKey`: the table has no room for them. */
  readonly #ends = new Map<string, number>();
  /** By `placeKey`. */
  readonly #blocked = new Map<string, Blocked>();

  constructor(hashKey: Uint8Array) {
    this.#hasher = new Hasher(hashKey);
  }

  put(override: OverrideEntry): void {
    const blocked = this.#blockedAt(override);
    if (override.isBlocking === true) this.#block(override, blocked);
    else if (blocked !== undefined) blocked.override = override;
    else this.#put(override);
  }

  remove(override: OverrideEntry): void {
    const blocked = this.#blockedAt(override);
    if (blocked !== undefined && override.isBlocking !== true) {
      blocked.override = undefined;
      return;
    }
    this.isChanged = true;
    this.table.remove(this.#identify(override));
    if (this.#ends.size > 0) this.#ends.delete(placeKey(override));
    if (override.isBlocking !== true) return;
    this.#blocked.delete(placeKey(override));
    if (blocked?.override !== undefined) this.#put(blocked.override);
  }

  /** The block and the override of a namespace and an identifier, in order of precedence. */
  *matches(namespace: string, namespaceKey: string, identifier: string): Iterable<OverrideMatch> {
    const place = { namespace, namespaceKey, identifier };
    const blocked = this.#blockedAt(place);
    const override = blocked === undefined ? this.#overrideAt(place) : blocked.override;
    if (blocked !== undefined) yield blocked.block;
    if (override !== undefined) yield override;
  }

  #block(block: OverrideEntry, blocked: Blocked | undefined): void {
    const override = blocked === undefined ? this.#overrideAt(block) : blocked.override;
    this.#blocked.set(placeKey(block), { block, override });
    this.#put(block);
  }

  #put(override: ExactOverride): void {
    this.isChanged = true;
    this.table.put(this.#identify(override), override);
    if (override.expiresMs !== undefined) this.#ends.set(placeKey(override), override.expiresMs);
    else if (this.#ends.size > 0) this.#ends.delete(placeKey(override));
  }

  #blockedAt(place: OverridePlace): Blocked | undefined {
    return this.#blocked.size === 0 ? undefined : this.#blocked.get(placeKey(place));
  }

  /** The override in the table. */
  #overrideAt({ namespace, namespaceKey, identifier }: OverridePlace): ExactOverride | undefined {
    const place = { namespace, ...(namespaceKey !== undefined && { namespaceKey }), identifier };
    const value = this.table.get(this.#identify(place));
    if (value === undefined) return undefined;
    const expiresMs = this.#ends.get(placeKey(place));
    const end = expiresMs === undefined ? {} : { expiresMs };
    return { ...value, ...place, isNamespacePattern: false, ...end };
  }

  #identify({ namespace, namespaceKey = namespace, identifier }: OverridePlace): Identity {
    return this.#hasher.hash(this.#hasher.namespace(namespaceKey), identifier, this.#id);
  }
}

/** A text that no other place has. */
function placeKey({ namespace, namespaceKey = namespace, identifier }: OverridePlace): string {
  return `${namespaceKey.length} ${namespaceKey}${identifier}`;
}

interface Wildcard {
  namespace: TextPrecedence;
  identifier: TextPrecedence;
  override: OverrideEntry;
  /** The namespace and the identifier as the trie has them. */
  trieTexts: readonly [string, string];
  /** Encoded once, because each change serializes all wildcard overrides. */
  encodedValue: Float64Array;
}

/** The overrides with a pattern or a CIDR block, in order of precedence. */
export class WildcardOverrideSet {
  isChanged = false;
  readonly #sorted: Wildcard[] = [];

  get count(): number {
    return this.#sorted.length;
  }

  put(override: OverrideEntry): void {
    this.isChanged = true;
    const wildcard = wildcardOf(override);
    const index = this.#indexOf(wildcard);
    const isReplaced = this.#isAt(index, wildcard);
    this.#sorted.splice(index, isReplaced ? 1 : 0, wildcard);
  }

  remove(override: OverrideEntry): void {
    this.isChanged = true;
    const wildcard = wildcardOf(override);
    const index = this.#indexOf(wildcard);
    if (!this.#isAt(index, wildcard)) throw new Error(`there is no override ${override.row}`);
    this.#sorted.splice(index, 1);
  }

  /** The overrides that match a namespace and an identifier, in order of precedence. */
  *matches(namespace: string, identifier: string): Iterable<OverrideMatch> {
    // Those of one namespace or pattern are neighbours, so it is compared once.
    let lastScope: TextPrecedence | undefined;
    let isInScope = false;
    const address = addressBits(identifier);
    for (const { namespace: scope, override, trieTexts } of this.#sorted) {
      const isSame = scope.text === lastScope?.text && scope.kind === lastScope.kind;
      if (!isSame) {
        lastScope = scope;
        isInScope = override.isNamespacePattern
          ? matchesPattern(override.namespace, namespace)
          : override.namespace === namespace;
      }
      if (!isInScope) continue;
      const isMatch =
        override.isCidr === true
          ? address !== undefined && matchesPattern(trieTexts[1], address)
          : matchesPattern(override.identifier, identifier);
      if (isMatch) yield override;
    }
  }

  serialize(): SerializedWildcards {
    const { count } = this;
    const lengths = new Int32Array(2 * count);
    const areBlocks = new Uint8Array(count);
    const values = new Float64Array(VALUE_DOUBLES * count);
    const concurrencies = new Float64Array(count);
    let text = '';
    for (const [index, { override, trieTexts, encodedValue }] of this.#sorted.entries()) {
      text += trieTexts.join('');
      lengths.set(
        trieTexts.map(({ length }) => length),
        2 * index,
      );
      areBlocks[index] = Number(override.isCidr === true);
      values.set(encodedValue, VALUE_DOUBLES * index);
      concurrencies[index] = override.concurrency ?? NO_CONCURRENCY;
    }
    return { text, lengths, areBlocks, values, concurrencies };
  }

  /** The index of an override in the order, or the index at which to insert it. */
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

  /** Whether the override at an index has the same texts. It must then be the same override. */
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
  const { namespace, isNamespacePattern, identifier, isCidr } = override;
  return {
    ...precedenceOf(override),
    override,
    trieTexts: [
      isNamespacePattern ? collapseStars(namespace) : escapeStars(namespace),
      isCidr === true ? `${addressBits(identifier)}${STAR}` : collapseStars(identifier),
    ],
    encodedValue: encodeValues([override]),
  };
}

/** The precedence of an override among those that match the same check. */
export function precedenceOf(override: OverrideMatch): OverridePrecedence {
  const { namespace, isNamespacePattern, identifier, isCidr } = override;
  return {
    namespace: textPrecedence(namespace, isNamespacePattern),
    identifier: isCidr === true ? blockPrecedence(identifier) : textPrecedence(identifier),
  };
}
