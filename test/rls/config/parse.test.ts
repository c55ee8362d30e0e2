/** What the parser reads from configuration files, and what it says about invalid ones. */

import { describe, expect, test } from 'vitest';
import {
  DURATION_MAX_MS,
  RLS_METADATA_MAX_BYTES,
  RLS_RAW_BODY_MAX_BYTES,
  RLS_RULE_DEPTH_MAX,
  RLS_RULES_MAX,
} from '../../../src/core/constants.ts';
import { StartError } from '../../../src/core/errors.ts';
import { NO_BURST, RULE } from '../../../src/core/window-rules.ts';
import type { Rule } from '../../../src/rls/config/configuration.ts';
import { parseConfiguration } from '../../../src/rls/config/parse.ts';
import {
  limitFile,
  parseRules,
  parseTexts,
  ruleFile,
  TREE,
} from '../../support/rls-configuration.ts';

const COMPATIBLE = { isCompatible: true };

/** The message of the error, which must be a StartError. */
function faultOf(text: string | readonly string[], modes = {}): string {
  try {
    parseTexts(typeof text === 'string' ? [text] : text, modes);
  } catch (error) {
    expect(error).toBeInstanceOf(StartError);
    return (error as StartError).message;
  }
  return 'no fault';
}

const limitOf = (text: string, modes = {}) => parseRules(text, modes)[0].limit;

describe('a valid file', () => {
  test('becomes a tree of rules with their limits and paths', () => {
    const { domains } = parseTexts([TREE]);
    expect(domains.map(({ name, allowsNegativeHits }) => [name, allowsNegativeHits])).toEqual([
      ['d', false],
    ]);
    const shapeOf = ({ path, limit, rules }: Rule): unknown => [
      path,
      limit && [limit.requestsPerUnit, limit.durationMs],
      ...rules.map(shapeOf),
    ];
    expect(domains[0].rules.map(shapeOf)).toEqual([
      ['d.a_1', undefined, ['d.a_1.b', [5, 1_000]], ['d.a_1.b_2', [10, 1_000]]],
      ['d.c', [20, 60_000]],
      ['d.c_2', [30, 60_000]],
      ['d.c_3', undefined],
      ['d.e_5', [15, 86_400_000], ['d.e_5.f_5', [25, 86_400_000]]],
      ['d.u', [0, 0]],
      ['d.g', [70, 60_000]],
    ]);
  });

  test('gives a rule every field of envoyproxy/ratelimit', () => {
    const [rule] = parseRules(
      ruleFile(
        'value: files/*',
        'shadow_mode: true',
        'quota_mode: yes',
        'detailed_metric: on',
        'value_to_metric: True',
        'share_threshold: y',
        'metadata: { a: { b: [1, 1.5, x, true, null, 010, "5", 2001-01-01] } }',
        'rate_limit: {unit: WEEK, requests_per_unit: 4294967295, name: n, replaces: [{name: m}]}',
      ),
    );
    expect(rule).toEqual({
      key: 'k',
      value: 'files/*',
      limit: {
        isUnlimited: false,
        requestsPerUnit: 4_294_967_295,
        durationMs: 604_800_000,
        algorithm: RULE.fixed,
        burst: NO_BURST,
        name: 'n',
        replaces: ['m'],
        rawBody: undefined,
        contentType: undefined,
      },
      rules: [],
      isShadow: true,
      isQuota: true,
      hasDetailedMetric: true,
      hasValueInMetric: true,
      sharesCounter: true,
      metadata: { a: { b: [1, 1.5, 'x', true, null, 8, '5', '2001-01-01'] } },
      path: 'd.k_files/*',
    });
  });

  test('has units in any case, and multiples of them', () => {
    const durationOf = (...fields: string[]) => {
      return limitOf(limitFile('requests_per_unit: 1', ...fields))?.durationMs;
    };
    expect(durationOf('unit: sEcOnD')).toBe(1_000);
    expect(durationOf('unit: minute')).toBe(60_000);
    expect(durationOf('unit: Hour', 'unit_multiplier: 4')).toBe(14_400_000);
    expect(durationOf('unit: month')).toBe(2_592_000_000);
    expect(durationOf('unit: year')).toBe(31_536_000_000);
    const most = DURATION_MAX_MS / 1_000;
    expect(durationOf('unit: second', `unit_multiplier: ${most}`)).toBe(DURATION_MAX_MS);
  });

  test('may name an algorithm, and a burst of gcra', () => {
    const limit = (...fields: string[]) => {
      return limitOf(limitFile('unit: day', 'requests_per_unit: 9', ...fields));
    };
    expect(limit('algorithm: sliding')).toMatchObject({ algorithm: RULE.sliding, burst: NO_BURST });
    expect(limit('algorithm: gcra')).toMatchObject({ algorithm: RULE.gcra, burst: NO_BURST });
    expect(limit('algorithm: gcra', 'burst: 9')).toMatchObject({ algorithm: RULE.gcra, burst: 9 });
  });

  test('may have the body of a denied request, with its type', () => {
    const fields = ['unit: day', 'requests_per_unit: 0', 'raw_body: \'{"a":1}\''];
    expect(limitOf(limitFile(...fields))).toMatchObject({ rawBody: '{"a":1}' });
    const typed = limitOf(limitFile(...fields, 'content_type: application/json; charset=utf-8'));
    expect(typed?.contentType).toBe('application/json; charset=utf-8');
  });

  test('may have an unlimited limit with a name, whose number is ignored', () => {
    const limit = limitOf(limitFile('unlimited: true', 'name: n', 'requests_per_unit: 5'));
    expect(limit).toMatchObject({ isUnlimited: true, requestsPerUnit: 0, name: 'n', replaces: [] });
  });

  test('may allow negative hits', () => {
    expect(parseTexts(['domain: d\nallow_negative_hits: true']).domains[0]).toEqual({
      name: 'd',
      allowsNegativeHits: true,
      rules: [],
    });
  });

  test('is merged with those of the same domain, in their order, if that is wanted', () => {
    const texts = ['domain: d\ndescriptors: [{key: b}]', ruleFile('value: a'), 'domain: e'];
    const merge = { mergesDomains: true };
    const { domains } = parseTexts([...texts, 'domain: d\nallow_negative_hits: true'], merge);
    expect(domains.map(({ name, rules }) => [name, rules.map(({ path }) => path)])).toEqual([
      ['d', ['d.b', 'd.k_a']],
      ['e', []],
    ]);
    expect(domains[0].allowsNegativeHits).toBe(true);
  });

  test('gives the position of each rule', () => {
    const positions = new Map<Rule, string>();
    const files = [{ name: 'x', text: TREE }];
    const { domains } = parseConfiguration(
      files,
      { isCompatible: false, mergesDomains: false },
      positions,
    );
    const [a, c] = domains[0].rules;
    expect([a, a.rules[1], c].map((rule) => positions.get(rule))).toEqual(['x:4', 'x:9', 'x:12']);
  });
});

/** Scalars without quotes, and the text that they are. Seen with envoyproxy/ratelimit. */
const TEXTS = ['5', 'true', 'yes', '010', '0x1F', '1_000', '-5', '+5', '2001-01-01', '12:30:45'];

describe('a scalar without quotes', () => {
  test('is a text as it is written, as in envoyproxy/ratelimit', () => {
    for (const text of TEXTS) {
      const [rule] = parseRules(`domain: ${text}\ndescriptors: [{key: ${text}, value: ${text}}]`);
      expect([rule.key, rule.value]).toEqual([text, text]);
    }
  });

  test('is no text with a fraction or an exponent, as in envoyproxy/ratelimit', () => {
    for (const text of ['1.5', '5.', '.5', '1e3', '.inf', '.nan', '99999999999999999999', '08']) {
      const message = `0.yaml:4: "value" must be a text; put a number that is no integer in quotes`;
      expect(faultOf(ruleFile(`value: ${text}`))).toBe(`${message}; got ${text}`);
      expect(parseRules(ruleFile(`value: "${text}"`))[0].value).toBe(text);
    }
  });

  test('is an integer in any base of yaml.v2', () => {
    const numbers = {
      '010': 8,
      '0o17': 15,
      '0x10': 16,
      '0b11': 3,
      '1_000': 1_000,
      '+5': 5,
      '-0': 0,
    };
    for (const [text, number] of Object.entries(numbers)) {
      const limit = limitOf(limitFile('unit: day', `requests_per_unit: ${text}`));
      expect([text, limit?.requestsPerUnit]).toEqual([text, number]);
    }
  });

  test('is nothing if it is null: a rule without a value', () => {
    for (const text of ['', '~', 'null', 'NULL']) {
      expect(parseRules(ruleFile(`value: ${text}`))[0].value).toBeUndefined();
    }
  });
});

const REQUESTS =
  '"requests_per_unit" must be an integer from 0 to 4294967295, without quotes; got ';
const UNITS = 'one of second, minute, hour, day, week, month, year; got ';
const FIELDS_OF_FILE = 'the fields are domain, descriptors, allow_negative_hits';

/** A file, and the line and the sentence about it. */
const FAULTS: [text: string, message: string][] = [
  // The errors of envoyproxy/ratelimit, with its own examples.
  ['descriptors:', '1: "domain" is required: the domain of the requests; got nothing'],
  ['', '1: "domain" is required: the domain of the requests; got nothing'],
  ['domain: ""', '1: "domain" is required: the domain of the requests; got nothing'],
  ['domain: d\ndescriptors:\n  - value: v', '3: "key" is required: the key of an entry; got noth'],
  [ruleFile('value: v', '', 'key: k'), '6: the key "key" is repeated; it is also at 0.yaml:3'],
  [
    `${ruleFile('value: v')}\n\n  - key: k\n    value: v`,
    '6: "key" and "value" must be different from those of other rules of the same level;' +
      ' got "k", "v", as at 0.yaml:3',
  ],
  [limitFile('unit: foo', 'requests_per_unit: 5'), `5: "unit" must be ${UNITS}foo`],
  [limitFile('unit: unknown'), `5: "unit" must be ${UNITS}unknown`],
  [limitFile('unit: ""'), `5: "unit" must be ${UNITS}""`],
  [limitFile('requests_per_unit: 5'), `5: "unit" is required: ${UNITS}nothing`],
  [
    limitFile('unlimited: true', 'unit: day'),
    '6: "unit" must be left out of an unlimited "rate_limit"',
  ],
  [
    limitFile('unit: day', 'requests_per_unit: 1', 'replaces: [{name: }]'),
    '7: an element of "replaces" must have the "name" of a limit; got nothing',
  ],
  [
    limitFile('unit: day', 'requests_per_unit: 1', 'name: self', 'replaces:', '- name: self'),
    '9: "replaces" must have names of other limits; got "self", the name of this limit',
  ],
  [
    ruleFile('ratelimit: {}'),
    '4: "ratelimit" is not a field of an element of "descriptors"; is it',
  ],
  [limitFile('requestsperunit: 5'), '5: "requestsperunit" is not a field of "rate_limit"; is it'],
  ['0.25: d', '1: a key must be a text, such as domain; got 0.25'],
  ['domain: d\n? [a]\n: b', '2: a key must be a text; got a list of 1'],
  ['domain: d\nx: y', `2: "x" is not a field of a file; ${FIELDS_OF_FILE}`],
  [
    'domain: d\ndescriptors:\n  - a\n  - b',
    '3: an element of "descriptors" must be a map of YAML; got a',
  ],
  [
    'domain: d\ndescriptors: [null]',
    '2: an element of "descriptors" must be a map of YAML; got nothing',
  ],
  ['domain: d\ndescriptors: {}', '2: "descriptors" must be a list of YAML; got a map'],
  ['- a', '1: a file must be a map of YAML; got a list of 1'],
  ["'''", '1: '],
  [
    ruleFile('value: v', 'share_threshold: true'),
    '5: "share_threshold" must be left out, unless "value" has a wildcard *; got "v"',
  ],
  // Values of the wrong type.
  [limitFile('unit: day', 'requests_per_unit: "5"'), `6: ${REQUESTS}"5"`],
  [limitFile('unit: day', 'requests_per_unit: 5.0'), `6: ${REQUESTS}5.0`],
  [limitFile('unit: day', 'requests_per_unit: 1e3'), `6: ${REQUESTS}1e3`],
  [limitFile('unit: day', 'requests_per_unit: -1'), `6: ${REQUESTS}-1`],
  [limitFile('unit: day', 'requests_per_unit: 4294967296'), `6: ${REQUESTS}4294967296`],
  [limitFile('unit: day', 'requests_per_unit: []'), `6: ${REQUESTS}a list of 0`],
  [
    ruleFile('shadow_mode: "true"'),
    '4: "shadow_mode" must be true or false, without quotes; got "t',
  ],
  [ruleFile('quota_mode: 1'), '4: "quota_mode" must be true or false, without quotes; got 1'],
  [ruleFile('value: [a]'), '4: "value" must be a text; got a list of 1'],
  [ruleFile('rate_limit: x'), '4: "rate_limit" must be a map of YAML; got x'],
  [ruleFile('metadata: [a]'), '4: "metadata" must be a map of YAML; got a list of 1'],
  [
    ruleFile('metadata: {a: .inf}'),
    '4: "metadata" must be a map of values that JSON has; got .inf',
  ],
  ['domain: "a\\ud800"', '1: "domain" must be Unicode; got a lone surrogate'],
  // Those of the fields that weir adds.
  [
    limitFile('unit: day', 'requests_per_unit: 1', 'algorithm: leaky'),
    '7: "algorithm" must be fixed, sliding or gcra; got leaky',
  ],
  [
    limitFile('unit: day', 'requests_per_unit: 1', 'burst: 1'),
    '7: "burst" must be left out unless "algorithm" is gcra; got it with fixed',
  ],
  [
    limitFile('unit: day', 'requests_per_unit: 3', 'algorithm: gcra', 'burst: 4'),
    '8: "burst" must be an integer from 1 to 3, without quotes; got 4',
  ],
  [
    limitFile('unit: day', 'requests_per_unit: 0', 'algorithm: gcra', 'burst: 1'),
    '8: "burst" must be left out where "requests_per_unit" is 0; got it',
  ],
  [
    limitFile('unit: year', 'requests_per_unit: 1', 'unit_multiplier: 101'),
    '7: "unit_multiplier" must be an integer from 1 to 100, without quotes; got 101',
  ],
  [
    limitFile('unit: day', 'requests_per_unit: 1', 'content_type: text/plain'),
    '7: "content_type" must be left out without "raw_body", whose type it is; got it',
  ],
  [
    limitFile('unit: day', 'requests_per_unit: 1', 'raw_body: x', 'content_type: "a\\nb"'),
    '8: "content_type" must be 1 to 256 characters of printable ASCII, such as application/json;',
  ],
  [
    limitFile('unlimited: true', 'algorithm: gcra'),
    '6: "algorithm" must be left out of an unlimited "rate_limit"',
  ],
  ['domain: d\nallow_negative_hits: 1', '2: "allow_negative_hits" must be true or false, without'],
  [
    'domain: rlns_a',
    '1: "domain" must be a text of 1 to 512 characters that does not begin with "',
  ],
  [`domain: ${'a'.repeat(513)}`, '1: "domain" must be a text of 1 to 512 characters that does not'],
  [limitFile('unit: day'), '5: "requests_per_unit" is required: an integer from 0 to 4294967295;'],
];

describe('an invalid file', () => {
  const byMessage = FAULTS.map(([text, message]) => [message, text]);
  test.each(byMessage)('has an error with its line: %s', (message, text) => {
    expect(faultOf(text).slice(0, '0.yaml:'.length + message.length)).toBe(`0.yaml:${message}`);
  });

  test('rejects all files', () => {
    expect(faultOf(['domain: d', 'domain: [', TREE])).toMatch(/^1\.yaml:1: this is not YAML: /);
  });

  test('of a domain that another one has is an error, unless they are merged', () => {
    expect(faultOf(['domain: d', '# comment\ndomain: d'])).toBe(
      '1.yaml:2: "domain" must be different in each file, unless domains are merged; got "d",' +
        ' as at 0.yaml:1',
    );
    const same = [ruleFile('value: a'), ruleFile('value: a')];
    expect(faultOf(same, { mergesDomains: true })).toMatch(/^1\.yaml:3: .* as at 0\.yaml:3$/);
  });
});

describe('the bounds', () => {
  test('of the depth of rules', () => {
    let deep = '{key: k}';
    for (let i = 1; i < RLS_RULE_DEPTH_MAX; i++) deep = `{key: k, descriptors: [${deep}]}`;
    expect(faultOf(`domain: d\ndescriptors: [${deep}]`)).toBe('no fault');
    const deeper = `{key: k, descriptors: [${deep}]}`;
    expect(faultOf(`domain: d\ndescriptors: [${deeper}]`)).toBe(
      `0.yaml:2: rules must be nested at most ${RLS_RULE_DEPTH_MAX} deep; got more`,
    );
  });

  test('count the rules that aliases repeat', () => {
    // Each level has the level before ten times.
    const levels = Array.from({ length: 6 }, (_, level) => {
      const next = level === 0 ? '' : `, descriptors: *l${level - 1}`;
      const rules = Array.from({ length: 10 }, (_, i) => `{key: k${i}${next}}`);
      return `  - key: a${level}\n    descriptors: &l${level} [${rules.join(', ')}]`;
    });
    expect(faultOf(`domain: d\ndescriptors:\n${levels.join('\n')}`)).toMatch(
      `must be at most ${RLS_RULES_MAX} rules in all files; got one more`,
    );
  });

  test('end an alias that names what it is in', () => {
    expect(faultOf('domain: d\ndescriptors: &a\n- key: k\n  descriptors: *a')).toMatch(
      `rules must be nested at most ${RLS_RULE_DEPTH_MAX} deep; got more`,
    );
  });

  test('of metadata and of a body', () => {
    const text = 'a'.repeat(RLS_METADATA_MAX_BYTES);
    expect(faultOf(ruleFile(`metadata: {a: ${text}}`))).toBe(
      `0.yaml:4: "metadata" must be at most ${RLS_METADATA_MAX_BYTES} bytes of JSON; got a map`,
    );
    const body = 'é'.repeat(RLS_RAW_BODY_MAX_BYTES / 2);
    const file = (end: string) => {
      return limitFile('unit: day', 'requests_per_unit: 1', `raw_body: ${body}${end}`);
    };
    expect(faultOf(file(''))).toBe('no fault');
    const message = `"raw_body" must be a text of at most ${RLS_RAW_BODY_MAX_BYTES} bytes`;
    expect(faultOf(file('a'))).toMatch(message);
  });
});

describe('the compatible mode', () => {
  test('reads a missing number of requests as 0, as envoyproxy/ratelimit does', () => {
    expect(limitOf(limitFile('unit: day'), COMPATIBLE)?.requestsPerUnit).toBe(0);
    expect(limitOf(limitFile('unit: day', 'requests_per_unit: 0'))?.requestsPerUnit).toBe(0);
  });

  test('finds duplicates by the joined text, and the default by key and value', () => {
    const text = 'domain: d\ndescriptors: [{key: a, value: b}, {key: a_b}]';
    expect(parseRules(text).map(({ path }) => path)).toEqual(['d.a_b', 'd.a_b']);
    expect(faultOf(text, COMPATIBLE)).toMatch(
      '"key" and "value", joined by _, must be different from those of other rules of the same' +
        ' level; got "a_b", as at 0.yaml:2',
    );
  });

  test('reads an empty value as none, and the default as an empty value', () => {
    const text = 'domain: d\ndescriptors: [{key: a, value: ""}, {key: a}]';
    expect(parseRules(text).map(({ value }) => value)).toEqual(['', undefined]);
    expect(faultOf(text, COMPATIBLE)).toMatch('got "a", as at');
  });

  test('ignores known fields in the wrong place, and the default rejects them', () => {
    for (const field of ['unit: day', 'requests_per_unit: 5', 'name: x']) {
      expect(faultOf(ruleFile(field), COMPATIBLE)).toBe('no fault');
      expect(faultOf(ruleFile(field))).toMatch('is not a field of an element of "descriptors"');
    }
    expect(faultOf(ruleFile('limit: 1'), COMPATIBLE)).toMatch('"limit" is not a field of');
  });

  test('accepts an invalid unit beside unlimited, which has no meaning', () => {
    const text = limitFile('unlimited: true', 'unit: foo');
    expect(limitOf(text, COMPATIBLE)?.isUnlimited).toBe(true);
    expect(faultOf(text)).toMatch('"unit" must be left out of an unlimited');
  });

  test('shares a counter by a wildcard in a key, which is none by default', () => {
    const text = 'domain: d\ndescriptors: [{key: a*, share_threshold: true}]';
    expect(parseRules(text, COMPATIBLE)[0].sharesCounter).toBe(true);
    expect(faultOf(text)).toMatch('unless "value" has a wildcard *; got no value');
  });
});
