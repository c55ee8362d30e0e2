/**
 * Writes the tables of overrides into spare buffers: the task of a piscina thread, so that the main
 * thread goes on meanwhile. It keeps nothing between two jobs. Where it dies, what it has written
 * is no table yet, for the magic number comes last, and the main thread does the job itself.
 */

import { type SerializedWildcards, writeTrie } from './build.ts';
import { copyExact } from './exact.ts';

/** What has changed; nothing is written of a kind that is left out. */
export interface CompileJob {
  exact?: { table: SharedArrayBuffer; records: number; spare: SharedArrayBuffer | undefined };
  trie?: { wildcards: SerializedWildcards; spare: SharedArrayBuffer | undefined };
}

/** The buffers that were written into. */
export interface CompileResult {
  exact: SharedArrayBuffer | undefined;
  trie: SharedArrayBuffer | undefined;
}

export default function compile({ exact, trie }: CompileJob): CompileResult {
  return {
    exact: exact && copyExact(exact.table, exact.records, exact.spare),
    trie: trie && writeTrie(trie.wildcards, trie.spare),
  };
}
