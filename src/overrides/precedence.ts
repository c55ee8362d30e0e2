/**
 * Precedence of overrides. If several overrides match a check, the first rule that distinguishes
 * them selects one:
 *
 *   1       an exact namespace before a pattern
 *   2       more literal characters in the namespace
 *   3       a longer literal prefix of the namespace
 *   4       the smaller text of the namespace: the first code point that differs is smaller
 *   5 to 8  the same four rules for the identifier
 *
 * Characters are code points. An exact namespace and identifier together win over all patterns:
 * `active.ts` looks for them first.
 */

import { escapeStars, isPattern, STAR } from './pattern.ts';

/** The properties of a namespace or an identifier that determine precedence. */
export interface TextPrecedence {
  text: string;
  isPattern: boolean;
  /** Characters other than stars. */
  literalCount: number;
  /** Characters before the first star. */
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

interface OverridePrecedence {
  namespace: TextPrecedence;
  identifier: TextPrecedence;
}

/** @returns a negative number if `a` takes precedence; 0 only for equal texts */
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
    // Surrogates encode code points beyond the BMP, which are larger than all others.
    return Number(isSurrogate(x)) - Number(isSurrogate(y)) || x - y;
  }
  return a.length - b.length;
}

function isSurrogate(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdfff;
}
