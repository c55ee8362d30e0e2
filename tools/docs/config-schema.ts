/**
 * Renders `docs/weir.schema.json`, the JSON Schema of the configuration file, for editors. It is
 * made from the declarations that the server validates the file with. Rules that a JSON Schema
 * cannot express are listed here; every other rule is in the schema.
 *
 * It uses draft-07: every version of the common editors implements it completely.
 */

import { annotations, SETTING_NAMES, type SettingName, Settings } from '../../src/config/schema.ts';
import { HOST_NAME_LABEL, HOST_NAME_MAX_CHARACTERS } from '../../src/config/validators.ts';
import {
  IDENTITY_PARTS_MAX,
  NAMESPACE_ID_PREFIX,
  NAMESPACE_MAX_CHARACTERS,
  POLICIES_MAX,
  POLICY_SKIPS_MAX,
  SKIP_PATH_MAX_CHARACTERS,
  SOCKET_PATH_MAX_BYTES,
} from '../../src/core/constants.ts';
import { DURATION_FORMAT } from '../../src/core/duration.ts';
import { FAIL_CLOSED_GATEWAYS, GATEWAYS, isEnvoyBased } from '../../src/policies/gateways.ts';
import {
  HOP_BY_HOP_HEADER,
  REAL_IP,
  RESERVED_HEADER,
  TOKEN,
} from '../../src/policies/identity-part.ts';
import { PLAIN_PATH } from '../../src/policies/path.ts';
import {
  IDENTITY_PARTS,
  POLICY_NAMESPACE_FORMAT,
  POLICY_NAMESPACE_RULE,
  PolicySchema,
  PREFLIGHT,
  SKIP_RULE,
  WindowSchema,
} from '../../src/policies/policy.ts';
import { documentedSchema } from './openapi.ts';

/** A JSON Schema of draft-07. */
export type JsonSchema = Readonly<Record<string, unknown>>;

/** What a file may violate although it matches the schema, by the fields concerned. */
export const RULES_BEYOND_SCHEMA = {
  repeatedName: 'No name is repeated in an object.',
  publicUrl: '`publicUrl` has a valid host and port, and no credentials.',
  socketBytes: `The path of a Unix socket has at most ${SOCKET_PATH_MAX_BYTES} bytes in UTF-8.`,
  differentAddresses: 'No two ports are equal, and no two Unix sockets have the same path.',
  tls: '`tlsCert` and `tlsKey` are both set, in any source, and are a certificate and its key.',
  rootKey: 'The file of `rootKeyFile` contains a valid key, and `WEIR_ROOT_KEY` is not set too.',
  redisUrl: '`redisUrl` has valid hosts, ports and a valid database.',
  redisEngine:
    '`redisUrl` is set if `engine` is `redis`. Otherwise no setting of Redis is set, in any ' +
    'source.',
  redisDecide: '`decide` is `in-place` if `engine` is `redis`.',
  redisLeases: '`onLostLeases` is `continue` if `engine` is `redis`.',
  redisFiles:
    'The files of `redisPasswordFile`, `redisCa`, `redisCert` and `redisKey` are valid. The last ' +
    'three need a `redisUrl` with TLS, and `redisCert` and `redisKey` each other.',
  redisPassword:
    '`redisUrl` has no password if `redisPasswordFile` is set. A user has a password in one of ' +
    'both.',
  dashboardProxy:
    '`dashboardUserHeader` and `dashboardProxySecretFile` are both set, in any source, with the ' +
    'dashboard on, and the file contains a valid secret. Only then `dashboardUserRoles` may be ' +
    'set.',
  dashboardUsers:
    '`dashboardUserHeader` is no header that browsers or weir define. `dashboardUserRoles` has ' +
    'valid names and roles, and no name twice.',
  rls:
    'If `rlsPort` or `rlsSocket` is set, `rlsConfig` is. Otherwise no setting of the rate limit ' +
    'service is set, in any source. `rlsTlsCert` and `rlsTlsKey` are both set, with `rlsPort`, ' +
    'or neither and no `rlsTlsClientCa`.',
  rlsAccess:
    'If `rlsHost` is no loopback address, `rlsTlsClientCa` is set, or `rlsOpen` is `true`.',
  rlsJson: '`rlsJsonPort` is not set with `rlsTlsCert`.',
  rlsThreads: '`rlsThreads` is 1 without `rlsPort`, and with Node before 22.22.',
  durations: 'A duration with a unit is within the same bounds as one in milliseconds.',
  memory: 'The number of `counters` fits into the memory limit.',
  burst: '`burst` is at most `limit`.',
  cost: '`cost` is at most the smallest `limit` or `burst` of the policy.',
  windows: 'The windows of a policy differ in their duration.',
  parts: 'No part of `identify` is repeated. The case of letters in a header name does not matter.',
} as const;

const POLICY_EXAMPLES: Readonly<Record<string, readonly unknown[]>> = {
  limit: [100],
  duration: ['60s', 60_000],
  burst: [20],
  windows: [
    [
      { limit: 10, duration: '1s' },
      { limit: 100_000, duration: '30d', algorithm: 'fixed' },
    ],
  ],
  identify: ['ip', 'ip:header:cf-connecting-ip', 'header:x-api-key', ['cookie:session', 'path']],
  skip: [['preflight', '/healthz']],
};

const POLICIES_EXAMPLE = { login: { gateway: 'nginx', limit: 100, duration: '60s' } };

/** Rules of a setting that the server does not express as a schema. */
const SETTING_RULES: Partial<Record<SettingName, JsonSchema>> = {
  publicUrl: { pattern: `^${ignoringCase('https?')}://[^?#\\s]+$` },
  adminHosts: { pattern: hostNamesPattern() },
  socket: { maxLength: SOCKET_PATH_MAX_BYTES },
  gatewaySocket: { maxLength: SOCKET_PATH_MAX_BYTES },
};

/** The text of `docs/weir.schema.json`. */
export function configSchemaJson(): string {
  return `${JSON.stringify(configSchema(), undefined, 2)}\n`;
}

/** The rules that the schema does not contain, as a list. */
export function rulesBeyondSchema(): string {
  return Object.values(RULES_BEYOND_SCHEMA)
    .map((rule) => `- ${rule}`)
    .join('\n');
}

export function configSchema(): JsonSchema {
  const names = SETTING_NAMES.filter((name) => name !== 'config');
  return {
    $schema: 'http://json-schema.org/draft-07/schema#',
    title: 'weir',
    description: 'The configuration file of weir: settings, and the policies of gateways.',
    type: 'object',
    properties: {
      $schema: {
        description: 'The path or the URL of this schema, for editors. weir ignores it.',
        type: 'string',
        examples: ['./weir.schema.json'],
      },
      ...Object.fromEntries(names.map((name) => [name, setting(name)])),
      policies: {
        description: 'Policies of gateways, by namespace. weir reads them again on SIGHUP.',
        type: 'object',
        maxProperties: POLICIES_MAX,
        propertyNames: {
          pattern: POLICY_NAMESPACE_FORMAT.source.replace('^', `^(?!${NAMESPACE_ID_PREFIX})`),
          ...patternMessage(POLICY_NAMESPACE_RULE),
          maxLength: NAMESPACE_MAX_CHARACTERS,
        },
        additionalProperties: policy(),
        examples: [POLICIES_EXAMPLE],
      },
    },
    additionalProperties: false,
    dependencies: { rootKey: { properties: { rootKeyFile: false } } },
  };
}

function setting(name: SettingName): JsonSchema {
  const {
    accepts,
    defaultRule,
    description,
    details = '',
    examples,
    isDuration,
  } = annotations(name);
  const schema = documentedSchema(Settings.properties[name]);
  // A default that follows from the machine is described, and is not the same everywhere.
  const omitted = ['setting', ...(defaultRule === undefined ? [] : ['default'])];
  const rule = Object.entries(schema).filter(([keyword]) => !omitted.includes(keyword));
  const isFreeText = schema.type === 'string' && schema.enum === undefined;
  const sentences = [
    `${description[0].toUpperCase()}${description.slice(1)}.`,
    details,
    ...(isFreeText ? [`Accepts ${accepts}.`] : []),
    ...(defaultRule === undefined ? [] : [`Default: ${defaultRule}.`]),
  ];
  const declared = {
    ...Object.fromEntries(rule),
    description: withoutLinks(sentences.join(' ')),
    ...SETTING_RULES[name],
  };
  return {
    ...(isDuration ? orWithUnit(declared) : declared),
    ...('pattern' in declared && patternMessage(accepts)),
    ...(examples !== undefined && { examples }),
  };
}

function policy(): JsonSchema {
  const { type, properties } = documentedSchema(PolicySchema) as unknown as {
    type: string;
    properties: Record<string, JsonSchema>;
  };
  const rules: Record<string, JsonSchema> = {
    gateway: gatewayRules(),
    windows: { items: window() },
    identify: identifyRules(),
    skip: skipRules(),
    missing: missingRules(),
  };
  const fields = Object.entries(withUnits(properties)).map(([name, { enum: values, ...field }]) => {
    const own = name in rules ? { ...field, ...rules[name] } : { ...field, enum: values };
    const examples = POLICY_EXAMPLES[name];
    return [name, examples === undefined ? own : { ...own, examples }];
  });
  const single = { limit: false, duration: false, algorithm: false, burst: false };
  return {
    description: 'The policy of a namespace: its gateways, its limits, and its clients.',
    type,
    properties: Object.fromEntries(fields),
    additionalProperties: false,
    required: ['gateway'],
    anyOf: [{ required: ['limit', 'duration'] }, { required: ['windows'] }],
    dependencies: { burst: GCRA_ONLY, windows: { properties: single } },
    allOf: [
      {
        anyOf: [
          { properties: { gateway: { not: FAIL_CLOSED } } },
          { properties: { onError: { enum: ['deny'] } } },
        ],
      },
    ],
  };
}

/** A gateway, or an array with one, that denies requests while weir is stopped. */
const FAIL_CLOSED = {
  anyOf: [
    { enum: FAIL_CLOSED_GATEWAYS },
    { type: 'array', contains: { enum: FAIL_CLOSED_GATEWAYS } },
  ],
};

const GCRA_ONLY = { required: ['algorithm'], properties: { algorithm: { const: 'gcra' } } };

function window(): JsonSchema {
  const { properties, ...rest } = documentedSchema(WindowSchema) as unknown as {
    properties: Record<string, JsonSchema>;
  };
  return {
    description: 'A window, with its own algorithm.',
    ...rest,
    properties: withUnits(properties),
    additionalProperties: false,
    dependencies: { burst: GCRA_ONLY },
  };
}

/** The properties, with a duration that may have a unit. */
function withUnits(properties: Record<string, JsonSchema>): Record<string, JsonSchema> {
  return { ...properties, duration: orWithUnit(properties.duration) };
}

/** The rule of milliseconds, which also accepts a duration with a unit. */
function orWithUnit({ type, minimum, maximum, ...rest }: JsonSchema): JsonSchema {
  const text = {
    type: 'string',
    pattern: DURATION_FORMAT.source,
    ...patternMessage('a duration such as 500ms, 60s, 15m, 1h or 30d'),
  };
  return { ...rest, anyOf: [{ type, minimum, maximum }, text] };
}

function gatewayRules(): JsonSchema {
  const one = { type: 'string', enum: GATEWAYS };
  const both = GATEWAYS.filter(isEnvoyBased).map((name) => ({ contains: { const: name } }));
  return {
    anyOf: [
      one,
      { type: 'array', minItems: 1, uniqueItems: true, items: one, not: { allOf: both } },
    ],
    examples: ['nginx', ['nginx', 'envoy']],
  };
}

function identifyRules(): JsonSchema {
  const names = [RESERVED_HEADER, HOP_BY_HOP_HEADER].map(({ source }) => {
    return ignoringCase(source.replace('^', ''));
  });
  const header = `header:(?!${names.join('|')})${TOKEN}`;
  const address = `ip|ip:header:${ignoringCase(REAL_IP)}|ip:${header}`;
  const part = {
    type: 'string',
    pattern: `^(${address}|method|path|cookie:${TOKEN}|${header})$`,
    ...patternMessage(IDENTITY_PARTS),
  };
  return {
    anyOf: [
      part,
      {
        type: 'array',
        minItems: 1,
        maxItems: IDENTITY_PARTS_MAX,
        uniqueItems: true,
        items: part,
      },
    ],
  };
}

function skipRules(): JsonSchema {
  return {
    type: 'array',
    maxItems: POLICY_SKIPS_MAX,
    uniqueItems: true,
    items: {
      type: 'string',
      pattern: `^${PREFLIGHT}$|^(?=/)${PLAIN_PATH.source.replace('^', '')}`,
      ...patternMessage(SKIP_RULE),
      maxLength: SKIP_PATH_MAX_CHARACTERS,
    },
  };
}

/** The values of older files are valid, but an editor should not offer them. */
function missingRules(): JsonSchema {
  return {
    anyOf: [
      { enum: ['share', 'allow', 'deny'] },
      {
        description: 'The names of `allow` and `deny` in older files.',
        deprecated: true,
        enum: ['admit', 'refuse'],
      },
    ],
  };
}

/** An editor shows it instead of a pattern. Other programs ignore this keyword. */
function patternMessage(accepts: string): JsonSchema {
  return { patternErrorMessage: `It must be ${accepts}.` };
}

/** Host names, separated by commas, with or without blanks around them. */
function hostNamesPattern(): string {
  const label = HOST_NAME_LABEL.replaceAll('a-z', 'A-Za-z');
  const name = `\\s*(?![^,\\s]{${HOST_NAME_MAX_CHARACTERS + 1}})${label}(\\.${label})*\\s*`;
  return `^${name}(,${name})*$`;
}

/** A pattern that accepts both cases of each letter, since a JSON Schema has no flags. */
function ignoringCase(pattern: string): string {
  return pattern.replace(/[a-z]/g, (letter) => `[${letter.toUpperCase()}${letter}]`);
}

/** Links of the pages lead nowhere from an editor. */
function withoutLinks(markdown: string): string {
  return markdown
    .replace(/ ?\bSee \[[^\]]*\]\([^)]*\)[^.]*\./g, '')
    .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replace(/ {2,}/g, ' ')
    .trim();
}
