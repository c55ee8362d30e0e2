/** Finds the name that a mistyped one was probably meant to be. */

/** Names with more differences than this are not suggested. */
const DISTANCE_MAX = 2;

/** @returns the known name with the fewest differences, if any is close enough */
export function nearestName(name: string, known: readonly string[]): string | undefined {
  const distances = known.map((candidate) => ({ candidate, far: editDistance(candidate, name) }));
  const [best] = distances.toSorted((a, b) => a.far - b.far);
  return best !== undefined && best.far <= DISTANCE_MAX ? best.candidate : undefined;
}

/** How many letters must be changed, added or left out to make one text into the other. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const swap = row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(row[j] + 1, next[j - 1] + 1, swap));
    }
    row = next;
  }
  return row[b.length];
}
