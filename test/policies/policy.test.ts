import { describe, expect, test } from 'vitest';
import { POLICIES_MAX } from '../../src/core/constants.ts';
import { GATEWAYS } from '../../src/policies/gateways.ts';
import { gatewaysOf, readPolicies } from '../../src/policies/policy.ts';

const MINIMAL = { gateway: 'nginx', limit: 100, duration: 60_000 };
const read = (more: object, name = 'login') => readPolicies({ [name]: { ...MINIMAL, ...more } })[0];

describe('a policy', () => {
  test('has the configured values, and the defaults for fields that are left out', () => {
    expect(read({})).toEqual({
      ...{ namespace: 'login', gateway: 'nginx', windows: [{ limit: 100, duration: 60_000 }] },
      ...{ cost: 1, identify: ['ip'], trustedHops: 1, ipv6Prefix: 64, missing: 'share' },
      ...{ onError: 'allow', shadow: false, legacyHeaders: false },
    });
    const windows = [
      { limit: 5, duration: 1_000 },
      { limit: 100, duration: 3_600_000 },
    ];
    const all = {
      ...{ gateway: 'envoy', windows, cost: 5, identify: ['header:X-Api-Key', 'ip'] },
      ...{ trustedHops: 2, ipv6Prefix: 48, missing: 'deny', onError: 'deny' },
      ...{ shadow: false, legacyHeaders: true },
    };
    expect(readPolicies({ api: all })).toEqual([{ namespace: 'api', ...all }]);
  });

  test('may name the algorithm and the burst of each window', () => {
    const windows = [
      { limit: 5, duration: 1_000, algorithm: 'sliding' },
      { limit: 100, duration: 3_600_000, algorithm: 'gcra', burst: 20 },
      { limit: 100, duration: 60_000, algorithm: 'gcra' },
      { limit: 9, duration: 5_000, algorithm: 'fixed' },
    ];
    const [policy] = readPolicies({ api: { gateway: 'nginx', windows } });
    expect(policy.windows).toEqual(windows);
    const own = { algorithm: 'gcra', burst: 7 };
    expect(read(own).windows).toEqual([{ limit: 100, duration: 60_000, ...own }]);
    // A field that is not given is absent: the audit log compares policies with stored ones.
    expect(Object.keys(read({}).windows[0])).toEqual(['limit', 'duration']);
  });

  test('may cost its whole burst, and no more', () => {
    const gcra = { algorithm: 'gcra', burst: 7 };
    expect(read({ ...gcra, cost: 7 }).cost).toBe(7);
    expect(() => read({ ...gcra, cost: 8 })).toThrow(
      '"cost" must be at most the smallest limit or burst, which is 7; got 8',
    );
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

  test('may have durations with a unit, as on the command line', () => {
    for (const [duration, ms] of [
      ...([
        ['60s', 60_000],
        ['1000ms', 1_000],
        ['15m', 900_000],
        ['1h', 3_600_000],
      ] as const),
      ['36525d', 3_155_760_000_000] as const,
    ]) {
      expect([duration, read({ duration }).windows]).toEqual([
        duration,
        [{ limit: 100, duration: ms }],
      ]);
    }
    const windows = [
      { limit: 1, duration: '1s' },
      { limit: 2, duration: 60_000 },
    ];
    const [policy] = readPolicies({ api: { gateway: 'nginx', windows } });
    expect(policy.windows.map(({ duration }) => duration)).toEqual([1_000, 60_000]);
  });

  test('denies on errors behind Traefik, which cannot do otherwise, unless it is a shadow', () => {
    expect(read({ gateway: 'traefik' }).onError).toBe('deny');
    expect(read({ gateway: ['nginx', 'traefik'] }).onError).toBe('deny');
    expect(read({ gateway: 'traefik', onError: 'deny' }).onError).toBe('deny');
    expect(read({ gateway: 'traefik', shadow: true }).onError).toBe('allow');
    expect(read({ gateway: 'nginx' }).onError).toBe('allow');
  });

  test('may serve several gateways, in any order', () => {
    const policy = read({ gateway: ['caddy', 'nginx', 'envoy'] });
    // In one order: another one in the file is no change for the audit log.
    expect([policy.gateway, gatewaysOf(policy)]).toEqual([
      ['nginx', 'caddy', 'envoy'],
      ['nginx', 'caddy', 'envoy'],
    ]);
    expect(read({ gateway: ['istio', 'nginx'] }).gateway).toEqual(['nginx', 'istio']);
    // An array of one name is that name, as in the audit log of earlier versions.
    expect(read({ gateway: ['caddy'] }).gateway).toBe('caddy');
    expect(gatewaysOf(read({ gateway: 'caddy' }))).toEqual(['caddy']);
  });

  test.each<[fields: object, message: string]>([
    [{ gateway: null }, '"gateway" must be one of nginx, caddy,'],
    [{ gateway: 'apache' }, 'express, fastify, or an array of different ones; got "apache"'],
    [{ gateway: { name: 'nginx' } }, '; got an object'],
    [{ gateway: [] }, 'different ones; got an array of 0'],
    [{ gateway: ['nginx', 'apache'] }, '; got "apache"'],
    [{ gateway: ['nginx', 7] }, '; got 7'],
    [{ gateway: [['nginx']] }, '; got an array of 1'],
    [{ gateway: ['caddy', 'nginx', 'caddy'] }, 'each gateway once; got "caddy" more than once'],
    [
      { gateway: ['istio', 'nginx', 'envoy'] },
      '"gateway" must not name both envoy and istio: a check from one has the same address',
    ],
    [{ limit: 0 }, '"limit" must be an integer from 1 to 9007199254740991; got 0'],
    [{ limit: '100' }, '"limit" must be an integer from 1'],
    [{ duration: 999 }, '"duration" must be an integer number of milliseconds from 1000 to'],
    [{ cost: 0 }, '"cost" must be an integer from 1'],
    [{ cost: 101 }, '"cost" must be at most the smallest limit or burst, which is 100'],
    [{ algorithm: 'leaky' }, '"algorithm" must be fixed, sliding or gcra; got "leaky"'],
    [{ burst: 5 }, '"algorithm" is "gcra"; got 5 without an algorithm'],
    [
      { algorithm: 'fixed', burst: 5 },
      '"burst" must be left out unless "algorithm" is "gcra"; got 5 with "fixed"',
    ],
    [
      { algorithm: 'gcra', burst: 101 },
      '"burst" must be an integer from 1 to the limit, which is 100; got 101',
    ],
    [{ algorithm: 'gcra', burst: 0 }, '"burst" must be an integer from 1 to'],
    [{ windows: [MINIMAL] }, '"windows" cannot be combined with "limit"'],
    [{ limitt: 1 }, '"limitt" is not a field of a policy; is it "limit"?'],
    [{ rate: 1, colour: 2 }, '"rate" is not a field of a policy; its fields are gateway, limit'],
    [{ duration: '60' }, '"duration" must be a duration with a unit, such as 90s, 15m, 1h or 30d'],
    [{ duration: '10ms' }, '"duration" must be from 1000ms to 3155760000000ms; got "10ms"'],
    [{ duration: '99999d' }, '"duration" must be from 1s to 36525d; got "99999d"'],
    [{ duration: null }, 'from 1000 to 3155760000000, or a duration such as "60s"; got null'],
    [{ identify: 'IP' }, '"identify" must be ip, ip:header:<name>, method, path, header:<name>'],
    [{ identify: 'IP' }, 'or an array of these; got "IP"; is it "ip"?'],
    [{ identify: 'x-api-key' }, '; got "x-api-key"; is it "header:x-api-key"?'],
    [{ identify: ['ip', 'paht'] }, '; got "paht"; is it "path"?'],
    [
      { gateway: 'traefik', onError: 'allow' },
      '"onError" must be deny or left out with the gateway',
    ],
    [{ gateway: ['nginx', 'traefik'], onError: 'allow' }, 'gateway traefik, which denies all'],
    [{ identify: ['ip', 7] }, 'or an array of these; got 7'],
    [{ identify: [] }, '"identify" must be 1 to 8 of ip,'],
    [{ identify: ['ip', 'ip'] }, '"identify" must not repeat a part'],
    [{ identify: ['header:A', 'header:a'] }, 'must not repeat a part'],
    [{ identify: 'header:X-Forwarded-For' }, 'got "header:X-Forwarded-For"'],
    [{ trustedHops: 0 }, '"trustedHops" must be an integer from 1 to 32; got 0'],
    [{ ipv6Prefix: 129 }, '"ipv6Prefix" must be an integer from 1 to 128'],
    [{ missing: 'no' }, '"missing" must be share, allow or deny; got "no"'],
    [{ onError: 'admit' }, '"onError" must be allow or deny; got "admit"'],
    [{ shadow: 'yes' }, '"shadow" must be true or false; got "yes"'],
    [{ shadow: null }, '"shadow" must be true or false; got null'],
  ])('with %j is rejected with the name of the field', (fields, message) => {
    expect(() => read(fields)).toThrow('policy "login": ');
    expect(() => read(fields)).toThrow(message);
  });

  test.each<[name: string, fields: object, message: string]>([
    ['gateway', {}, '"gateway" is required: one of nginx, caddy,'],
    ['limit', {}, '"limit" is required: a policy has "limit" and'],
    ['limit', { limt: 1 }, '"limt" is not a field of a policy; is it "limit"?'],
    ['duration', {}, '"duration" is required'],
  ])('without %s and with %j is rejected', (name, fields, message) => {
    const policy = { ...MINIMAL, ...fields, [name]: undefined };
    expect(() => readPolicies({ login: JSON.parse(JSON.stringify(policy)) })).toThrow(message);
  });

  const second = { limit: 1, duration: 1_000 };
  test.each<[windows: unknown, message: string]>([
    [[], 'got an array of 0'],
    [Array(9).fill(second), 'got an array of 9'],
    [second, '"windows" must be an array of 1 to 8'],
    [[{ limit: 1 }], 'windows[0]: "duration" is required: an integer number of milliseconds'],
    [[{ limit: 1, duration: 60 }], 'windows[0]: "duration" must be an integer number of millisec'],
    [[second, { limit: 1, duration: 5 }], 'windows[1]: "duration" must be'],
    [[{ ...second, cost: 1 }], 'windows[0]: "cost" is not a field of a window'],
    [[{ limt: 1, duration: 1_000 }], '"limt" is not a field of a window; is it "limit"?'],
    [[second, { ...second, limit: 2 }], '"windows" must differ in their duration'],
    [[second, { ...second, algorithm: 'gcra' }], '"windows" must differ in their duration'],
    [[{ ...second, algorithm: 'gcr' }], 'windows[0]: "algorithm" must be fixed, sliding or gcra;'],
    [
      [second, { limit: 9, duration: 2_000, burst: 3 }],
      'windows[1]: "burst" must be left out unless "algorithm" is "gcra"; got 3 without an',
    ],
    [
      [{ limit: 9, duration: 2_000, algorithm: 'gcra', burst: 10 }],
      'windows[0]: "burst" must be an integer from 1 to the limit, which is 9; got 10',
    ],
  ])('with the windows %j is rejected with the name of the field', (windows, message) => {
    expect(() => readPolicies({ login: { gateway: 'nginx', windows } })).toThrow(message);
  });

  test.each([{ algorithm: 'gcra' }, { burst: 3 }])('with windows has no %j of its own', (field) => {
    const windows = [{ limit: 9, duration: 1_000 }];
    expect(() => readPolicies({ login: { gateway: 'nginx', windows, ...field } })).toThrow(
      `"${Object.keys(field)[0]}" must be left out where there are "windows": each window may have`,
    );
  });

  test('may skip preflights and whole paths, and by default skips nothing', () => {
    const skip = ['preflight', '/', '/healthz', '/v1.0/a_b~c/'];
    const [policy] = readPolicies({ login: { ...MINIMAL, skip } });
    expect(policy.skip).toEqual(skip);
    // Otherwise the audit log would record a change of every older policy.
    expect(readPolicies({ login: MINIMAL })[0]).not.toHaveProperty('skip');
    expect(readPolicies({ login: { ...MINIMAL, skip: [] } })[0]).not.toHaveProperty('skip');
  });

  test.each<[unknown, string]>([
    ['preflight', '"skip" must be an array of at most 64 requests, each "preflight" or a path'],
    [Array.from({ length: 65 }, (_, i) => `/${i}`), '"skip" must be an array of at most 64'],
    [['options'], 'each of "skip" must be "preflight" or a path that begins with "/"'],
    [[''], 'it must have only segments of letters, digits, "-", "_", "." and "~", none'],
    [['/a/../b'], 'got "/a/../b"'],
    [['//a'], 'got "//a"'],
    [['/a*'], 'got "/a*"'],
    [['/%61'], 'got "/%61"'],
    [['/a?b'], 'got "/a?b"'],
    [[`/${'x'.repeat(512)}`], 'has at most 512 characters'],
    [[7], 'got 7'],
    [['/a', '/a'], '"skip" must not repeat a request'],
  ])('with "skip" %j is rejected', (skip, message) => {
    expect(() => readPolicies({ login: { ...MINIMAL, skip } })).toThrow(message);
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
      h: { ...MINIMAL, burst: 5 },
      i: { gateway: 'nginx', windows: [{ limit: 9, duration: 1_000, burst: 5 }] },
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
      ['h', 'burst'],
      ['i', 'windows', '0', 'burst'],
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
