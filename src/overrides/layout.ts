/**
 * The words of the trie of the overrides with a star: the one file that both who writes it and who
 * reads it import.
 *
 *   header    16 int32    magic | version | values | nodes | middles | units | root
 *   nodes     8 int32 each, half a line of the cache, drawn in NODE; number 0 is none
 *   values    4 float64 each, in order of precedence: limit | duration, ms, negative where it is
 *             asynchronous | id, as 3 int32
 *   middles   4 int32 each, drawn in MIDDLE
 *   firsts    1 uint16 a node: the unit that leads to it
 *   units     uint16: the units that nodes take behind the first one, and the segments of middles
 */

export const TRIE = {
  magic: 0,
  version: 1,
  values: 2,
  nodes: 3,
  infixes: 4,
  units: 5,
  root: 6,
} as const;
export const TRIE_HEADER = { magic: 0x57657472, version: 5 } as const; // "Wetr"
const HEADER_BYTES = 64;

export const NODE_WORDS = 8;
/** The children of a node lie one behind the other, in order of their first units. */
export const NODE = {
  label: 0,
  labelLength: 1,
  firstChild: 2,
  childCount: 3,
  /** What ends here: a value and 1, or the root of the trie for identifiers; 0 for nothing. */
  match: 4,
  /** In a trie of heads: the same of what ends with a star here, and the tails of other stars. */
  starMatch: 5,
  suffixRoot: 6,
  /** In a trie of tails: the needles of those with middles. */
  fragmentRoot: 6,
  /** In a trie of tails, or of needles: the number of the first pattern with middles, and 1. */
  infixes: 7,
} as const;

export const INFIX_WORDS = 4;
/** Those of one node lie one behind the other, in order of precedence. */
export const INFIX = {
  match: 0,
  /** How many segments it has, and where the first begins: length | its units | their borders */
  segmentCount: 1,
  segmentsStart: 2,
  isLast: 3,
} as const;

export const VALUE_DOUBLES = 4;
/** Offsets in doubles. */
export const VALUE = { limit: 0, durationMs: 1, id: 2 } as const;

type SectionCounts = Readonly<Record<'values' | 'nodes' | 'infixes' | 'units', number>>;

/** Where the sections of a trie begin, in bytes, and where it ends. */
export function sectionOffsets({ values, nodes, infixes, units }: SectionCounts) {
  const nodesAt = HEADER_BYTES;
  const valuesAt = nodesAt + 4 * NODE_WORDS * nodes;
  const infixesAt = valuesAt + 8 * VALUE_DOUBLES * values;
  const firstUnitsAt = infixesAt + 4 * INFIX_WORDS * infixes;
  const unitsAt = firstUnitsAt + 2 * nodes;
  const bytes = Math.ceil((unitsAt + 2 * units) / 8) * 8;
  return { nodesAt, valuesAt, infixesAt, firstUnitsAt, unitsAt, bytes };
}
