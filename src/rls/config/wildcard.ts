/** Texts of rules in which each `*` stands for any characters, or for none. */

/** A pattern that was split at its wildcards once, so that a comparison allocates little. */
export type WildcardParts = readonly string[];

export function splitWildcards(pattern: string): WildcardParts {
  return pattern.split('*');
}

/** How specific a pattern is: its characters that are not wildcards. */
export function literalLength(parts: WildcardParts): number {
  return parts.reduce((sum, part) => sum + [...part].length, 0);
}

/** Whether a text matches, as `wildcardMatch` of envoyproxy/ratelimit decides it. */
export function matchesWildcards(parts: WildcardParts, text: string): boolean {
  const last = parts.length - 1;
  if (last === 0) return parts[0] === text;
  const end = text.length - parts[last].length;
  let at = parts[0].length;
  // The first and the last part must not overlap in the text.
  if (at > end || !text.startsWith(parts[0]) || !text.endsWith(parts[last])) return false;
  for (let i = 1; i < last; i++) {
    const found = text.indexOf(parts[i], at);
    if (found < 0 || found + parts[i].length > end) return false;
    at = found + parts[i].length;
  }
  return true;
}
