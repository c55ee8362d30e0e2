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
