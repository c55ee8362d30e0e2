/**
 * What is looked for in place of many middles: of each, the piece that tells most. Part of building
 * the trie.
 */

/** A pattern between its first star and its last one. */
export interface Infix {
  /** The texts between its stars. */
  segments: string[];
  match: number;
}

/** The longest needle, and about how many pieces of a pattern are weighed up. */
const FRAGMENT_MAX_UNITS = 4;
const CANDIDATE_FRAGMENTS_MAX = 64;

/**
 * Middles by a short text of their own, a needle: what has not the needle has not the middle. Each
 * takes, of the pieces of its segments, the one that the fewest others have.
 */
export function groupByFragment(infixes: readonly Infix[]): Map<string, Infix[]> {
  const owners = new Map<string, number>();
  for (const { segments } of infixes) {
    for (const piece of candidateFragments(segments))
      owners.set(piece, (owners.get(piece) ?? 0) + 1);
  }
  const needles = new Map<string, Infix[]>();
  for (const middle of infixes) {
    let needle = '';
    let least = Number.POSITIVE_INFINITY;
    for (const piece of candidateFragments(middle.segments)) {
      const count = owners.get(piece)!;
      if (count > least || (count === least && piece.length <= needle.length)) continue;
      needle = piece;
      least = count;
    }
    getOrCreate(needles, needle, () => [] as Infix[]).push(middle);
  }
  return needles;
}

/** The pieces of some segments; where these are long, some of them. */
function candidateFragments(segments: readonly string[]): string[] {
  const length = segments.reduce((sum, segment) => sum + segment.length, 0);
  const step = Math.ceil(length / CANDIDATE_FRAGMENTS_MAX);
  const pieces: string[] = [];
  for (const segment of segments) {
    const last = Math.max(0, segment.length - FRAGMENT_MAX_UNITS);
    for (let at = 0; at <= last; at += step)
      pieces.push(segment.slice(at, at + FRAGMENT_MAX_UNITS));
  }
  return pieces;
}

/** The entry of a key, made where there is none. */
export function getOrCreate<T>(entries: Map<string, T>, key: string, make: () => T): T {
  let entry = entries.get(key);
  if (entry === undefined) {
    entry = make();
    entries.set(key, entry);
  }
  return entry;
}
