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

/** The texts of an override. */
export interface OverridePrecedence {
  namespace: TextPrecedence;
  identifier: TextPrecedence;
}

/** What distinguishes two texts, in the order of the rules. */
const CRITERIA = ['exact', 'literals', 'prefix', 'text'] as const;
const TEXTS = ['namespace', 'identifier'] as const;
type Criterion = (typeof CRITERIA)[number];
type TextName = (typeof TEXTS)[number];

/** @returns a negative number if `a` takes precedence */
type Comparison = (a: TextPrecedence, b: TextPrecedence) => number;

const COMPARISONS: Readonly<Record<Criterion, Comparison>> = {
  exact: (a, b) => Number(a.isPattern) - Number(b.isPattern),
  literals: (a, b) => b.literalCount - a.literalCount,
  prefix: (a, b) => b.prefixLength - a.prefixLength,
  text: (a, b) => compareCodePoints(a.text, b.text),
};

/** @returns a negative number if `a` takes precedence; 0 only for equal texts */
export function comparePrecedence(a: OverridePrecedence, b: OverridePrecedence): number {
  return compareTexts(a.namespace, b.namespace) || compareTexts(a.identifier, b.identifier);
}

function compareTexts(a: TextPrecedence, b: TextPrecedence): number {
  for (const criterion of CRITERIA) {
    const order = COMPARISONS[criterion](a, b);
    if (order !== 0) return order;
  }
  return 0;
}

/** The rules by their number, as responses name them. */
export const PRECEDENCE_RULES = [
  'exact_namespace',
  'more_literal_characters_in_namespace',
  'longer_prefix_of_namespace',
  'smaller_text_of_namespace',
  'exact_identifier',
  'more_literal_characters_in_identifier',
  'longer_prefix_of_identifier',
  'smaller_text_of_identifier',
] as const;
export type PrecedenceRule = (typeof PRECEDENCE_RULES)[number];

/** Why one override takes precedence over another. */
export interface PrecedenceReason {
  /** The first rule that distinguishes them. */
  rule: PrecedenceRule;
  /** The rule in words, with what it compares. */
  text: string;
}

/** Explains why an override loses. Both match the same check, and differ in a text. */
export function explainPrecedence(
  winner: OverridePrecedence,
  loser: OverridePrecedence,
): PrecedenceReason {
  for (const [t, name] of TEXTS.entries()) {
    for (const [c, criterion] of CRITERIA.entries()) {
      if (COMPARISONS[criterion](winner[name], loser[name]) === 0) continue;
      const rule = PRECEDENCE_RULES[CRITERIA.length * t + c];
      return { rule, text: describeRule(criterion, name, winner[name], loser[name]) };
    }
  }
  throw new Error('an override has no precedence over itself');
}

function describeRule(
  criterion: Criterion,
  name: TextName,
  winner: TextPrecedence,
  loser: TextPrecedence,
): string {
  switch (criterion) {
    case 'exact':
      return `an exact ${name} takes precedence over a pattern`;
    case 'literals': {
      const counts = `${winner.literalCount} are more than ${loser.literalCount}`;
      return `more literal characters in the ${name} take precedence: ${counts}`;
    }
    case 'prefix': {
      const lengths = `${winner.prefixLength} characters are more than ${loser.prefixLength}`;
      return `a longer literal prefix of the ${name} takes precedence: ${lengths}`;
    }
    case 'text':
      return `the smaller text of the ${name} takes precedence, compared by code points`;
  }
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
