/** Why a rule matches a descriptor, and why others do not. */

import { describe, expect, test } from 'vitest';
import { RLS_EXPLAINED_RULES_MAX } from '../../../src/core/constants.ts';
import { type Descriptor, explainDescriptors } from '../../../src/rls/config/explain.ts';
import { parseTexts, TREE } from '../../support/rls-configuration.ts';

type Entry = readonly [key: string, value: string];
const descriptor = (...entries: Entry[]): Descriptor => ({
  keys: entries.map(([key]) => key),
  values: entries.map(([, value]) => value),
});

function explain(text: string, descriptors: readonly Descriptor[], isCompatible = false) {
  const [domain] = parseTexts([text], { isCompatible }).domains;
  return explainDescriptors(domain, isCompatible, descriptors);
}

/** Rules of one key; `-` has no value. */
const valuesFile = (...values: string[]) => {
  const rules = values.map((value) => (value === '-' ? '{key: k}' : `{key: k, value: "${value}"}`));
  return `domain: d\ndescriptors: [{key: other}, ${rules.join(', ')}]`;
};
const reasonsOf = (text: string, value: string, isCompatible = false) => {
  const [{ others }] = explain(text, [descriptor(['k', value])], isCompatible);
  return Object.fromEntries(others.map(({ rule, reason }) => [rule.path, reason]));
};

describe('an explanation', () => {
  test('has the rule, the identifier and the metrics of a counted descriptor', () => {
    const [explanation] = explain(TREE, [descriptor(['a', '1'], ['b', '9'])]);
    const { path, rule, identifier, metricPath, otherRules } = explanation;
    expect(path.map((one) => one.path)).toEqual(['d.a_1', 'd.a_1.b']);
    expect([rule?.path, identifier, metricPath]).toEqual(['d.a_1.b', 'a=1|b=9', 'd.a_1.b']);
    expect(otherRules).toBe(7);
  });

  test('has no identifier of a descriptor that is not counted', () => {
    for (const entries of [[['u', '1']], [['c', '3']], [['a', '9']]] as Entry[][]) {
      const [{ identifier, metricPath }] = explain(TREE, [descriptor(...entries)]);
      expect([identifier, metricPath]).toEqual([undefined, undefined]);
    }
  });

  test('has the rules of the first entries where a later one has none', () => {
    const [first, second] = explain(TREE, [
      descriptor(['a', '1'], ['x', '1'], ['y', '1']),
      descriptor(['x', '1']),
    ]);
    expect([first.path.map(({ path }) => path), first.rule]).toEqual([['d.a_1'], undefined]);
    expect([second.path, second.rule]).toEqual([[], undefined]);
  });

  test('says why each other rule of the key does not apply', () => {
    expect(reasonsOf(valuesFile('-', 'ab', 'a*', 'b', 'b*', '*'), 'ab')).toEqual({
      'd.k': 'a rule with the value comes first',
      'd.k_a*': 'the exact value comes first',
      'd.k_b': 'value differs',
      'd.k_b*': 'wildcard does not match',
      'd.k_*': 'the exact value comes first',
    });
    expect(reasonsOf(valuesFile('*', 'a*'), 'ab')).toEqual({
      'd.k_*': 'wildcard is less specific',
    });
  });

  test('says the same in the compatible mode, by its own rules', () => {
    expect(reasonsOf(valuesFile('-', 'ab', 'a*', 'b', 'b*'), 'ab', true)).toEqual({
      'd.k': 'a rule with the value comes first',
      'd.k_a*': 'the exact value comes first',
      'd.k_b': 'value differs',
      'd.k_b*': 'wildcard does not match',
    });
    expect(reasonsOf(valuesFile('*', 'a*'), 'ab', true)).toEqual({
      'd.k_a*': 'wildcard is later in the files',
    });
  });

  test('lists a bounded number of rules, and counts all', () => {
    const many = Array.from({ length: 2 * RLS_EXPLAINED_RULES_MAX }, (_, i) => `v${i}`);
    const [{ others, otherRules }] = explain(valuesFile(...many), [descriptor(['k', 'x'])]);
    expect([others.length, otherRules]).toEqual([RLS_EXPLAINED_RULES_MAX, many.length + 1]);
  });

  test('names the descriptor that replaces a limit, also if it is replaced itself', () => {
    const limit = (key: string, fields: string) => {
      return `{key: ${key}, rate_limit: {unit: day, requests_per_unit: 1, ${fields}}}`;
    };
    const rules = [
      limit('a', 'name: na'),
      limit('b', 'name: nb, replaces: [{name: na}]'),
      limit('c', 'name: nc, replaces: [{name: nb}]'),
    ];
    const text = `domain: d\ndescriptors: [${rules.join(', ')}]`;
    const entries = ['a', 'b', 'c'].map((key) => descriptor([key, '1']));
    expect(explain(text, entries).map(({ replacedBy }) => replacedBy)).toEqual([1, 2, undefined]);
    expect(explain(text, entries.slice(0, 1))[0].replacedBy).toBeUndefined();
  });
});
