/**
 * The sets of overrides that are measured. The checks of all benchmarks are about `user_0` to
 * `user_9999` in one namespace; every override gives them the limit that they have anyway, so that
 * what is measured is only how it is found.
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
  const said = { isNamespacePattern: false, limit: 1_000_000, durationMs: 60_000, isAsync: false };
  const id = `rlor_${row.toString(16).padStart(24, '0')}`;
  return { row, id, namespace: NAMESPACE, identifier, ...said };
}

/** From `user_0` on: 1,000 govern a tenth of the checks, 100,000 all of them. */
export function exactOverrides(count: number): OverrideEntry[] {
  return Array.from({ length: count }, (_, i) => benchOverride(i + 1, `user_${i}`));
}

/** Half of them begin like the identifiers and govern nearly all, half are endings of none. */
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

/** The tables of a set, as they are published. */
export function publishedTables(overrides: readonly OverrideEntry[]): PublishedTables {
  const { exact, wildcards } = registersFor(overrides);
  const { records, buffer } = exact.table;
  return {
    exact: records === 0 ? null : copyExact(buffer, undefined),
    trie: wildcards.count === 0 ? null : writeTrie(wildcards.serialize(), undefined),
  };
}
