/** Finds the known name that is most similar to a mistyped one. */

/** Names with a larger edit distance are not suggested. */
const DISTANCE_MAX = 2;
/** A name of one or two letters is within two edits of many names. */
const SHORT_DISTANCE_MAX = 1;

/** @returns the known name with the smallest edit distance, if it is small enough */
export function nearestName(name: string, known: readonly string[]): string | undefined {
  const distances = known.map((candidate) => {
    return { candidate, distance: editDistance(candidate, name) };
  });
  const [best] = distances.toSorted((a, b) => a.distance - b.distance);
  const maximum = name.length > 2 ? DISTANCE_MAX : SHORT_DISTANCE_MAX;
  return best !== undefined && best.distance <= maximum ? best.candidate : undefined;
}

/** The end of an error message about an unknown name: a suggestion, or an empty text. */
export function didYouMean(name: string, known: readonly string[]): string {
  const nearest = nearestName(name, known);
  return nearest === undefined ? '' : `; did you mean ${nearest}?`;
}

/** The Levenshtein distance: insertions, deletions and substitutions of one character. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const substitution = row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(row[j] + 1, next[j - 1] + 1, substitution));
    }
    row = next;
  }
  return row[b.length];
}
