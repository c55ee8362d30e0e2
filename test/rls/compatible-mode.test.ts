/** Where compatible mode and the default differ: the rules of files, side by side. */

import { describe, expect, test } from 'vitest';
import { DomainMatcher } from '../../src/rls/config/match.ts';
import { identifierOf } from '../../src/rls/config/paths.ts';
import { limitFile, parseTexts, ruleFile } from '../support/rls-configuration.ts';
import { RLS_CASES } from './cases.ts';

/** The rule of entries, as its key, value and limit; `none`; or the fault of the file. */
function outcomeOf(text: string, entries: readonly [string, string][], isCompatible: boolean) {
  try {
    const [domain] = parseTexts([text], { isCompatible }).domains;
    const [keys, values] = [entries.map(([key]) => key), entries.map(([, value]) => value)];
    const matcher = new DomainMatcher(domain, isCompatible);
    const rule = matcher.find(keys, values, entries.length);
    if (rule === undefined) return 'none';
    const identifier = identifierOf(matcher.path, keys, values, entries.length);
    const limit = rule.limit === undefined ? '' : ` ${rule.limit.requestsPerUnit}`;
    return `${rule.key}=${rule.value ?? ''}${limit} as ${identifier}`;
  } catch (error) {
    return (error as Error).message;
  }
}

const two = (one: string, other: string) =>
  ['domain: d', 'descriptors:', `  - { ${one} }`, `  - { ${other} }`].join('\n');

const ROWS: {
  name: string;
  text: string;
  entries: [string, string][];
  compatible: string;
  byDefault: string;
}[] = [
  {
    name: 'a limit without requests_per_unit',
    text: limitFile('unit: hour'),
    entries: [['k', '1']],
    compatible: 'k= 0 as k=1',
    byDefault:
      '0.yaml:5: "requests_per_unit" is required: an integer from 0 to 4294967295; 0 denies every' +
      ' request; got nothing',
  },
  {
    name: 'wildcards that match the same value',
    text: two('key: k, value: "x*"', 'key: k, value: "xy*"'),
    entries: [['k', 'xyz']],
    compatible: 'k=x* as k=xyz',
    byDefault: 'k=xy* as k=xyz',
  },
  {
    name: 'an entry whose key and value are joined as those of a rule',
    text: ruleFile('value: a_b').replace('key: k', 'key: k_l'),
    entries: [['k', 'l_a_b']],
    compatible: 'k_l=a_b as k_l=a_b',
    byDefault: 'none',
  },
  {
    name: 'rules whose key and value are joined to the same text',
    text: two('key: a_b, value: c', 'key: a, value: b_c'),
    entries: [['a', 'b_c']],
    compatible:
      '0.yaml:4: "key" and "value", joined by _, must be different from those of other rules of' +
      ' the same level; got "a_b_c", as at 0.yaml:3',
    byDefault: 'a=b_c as a=b_c',
  },
  {
    name: 'an empty value of a rule',
    text: ruleFile('value: ""'),
    entries: [['k', '1']],
    compatible: 'k= as k=1',
    byDefault: 'none',
  },
  {
    name: 'a wildcard in a key',
    text: ruleFile('value: "1"').replace('key: k', 'key: "k*"'),
    entries: [['kx', 'y_1']],
    compatible: 'k*=1 as kx=y_1',
    byDefault: 'none',
  },
  {
    name: 'a field in the wrong place',
    text: limitFile('unit: hour', 'requests_per_unit: 5', 'shadow_mode: true'),
    entries: [['k', '1']],
    compatible: 'k= 5 as k=1',
    byDefault: expect.stringMatching(
      /^0\.yaml:7: "?shadow_mode"? is not a field of "rate_limit"; /,
    ),
  },
  {
    name: 'an unknown unit of an unlimited rule',
    text: limitFile('unit: fortnight', 'unlimited: true'),
    entries: [['k', '1']],
    compatible: 'k= 0 as k=1',
    byDefault: '0.yaml:5: "unit" must be left out of an unlimited "rate_limit"',
  },
];

describe('in compatible mode and by default', () => {
  for (const { name, text, entries, compatible, byDefault } of ROWS) {
    test(`${name} differs`, () => {
      expect([outcomeOf(text, entries, true), outcomeOf(text, entries, false)]).toEqual([
        compatible,
        byDefault,
      ]);
    });
  }

  test('the answers differ in exactly these cases', () => {
    const names = RLS_CASES.filter(({ calls }) => calls.some(({ byDefault }) => byDefault));
    expect(names.map(({ name }) => name)).toEqual([
      'case 18: a look counts nothing',
      'a look at a limit of 0',
      'case 42: the order of the files decides between wildcards, by default their length',
      'entries whose joined texts are equal are the same rule, by default of their own keys',
      'a request without a domain or without descriptors',
    ]);
  });
});
