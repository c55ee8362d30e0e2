/**
 * Patterns of overrides. In a pattern each `*` matches any number of characters, also none; there
 * is no escape. A pattern must match a whole text, and case matters. The namespace and the
 * identifier of an override may each be a pattern.
 */

export const STAR = '*';

export function isPattern(text: string): boolean {
  return text.includes(STAR);
}

export function countStars(text: string): number {
  return text.split(STAR).length - 1;
}

/**
 * Whether a pattern matches a whole text. Tables of many patterns are matched by the trie instead.
 * Each segment between stars is searched leftmost first.
 */
export function matchesPattern(pattern: string, text: string): boolean {
  const segments = pattern.split(STAR);
  if (segments.length === 1) return pattern === text;
  const prefix = segments[0];
  const suffix = segments[segments.length - 1];
  let from = prefix.length;
  const end = text.length - suffix.length;
  if (from > end || !text.startsWith(prefix) || !text.endsWith(suffix)) return false;
  for (const segment of segments.slice(1, -1)) {
    const at = text.indexOf(segment, from);
    if (at < 0) return false;
    from = at + segment.length;
  }
  return from <= end;
}

/** A lone surrogate, which well-formed text never contains. */
const ESCAPED_STAR = '\ud800';

/** Makes the stars of a name literal: a name is not a pattern. */
export function escapeStars(text: string): string {
  return text.replaceAll(STAR, ESCAPED_STAR);
}

/** Replaces each run of stars by one star, which matches the same texts. */
export function collapseStars(pattern: string): string {
  return pattern.replace(/\*{2,}/g, STAR);
}
