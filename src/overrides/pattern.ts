/**
 * Patterns, and which override comes first. A pattern is text in which `*` stands for any run of
 * characters, also none, anywhere and without an escape; it has to match the whole of a text, case
 * for case. Both the namespace and the identifier of an override may be one.
 *
 * Of several overrides that match a check the first difference in this order decides:
 *
 *   1  the namespace is exact, before a pattern
 *   2  more literal characters in the pattern of the namespace
 *   3  a longer literal prefix of it
 *   4  the smaller text of it
 *   5 to 8  the same four of the identifier
 *
 * Characters are code points, and a text is smaller by its first code point that differs.
 */

const STAR = '*';

export function isPattern(text: string): boolean {
  return text.includes(STAR);
}

export function countStars(text: string): number {
  return text.split(STAR).length - 1;
}

/** Half of a character, which well-formed text has nowhere by itself. */
const ESCAPED_STAR = '\ud800';

/** A text in which a star is a character like any other: a name, not a pattern. */
export function escapeStars(text: string): string {
  return text.replaceAll(STAR, ESCAPED_STAR);
}

/** The same pattern with one star for each run of them, for what it matches is the same. */
export function collapseStars(pattern: string): string {
  return pattern.replace(/\*{2,}/g, STAR);
}

/** A text of an override, as its precedence sees it. */
export interface TextPrecedence {
  text: string;
  isPattern: boolean;
  /** Characters that are no star; those before the first star. */
  literalCount: number;
  prefixLength: number;
}

export function textPrecedence(text: string, isAPattern = isPattern(text)): TextPrecedence {
  const characters = [...(isAPattern ? text : escapeStars(text))];
  const star = characters.indexOf(STAR);
  return {
    text,
    isPattern: star >= 0,
    literalCount: characters.filter((character) => character !== STAR).length,
    prefixLength: star < 0 ? characters.length : star,
  };
}

export interface OverridePrecedence {
  namespace: TextPrecedence;
  identifier: TextPrecedence;
}

/** Negative when `a` comes first, 0 for the same texts only. */
export function comparePrecedence(a: OverridePrecedence, b: OverridePrecedence): number {
  return compareTexts(a.namespace, b.namespace) || compareTexts(a.identifier, b.identifier);
}

function compareTexts(a: TextPrecedence, b: TextPrecedence): number {
  return (
    Number(a.isPattern) - Number(b.isPattern) ||
    b.literalCount - a.literalCount ||
    b.prefixLength - a.prefixLength ||
    compareCodePoints(a.text, b.text)
  );
}

function compareCodePoints(a: string, b: string): number {
  const shorter = Math.min(a.length, b.length);
  for (let i = 0; i < shorter; i++) {
    const x = a.charCodeAt(i);
    const y = b.charCodeAt(i);
    if (x === y) continue;
    // Halves of a character beyond the BMP, which comes behind all others.
    return Number(isSurrogate(x)) - Number(isSurrogate(y)) || x - y;
  }
  return a.length - b.length;
}

function isSurrogate(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdfff;
}
