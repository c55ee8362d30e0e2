/** Which texts a pattern of a rule matches. */

import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  literalLength,
  matchesWildcards,
  splitWildcards,
} from '../../../src/rls/config/wildcard.ts';
import { newSeed } from '../../support/guarantees.ts';

const matches = (pattern: string, text: string) => matchesWildcards(splitWildcards(pattern), text);

/** The same by a regular expression. */
const byRegExp = (pattern: string, text: string) => {
  const parts = pattern.split('*').map((part) => part.replace(/[.+?^$(){}|[\]\\]/g, '\\$&'));
  return new RegExp(`^${parts.join('.*')}$`, 's').test(text);
};

test.each<[pattern: string, matching: string[], others: string[]]>([
  ['foo*', ['foo', 'foo1', 'foo*'], ['bar', 'fo', '']],
  ['bar*b', ['barb', 'bar12b'], ['bara', 'bab', 'bar']],
  ['foo*bar*baz', ['foobarbaz', 'foo1bar2baz'], ['foo1baz', 'foobabaz', 'xfoobarbaz']],
  ['a*a', ['aa', 'aba'], ['a']],
  ['*', ['', 'a'], []],
  ['ab*ba', ['abba'], ['aba']],
  ['*bar', ['bar', 'barbar'], ['barb']],
])('%s matches some texts and not others', (pattern, matching, others) => {
  for (const text of matching) expect([text, matches(pattern, text)]).toEqual([text, true]);
  for (const text of others) expect([text, matches(pattern, text)]).toEqual([text, false]);
});

test('a pattern matches as the regular expression does in which * is .*', () => {
  const text = fc.string({ unit: fc.constantFrom('a', 'b', '*', '.', '😀'), maxLength: 8 });
  const property = fc.property(text, text, (pattern, value) => {
    expect(matches(pattern, value)).toBe(byRegExp(pattern, value));
  });
  fc.assert(property, { seed: newSeed(), numRuns: 2_000 });
});

test('the specificity of a pattern is its characters, not its code units or wildcards', () => {
  expect(['a*', '**a*', '😀*', 'ab*c', '*'].map((it) => literalLength(splitWildcards(it)))).toEqual(
    [1, 1, 1, 3, 0],
  );
});
