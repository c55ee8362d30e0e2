/** The identifiers of counters, and the paths of metrics. */

import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { IDENTIFIER_MAX_CHARACTERS, RLS_PATH_MAX_CHARACTERS } from '../../../src/core/constants.ts';
import { DomainMatcher } from '../../../src/rls/config/match.ts';
import { identifierOf, metricPathOf, overridePathOf } from '../../../src/rls/config/paths.ts';
import { newSeed } from '../../support/guarantees.ts';
import { parseTexts, TREE } from '../../support/rls-configuration.ts';

type Entry = readonly [key: string, value: string];

const split = (entries: readonly Entry[]) => {
  return [entries.map(([key]) => key), entries.map(([, value]) => value), entries.length] as const;
};

/** Identifiers and metric paths of what the rules of a file match; undefined where none does. */
function namesIn(text: string, isCompatible = false) {
  const [domain] = parseTexts([text], { isCompatible }).domains;
  const matcher = new DomainMatcher(domain, isCompatible);
  const named = <T>(name: (...args: ReturnType<typeof split>) => T) => {
    return (...entries: Entry[]) => {
      const args = split(entries);
      return matcher.find(...args) && name(...args);
    };
  };
  return {
    identifier: named((...args) => identifierOf(matcher.path, ...args)),
    metric: named((...args) => metricPathOf('d', matcher.path, ...args)),
  };
}

const identifier = (...entries: Entry[]) => identifierOf(undefined, ...split(entries));

const SHARED = `
domain: d
descriptors:
  - key: files
    value: files/*
    share_threshold: true
    rate_limit: { unit: hour, requests_per_unit: 10 }
  - key: files
    value: other/*
    rate_limit: { unit: hour, requests_per_unit: 10 }
  - key: route
    value: api/*
    share_threshold: true
    value_to_metric: true
    descriptors:
      - key: method
        rate_limit: { unit: minute, requests_per_unit: 60 }
  - key: service
    value: svc/*
    share_threshold: true
    descriptors:
      - key: endpoint
        detailed_metric: true
        rate_limit: { unit: minute, requests_per_unit: 80 }
`;

describe('an identifier', () => {
  test('is the keys and values of the entries, escaped where they have separators', () => {
    expect(identifier(['a', '1'], ['b', '2'])).toBe('a=1|b=2');
    expect(identifier(['a', ''])).toBe('a=');
    expect(identifier(['a|b', 'c=d%*'], ['é', '~:/?'])).toBe('a%7Cb=c%3Dd%25%2A|é=~:/?');
    const { identifier: matched } = namesIn(TREE);
    expect(matched(['a', '1'], ['b', '9'])).toBe('a=1|b=9');
    expect(matched(['a', '1'], ['b', '9=|'])).toBe('a=1|b=9%3D%7C');
  });

  test('has the pattern of a rule whose values share a counter', () => {
    const { identifier: matched } = namesIn(SHARED);
    expect(matched(['files', 'files/a'])).toBe('files=files/%2A');
    expect(matched(['files', 'files/b'])).toBe('files=files/%2A');
    expect(matched(['files', 'other/a'])).toBe('files=other/a');
    expect(matched(['route', 'api/7'], ['method', 'get'])).toBe('route=api/%2A|method=get');
  });

  test('is different for any two descriptors, by default', () => {
    const text = fc.string({ unit: fc.constantFrom('a', '_', '%', '|', '=', '*', '~', '7', 'C') });
    const entries = fc.array(fc.tuple(text, text), { minLength: 1, maxLength: 3 });
    const property = fc.property(entries, entries, (one, other) => {
      const isSame = JSON.stringify(one) === JSON.stringify(other);
      expect(identifier(...one) === identifier(...other)).toBe(isSame);
      // The model: a pair at each bar, which no escaped text has.
      const pairs = identifier(...one)
        .split('|')
        .map((pair) => pair.split('=').map(decodeURIComponent));
      expect(pairs).toEqual(one);
    });
    fc.assert(property, { seed: newSeed(), numRuns: 2_000 });
  });

  test('is the same for the same joined text in the compatible mode', () => {
    const text = `
domain: d
descriptors:
  - { key: a_b, value: c }
  - { key: x, value: y_* }
  - { key: s_t, value: "u*", share_threshold: true }
  - { key: "w*" }
  - { key: m_n_o }
`;
    const { identifier: matched } = namesIn(text, true);
    expect([matched(['a_b', 'c']), matched(['a', 'b_c'])]).toEqual(['a_b=c', 'a_b=c']);
    expect([matched(['x', 'y_z']), matched(['x_y', 'z'])]).toEqual(['x=y_z', 'x=y_z']);
    expect([matched(['s_t', 'uv']), matched(['s', 't_uw'])]).toEqual(['s_t=u%2A', 's_t=u%2A']);
    expect([matched(['w_1', '2']), matched(['w', '1_2'])]).toEqual(['w=1_2', 'w=1_2']);
    expect([matched(['m_n', 'o']), matched(['m', 'n_o'])]).toEqual(['m=n_o', 'm=n_o']);
    expect(namesIn(text).identifier(['a', 'b_c'])).toBeUndefined();
  });

  test('of a longer key that matches a shared wildcard is not that of the wildcard', () => {
    const text = `
domain: d
descriptors:
  - { key: a, value: "*", share_threshold: true }
`;
    const { identifier: matched } = namesIn(text, true);
    expect([matched(['a', '1']), matched(['a', 'b_1'])]).toEqual(['a=%2A', 'a=%2A']);
    // As in envoyproxy/ratelimit, where its key is "a_b_a_*".
    expect([matched(['a_b', '1']), matched(['a_b', '2'])]).toEqual(['a=b_a_%2A', 'a=b_a_%2A']);
  });
});

describe('an identifier that is too long', () => {
  const most = IDENTIFIER_MAX_CHARACTERS;
  const hashOf = (text: string) => createHash('sha256').update(text).digest('hex');

  test('is cut, and has the hash of the whole', () => {
    const whole = `k=${'v'.repeat(most)}`;
    const short = identifier(['k', 'v'.repeat(most)]);
    expect(short).toBe(`${whole.slice(0, most - 65)}~${hashOf(whole)}`);
    expect(short).toHaveLength(most);
    expect(identifier(['k', `${'v'.repeat(most)}w`])).not.toBe(short);
  });

  test('is not cut at the maximum, which counts code points', () => {
    const longest = 'v'.repeat(most - 2);
    expect(identifier(['k', longest])).toBe(`k=${longest}`);
    const emoji = '😀'.repeat(most - 2);
    expect(identifier(['k', emoji])).toBe(`k=${emoji}`);
    expect([...identifier(['k', `${emoji}😀`])]).toHaveLength(most);
  });

  test('is cut neither in a surrogate pair nor in an escape', () => {
    for (let before = 0; before < 4; before++) {
      for (const character of ['😀', '|']) {
        const value = 'x'.repeat(before) + character.repeat(2 * most);
        const short = identifier(['k', value]);
        const [start] = short.split('~');
        expect(short.isWellFormed() && [...short].length <= most).toBe(true);
        expect(decodeURIComponent(start)).toBe(
          `k=${value}`.slice(0, decodeURIComponent(start).length),
        );
        expect([...start].length).toBeGreaterThan(most - 70);
      }
    }
  });
});

describe('the path of metrics', () => {
  test('is that of the rule', () => {
    const { metric } = namesIn(TREE);
    expect(metric(['a', '1'], ['b', '9'])).toBe('d.a_1.b');
    expect(metric(['a', '1'], ['b', '2'])).toBe('d.a_1.b_2');
    expect(metric(['c', '7'])).toBe('d.c');
  });

  test('has the values of all entries with detailed_metric', () => {
    expect(namesIn(TREE).metric(['g', 'q'])).toBe('d.g_q');
    expect(namesIn(TREE).metric(['g', ''])).toBe('d.g_');
  });

  test('has the value of an entry with value_to_metric', () => {
    const text = `
domain: d
descriptors:
  - key: route
    value_to_metric: true
    descriptors:
      - key: id
        rate_limit: { unit: minute, requests_per_unit: 1 }
      - key: w
        value: x*
        value_to_metric: true
        rate_limit: { unit: minute, requests_per_unit: 1 }
      - key: n
        value: y*
        rate_limit: { unit: minute, requests_per_unit: 1 }
      - key: det
        detailed_metric: true
        rate_limit: { unit: minute, requests_per_unit: 1 }
`;
    for (const isCompatible of [false, true]) {
      const { metric } = namesIn(text, isCompatible);
      expect(metric(['route', 'api'], ['id', '7'])).toBe('d.route_api.id');
      expect(metric(['route', ''], ['id', '7'])).toBe('d.route.id');
      expect(metric(['route', 'api'], ['w', 'xy'])).toBe('d.route_api.w_xy');
      expect(metric(['route', 'api'], ['n', 'yz'])).toBe('d.route_api.n_y*');
      expect(metric(['route', 'api'], ['det', '7'])).toBe('d.route_api.det_7');
    }
  });

  test('has the pattern where values share a counter, with either field', () => {
    const { metric } = namesIn(SHARED);
    expect(metric(['files', 'files/a'])).toBe('d.files_files/*');
    expect(metric(['route', 'api/7'], ['method', 'get'])).toBe('d.route_api/*.method');
    expect(metric(['service', 'svc/a'], ['endpoint', 'e'])).toBe('d.service_svc/*.endpoint_e');
    expect(metric(['service', 'svc/a'], ['endpoint', ''])).toBe('d.service_svc/*.endpoint');
  });

  test('is that of the entries for a descriptor with its own limit', () => {
    const pathOf = (...entries: Entry[]) => overridePathOf('d', ...split(entries));
    expect(pathOf(['a', '1'], ['b', '9'])).toBe('d.a_1.b_9');
    expect(pathOf(['a', ''], ['b', 'x:y'])).toBe('d.a.b_x_y');
  });

  test('has no colon, no bar and no dot of an IPv4 address', () => {
    const rule = (value: string) => `{key: k, value: "${value}", rate_limit: {unlimited: true}}`;
    const values = ['x:y|z', '10.0.0.1', '1.2.3', 'v1.2'];
    const { metric } = namesIn(`domain: d\ndescriptors: [${values.map(rule).join(', ')}]`);
    expect(values.map((value) => metric(['k', value]))).toEqual([
      'd.k_x_y_z',
      'd.k_10_0_0_1',
      'd.k_1.2.3',
      'd.k_v1.2',
    ]);
  });

  test('is no longer than its bound, and different for different values', () => {
    const long = 'é😀'.repeat(100_000);
    const paths = ['1', '2'].map((end) => overridePathOf('d', ['k'], [long + end], 1));
    for (const path of paths) {
      expect(path).toMatch(/^d\.k_é😀.*~[0-9a-f]{64}$/u);
      expect([path.length <= RLS_PATH_MAX_CHARACTERS, path.isWellFormed()]).toEqual([true, true]);
    }
    expect(paths[0]).not.toBe(paths[1]);
    const exact = 'x'.repeat(RLS_PATH_MAX_CHARACTERS - 'd.k_'.length);
    expect(overridePathOf('d', ['k'], [exact], 1)).toBe(`d.k_${exact}`);
  });

  test('of another split of the text is the same as in envoyproxy/ratelimit', () => {
    const text = `
domain: d
descriptors:
  - { key: a_b, value: c, rate_limit: { unlimited: true } }
  - { key: x, value: y_*, rate_limit: { unlimited: true } }
  - { key: "w*", rate_limit: { unlimited: true } }
`;
    const { metric } = namesIn(text, true);
    expect(metric(['a', 'b_c'])).toBe('d.a_b_c');
    expect(metric(['x_y', 'z'])).toBe('d.x_y_*');
    expect(metric(['w1', 'z'])).toBe('d.w1_w*');
  });
});
