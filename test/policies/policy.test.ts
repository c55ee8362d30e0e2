import { describe, expect, test } from 'vitest';
import { POLICIES_MAX } from '../../src/core/constants.ts';
import { GATEWAYS, readPolicies } from '../../src/policies/policy.ts';

const MINIMAL = { gateway: 'nginx', limit: 100, duration: 60_000 };
const read = (more: object, name = 'login') => readPolicies({ [name]: { ...MINIMAL, ...more } })[0];

describe('a policy', () => {
  test('has the configured values, and the defaults for fields that are left out', () => {
    expect(read({})).toEqual({
      namespace: 'login',
      gateway: 'nginx',
      windows: [{ limit: 100, duration: 60_000 }],
      cost: 1,
      identify: ['ip'],
      trustedHops: 1,
      ipv6Prefix: 64,
      missing: 'share',
      onError: 'allow',
      shadow: false,
      legacyHeaders: false,
    });
    const all = {
      gateway: 'envoy',
      windows: [
        { limit: 5, duration: 1_000 },
        { limit: 100, duration: 3_600_000 },
      ],
      cost: 5,
      identify: ['header:X-Api-Key', 'ip'],
      trustedHops: 2,
      ipv6Prefix: 48,
      missing: 'deny',
      onError: 'deny',
      shadow: false,
      legacyHeaders: true,
    };
    expect(readPolicies({ api: all })).toEqual([{ namespace: 'api', ...all }]);
  });

  test('accepts the values of "missing" in older files', () => {
    const values = ['share', 'allow', 'deny', 'admit', 'refuse'];
    const actions = values.map((missing) => read({ missing }).missing);
    expect(actions).toEqual(['share', 'allow', 'deny', 'allow', 'deny']);
  });

  test('in shadow mode allows requests on errors, whatever "onError" says', () => {
    const policy = read({ shadow: true, onError: 'deny' });
    expect([policy.shadow, policy.onError]).toEqual([true, 'allow']);
  });

  test('accepts every gateway, and every name that needs no escape in a path', () => {
    for (const gateway of GATEWAYS) expect(read({ gateway }).gateway).toBe(gateway);
    for (const name of ['a', 'A.b_c~d:e@f-9', '__proto__', 'constructor', 'x'.repeat(512)]) {
      const policies = readPolicies(JSON.parse(`{"${name}":${JSON.stringify(MINIMAL)}}`));
      expect(policies.map(({ namespace }) => namespace)).toEqual([name]);
    }
  });

  test.each<[string, object, string]>([
    ['no gateway', { gateway: undefined }, '"gateway" is required: one of nginx, caddy,'],
    ['a wrong gateway', { gateway: 'apache' }, 'fastify; got "apache"'],
    ['no limit', { limit: undefined }, '"limit" is required: a policy has "limit" and'],
    ['no duration', { duration: undefined }, '"duration" is required'],
    ['a limit of 0', { limit: 0 }, '"limit" must be an integer from 1 to 9007199254740991; got 0'],
    [
      'a short window',
      { duration: 999 },
      '"duration" must be an integer number of milliseconds from 1000 to',
    ],
    ['a cost of 0', { cost: 0 }, '"cost" must be an integer from 1'],
    ['a large cost', { cost: 101 }, '"cost" must be at most the smallest limit, which is 100'],
    ['a word as a limit', { limit: '100' }, '"limit" must be an integer from 1'],
    ['windows too', { windows: [MINIMAL] }, '"windows" cannot be combined with "limit"'],
    ['a misspelled field', { limitt: 1 }, '"limitt" is no field of a policy; is it "limit"?'],
    ['a misspelled field, and one missing', { limt: 1, limit: undefined }, '; is it "limit"?'],
    [
      'an unknown field',
      { rate: 1, colour: 2 },
      '"rate" is no field of a policy; its fields are gateway, limit',
    ],
    ['an unknown part', { identify: 'IP' }, '"identify" must be ip, method, path, header:<name>'],
    ['a number as a part', { identify: ['ip', 7] }, 'or an array of these; got 7'],
    ['no part', { identify: [] }, '"identify" must be 1 to 8 of ip,'],
    ['a part twice', { identify: ['ip', 'ip'] }, '"identify" must not repeat a part'],
    ['a header twice', { identify: ['header:A', 'header:a'] }, 'must not repeat a part'],
    [
      'a header that proxies set',
      { identify: 'header:X-Forwarded-For' },
      'got "header:X-Forwarded-For"',
    ],
    ['no hop', { trustedHops: 0 }, '"trustedHops" must be an integer from 1 to 32; got 0'],
    ['a long prefix', { ipv6Prefix: 129 }, '"ipv6Prefix" must be an integer from 1 to 128'],
    ['an unknown "missing"', { missing: 'no' }, '"missing" must be share, allow or deny; got "no"'],
    ['an unknown "onError"', { onError: 'admit' }, '"onError" must be allow or deny; got "admit"'],
    ['a text as "shadow"', { shadow: 'yes' }, '"shadow" must be true or false; got "yes"'],
    ['null', { shadow: null }, '"shadow" must be true or false; got null'],
  ])('with %s is rejected with the name of the field', (_fault, fields, message) => {
    const policy = JSON.parse(JSON.stringify({ ...MINIMAL, ...fields }));
    expect(() => readPolicies({ login: policy })).toThrow('policy "login": ');
    expect(() => readPolicies({ login: policy })).toThrow(message);
  });

  test.each<[unknown, string]>([
    [[], 'got an array of 0'],
    [Array(9).fill({ limit: 1, duration: 1_000 }), 'got an array of 9'],
    [{ limit: 1, duration: 1_000 }, '"windows" must be an array of 1 to 8'],
    [[{ limit: 1 }], 'windows[0]: "duration" is required: an integer number of milliseconds'],
    [[{ limit: 1, duration: 60 }], 'windows[0]: "duration" must be an integer number of millisec'],
    [
      [
        { limit: 1, duration: 1_000 },
        { limit: 1, duration: 5 },
      ],
      'windows[1]: "duration" must be',
    ],
    [[{ limit: 1, duration: 1_000, cost: 1 }], 'windows[0]: "cost" is no field of a window'],
    [[{ limt: 1, duration: 1_000 }], 'windows[0]: "limt" is no field of a window; is it "limit"?'],
    [
      [
        { limit: 1, duration: 1_000 },
        { limit: 2, duration: 1_000 },
      ],
      '"windows" must differ in their duration',
    ],
  ])('with the windows %j is rejected with the name of the field', (windows, message) => {
    expect(() => readPolicies({ login: { gateway: 'nginx', windows } })).toThrow(message);
  });

  test.each(['', '.', '-a', ':a', 'a/b', 'a b', 'é', 'a%2F', 'rlns_a', 'x'.repeat(513), 'a"b'])(
    'of the namespace %j is rejected',
    (name) => {
      expect(() => readPolicies({ [name]: MINIMAL })).toThrow('its namespace must be 1 to 512 of');
    },
  );

  test.each([null, [], 'login', 7])('must be an object: %j is rejected', (input) => {
    expect(() => readPolicies(input)).toThrow('"policies" must be an object of policies');
    expect(() => readPolicies({ login: input })).toThrow('policy "login": ');
  });

  test('that is invalid is reported with the path of its field, and the others are read', () => {
    const input = {
      a: MINIMAL,
      b: { ...MINIMAL, limt: 1 },
      c: { gateway: 'nginx', windows: [{ limit: 1, duration: 1_000 }, { limit: 1 }] },
      'd.e': { ...MINIMAL, cost: 101 },
      f: { gateway: 'nginx' },
      '/': MINIMAL,
      g: { ...MINIMAL, identify: 'IP' },
    };
    const paths: string[][] = [];
    const policies = readPolicies(input, (path) => paths.push(path));
    expect(policies.map(({ namespace }) => namespace)).toEqual(['a']);
    expect(paths).toEqual([
      ['b', 'limt'],
      ['c', 'windows', '1', 'duration'],
      ['d.e', 'cost'],
      ['f'],
      ['/'],
      ['g', 'identify'],
    ]);
  });

  test('is rejected if there are too many', () => {
    const many = (count: number) => {
      return Object.fromEntries(Array.from({ length: count }, (_, i) => [`n${i}`, MINIMAL]));
    };
    expect(readPolicies(many(POLICIES_MAX))).toHaveLength(POLICIES_MAX);
    expect(() => readPolicies(many(POLICIES_MAX + 1))).toThrow('at most 1000; got 1001');
  });
});
