/**
 * The memory layout of the trie of wildcard overrides, for `build.ts` and `trie.ts`. A unit is a
 * UTF-16 code unit. Node 0 does not exist, so 0 means "no node".
 *
 *   header       16 int32    magic | values | nodes | infixes | units | root | block root
 *   nodes        8 int32 each, half a cache line; fields in NODE
 *   values       4 float64 each, in order of precedence: limit | duration, ms, negative if
 *                asynchronous | id, as 3 int32 | usage row, as int32
 *   infixes      4 int32 each; fields in INFIX
 *   first units  1 uint16 for each node: the unit on the edge from its parent
 *   units        uint16: labels of nodes after their first unit, and segments of infixes
 */

export const TRIE = {
  magic: 0,
  values: 1,
  nodes: 2,
  infixes: 3,
  units: 4,
  root: 5,
  /** The root of the trie of namespaces with CIDR blocks; 0 for none. */
  blockRoot: 6,
} as const;
export const TRIE_HEADER = { magic: 0x57657472 } as const; // "Wetr"
const HEADER_BYTES = 64;

export const NODE_WORDS = 8;
/** The children of a node are contiguous and sorted by first unit. */
export const NODE = {
  label: 0,
  labelLength: 1,
  firstChild: 2,
  childCount: 3,
  /**
   * The pattern that ends here: in a trie of identifiers its value index + 1, in the trie of
   * namespaces the root of its trie of identifiers; 0 for none.
   */
  match: 4,
  /** In a trie of prefixes: the same for the pattern that is this prefix and one star. */
  starMatch: 5,
  /** In a trie of prefixes: the trie of the suffixes of all other patterns with this prefix. */
  suffixRoot: 6,
  /** In a trie of suffixes: the trie of fragments, if the suffix has many infixes. */
  fragmentRoot: 6,
  /** In a trie of suffixes or fragments: the number of the first infix + 1. */
  infixes: 7,
} as const;

export const INFIX_WORDS = 4;
/** The infixes of a node are contiguous and in order of precedence. */
export const INFIX = {
  match: 0,
  segmentCount: 1,
  /** Index of the first unit. Each segment is: length | its units | the border of each unit. */
  segmentsStart: 2,
  isLast: 3,
} as const;

export const VALUE_DOUBLES = 4;
/** Offsets from the start of a value: limit and duration in doubles, the others in words. */
export const VALUE = { limit: 0, durationMs: 1, id: 4, usageRow: 7 } as const;

type SectionCounts = Readonly<Record<'values' | 'nodes' | 'infixes' | 'units', number>>;

/** The offsets of the sections of a trie in bytes, and its size. */
export function sectionOffsets({ values, nodes, infixes, units }: SectionCounts) {
  const nodesAt = HEADER_BYTES;
  const valuesAt = nodesAt + 4 * NODE_WORDS * nodes;
  const infixesAt = valuesAt + 8 * VALUE_DOUBLES * values;
  const firstUnitsAt = infixesAt + 4 * INFIX_WORDS * infixes;
  const unitsAt = firstUnitsAt + 2 * nodes;
  const bytes = Math.ceil((unitsAt + 2 * units) / 8) * 8;
  return { nodesAt, valuesAt, infixesAt, firstUnitsAt, unitsAt, bytes };
}
