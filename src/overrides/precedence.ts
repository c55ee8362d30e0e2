/**
 * Precedence of overrides. If several overrides match a check, the first rule that distinguishes
 * them selects one:
 *
 *   1        an exact namespace before a pattern
 *   2        more literal characters in the namespace
 *   3        a longer literal prefix of the namespace
 *   4        the smaller text of the namespace: the first code point that differs is smaller
 *   5        an exact identifier before a CIDR block and a pattern
 *   6        a CIDR block before a pattern
 *   7        a longer CIDR block
 *   8 to 10  rules 2 to 4 for the identifier
 *
 * Characters are code points. An exact namespace and identifier together win over all patterns:
 * `active.ts` looks for them first. A block of an identifier wins over all overrides.
 */

import { addressBits } from './cidr.ts';
import { escapeStars, isPattern, STAR } from './pattern.ts';

/** What a text matches, in the order of precedence: itself, addresses, or texts by its stars. */
const KINDS = ['exact', 'cidr', 'pattern'] as const;
type Kind = (typeof KINDS)[number];

/** The properties of a namespace or an identifier that determine precedence. */
export interface TextPrecedence {
  text: string;
  kind: Kind;
  /** Characters other than stars; bits of a CIDR block. */
  literalCount: number;
  /** Characters before the first star; bits of a CIDR block. */
  prefixLength: number;
}

export function textPrecedence(text: string, isAPattern = isPattern(text)): TextPrecedence {
  const characters = [...(isAPattern ? text : escapeStars(text))];
  const star = characters.indexOf(STAR);
  return {
    text,
    kind: star >= 0 ? 'pattern' : 'exact',
    literalCount: characters.filter((character) => character !== STAR).length,
    prefixLength: star < 0 ? characters.length : star,
  };
}

/** @param block canonical */
export function blockPrecedence(block: string): TextPrecedence {
  // One character is the version of the protocol.
  const bits = addressBits(block)!.length - 1;
  return { text: block, kind: 'cidr', literalCount: bits, prefixLength: bits };
}

/** The texts of an override. */
export interface OverridePrecedence {
  namespace: TextPrecedence;
  identifier: TextPrecedence;
}

/** What distinguishes two texts, in the order of the rules. */
const CRITERIA = ['kind', 'literals', 'prefix', 'text'] as const;
const TEXTS = ['namespace', 'identifier'] as const;
type Criterion = (typeof CRITERIA)[number];
type TextName = (typeof TEXTS)[number];

/** @returns a negative number if `a` takes precedence */
type Comparison = (a: TextPrecedence, b: TextPrecedence) => number;

const COMPARISONS: Readonly<Record<Criterion, Comparison>> = {
  kind: (a, b) => KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind),
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

/** The rules by their number, as responses name them, and before them that of blocks. */
export const PRECEDENCE_RULES = [
  'block',
  'exact_namespace',
  'more_literal_characters_in_namespace',
  'longer_prefix_of_namespace',
  'smaller_text_of_namespace',
  'exact_identifier',
  'cidr_block_before_pattern',
  'longer_cidr_block',
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

/** Why no override applies to a blocked identifier. */
export const BLOCK_PRECEDENCE: PrecedenceReason = {
  rule: 'block',
  text: 'a block takes precedence over all overrides',
};

/** Explains why an override loses. Both match the same check, and differ in a text. */
export function explainPrecedence(
  winner: OverridePrecedence,
  loser: OverridePrecedence,
): PrecedenceReason {
  for (const name of TEXTS) {
    for (const criterion of CRITERIA) {
      if (COMPARISONS[criterion](winner[name], loser[name]) === 0) continue;
      return reasonOf(criterion, name, winner[name], loser[name]);
    }
  }
  throw new Error('an override has no precedence over itself');
}

function reasonOf(
  criterion: Criterion,
  name: TextName,
  winner: TextPrecedence,
  loser: TextPrecedence,
): PrecedenceReason {
  if (winner.kind !== 'cidr') {
    return {
      rule: `${RULE_BEGINNINGS[criterion]}${name}`,
      text: describeRule(criterion, name, winner, loser),
    };
  }
  if (criterion === 'kind') {
    const text = `a CIDR block takes precedence over a pattern of the ${name}`;
    return { rule: 'cidr_block_before_pattern', text };
  }
  // Two blocks that contain one address differ in their length.
  const lengths = `${winner.literalCount} bits are more than ${loser.literalCount}`;
  return { rule: 'longer_cidr_block', text: `a longer CIDR block takes precedence: ${lengths}` };
}

const RULE_BEGINNINGS = {
  kind: 'exact_',
  literals: 'more_literal_characters_in_',
  prefix: 'longer_prefix_of_',
  text: 'smaller_text_of_',
} as const satisfies Record<Criterion, string>;

function describeRule(
  criterion: Criterion,
  name: TextName,
  winner: TextPrecedence,
  loser: TextPrecedence,
): string {
  switch (criterion) {
    case 'kind':
      return loser.kind === 'cidr'
        ? `an exact ${name} takes precedence over a CIDR block`
        : `an exact ${name} takes precedence over a pattern`;
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
