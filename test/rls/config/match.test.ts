/** Which rule a descriptor matches, by default and compatible with envoyproxy/ratelimit. */

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Domain, Rule } from '../../../src/rls/config/configuration.ts';
import { DomainMatcher } from '../../../src/rls/config/match.ts';
import { matchesWildcards, splitWildcards } from '../../../src/rls/config/wildcard.ts';
import { newSeed } from '../../support/guarantees.ts';
import { parseTexts, TREE } from '../../support/rls-configuration.ts';

type Entry = readonly [key: string, value: string];

const MODES = [
  { mode: 'the default', isCompatible: false },
  { mode: 'the compatible mode', isCompatible: true },
];

/** The path of the rule that the entries match. */
function finder(text: string, isCompatible: boolean) {
  const [domain] = parseTexts([text], { isCompatible }).domains;
  const matcher = new DomainMatcher(domain, isCompatible);
  return (...entries: Entry[]) => findIn(matcher, entries)?.path;
}

function findIn(matcher: DomainMatcher, entries: readonly Entry[]): Rule | undefined {
  const keys = entries.map(([key]) => key);
  const values = entries.map(([, value]) => value);
  return matcher.find(keys, values, entries.length);
}

/** A file with the rules `k`, with these values, and with `-` for none. */
const valuesFile = (...values: string[]) => {
  const rules = values.map((value) => (value === '-' ? '{key: k}' : `{key: k, value: "${value}"}`));
  return `domain: d\ndescriptors: [${rules.join(', ')}]`;
};

describe.each(MODES)('in $mode a descriptor', ({ isCompatible }) => {
  const find = finder(TREE, isCompatible);

  test('matches no rule without entries, of an unknown key, and of an unknown value', () => {
    expect([find(), find(['x', '1']), find(['a', '9'])]).toEqual([undefined, undefined, undefined]);
  });

  test('matches a rule without a limit where one has none', () => {
    expect([find(['a', '1']), find(['c', '3'])]).toEqual(['d.a_1', 'd.c_3']);
  });

  test('matches the value before the key alone, at each level', () => {
    expect(find(['a', '1'], ['b', '9'])).toBe('d.a_1.b');
    expect(find(['a', '1'], ['b', '2'])).toBe('d.a_1.b_2');
    expect([find(['c', '9']), find(['c', '2'])]).toEqual(['d.c', 'd.c_2']);
    expect([find(['u', '1']), find(['g', 'q'])]).toEqual(['d.u', 'd.g']);
  });

  test('matches no rule at another depth, and no rule beside the one that was chosen', () => {
    expect(find(['c', '2'], ['x', '1'])).toBeUndefined();
    expect(find(['e', '5'], ['f', '9'])).toBeUndefined();
    expect(find(['e', '5'], ['f', '5'])).toBe('d.e_5.f_5');
    const text = 'domain: d\ndescriptors: [{key: k, value: 1}, {key: k, descriptors: [{key: l}]}]';
    const other = finder(text, isCompatible);
    expect(other(['k', '2'], ['l', ''])).toBe('d.k.l');
    // No backtracking to the rule with the key alone.
    expect(other(['k', '1'], ['l', ''])).toBeUndefined();
  });

  test('matches a value before the wildcards that match it, and these before the key', () => {
    const found = finder(valuesFile('-', 'test*', 'test1'), isCompatible);
    expect(found(['k', 'test1'])).toBe('d.k_test1');
    expect(found(['k', 'test2'])).toBe('d.k_test*');
    expect(found(['k', 'other'])).toBe('d.k');
    expect(found(['k', 'test*'])).toBe('d.k_test*');
  });

  test('has the rule of each entry in the path of the matcher', () => {
    const [domain] = parseTexts([TREE], { isCompatible }).domains;
    const matcher = new DomainMatcher(domain, isCompatible);
    const { path } = matcher;
    expect(
      findIn(matcher, [
        ['a', '1'],
        ['b', '2'],
      ])?.path,
    ).toBe('d.a_1.b_2');
    expect(path.map((rule) => rule.path)).toEqual(['d.a_1', 'd.a_1.b_2']);
    findIn(matcher, [['c', '2']]);
    expect(matcher.path).toBe(path);
    expect(path[0].path).toBe('d.c_2');
  });

  test('matches nothing in a domain without rules', () => {
    expect(finder('domain: d', isCompatible)(['a', '1'])).toBeUndefined();
  });
});

describe('of several wildcards', () => {
  test('the default takes the one with the most other characters, then the first', () => {
    const find = finder(valuesFile('x*', 'xy*', '*z', '*y*z', '*'), false);
    expect(find(['k', 'xyw'])).toBe('d.k_xy*');
    expect(find(['k', 'xw'])).toBe('d.k_x*');
    expect(find(['k', 'xz'])).toBe('d.k_x*');
    expect(find(['k', 'ayz'])).toBe('d.k_*y*z');
    expect(find(['k', ''])).toBe('d.k_*');
  });

  test('the compatible mode takes the first of the files', () => {
    const find = finder(valuesFile('x*', 'xy*', '*z'), true);
    expect(find(['k', 'xyz'])).toBe('d.k_x*');
    expect(find(['k', 'az'])).toBe('d.k_*z');
  });
});

describe('keys and values', () => {
  const text = 'domain: d\ndescriptors: [{key: a_b, value: c}, {key: "f*"}, {key: p}]';

  test('are compared separately by default', () => {
    const find = finder(text, false);
    expect(find(['a_b', 'c'])).toBe('d.a_b_c');
    expect(find(['a', 'b_c'])).toBeUndefined();
    expect(find(['foo', 'x'])).toBeUndefined();
    expect(find(['f*', 'x'])).toBe('d.f*');
  });

  test('are one text in the compatible mode', () => {
    const find = finder(text, true);
    expect(find(['a_b', 'c'])).toBe('d.a_b_c');
    expect(find(['a', 'b_c'])).toBe('d.a_b_c');
    // The key alone is looked up among all texts.
    expect(find(['a_b_c', 'x'])).toBe('d.a_b_c');
    expect(find(['foo', 'x'])).toBe('d.f*');
    // A wildcard of one key matches another key.
    const wild = finder('domain: d\ndescriptors: [{key: a, value: "b*"}]', true);
    expect(wild(['a_b', 'x'])).toBe('d.a_b*');
  });

  test('may have an empty value, which is a value by default', () => {
    const empty = finder(valuesFile('', 'x'), false);
    expect([empty(['k', '']), empty(['k', 'y'])]).toEqual(['d.k_', undefined]);
    const compatible = finder(valuesFile('', 'x'), true);
    expect([compatible(['k', '']), compatible(['k', 'y'])]).toEqual(['d.k', 'd.k']);
  });
});

/** The rule of an entry by a search through all rules of the level. */
function modelFind(rules: readonly Rule[], [key, value]: Entry, isCompatible: boolean) {
  const wildcardMatches = (pattern: string, text: string) => {
    return pattern.includes('*') && matchesWildcards(splitWildcards(pattern), text);
  };
  if (isCompatible) {
    const textOf = (rule: Rule) =>
      rule.value === undefined ? rule.key : `${rule.key}_${rule.value}`;
    const text = `${key}_${value}`;
    return (
      rules.find((rule) => textOf(rule) === text) ??
      rules.find((rule) => wildcardMatches(textOf(rule), text)) ??
      rules.find((rule) => textOf(rule) === key)
    );
  }
  const ofKey = rules.filter((rule) => rule.key === key);
  const wildcards = ofKey.filter((rule) => wildcardMatches(rule.value ?? '', value));
  const specificity = (rule: Rule) => [...rule.value!.replaceAll('*', '')].length;
  const most = Math.max(...wildcards.map(specificity));
  return (
    ofKey.find((rule) => rule.value === value) ??
    wildcards.find((rule) => specificity(rule) === most) ??
    ofKey.find((rule) => rule.value === undefined)
  );
}

function modelPath(domain: Domain, entries: readonly Entry[], isCompatible: boolean) {
  const path: Rule[] = [];
  let level = domain.rules;
  for (const entry of entries) {
    const rule = modelFind(level, entry, isCompatible);
    if (rule === undefined) return undefined;
    path.push(rule);
    level = rule.rules;
  }
  return path.length === 0 ? undefined : path;
}

/** Few texts, so that many descriptors match. In the compatible mode keys and values overlap. */
const keyText = fc.constantFrom('a', 'b', 'a_b', 'a*');
const valueText = (minLength: number) => {
  return fc.string({ unit: fc.constantFrom('a', 'b', '_', '*'), minLength, maxLength: 2 });
};
const UNSET = {
  limit: undefined,
  isShadow: false,
  isQuota: false,
  hasDetailedMetric: false,
  hasValueInMetric: false,
  sharesCounter: false,
  metadata: undefined,
  path: '',
};
/** Rules of a level; of those that the mode cannot tell apart the first remains. */
function rulesOf(isCompatible: boolean, depth: number): fc.Arbitrary<Rule[]> {
  const value = fc.option(valueText(isCompatible ? 1 : 0), { nil: undefined });
  const rules = depth === 0 ? fc.constant([]) : rulesOf(isCompatible, depth - 1);
  const rule = fc.record({ key: keyText, value, rules });
  const idOf = (one: { key: string; value: string | undefined }) => {
    const joined = one.value === undefined ? one.key : `${one.key}_${one.value}`;
    return isCompatible ? joined : JSON.stringify([one.key, one.value]);
  };
  return fc
    .uniqueArray(rule, { selector: idOf, minLength: 3, maxLength: 8, size: 'max' })
    .map((all) => all.map((one) => ({ ...UNSET, ...one })));
}

test.each(MODES)(
  '$mode finds the rules of a model that compares all of them',
  ({ isCompatible }) => {
    const entry = fc.tuple(keyText, valueText(0));
    const lists = fc.array(fc.array(entry, { maxLength: 3 }), { minLength: 20, maxLength: 20 });
    const found = [0, 0, 0, 0];
    const property = fc.property(rulesOf(isCompatible, 2), lists, (rules, descriptors) => {
      const domain = { name: 'd', allowsNegativeHits: false, rules };
      const matcher = new DomainMatcher(domain, isCompatible);
      for (const entries of descriptors) {
        const expected = modelPath(domain, entries, isCompatible);
        const rule = findIn(matcher, entries);
        expect(rule).toBe(expected?.at(-1));
        if (expected === undefined) continue;
        found[entries.length]++;
        for (const [i, one] of expected.entries()) expect(matcher.path[i]).toBe(one);
      }
    });
    fc.assert(property, { seed: newSeed(), numRuns: 100 });
    for (const count of found.slice(1)) expect(count).toBeGreaterThan(20);
  },
);
