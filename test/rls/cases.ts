/**
 * Requests and their answers, with any engine, as envoyproxy/ratelimit gives them. Most were read
 * from its own tests. `byDefault` is the answer of weir without compatible mode, if it differs.
 */

import type { DescriptorForm } from '../support/rls/client.ts';
import { TREE } from '../support/rls-configuration.ts';

/** The settings of the server, apart from those of every server. */
export type RlsCaseSettings =
  | 'plain'
  | 'shadow mode'
  | 'quota mode'
  | 'all-or-none'
  | 'metadata'
  | 'merged';

export interface RlsCaseCall {
  /** The domain, unless it is that of the case. */
  domain?: string;
  descriptors: readonly DescriptorForm[];
  /** `hits_addend` of the request. */
  hits?: number;
  /** The overall code and the statuses, or the status of gRPC and its message. */
  answer: readonly string[];
  byDefault?: readonly string[];
  /** `metadata` of the dynamic metadata, if the case is about it. */
  metadata?: unknown;
}

export interface RlsCase {
  name: string;
  settings?: RlsCaseSettings;
  /** Also in the names of the files of the case. */
  domain: string;
  /** A file of the domain; `TREE` for the domain `d`. */
  texts?: readonly string[];
  /** Whether it needs what envoyproxy/ratelimit does not have. */
  isOwn?: boolean;
  calls: readonly RlsCaseCall[];
  /** The hits of limits after all calls, by their path, without those that are 0. */
  hits?: Readonly<Record<string, Readonly<Record<string, number>>>>;
}

/** Values of the environment by settings: those of weir, and those of envoyproxy/ratelimit. */
export const CASE_ENVIRONMENTS: Readonly<
  Record<RlsCaseSettings, { weir: Record<string, string>; envoy: Record<string, string> }>
> = {
  plain: { weir: {}, envoy: {} },
  'shadow mode': { weir: { WEIR_RLS_SHADOW_MODE: 'true' }, envoy: { SHADOW_MODE: 'true' } },
  'quota mode': { weir: { WEIR_RLS_QUOTA_MODE: 'true' }, envoy: { QUOTA_MODE: 'true' } },
  'all-or-none': {
    weir: { WEIR_RLS_COUNTING: 'all-or-none' },
    envoy: { STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT: 'true' },
  },
  metadata: {
    weir: { WEIR_RLS_DYNAMIC_METADATA: 'true' },
    envoy: { RESPONSE_DYNAMIC_METADATA: 'true' },
  },
  merged: { weir: { WEIR_RLS_MERGE_DOMAINS: 'true' }, envoy: { MERGE_DOMAIN_CONFIG: 'true' } },
};

/** The tree of the first cases, of its domain `d`. */
const TREE_DOMAIN = 'd';

function inTree(
  name: string,
  descriptor: DescriptorForm,
  status: string,
  hits?: RlsCase['hits'],
): RlsCase {
  const answer = ['OK', status];
  const calls = [{ descriptors: [descriptor], answer }];
  return { name, domain: TREE_DOMAIN, calls, ...(hits && { hits }) };
}

/** One rule of the key `k`, besides what each line of `fields` has. */
const rule = (domain: string, limit: string, ...fields: string[]) =>
  [
    `domain: ${domain}`,
    'descriptors:',
    '  - key: k',
    `    rate_limit: { ${limit} }`,
    ...fields.map((field) => `    ${field}`),
  ].join('\n');

/** Rules of one level, each with its fields and its limit. */
const rules = (domain: string, list: readonly (readonly [fields: string, limit: string])[]) =>
  [
    `domain: ${domain}`,
    'descriptors:',
    ...list.flatMap(([fields, limit]) => [
      `  - { ${fields}${limit === '' ? '' : `, rate_limit: { ${limit} }`} }`,
    ]),
  ].join('\n');

const range = (count: number) => Array.from({ length: count }, (_, i) => i + 1);
const call = (descriptors: readonly DescriptorForm[], ...answer: string[]): RlsCaseCall => {
  return { descriptors, answer };
};
const k = (more: object): DescriptorForm => ({ of: 'k=1', ...more });

export const RLS_CASES: readonly RlsCase[] = [
  {
    name: 'case 1: an unknown domain is allowed',
    domain: 'nobody',
    texts: [],
    calls: [call(['a=1'], 'OK', 'OK')],
  },
  inTree('case 2: a descriptor without entries has no limit', '', 'OK'),
  inTree('case 3: a value without a rule has no limit', 'a=9', 'OK'),
  inTree('case 4: a rule without a limit has none', 'a=1', 'OK'),
  inTree('case 5: a rule without a value matches all', 'a=1,b=9', 'OK 4/5 SECOND', {
    'd.a_1.b': { total_hits: 1, within_limit: 1 },
  }),
  inTree('case 6: an exact value comes first', 'a=1,b=2', 'OK 9/10 SECOND'),
  inTree('case 7: a first level', 'c=9', 'OK 19/20 MINUTE'),
  inTree('case 8: a first level with an exact value', 'c=2', 'OK 29/30 MINUTE'),
  inTree('case 9: an exact value without a limit has none', 'c=3', 'OK'),
  inTree('case 10: a path that is longer than the tree has no limit', 'c=2,x=1', 'OK'),
  inTree('case 11: a limit on the way does not apply', 'e=5,f=9', 'OK'),
  inTree('case 12: unlimited', 'u=1', 'OK 4294967295'),
  inTree('case 13: a detailed metric', 'g=q', 'OK 69/70 MINUTE', {
    'd.g_q': { total_hits: 1, within_limit: 1 },
  }),
  {
    name: 'case 14: 20 of 25 calls are allowed',
    domain: 'case14',
    texts: [rule('case14', 'unit: minute, requests_per_unit: 20')],
    calls: range(25).map((n) =>
      n <= 20
        ? call(['k=1'], 'OK', `OK ${20 - n}/20 MINUTE`)
        : call(['k=1'], 'OVER_LIMIT', 'OVER_LIMIT 0/20 MINUTE'),
    ),
    hits: { 'case14.k': { near_limit: 4, over_limit: 5, total_hits: 25, within_limit: 20 } },
  },
  ...(['plain', 'all-or-none'] as const).map((settings): RlsCase => {
    const domain = 'case15';
    const isEach = settings === 'plain';
    return {
      name: 'case 15: of two limits, one over the limit',
      settings,
      domain,
      texts: [
        rules(domain, [
          ['key: m', 'unit: minute, requests_per_unit: 20'],
          ['key: h', 'unit: hour, requests_per_unit: 10'],
        ]),
      ],
      calls: range(15).map((n) =>
        n <= 10
          ? call(['m=1', 'h=1'], 'OK', `OK ${20 - n}/20 MINUTE`, `OK ${10 - n}/10 HOUR`)
          : call(
              ['m=1', 'h=1'],
              'OVER_LIMIT',
              `OK ${isEach ? 20 - n : 10}/20 MINUTE`,
              'OVER_LIMIT 0/10 HOUR',
            ),
      ),
    };
  }),
  {
    name: 'case 16: a limit of 0 denies each call',
    domain: 'case16',
    texts: [rule('case16', 'unit: hour, requests_per_unit: 0')],
    calls: [call(['k=1'], 'OVER_LIMIT', 'OVER_LIMIT 0/0 HOUR')],
    hits: { 'case16.k': { over_limit: 1, total_hits: 1 } },
  },
  {
    name: 'case 17: more hits than the limit are denied and counted',
    domain: 'case17',
    texts: [rule('case17', 'unit: hour, requests_per_unit: 5')],
    calls: [
      call([k({ hits: 9 })], 'OVER_LIMIT', 'OVER_LIMIT 0/5 HOUR'),
      call(['k=1'], 'OVER_LIMIT', 'OVER_LIMIT 0/5 HOUR'),
    ],
    hits: { 'case17.k': { near_limit: 1, over_limit: 5, total_hits: 10 } },
  },
  {
    name: 'case 18: a look counts nothing',
    domain: 'case18',
    texts: [rule('case18', 'unit: hour, requests_per_unit: 5')],
    calls: [
      call([k({ hits: 0 })], 'OK', 'OK 5/5 HOUR'),
      call([k({ hits: 2 })], 'OK', 'OK 3/5 HOUR'),
      call([k({ hits: 0 })], 'OK', 'OK 3/5 HOUR'),
      call([k({ hits: 3 })], 'OK', 'OK 0/5 HOUR'),
      {
        ...call([k({ hits: 0 })], 'OK', 'OK 0/5 HOUR'),
        byDefault: ['OVER_LIMIT', 'OVER_LIMIT 0/5 HOUR'],
      },
      call([k({ hits: 1 })], 'OVER_LIMIT', 'OVER_LIMIT 0/5 HOUR'),
      call([k({ hits: 0 })], 'OVER_LIMIT', 'OVER_LIMIT 0/5 HOUR'),
    ],
    hits: { 'case18.k': { near_limit: 1, over_limit: 1, total_hits: 6, within_limit: 5 } },
  },
  {
    name: 'a look at a limit of 0',
    domain: 'look0',
    texts: [rule('look0', 'unit: hour, requests_per_unit: 0')],
    calls: [
      {
        ...call([k({ hits: 0 })], 'OK', 'OK 0/0 HOUR'),
        byDefault: ['OVER_LIMIT', 'OVER_LIMIT 0/0 HOUR'],
      },
    ],
  },
  {
    name: 'case 19: hits of a descriptor replace those of the request',
    domain: 'case19',
    texts: [rule('case19', 'unit: hour, requests_per_unit: 5')],
    calls: [
      { ...call([k({ hits: 2 })], 'OK', 'OK 3/5 HOUR'), hits: 4 },
      { ...call(['k=2'], 'OK', 'OK 1/5 HOUR'), hits: 4 },
    ],
  },
  {
    name: 'hits beyond 2^53 are counted as very many',
    domain: 'huge',
    texts: [rule('huge', 'unit: hour, requests_per_unit: 4294967295')],
    calls: [
      call([k({ hits: 4_294_967_294 })], 'OK', 'OK 1/4294967295 HOUR'),
      call([k({ hits: '9007199254740993' })], 'OVER_LIMIT', 'OVER_LIMIT 0/4294967295 HOUR'),
      call([k({ hits: '9007199254740993' })], 'OVER_LIMIT', 'OVER_LIMIT 0/4294967295 HOUR'),
      call(['k=1'], 'OVER_LIMIT', 'OVER_LIMIT 0/4294967295 HOUR'),
      call(['k=2'], 'OK', 'OK 4294967294/4294967295 HOUR'),
    ],
  },
  {
    name: 'case 33: a limit in shadow mode denies nothing, beside one that does',
    domain: 'case33',
    texts: [
      rules('case33', [
        ['key: s, shadow_mode: true', 'unit: hour, requests_per_unit: 1'],
        ['key: p', 'unit: hour, requests_per_unit: 2'],
      ]),
    ],
    calls: [
      call(['s=1', 'p=1'], 'OK', 'OK 0/1 HOUR', 'OK 1/2 HOUR'),
      call(['s=1', 'p=1'], 'OK', 'OK 0/1 HOUR', 'OK 0/2 HOUR'),
      call(['s=1', 'p=1'], 'OVER_LIMIT', 'OK 0/1 HOUR', 'OVER_LIMIT 0/2 HOUR'),
    ],
    hits: {
      'case33.s': { near_limit: 1, over_limit: 2, shadow_mode: 2, total_hits: 3, within_limit: 1 },
      'case33.p': { near_limit: 1, over_limit: 1, total_hits: 3, within_limit: 2 },
    },
  },
  {
    name: 'case 34: in shadow mode a request over its limit is allowed, with the same statuses',
    settings: 'shadow mode',
    domain: 'case34',
    texts: [rule('case34', 'unit: hour, requests_per_unit: 1')],
    calls: [call(['k=1'], 'OK', 'OK 0/1 HOUR'), call(['k=1'], 'OK', 'OVER_LIMIT 0/1 HOUR')],
    hits: { 'case34.k': { near_limit: 1, over_limit: 1, total_hits: 2, within_limit: 1 } },
  },
  {
    name: 'case 35: a request is denied where all of its quotas are over',
    domain: 'case35',
    texts: [
      rules('case35', [
        ['key: p, quota_mode: true', 'unit: hour, requests_per_unit: 1'],
        ['key: q, quota_mode: true', 'unit: hour, requests_per_unit: 2'],
        ['key: u', 'unlimited: true'],
        ['key: s, quota_mode: true, shadow_mode: true', 'unit: hour, requests_per_unit: 0'],
      ]),
    ],
    calls: [
      call(['p=1', 'q=1'], 'OK', 'OK 0/1 HOUR', 'OK 1/2 HOUR'),
      call(['p=1', 'q=1'], 'OK', 'OVER_LIMIT 0/1 HOUR', 'OK 0/2 HOUR'),
      call(['p=1', 'q=1'], 'OVER_LIMIT', 'OVER_LIMIT 0/1 HOUR', 'OVER_LIMIT 0/2 HOUR'),
      call(['p=1', 'x=1'], 'OVER_LIMIT', 'OVER_LIMIT 0/1 HOUR', 'OK'),
      call(['p=1', 'u=1'], 'OVER_LIMIT', 'OVER_LIMIT 0/1 HOUR', 'OK 4294967295'),
      call(['p=1', 's=1'], 'OK', 'OVER_LIMIT 0/1 HOUR', 'OK 0/0 HOUR'),
    ],
  },
  {
    name: 'case 36: an allowed limit does not save a request whose only quota is over',
    domain: 'case36',
    texts: [
      rules('case36', [
        ['key: p', 'unit: hour, requests_per_unit: 5'],
        ['key: q, quota_mode: true', 'unit: hour, requests_per_unit: 0'],
      ]),
    ],
    calls: [call(['p=1', 'q=1'], 'OVER_LIMIT', 'OK 4/5 HOUR', 'OVER_LIMIT 0/0 HOUR')],
  },
  {
    name: 'in quota mode every descriptor is a quota, also one without a limit',
    settings: 'quota mode',
    domain: 'quotas',
    texts: [
      rules('quotas', [
        ['key: p', 'unit: hour, requests_per_unit: 0'],
        ['key: q', 'unit: hour, requests_per_unit: 1'],
        ['key: u', 'unlimited: true'],
      ]),
    ],
    calls: [
      call(['p=1', 'q=1'], 'OK', 'OVER_LIMIT 0/0 HOUR', 'OK 0/1 HOUR'),
      call(['p=1', 'q=1'], 'OVER_LIMIT', 'OVER_LIMIT 0/0 HOUR', 'OVER_LIMIT 0/1 HOUR'),
      call(['p=1', 'x=1'], 'OK', 'OVER_LIMIT 0/0 HOUR', 'OK'),
      call(['p=1', 'u=1'], 'OVER_LIMIT', 'OVER_LIMIT 0/0 HOUR', 'OK 4294967295'),
    ],
  },
  {
    name: 'case 37: metadata of the rules that allowed the request, and the first of a key',
    settings: 'metadata',
    domain: 'case37',
    texts: [
      rules('case37', [
        ['key: a, metadata: { x: 1, o: { a: 1, l: [1] } }', 'unit: hour, requests_per_unit: 5'],
        ['key: b, metadata: { x: 2, o: { a: 2, b: 2 } }', 'unit: hour, requests_per_unit: 5'],
        ['key: z, metadata: { z: 1 }', 'unit: hour, requests_per_unit: 0'],
        ['key: s, shadow_mode: true, metadata: { s: 1 }', 'unit: hour, requests_per_unit: 0'],
        ['key: u, metadata: { u: 1 }', 'unlimited: true'],
        [
          'key: r, metadata: { r: 1 }',
          'unit: hour, requests_per_unit: 5, replaces: [{ name: named }]',
        ],
        ['key: m, metadata: { m: 1 }', 'unit: hour, requests_per_unit: 5, name: named'],
      ]),
    ],
    calls: [
      { ...call(['b=1'], 'OK', 'OK 4/5 HOUR'), metadata: { x: 2, o: { a: 2, b: 2 } } },
      {
        ...call(['a=1', 'b=1'], 'OK', 'OK 4/5 HOUR', 'OK 3/5 HOUR'),
        metadata: { x: 1, o: { a: 1, l: [1], b: 2 } },
      },
      {
        ...call(['z=1', 'b=1'], 'OVER_LIMIT', 'OVER_LIMIT 0/0 HOUR', 'OK 2/5 HOUR'),
        metadata: { x: 2, o: { a: 2, b: 2 } },
      },
      {
        ...call(['s=1', 'u=1', 'n=1'], 'OK', 'OK 0/0 HOUR', 'OK 4294967295', 'OK'),
        metadata: { s: 1 },
      },
      { ...call(['r=1', 'm=1'], 'OK', 'OK 4/5 HOUR', 'OK'), metadata: { r: 1 } },
      { ...call(['z=1'], 'OVER_LIMIT', 'OVER_LIMIT 0/0 HOUR'), metadata: undefined },
    ],
  },
  {
    name: 'case 38: a descriptor brings its own limit',
    domain: 'case38',
    texts: [TREE.replace('domain: d', 'domain: case38')],
    calls: [
      call([{ of: 'a=1,b=9', limit: [10, 'DAY'] }], 'OK', 'OK 9/10 DAY'),
      call([{ of: 'a=1,b=9', limit: [10, 'WEEK'] }], 'OK', 'OK 9/10 WEEK'),
      call([{ of: 'none', limit: [1, 'YEAR'] }], 'OK', 'OK 0/1 YEAR'),
      call([{ of: 'none', limit: [1, 'YEAR'] }], 'OVER_LIMIT', 'OVER_LIMIT 0/1 YEAR'),
      call([{ of: 'u=1', limit: [0, 'MONTH'] }], 'OVER_LIMIT', 'OVER_LIMIT 0/0 MONTH'),
      { ...call([{ of: 'a=1', limit: [1, 'DAY'] }], 'OK', 'OK'), domain: 'nobody' },
    ],
    hits: {
      'case38.a_1.b_9': { total_hits: 2, within_limit: 2 },
      'case38.none': { near_limit: 1, over_limit: 1, total_hits: 2, within_limit: 1 },
    },
  },
  {
    name: 'cases 39 to 41: wildcards',
    domain: 'case39',
    texts: [
      rules('case39', [
        ['key: a, value: "foo*"', 'unit: hour, requests_per_unit: 1'],
        ['key: b, value: "bar*b"', 'unit: hour, requests_per_unit: 2'],
        ['key: c, value: "foo*bar*baz"', 'unit: hour, requests_per_unit: 3'],
      ]),
    ],
    calls: [
      call(['a=foo1', 'a=foo', 'a=bar'], 'OK', 'OK 0/1 HOUR', 'OK 0/1 HOUR', 'OK'),
      call(['b=barb', 'b=barxb', 'b=bara'], 'OK', 'OK 1/2 HOUR', 'OK 1/2 HOUR', 'OK'),
      call(['c=foo1baz', 'c=foobarbaz', 'c=foo1bar2baz'], 'OK', 'OK', 'OK 2/3 HOUR', 'OK 2/3 HOUR'),
    ],
  },
  {
    name: 'case 42: the order of the files decides between wildcards, by default their length',
    domain: 'case42',
    texts: [
      rules('case42', [
        ['key: k, value: "x*"', 'unit: hour, requests_per_unit: 1'],
        ['key: k, value: "xy*"', 'unit: hour, requests_per_unit: 2'],
      ]),
    ],
    calls: [{ ...call(['k=xyz'], 'OK', 'OK 0/1 HOUR'), byDefault: ['OK', 'OK 1/2 HOUR'] }],
  },
  {
    name: 'case 43: all values of a wildcard share a counter',
    domain: 'case43',
    texts: [
      rules('case43', [
        ['key: k, value: "files/*", share_threshold: true', 'unit: hour, requests_per_unit: 10'],
      ]),
    ],
    calls: [
      ...range(10).map((n) => call(['k=files/a'], 'OK', `OK ${10 - n}/10 HOUR`)),
      call(['k=files/b'], 'OVER_LIMIT', 'OVER_LIMIT 0/10 HOUR'),
    ],
    hits: {
      'case43.k_files/*': { near_limit: 2, over_limit: 1, total_hits: 11, within_limit: 10 },
    },
  },
  {
    name: 'case 44: an exact value comes before a wildcard',
    domain: 'case44',
    texts: [
      rules('case44', [
        ['key: k, value: "test*"', 'unit: hour, requests_per_unit: 1'],
        ['key: k, value: test1', 'unit: hour, requests_per_unit: 2'],
      ]),
    ],
    calls: [call(['k=test1', 'k=test2'], 'OK', 'OK 1/2 HOUR', 'OK 0/1 HOUR')],
  },
  {
    name: 'case 45: values in metrics',
    domain: 'case45',
    texts: [
      [
        'domain: case45',
        'descriptors:',
        '  - key: route',
        '    value_to_metric: true',
        '    descriptors:',
        '      - { key: id, rate_limit: { unit: hour, requests_per_unit: 5 } }',
      ].join('\n'),
    ],
    calls: [call(['route=api,id=7'], 'OK', 'OK 4/5 HOUR')],
    hits: { 'case45.route_api.id': { total_hits: 1, within_limit: 1 } },
  },
  {
    name: 'case 46: two files of one domain are one tree',
    settings: 'merged',
    domain: 'case46',
    texts: [
      rules('case46', [['key: a, value: "1"', 'unit: hour, requests_per_unit: 1']]),
      rules('case46', [['key: a, value: "2"', 'unit: hour, requests_per_unit: 2']]),
    ],
    calls: [call(['a=1', 'a=2', 'a=3'], 'OK', 'OK 0/1 HOUR', 'OK 1/2 HOUR', 'OK')],
  },
  {
    name: 'case 47: a limit that another one replaces does not count',
    domain: 'case47',
    texts: [
      rules('case47', [
        ['key: n', 'unit: hour, requests_per_unit: 1, name: named'],
        ['key: r', 'unit: hour, requests_per_unit: 5, replaces: [{ name: named }]'],
        ['key: u', 'unlimited: true, replaces: [{ name: named }]'],
        ['key: a', 'unit: hour, requests_per_unit: 5, name: a, replaces: [{ name: b }]'],
        ['key: b', 'unit: hour, requests_per_unit: 5, name: b, replaces: [{ name: a }]'],
        ['key: q, quota_mode: true', 'unit: hour, requests_per_unit: 5, name: named'],
        ['key: z, quota_mode: true', 'unit: hour, requests_per_unit: 0'],
      ]),
    ],
    calls: [
      call(['n=1', 'r=1'], 'OK', 'OK', 'OK 4/5 HOUR'),
      call(['r=1', 'n=1'], 'OK', 'OK 3/5 HOUR', 'OK'),
      call(['n=1', 'u=1'], 'OK', 'OK', 'OK 4294967295'),
      call(['n=1'], 'OK', 'OK 0/1 HOUR named'),
      call(['n=1'], 'OVER_LIMIT', 'OVER_LIMIT 0/1 HOUR named'),
      call(['n=1', 'r=1'], 'OK', 'OK', 'OK 2/5 HOUR'),
      call(['a=1', 'b=1'], 'OK', 'OK', 'OK'),
      call(['a=1'], 'OK', 'OK 4/5 HOUR a'),
      // A replaced limit is no quota either.
      call(['q=1', 'r=1', 'z=1'], 'OVER_LIMIT', 'OK', 'OK 1/5 HOUR', 'OVER_LIMIT 0/0 HOUR'),
    ],
  },
  {
    name: 'case 50: colons and bars become underscores in metrics',
    domain: 'case50',
    texts: [rules('case50', [['key: "x:y|z"', 'unit: hour, requests_per_unit: 5']])],
    calls: [call(['x:y|z=1'], 'OK', 'OK 4/5 HOUR')],
    hits: { 'case50.x_y_z': { total_hits: 1, within_limit: 1 } },
  },
  {
    name: 'entries whose joined texts are equal are the same rule, by default of their own keys',
    domain: 'joined',
    texts: [
      [
        'domain: joined',
        'descriptors:',
        '  - key: a_b',
        '    descriptors:',
        '      - { key: c, rate_limit: { unit: hour, requests_per_unit: 5 } }',
        '  - { key: e_f, value: g, rate_limit: { unit: hour, requests_per_unit: 3 } }',
      ].join('\n'),
    ],
    calls: [
      call(['e_f=g'], 'OK', 'OK 2/3 HOUR'),
      { ...call(['e=f_g'], 'OK', 'OK 1/3 HOUR'), byDefault: ['OK', 'OK'] },
    ],
  },
  {
    name: 'one counter in two descriptors of a request is counted twice',
    domain: 'twice',
    texts: [rule('twice', 'unit: hour, requests_per_unit: 3')],
    calls: [
      call(['k=1', 'k=1'], 'OK', 'OK 2/3 HOUR', 'OK 1/3 HOUR'),
      call(['k=1', 'k=1'], 'OVER_LIMIT', 'OK 0/3 HOUR', 'OVER_LIMIT 0/3 HOUR'),
    ],
  },
  {
    name: 'a request may have 100 descriptors',
    domain: 'hundred',
    texts: [rule('hundred', 'unit: hour, requests_per_unit: 2')],
    calls: [
      call(
        range(100).map((n) => `k=${n}`),
        ...['OK', ...range(100).map(() => 'OK 1/2 HOUR')],
      ),
      call(
        range(100).map((n) => `k=${n % 2 === 0 ? 'other' : n}`),
        ...['OVER_LIMIT'],
        ...range(100).map((n) =>
          n % 2 === 1
            ? 'OK 0/2 HOUR'
            : n === 2
              ? 'OK 1/2 HOUR'
              : n === 4
                ? 'OK 0/2 HOUR'
                : 'OVER_LIMIT 0/2 HOUR',
        ),
      ),
    ],
  },
  {
    name: 'a request without a domain or without descriptors',
    domain: '',
    texts: [],
    calls: [
      {
        ...call(['a=1'], 'UNKNOWN', 'rate limit domain must not be empty'),
        byDefault: ['INVALID_ARGUMENT', 'rate limit domain must not be empty'],
      },
      {
        ...call([], 'UNKNOWN', 'rate limit descriptor list must not be empty'),
        domain: 'd',
        byDefault: ['INVALID_ARGUMENT', 'rate limit descriptor list must not be empty'],
      },
    ],
  },
  {
    name: 'in all-or-none counting a denied request counts only where it is over the limit',
    settings: 'all-or-none',
    domain: 'none',
    texts: [
      rules('none', [
        ['key: a', 'unit: hour, requests_per_unit: 5'],
        ['key: z', 'unit: hour, requests_per_unit: 0'],
      ]),
    ],
    calls: [
      call(['a=1', 'z=1'], 'OVER_LIMIT', 'OK 5/5 HOUR', 'OVER_LIMIT 0/0 HOUR'),
      call(['a=1'], 'OK', 'OK 4/5 HOUR'),
    ],
  },
  // Cases that envoyproxy/ratelimit of July 2026 does not support.
  {
    name: 'a refund returns hits, and never more than are used',
    domain: 'refunds',
    isOwn: true,
    texts: [`${rule('refunds', 'unit: hour, requests_per_unit: 5')}\nallow_negative_hits: true`],
    calls: [
      call([k({ hits: 4 })], 'OK', 'OK 1/5 HOUR'),
      call([k({ hits: 3, isRefund: true })], 'OK', 'OK 4/5 HOUR'),
      call([k({ hits: 3, isRefund: true })], 'OK', 'OK 5/5 HOUR'),
      call([k({ hits: 0, isRefund: true })], 'OK', 'OK 5/5 HOUR'),
      call([k({ hits: 7 })], 'OVER_LIMIT', 'OVER_LIMIT 0/5 HOUR'),
      call([k({ hits: 1, isRefund: true })], 'OK', 'OK 0/5 HOUR'),
      call([k({ hits: 2, isRefund: true })], 'OK', 'OK 1/5 HOUR'),
      call(['k=1'], 'OK', 'OK 0/5 HOUR'),
      { ...call([{ of: 'k=1', isRefund: true }], 'OK', 'OK 2/5 HOUR'), hits: 2 },
      call([{ of: 'x=1', isRefund: true }], 'OK', 'OK'),
    ],
  },
  {
    name: 'a refund and a charge of other counters share a request',
    domain: 'mixed',
    isOwn: true,
    texts: [`${rule('mixed', 'unit: hour, requests_per_unit: 5')}\nallow_negative_hits: true`],
    calls: [
      call(['k=1', 'k=2'], 'OK', 'OK 4/5 HOUR', 'OK 4/5 HOUR'),
      call([k({ hits: 1, isRefund: true }), 'k=2'], 'OK', 'OK 5/5 HOUR', 'OK 3/5 HOUR'),
    ],
  },
  {
    name: 'a refund needs the permission of its domain',
    domain: 'forbidden',
    isOwn: true,
    texts: [rule('forbidden', 'unit: hour, requests_per_unit: 5')],
    calls: [
      call([k({ hits: 4 })], 'OK', 'OK 1/5 HOUR'),
      call(
        [k({ hits: 3, isRefund: true })],
        'PERMISSION_DENIED',
        'the domain forbidden does not allow is_negative_hits: its file must have' +
          ' allow_negative_hits: true',
      ),
      call([k({ hits: 0 })], 'OK', 'OK 1/5 HOUR'),
    ],
  },
  {
    name: 'a refund of a sliding window and of GCRA',
    domain: 'rolling',
    isOwn: true,
    texts: [
      `${rules('rolling', [
        ['key: s', 'unit: year, requests_per_unit: 5, algorithm: sliding'],
        ['key: g', 'unit: year, requests_per_unit: 5, algorithm: gcra'],
        ['key: b', 'unit: year, requests_per_unit: 5, algorithm: gcra, burst: 2'],
      ])}\nallow_negative_hits: true`,
    ],
    calls: ['s=1', 'g=1'].flatMap((of) => [
      call([{ of, hits: 4 }], 'OK', 'OK 1/5 YEAR'),
      call([{ of, hits: 3, isRefund: true }], 'OK', 'OK 4/5 YEAR'),
      call([{ of, hits: 4 }], 'OK', 'OK 0/5 YEAR'),
      call([{ of, hits: 9, isRefund: true }], 'OK', 'OK 5/5 YEAR'),
      call([{ of, hits: 0 }], 'OK', 'OK 5/5 YEAR'),
    ]),
  },
  {
    name: 'a multiple of a unit has no current_limit, unless another unit has its duration',
    domain: 'multiple',
    isOwn: true,
    texts: [
      rules('multiple', [
        ['key: m', 'unit: minute, unit_multiplier: 5, requests_per_unit: 5'],
        ['key: h', 'unit: minute, unit_multiplier: 60, requests_per_unit: 5'],
      ]),
    ],
    calls: [
      call(['m=1', 'h=1'], 'OK', 'OK 4', 'OK 4/5 HOUR'),
      call([{ of: 'x=1', limit: [7, 'HOUR', 24] }], 'OK', 'OK 6/7 DAY'),
    ],
  },
  {
    name: 'a limit of a descriptor with an unknown unit is an error',
    domain: 'case38',
    isOwn: true,
    texts: [],
    calls: [
      call(
        [{ of: 'a=1', limit: [1, 0] }],
        'INVALID_ARGUMENT',
        'the limit of a descriptor is invalid: unit must be from 1 (SECOND) to 7 (WEEK); got 0',
      ),
      call(
        [{ of: 'a=1', limit: [1, 8] }],
        'INVALID_ARGUMENT',
        'the limit of a descriptor is invalid: unit must be from 1 (SECOND) to 7 (WEEK); got 8',
      ),
      call(
        [{ of: 'a=1', limit: [1, 'DAY', 0] }],
        'INVALID_ARGUMENT',
        'the limit of a descriptor is invalid: unit_multiplier must be from 1 to 36525 for DAY;' +
          ' got 0',
      ),
      call(
        [{ of: 'a=1', limit: [1, 'MINUTE', 4_294_967_295] }],
        'INVALID_ARGUMENT',
        'the limit of a descriptor is invalid: unit_multiplier must be from 1 to 52596000 for' +
          ' MINUTE; got 4294967295',
      ),
      call([{ of: 'a=1', limit: [1, 'MINUTE', 52_596_000] }], 'OK', 'OK'),
    ],
  },
];

/** The cases with these settings. @param isOwn undefined for both */
export function casesWith(settings: RlsCaseSettings, isOwn?: boolean): RlsCase[] {
  return RLS_CASES.filter((it) => {
    const isWanted = isOwn === undefined || isOwn === (it.isOwn ?? false);
    return isWanted && (it.settings ?? 'plain') === settings;
  });
}

/** The files of these cases. */
export function caseFiles(settings: RlsCaseSettings, isOwn?: boolean): Record<string, string> {
  const files: Record<string, string> = settings === 'plain' ? { 'd.yaml': TREE } : {};
  for (const { domain, texts = [] } of casesWith(settings, isOwn)) {
    for (const [i, text] of texts.entries()) files[`${domain}-${i}.yaml`] = text;
  }
  return files;
}
