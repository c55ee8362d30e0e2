/**
 * Writes the tables of overrides into spare buffers. Runs as the task of a piscina thread, so that
 * the main thread stays responsive, and keeps no state between jobs. If the thread dies, its
 * buffers are not valid tables, because the magic number is written last. The main thread then runs
 * the job itself.
 */

import { type SerializedWildcards, writeTrie } from './build.ts';
import { copyExact } from './exact.ts';

/** The kinds of overrides that have changed. */
export interface CompileJob {
  exact?: { table: SharedArrayBuffer; spare: SharedArrayBuffer | undefined };
  trie?: { wildcards: SerializedWildcards; spare: SharedArrayBuffer | undefined };
}

/** The buffers that contain the new tables. */
export interface CompileResult {
  exact: SharedArrayBuffer | undefined;
  trie: SharedArrayBuffer | undefined;
}

export default function compile({ exact, trie }: CompileJob): CompileResult {
  return {
    exact: exact && copyExact(exact.table, exact.spare),
    trie: trie && writeTrie(trie.wildcards, trie.spare),
  };
}
