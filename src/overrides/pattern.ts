/**
 * Patterns of overrides. In a pattern each `*` matches any number of characters, also none; there
 * is no escape. A pattern must match a whole text, and case matters. The namespace and the
 * identifier of an override may each be a pattern.
 */

import { MIDDLE_MAX_CHARACTERS } from '../core/constants.ts';

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

/**
 * The text of a pattern `*text*` that has at most MIDDLE_MAX_CHARACTERS. Undefined for any other.
 * @param pattern with runs of stars collapsed
 */
export function middleOf(pattern: string): string | undefined {
  const [prefix, text, suffix, ...more] = pattern.split(STAR);
  if (prefix !== '' || suffix !== '' || more.length > 0) return undefined;
  return [...text].length <= MIDDLE_MAX_CHARACTERS ? text : undefined;
}

/**
 * Whether a pattern has text between two stars, and is not `*text*` with a short text. The number
 * of these is limited, because a check compares each of them with its text.
 */
export function hasInfix(pattern: string): boolean {
  if (pattern.indexOf(STAR) === pattern.lastIndexOf(STAR)) return false;
  const collapsed = collapseStars(pattern);
  return countStars(collapsed) > 1 && middleOf(collapsed) === undefined;
}
