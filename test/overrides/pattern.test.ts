import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  collapseStars,
  countStars,
  isPattern,
  matchesPattern,
} from '../../src/overrides/pattern.ts';
import {
  comparePrecedence,
  explainPrecedence,
  PRECEDENCE_RULES,
  textPrecedence,
} from '../../src/overrides/precedence.ts';
import { trialCount } from '../support/guarantees.ts';
import { matches, precedes } from '../support/override-model.ts';

const pair = ([namespace, identifier]: [string, string]) => ({
  namespace: textPrecedence(namespace),
  identifier: textPrecedence(identifier),
});
const compare = (a: [string, string], b: [string, string]) => {
  return Math.sign(comparePrecedence(pair(a), pair(b)));
};

/** For each rule two texts: it orders the first before the second, and earlier rules do not. */
const RULES: [rule: string, first: string, second: string][] = [
  ['exact before pattern', 'abc', 'abc*'],
  ['exact before a longer pattern', 'a', 'abcdefg*'],
  ['more literal characters', 'abc*d', 'abc*'],
  ['more literal characters, not more stars', 'ab*', '*a*'],
  ['more literal characters, counted as code points', '*ab', '*😀'],
  ['longer literal prefix', 'ab*c', 'a*bc'],
  ['longer literal prefix, counted as code points', '😀😀*c', '😀*😀c'],
  ['smaller text', 'aa*', 'ab*'],
  ['smaller text, by code points and not by UTF-16', '\uffff*', '😀*'],
  ['smaller text: a prefix of the other', 'a*', 'a**'],
];

describe('precedence', () => {
  test('is decided by the first rule that differs, for every pair of rules', () => {
    for (const [i, [, first, second]] of RULES.entries()) {
      for (const namespace of ['n', 'n*', '*']) {
        expect(compare([namespace, first], [namespace, second])).toBe(-1);
      }
      for (const [, firstIdentifier, secondIdentifier] of RULES.slice(i)) {
        // The order of the namespaces is opposite to that of the identifiers.
        expect(compare([first, secondIdentifier], [second, firstIdentifier])).toBe(-1);
      }
    }
    // In one text: an earlier rule against later rules.
    for (const [first, second] of [
      ['b', 'aaa*'], // exact before literals, prefix and text
      ['*bb', 'a*'], // literals before prefix and text
      ['bb*a', 'b*ab'], // prefix before text
    ]) {
      expect(compare(['n', first], ['n', second])).toBe(-1);
      expect(compare([first, 'i'], [second, 'i'])).toBe(-1);
    }
  });

  test('is a total order, equal to that of the model', () => {
    const text = fc
      .array(fc.constantFrom('a', 'b', '*', '😀', '\uffff', '\ue000'), { maxLength: 5 })
      .map((characters) => characters.join(''));
    const pair = fc.tuple(text, text);
    fc.assert(
      fc.property(pair, pair, pair, (a, b, c) => {
        const texts = ([namespace, identifier]: [string, string]) => {
          return { namespace, isNamespacePattern: isPattern(namespace), identifier };
        };
        expect(compare(a, b) === -1).toBe(precedes(texts(a), texts(b)));
        expect(compare(a, b) + compare(b, a)).toBe(0);
        expect(compare(a, b) === 0).toBe(a.join('\0') === b.join('\0'));
        if (compare(a, b) <= 0 && compare(b, c) <= 0) expect(compare(a, c)).not.toBe(1);
      }),
      { numRuns: trialCount(1_000, 5_000) },
    );
  });
});

describe('the reason of a precedence', () => {
  test.each([
    ['exact_namespace', ['a', '*'], ['a*', 'i'], 'an exact namespace takes precedence over a'],
    ['more_literal_characters_in_namespace', ['ab*', '*'], ['a*', 'i'], '2 are more than 1'],
    ['longer_prefix_of_namespace', ['ab*c', '*'], ['a*bc', 'i'], '2 characters are more than 1'],
    ['smaller_text_of_namespace', ['a*', '*'], ['a**', 'i'], 'the smaller text of the namespace'],
    ['exact_identifier', ['n', 'a'], ['n', 'a*'], 'an exact identifier takes precedence over a'],
    ['more_literal_characters_in_identifier', ['n', '😀a*'], ['n', '😀*'], '2 are more than 1'],
    ['longer_prefix_of_identifier', ['*', 'ab*c'], ['*', 'a*bc'], '2 characters are more than 1'],
    ['smaller_text_of_identifier', ['n', 'a*'], ['n', 'a**'], 'the smaller text of the identifier'],
  ] as [string, [string, string], [string, string], string][])(
    'names the first rule that distinguishes two overrides: %s',
    (rule, winner, loser, text) => {
      expect(explainPrecedence(pair(winner), pair(loser))).toEqual({
        rule,
        text: expect.stringContaining(text),
      });
    },
  );

  test('exists for each rule', () => {
    // Those above, that of blocks, and two of CIDR blocks: test/overrides/cidr.test.ts.
    expect(PRECEDENCE_RULES).toHaveLength(11);
    expect(() => explainPrecedence(pair(['n', 'a']), pair(['n', 'a']))).toThrow('itself');
  });
});

test('a single pattern matches the texts that the model matches', () => {
  const part = (...stars: string[]) => {
    return fc
      .array(fc.constantFrom('a', 'b', '😀', ...stars), { maxLength: 8 })
      .map((characters) => characters.join(''));
  };
  fc.assert(
    fc.property(part('*', '*'), part('*'), (pattern, text) => {
      expect(matchesPattern(pattern, text)).toBe(matches(pattern, text));
    }),
    { numRuns: trialCount(2_000, 10_000) },
  );
});

test('a run of stars matches the same texts as one star', () => {
  expect(['', 'a', '*', 'a*b'].map(isPattern)).toEqual([false, false, true, true]);
  expect(['', 'a', '*', '**a*'].map(countStars)).toEqual([0, 0, 1, 3]);
  expect(collapseStars('**a***b*')).toBe('*a*b*');
  const text = fc.stringMatching(/^[ab*]{0,8}$/);
  fc.assert(
    fc.property(text, fc.stringMatching(/^[ab]{0,8}$/), (pattern, subject) => {
      expect(matches(collapseStars(pattern), subject)).toBe(matches(pattern, subject));
    }),
  );
});
