import { describe, expect, test } from 'vitest';
import { POLICIES_MAX } from '../../src/core/constants.ts';
import { GATEWAYS, readPolicies } from '../../src/policies/policy.ts';

const LEAST = { gateway: 'nginx', limit: 100, duration: 60_000 };
const read = (more: object, name = 'login') => readPolicies({ [name]: { ...LEAST, ...more } })[0];

describe('a policy', () => {
  test('is what it says, and where it says nothing what is safest', () => {
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

  test('may say what becomes of a request without an identity in the words of older files', () => {
    const words = ['share', 'allow', 'deny', 'admit', 'refuse'];
    const meant = words.map((missing) => read({ missing }).missing);
    expect(meant).toEqual(['share', 'allow', 'deny', 'allow', 'deny']);
  });

  test('that is only tried refuses nobody, whatever fails', () => {
    const tried = read({ shadow: true, onError: 'deny' });
    expect([tried.shadow, tried.onError]).toEqual([true, 'allow']);
  });

  test('is there for each gateway, under any name that stands in a path as it is', () => {
    for (const gateway of GATEWAYS) expect(read({ gateway }).gateway).toBe(gateway);
    for (const name of ['a', 'A.b_c~d:e@f-9', '__proto__', 'constructor', 'x'.repeat(512)]) {
      const policies = readPolicies(JSON.parse(`{"${name}":${JSON.stringify(LEAST)}}`));
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
    ['windows too', { windows: [LEAST] }, '"windows" must be left out where there are "limit"'],
    ['a typing error', { limitt: 1 }, '"limitt" is no field of a policy; is it "limit"?'],
    ['a field misspelt', { limt: 1, limit: undefined }, '; is it "limit"?'],
    [
      'a strange field',
      { rate: 1, colour: 2 },
      '"rate" is no field of a policy, which are gateway',
    ],
    ['an unknown part', { identify: 'IP' }, '"identify" must be ip, method, path, header:<name>'],
    ['a number as part', { identify: ['ip', 7] }, 'or an array of these; got 7'],
    ['no part', { identify: [] }, '"identify" must be 1 to 8 of ip,'],
    ['a part twice', { identify: ['ip', 'ip'] }, '"identify" must name no part twice'],
    ['a header twice', { identify: ['header:A', 'header:a'] }, 'must name no part twice'],
    ['a header of proxies', { identify: 'header:X-Forwarded-For' }, 'got "header:X-Forwarded-For"'],
    ['no hop', { trustedHops: 0 }, '"trustedHops" must be an integer from 1 to 32; got 0'],
    ['a long prefix', { ipv6Prefix: 129 }, '"ipv6Prefix" must be an integer from 1 to 128'],
    ['what is missing', { missing: 'no' }, '"missing" must be share, allow or deny; got "no"'],
    ['what an error is', { onError: 'admit' }, '"onError" must be allow or deny; got "admit"'],
    ['a shadow', { shadow: 'yes' }, '"shadow" must be true or false; got "yes"'],
    ['null', { shadow: null }, '"shadow" must be true or false; got null'],
  ])('with %s is refused by name', (_what, wrong, sentence) => {
    const given = JSON.parse(JSON.stringify({ ...LEAST, ...wrong }));
    expect(() => readPolicies({ login: given })).toThrow('policy "login": ');
    expect(() => readPolicies({ login: given })).toThrow(sentence);
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
  ])('with the windows %j is refused by name', (windows, sentence) => {
    expect(() => readPolicies({ login: { gateway: 'nginx', windows } })).toThrow(sentence);
  });

  test.each(['', '.', '-a', ':a', 'a/b', 'a b', 'é', 'a%2F', 'rlns_a', 'x'.repeat(513), 'a"b'])(
    'of the namespace %j is refused',
    (name) => {
      expect(() => readPolicies({ [name]: LEAST })).toThrow('its namespace must be 1 to 512 of');
    },
  );

  test.each([null, [], 'login', 7])('is one of an object: %j is refused', (given) => {
    expect(() => readPolicies(given)).toThrow('"policies" must be an object of policies');
    expect(() => readPolicies({ login: given })).toThrow('policy "login": ');
  });

  test('that is wrong is told with the path of its field, and the others are read', () => {
    const given = {
      a: LEAST,
      b: { ...LEAST, limt: 1 },
      c: { gateway: 'nginx', windows: [{ limit: 1, duration: 1_000 }, { limit: 1 }] },
      'd.e': { ...LEAST, cost: 101 },
      f: { gateway: 'nginx' },
      '/': LEAST,
      g: { ...LEAST, identify: 'IP' },
    };
    const paths: string[][] = [];
    const policies = readPolicies(given, (path) => paths.push(path));
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

  test('is one of a bounded number', () => {
    const many = (count: number) => {
      return Object.fromEntries(Array.from({ length: count }, (_, i) => [`n${i}`, LEAST]));
    };
    expect(readPolicies(many(POLICIES_MAX))).toHaveLength(POLICIES_MAX);
    expect(() => readPolicies(many(POLICIES_MAX + 1))).toThrow('at most 1000; got 1001');
  });
});
