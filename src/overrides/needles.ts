/**
 * What is looked for in place of many middles: of each, the piece that tells most. Part of building
 * the trie.
 */

/** A pattern between its first star and its last one. */
export interface Middle {
  /** The texts between its stars. */
  segments: string[];
  accepts: number;
}

/** The longest needle, and about how many pieces of a pattern are weighed up. */
const NEEDLE_UNITS = 4;
const PIECES_MAX = 64;

/**
 * Middles by a short text of their own, a needle: what has not the needle has not the middle. Each
 * takes, of the pieces of its segments, the one that the fewest others have.
 */
export function byNeedle(middles: readonly Middle[]): Map<string, Middle[]> {
  const owners = new Map<string, number>();
  for (const { segments } of middles) {
    for (const piece of piecesOf(segments)) owners.set(piece, (owners.get(piece) ?? 0) + 1);
  }
  const needles = new Map<string, Middle[]>();
  for (const middle of middles) {
    let needle = '';
    let least = Number.POSITIVE_INFINITY;
    for (const piece of piecesOf(middle.segments)) {
      const count = owners.get(piece)!;
      if (count > least || (count === least && piece.length <= needle.length)) continue;
      needle = piece;
      least = count;
    }
    entryOf(needles, needle, () => [] as Middle[]).push(middle);
  }
  return needles;
}

/** The pieces of some segments; where these are long, some of them. */
function piecesOf(segments: readonly string[]): string[] {
  const length = segments.reduce((sum, segment) => sum + segment.length, 0);
  const step = Math.ceil(length / PIECES_MAX);
  const pieces: string[] = [];
  for (const segment of segments) {
    const last = Math.max(0, segment.length - NEEDLE_UNITS);
    for (let at = 0; at <= last; at += step) pieces.push(segment.slice(at, at + NEEDLE_UNITS));
  }
  return pieces;
}

/** The entry of a key, made where there is none. */
export function entryOf<T>(entries: Map<string, T>, key: string, make: () => T): T {
  let entry = entries.get(key);
  if (entry === undefined) {
    entry = make();
    entries.set(key, entry);
  }
  return entry;
}
