/**
 * A simple, slow model of override patterns: a matcher that fills a table of all prefixes, and the
 * documented order of precedence. It shares no code with the product's matcher.
 */

import { Hasher, newIdentity } from '../../src/core/hash.ts';
import { UNRECORDED } from '../../src/core/namespace.ts';
import { NO_BURST, RULE } from '../../src/core/window-rules.ts';
import {
  ActiveOverrides,
  type OverridableCheck,
  type PublishedTables,
} from '../../src/overrides/active.ts';
import type { OverrideEntry } from '../../src/overrides/sets.ts';

/** Whether a pattern matches a whole text, compared by Unicode characters. */
export function matches(pattern: string, text: string): boolean {
  const p = [...pattern];
  const t = [...text];
  let row = [true, ...t.map(() => false)];
  for (const character of p) {
    const next = [character === '*' && row[0]];
    for (let i = 0; i < t.length; i++) {
      next.push(character === '*' ? next[i] || row[i + 1] : row[i] && character === t[i]);
    }
    row = next;
  }
  return row[t.length];
}

/** An override id in the product's format. */
export function overrideId(number: number): string {
  return `rlor_${number.toString(16).padStart(24, '0')}`;
}

type PatternTexts = Pick<OverrideEntry, 'namespace' | 'isNamespacePattern' | 'identifier'>;

/** Sort keys in order of precedence: the first difference decides, the smaller value wins. */
function precedenceKeys({
  namespace,
  isNamespacePattern,
  identifier,
}: PatternTexts): (number | number[])[] {
  return [namespace, identifier].flatMap((text, i) => {
    const characters = [...text];
    // In a plain namespace name, `*` is an ordinary character.
    const isName = i === 0 && !isNamespacePattern;
    const star = isName ? -1 : characters.indexOf('*');
    return [
      star < 0 ? 0 : 1,
      -characters.filter((character) => isName || character !== '*').length,
      -(star < 0 ? characters.length : star),
      characters.map((character) => character.codePointAt(0)!),
    ];
  });
}

export function precedes(a: PatternTexts, b: PatternTexts): boolean {
  const [x, y] = [precedenceKeys(a), precedenceKeys(b)];
  for (const [i, key] of x.entries()) {
    const order = Array.isArray(key) ? compareLists(key, y[i] as number[]) : key - (y[i] as number);
    if (order !== 0) return order < 0;
  }
  return false;
}

function compareLists(a: number[], b: number[]): number {
  const at = a.findIndex((value, i) => value !== b[i]);
  if (at < 0) return a.length - b.length;
  return b[at] === undefined ? 1 : a[at] - b[at];
}

/** The override that applies to a check, found by a scan of all overrides. */
export function findOverride<T extends PatternTexts>(
  overrides: readonly T[],
  namespace: string,
  identifier: string,
): T | undefined {
  let best: T | undefined;
  for (const override of overrides) {
    if (best !== undefined && !precedes(override, best)) continue;
    const inNamespace = override.isNamespacePattern
      ? matches(override.namespace, namespace)
      : override.namespace === namespace;
    if (inNamespace && matches(override.identifier, identifier)) best = override;
  }
  return best;
}

export const HASH_KEY = Buffer.from('0123456789abcdef');

/** No override has this limit. */
const OWN_LIMIT = -1;

/** Resolves limits by published override tables. */
export class OverrideResolver {
  readonly overrides = new ActiveOverrides();
  readonly #hasher = new Hasher(HASH_KEY);
  readonly #namespaces = new Map<string, OverridableCheck['namespace']>();

  constructor(tables: Partial<PublishedTables> = {}) {
    this.overrides.activate(tables);
  }

  resolve(namespace: string, identifier: string, needsOverrideId = true): OverridableCheck {
    return this.#resolve(namespace, identifier, needsOverrideId).check;
  }

  /** Where a check is counted; NOT_OVERRIDDEN if no override applies to it. */
  usageRow(namespace: string, identifier: string): number {
    return this.#resolve(namespace, identifier, false).usageRow;
  }

  #resolve(namespace: string, identifier: string, needsOverrideId: boolean) {
    const identity = newIdentity();
    const check: OverridableCheck = {
      namespace: this.#namespace(namespace),
      identity,
      identifier,
      limit: OWN_LIMIT,
      durationMs: 1_000,
      cost: 1,
      rule: RULE.fixed,
      burst: NO_BURST,
      isAsync: false,
      overrideId: undefined,
      needsOverrideId,
    };
    this.#hasher.hash(check.namespace.hashState, identifier, identity);
    return { check, usageRow: this.overrides.resolve(check, identity) };
  }

  /** The limit that the tables give a check; undefined where they leave it as it is. */
  resolveLimit(namespace: string, identifier: string): number | undefined {
    const { limit } = this.resolve(namespace, identifier, false);
    return limit === OWN_LIMIT ? undefined : limit;
  }

  /** The limit that the tables give an acquire; undefined where they leave it as it is. */
  resolveConcurrency(namespace: string, identifier: string): number | undefined {
    const { limit } = this.resolveAcquire(namespace, identifier);
    return limit === OWN_LIMIT ? undefined : limit;
  }

  resolveAcquire(namespaceName: string, identifier: string) {
    const namespace = this.#namespace(namespaceName);
    const identity = newIdentity();
    this.#hasher.hash(namespace.hashState, identifier, identity);
    const acquire = { namespace, identifier, limit: OWN_LIMIT };
    const usageRow = this.overrides.resolveAcquire(acquire, identity);
    return { limit: acquire.limit, usageRow };
  }

  #namespace(name: string): OverridableCheck['namespace'] {
    let namespace = this.#namespaces.get(name);
    if (namespace === undefined) {
      const hashState = this.#hasher.namespace(name);
      const decisionCounts = new Float64Array(4);
      const trieRoots = new Int32Array(0);
      const tries = { trieRoots, trieVersion: 0 };
      const names = { name, key: name, id: undefined, isTransient: false };
      namespace = { ...names, hashState, decisionCounts, ...tries, ...UNRECORDED };
      this.#namespaces.set(name, namespace);
    }
    return namespace;
  }
}
