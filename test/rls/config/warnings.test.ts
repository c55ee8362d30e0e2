/** What a validation warns of. */

import { describe, expect, test } from 'vitest';
import type { Rule } from '../../../src/rls/config/configuration.ts';
import { parseConfiguration } from '../../../src/rls/config/parse.ts';
import { findWarnings } from '../../../src/rls/config/warnings.ts';
import { TREE } from '../../support/rls-configuration.ts';

function warningsOf(text: string, isCompatible = false): string[] {
  const positions = new Map<Rule, string>();
  const files = [{ name: 'f', text }];
  const configuration = parseConfiguration(
    files,
    { isCompatible, mergesDomains: false },
    positions,
  );
  return findWarnings(configuration, isCompatible, positions);
}

/** A file with the rules of one key, each in its own line from 3 on; `-` has no value. */
const valuesFile = (...values: string[]) => {
  const rules = values.map((value) =>
    value === '-' ? '- key: k' : `- {key: k, value: "${value}"}`,
  );
  return ['domain: d', 'descriptors:', ...rules].join('\n');
};

describe('a validation', () => {
  test('has no warning about a file without faults, in either mode', () => {
    expect([...warningsOf(TREE), ...warningsOf(TREE, true)]).toEqual([]);
    const apart = valuesFile('a*', 'b*', '-', 'ab');
    expect([...warningsOf(apart), ...warningsOf(apart, true)]).toEqual([]);
  });

  test('warns of an empty value, and of a wildcard in a key, by default', () => {
    const text = 'domain: d\ndescriptors:\n- {key: a, value: ""}\n- {key: "b*"}';
    expect(warningsOf(text)).toEqual([
      'f:3: "value" is empty and matches only entries with an empty value; leave it out for all',
      'f:4: the * in "key" "b*" is no wildcard; only "value" may have one',
    ]);
    expect(warningsOf(text, true)).toEqual([]);
  });

  test('warns of fields that have no effect without a limit', () => {
    const fields = ['shadow_mode: true', 'quota_mode: true', 'detailed_metric: true'];
    const text = `domain: d\ndescriptors:\n- {key: a, ${fields.join(', ')}, metadata: {b: 1}}`;
    const names = ['shadow_mode', 'quota_mode', 'detailed_metric', 'metadata'];
    expect(warningsOf(text)).toEqual(
      names.map((name) => `f:3: "${name}" has no effect without "rate_limit"`),
    );
  });

  test('warns of a replaced name that no limit of the domain has', () => {
    const limit = (fields: string) => `rate_limit: {unlimited: true, ${fields}}`;
    const rules = [
      `- {key: a, ${limit('replaces: [{name: x}, {name: y}]')}}`,
      `- {key: b, descriptors: [{key: c, ${limit('name: x')}}]}`,
    ];
    expect(warningsOf(`domain: d\ndescriptors:\n${rules.join('\n')}`)).toEqual([
      'f:3: "replaces" has the name "y", which no limit of the domain "d" has',
    ]);
  });
});

describe('a rule that never matches', () => {
  test('has a wildcard that an earlier one covers', () => {
    const text = valuesFile('x*', 'xy*', 'x*z');
    expect(warningsOf(text, true)).toEqual([
      'f:4: "k_xy*" never matches, because "k_x*" at f:3 matches all of it before',
      'f:5: "k_x*z" never matches, because "k_x*" at f:3 matches all of it before',
    ]);
    // The default compares the most specific one first.
    expect(warningsOf(text)).toEqual([]);
    expect(warningsOf(valuesFile('a*', 'a**'))).toEqual([
      'f:4: "a**" never matches, because "a*" at f:3 matches all of it before',
    ]);
  });

  test('has no value beside a wildcard for all values', () => {
    const message = 'the rule without a value never matches, because';
    const text = valuesFile('-', '*');
    expect(warningsOf(text)).toEqual([`f:3: ${message} "*" at f:4 matches all values`]);
    expect(warningsOf(text, true)).toEqual([`f:3: ${message} "k_*" at f:4 matches all values`]);
  });
});

test('the order of wildcards that match the same values is a warning in the compatible mode', () => {
  const text = valuesFile('x*', '*z');
  expect(warningsOf(text)).toEqual([]);
  expect(warningsOf(text, true)).toEqual([
    'f:4: the order of the files decides: what "k_*z" and "k_x*" at f:3 both match has the rule' +
      ' that comes first',
  ]);
});
