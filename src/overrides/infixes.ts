/**
 * Chooses the fragments by which many infixes with the same prefix and suffix are searched. Only
 * the builder of the trie uses it.
 */

/** A pattern between its first star and its last star. */
export interface Infix {
  /** The texts between stars. */
  segments: string[];
  /** See NODE.match. */
  match: number;
}

const FRAGMENT_MAX_UNITS = 4;
/** About how many fragments of one infix are considered. */
const CANDIDATE_FRAGMENTS_MAX = 64;

/**
 * Groups infixes by a fragment: a short part of one of its segments. A text without the fragment
 * cannot match the infix. Each infix gets the fragment that the fewest others contain.
 */
export function groupByFragment(infixes: readonly Infix[]): Map<string, Infix[]> {
  const counts = new Map<string, number>();
  for (const { segments } of infixes) {
    for (const candidate of candidateFragments(segments))
      counts.set(candidate, (counts.get(candidate) ?? 0) + 1);
  }
  const groups = new Map<string, Infix[]>();
  for (const infix of infixes) {
    let fragment = '';
    let lowestCount = Number.POSITIVE_INFINITY;
    for (const candidate of candidateFragments(infix.segments)) {
      const count = counts.get(candidate)!;
      const isLonger = candidate.length > fragment.length;
      if (count > lowestCount || (count === lowestCount && !isLonger)) continue;
      fragment = candidate;
      lowestCount = count;
    }
    getOrCreate(groups, fragment, () => [] as Infix[]).push(infix);
  }
  return groups;
}

/** The fragments of some segments; of long segments only a sample. */
function candidateFragments(segments: readonly string[]): string[] {
  const length = segments.reduce((sum, segment) => sum + segment.length, 0);
  const step = Math.ceil(length / CANDIDATE_FRAGMENTS_MAX);
  const fragments: string[] = [];
  for (const segment of segments) {
    const last = Math.max(0, segment.length - FRAGMENT_MAX_UNITS);
    for (let at = 0; at <= last; at += step)
      fragments.push(segment.slice(at, at + FRAGMENT_MAX_UNITS));
  }
  return fragments;
}

export function getOrCreate<T>(entries: Map<string, T>, key: string, create: () => T): T {
  let entry = entries.get(key);
  if (entry === undefined) {
    entry = create();
    entries.set(key, entry);
  }
  return entry;
}
