/**
 * The measured sets of overrides. All benchmarks check `user_0` to `user_9999` in one namespace.
 * Every override sets the limit that the check already has, so that only the lookup is measured.
 */

import type { PublishedTables } from '../../src/overrides/active.ts';
import { writeTrie } from '../../src/overrides/build.ts';
import { copyExact } from '../../src/overrides/exact.ts';
import {
  ExactOverrideSet,
  type OverrideEntry,
  WildcardOverrideSet,
} from '../../src/overrides/sets.ts';

export const HASH_KEY = Buffer.from('0123456789abcdef');
export const NAMESPACE = 'api';
/** The root key of the servers under load. */
export const ROOT_KEY = 'root-key-of-the-bench';

export function benchOverride(row: number, identifier: string): OverrideEntry {
  const fields = {
    isNamespacePattern: false,
    limit: 1_000_000,
    durationMs: 60_000,
    isAsync: false,
  };
  const id = `rlor_${row.toString(16).padStart(24, '0')}`;
  return { row, id, namespace: NAMESPACE, identifier, ...fields };
}

/** From `user_0` on: 1,000 overrides apply to a tenth of the checks, 100,000 to all of them. */
export function exactOverrides(count: number): OverrideEntry[] {
  return Array.from({ length: count }, (_, i) => benchOverride(i + 1, `user_${i}`));
}

/** Half are prefixes that match nearly all identifiers, half are suffixes that match none. */
export function wildcardOverrides(count: number): OverrideEntry[] {
  return Array.from({ length: count }, (_, i) => {
    const text = i % 2 === 0 ? `user_${i / 2}*` : `*@d${i}.example.com`;
    return benchOverride(i + 1, text);
  });
}

export const NO_OVERRIDES: PublishedTables = { exact: null, trie: null };

export function registersFor(overrides: readonly OverrideEntry[]) {
  const exact = new ExactOverrideSet(HASH_KEY);
  const wildcards = new WildcardOverrideSet();
  for (const one of overrides) {
    if (one.identifier.includes('*')) wildcards.put(one);
    else exact.put(one);
  }
  return { exact, wildcards };
}

/** The published tables of a set. */
export function publishedTables(overrides: readonly OverrideEntry[]): PublishedTables {
  const { exact, wildcards } = registersFor(overrides);
  const { records, buffer } = exact.table;
  return {
    exact: records === 0 ? null : copyExact(buffer, undefined),
    trie: wildcards.count === 0 ? null : writeTrie(wildcards.serialize(), undefined),
  };
}
