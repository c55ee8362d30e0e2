/**
 * The memory layout of the trie of wildcard overrides, for `build.ts` and `trie.ts`. A unit is a
 * UTF-16 code unit. Numbers of nodes and roots begin at 1, and offsets of entries too, so 0 means
 * "none".
 *
 *   header         16 int32; fields in TRIE
 *   nodes          8 int32 each, half a cache line; fields in NODE
 *   values         4 float64 each, in order of precedence: limit | duration, ms, negative if
 *                  asynchronous | id, as 3 int32 | usage row, as int32
 *   concurrencies  1 float64 for each value; NO_CONCURRENCY for none. Checks do not read them
 *   roots          4 int32 each; fields in ROOT
 *   entries        lists of int32: count | entries, sorted by key; fields in ENTRY
 *   infixes        4 int32 each; fields in INFIX
 *   segments       int32: those of an infix in order, each as length, characters | number of its
 *                  chunks | these
 *   first units    1 uint16 for each node: the unit on the edge from its parent
 *   units          uint16: labels of nodes after their first unit
 */

import {
  IDENTIFIER_MAX_CHARACTERS,
  MIDDLE_MAX_CHARACTERS,
  NAMESPACE_MAX_CHARACTERS,
} from '../core/constants.ts';

export const TRIE = {
  magic: 0,
  values: 1,
  nodes: 2,
  roots: 3,
  entries: 4,
  infixes: 5,
  segments: 6,
  units: 7,
  /** Chunks are numbered from 1 on. */
  chunks: 8,
  /** The root of all namespaces. */
  namespaces: 9,
  /** The root of the overrides of all namespace patterns; 0 for none. */
  shared: 10,
  /** The trie of the texts between stars, of all roots; 0 for none. */
  middles: 11,
} as const;
export const TRIE_HEADER = { magic: 0x57657473 } as const; // "Wets"
const HEADER_BYTES = 64;

export const NODE_WORDS = 8;
/** The children of a node are contiguous and sorted by first unit. */
export const NODE = {
  label: 0,
  labelLength: 1,
  firstChild: 2,
  childCount: 3,
  /**
   * The entry whose text ends at this node: in a trie of prefixes the text without a star, see
   * SCOPE_UNIT; in a trie of suffixes 1 for any suffix; in the trie of middles the list of the
   * roots that have the pattern of this text between two stars.
   */
  match: 4,
  /** In a trie of prefixes: the same for the pattern that is this prefix and one star. */
  starMatch: 5,
  /** In a trie of prefixes: the list of the suffixes of all other patterns with this prefix. */
  suffixes: 6,
  /** In the trie of middles: the number of the chunk that ends here, from 1 on; 0 for none. */
  chunk: 7,
} as const;

/**
 * A match is a number above 0: in a root of identifiers a value index + 1, in that of namespaces
 * the root of a namespace. Or it is a number below 0. In the root that namespace patterns share, it
 * is the negated offset of a list with the scopes that have the pattern. In the root of namespaces
 * it is the negated sum of SCOPE_UNIT times the scope of the namespace pattern, 1, and 1 if the
 * scope has a CIDR block. Scopes are numbered from 0 on.
 */
export const SCOPE_UNIT = 2;

/** The tries of a set of patterns. */
export const ROOT_WORDS = 4;
export const ROOT = {
  /** The trie of texts before the first star. */
  prefixes: 0,
  /** The trie of reversed texts after the last star. */
  suffixes: 1,
  /** Whether a pattern of it ends in the trie of middles. */
  hasMiddles: 2,
  /** The trie of prefixes of CIDR blocks as bits. */
  blocks: 3,
} as const;

export const ENTRY_WORDS = 3;
export const ENTRY = {
  /** In a list of suffixes the node of a suffix; in other lists a scope, a root or a chunk. */
  key: 0,
  match: 1,
  /**
   * In a list of suffixes the offset of the list of chunks of its infixes; 0 for none. Each infix
   * is listed by the chunk that the fewest have. In a list of chunks the number of its first infix.
   */
  infixes: 2,
} as const;

export const INFIX_WORDS = 4;
/** The infixes of a prefix, a suffix and a chunk are contiguous. */
export const INFIX = { match: 0, segmentCount: 1, segmentsStart: 2, isLast: 3 } as const;

/**
 * A segment of an infix is found by its chunks of so many characters, which may overlap: chunk i
 * begins at character CHUNK_CHARACTERS × i, and the last one ends with the segment. No text in the
 * trie of middles is longer.
 */
export const CHUNK_CHARACTERS = MIDDLE_MAX_CHARACTERS;

const TEXT_MAX_CHARACTERS = Math.max(IDENTIFIER_MAX_CHARACTERS, NAMESPACE_MAX_CHARACTERS);
/** Words of a bitmap with one bit for each character of a text, and for its end. */
export const BITMAP_WORDS = Math.ceil((TEXT_MAX_CHARACTERS + 1) / 32);

export const VALUE_DOUBLES = 4;
/** Offsets from the start of a value: limit and duration in doubles, the others in words. */
export const VALUE = { limit: 0, durationMs: 1, id: 4, usageRow: 7 } as const;

type Section = 'values' | 'nodes' | 'roots' | 'entries' | 'infixes' | 'segments' | 'units';
/** Entries and segments are counted in words, the others in items. */
export type SectionCounts = Readonly<Record<Section, number>>;

/** The offsets of the sections of a trie in bytes, and its size. */
export function sectionOffsets(counts: SectionCounts) {
  const { values, nodes, roots, entries, infixes, segments, units } = counts;
  const nodesAt = HEADER_BYTES;
  const valuesAt = nodesAt + 4 * NODE_WORDS * nodes;
  const concurrenciesAt = valuesAt + 8 * VALUE_DOUBLES * values;
  const rootsAt = concurrenciesAt + 8 * values;
  const entriesAt = rootsAt + 4 * ROOT_WORDS * roots;
  const infixesAt = entriesAt + 4 * entries;
  const segmentsAt = infixesAt + 4 * INFIX_WORDS * infixes;
  const firstUnitsAt = segmentsAt + 4 * segments;
  const unitsAt = firstUnitsAt + 2 * nodes;
  const bytes = Math.ceil((unitsAt + 2 * units) / 8) * 8;
  const offsets = { nodesAt, valuesAt, concurrenciesAt, rootsAt, entriesAt, infixesAt, segmentsAt };
  return { ...offsets, firstUnitsAt, unitsAt, bytes };
}
