/**
 * The JSON Schema of the configuration file, against what the server accepts. A file that the
 * schema rejects is rejected by the server. A file that only the server rejects violates a rule
 * that is listed as one that the schema does not contain.
 */

import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Ajv, type ErrorObject } from 'ajv';
import fc from 'fast-check';
import { afterAll, describe, expect, test } from 'vitest';
import { loadSettings } from '../../../src/config/load.ts';
import { SETTING_NAMES } from '../../../src/config/schema.ts';
import { attempt } from '../../../src/config/setting-value.ts';
import { blankJsonc } from '../../../src/core/json-text.ts';
import { GATEWAYS } from '../../../src/policies/gateways.ts';
import { PolicySchema, WindowSchema } from '../../../src/policies/policy.ts';
import { TlsCertificate } from '../../../src/runtime/tls.ts';
import { UnixSocket } from '../../../src/runtime/unix-socket.ts';
import { RULES_BEYOND_SCHEMA } from '../../../tools/docs/config-schema.ts';
import { findPages } from '../../../tools/docs/generator.ts';
import { trialCount } from '../../support/guarantees.ts';
import { blocksOf } from '../../support/markdown.ts';
import { removeDirectory, temporaryDirectory } from '../../support/server.ts';
import { callWeir } from '../../support/weir-command.ts';

const ROOT = new URL('../../..', import.meta.url).pathname;
const schema = JSON.parse(readFileSync(join(ROOT, 'docs/weir.schema.json'), 'utf8'));
const ajv = new Ajv({ allErrors: true, strictTypes: false, strictRequired: false });
// With this keyword the schema has a message that VS Code shows instead of the pattern.
ajv.addVocabulary(['patternErrorMessage']);
const matchesSchema = ajv.compile(schema);

const directory = temporaryDirectory();
afterAll(() => removeDirectory(directory));
const FILE = join(directory, 'weir.json');
const LARGE = { bytes: 2 ** 40, source: 'a large machine' };
const SMALL = { bytes: 2 ** 28, source: 'a small machine' };

/** All messages of `weir config check`, in an empty environment. */
function serverErrors(text: string, limit = LARGE): string[] {
  writeFileSync(FILE, text);
  const errors: string[] = [];
  const onFault = ({ message }: Error) => errors.push(message);
  const loaded = loadSettings(['--config', FILE], {}, limit, onFault);
  if (loaded === undefined) throw new Error('the arguments request help');
  attempt(onFault, () => TlsCertificate.open(loaded));
  for (const path of [loaded.socket, loaded.gatewaySocket]) {
    if (path !== undefined) attempt(onFault, () => UnixSocket.requireShortPath('a socket', path));
  }
  return errors;
}

interface AnySchema {
  description?: string;
  type?: string;
  default?: unknown;
  examples?: unknown[];
  enum?: unknown[];
  anyOf?: AnySchema[];
  minimum?: number;
  maximum?: number;
  items?: AnySchema;
  properties?: Record<string, AnySchema>;
  additionalProperties?: AnySchema | false;
}

function schemaErrors(text: string): string[] {
  if (matchesSchema(JSON.parse(blankJsonc(text)))) return [];
  return (matchesSchema.errors ?? []).map(({ instancePath, message }: ErrorObject) => {
    return `${instancePath} ${message}`;
  });
}

const POLICY = { gateway: 'nginx', limit: 100, duration: 60_000 };
const policyText = (fields: object) =>
  JSON.stringify({ policies: { a: { ...POLICY, ...fields } } });
const windows = [
  { limit: 1, duration: 1_000 },
  { limit: 2, duration: 1_000 },
];

/** A message for each rule, and a file that violates only this rule. */
const VIOLATIONS: Record<keyof typeof RULES_BEYOND_SCHEMA, { message: RegExp; text: string }> = {
  repeatedName: { message: / is repeated.*; remove one$/, text: '{"port":1,"port":1}' },
  publicUrl: {
    message: /: "publicUrl" must be an http or https URL/,
    text: '{"publicUrl":"https://me:secret@weir.example"}',
  },
  socketBytes: {
    message: /^a socket must be a path of at most 107 bytes; got \d+ bytes/,
    text: JSON.stringify({ socket: 'é'.repeat(60) }),
  },
  differentAddresses: { message: /: they must differ$/, text: '{"port":1,"adminPort":1}' },
  tls: {
    message: /: WEIR_TLS_(CERT|KEY) requires|^the certificate|cannot be read/,
    text: '{"tlsCert":"a"}',
  },
  rootKey: { message: /\(WEIR_ROOT_KEY_FILE\) cannot be read/, text: '{"rootKeyFile":"/nowhere"}' },
  redisUrl: {
    message: /: "redisUrl" must be redis:/,
    text: '{"redisUrl":"redis://a:99999"}',
  },
  redisEngine: {
    message: /requires WEIR_(ENGINE=redis|REDIS_URL), which is not set$/,
    text: '{"engine":"redis"}',
  },
  redisDecide: {
    message: / is worker, which requires WEIR_ENGINE=memory/,
    text: '{"engine":"redis","redisUrl":"redis://a","decide":"worker"}',
  },
  redisLeases: {
    message: /WEIR_ON_LOST_LEASES is wait, which requires WEIR_ENGINE=memory/,
    text: '{"engine":"redis","redisUrl":"redis://a","onLostLeases":"wait"}',
  },
  redisFiles: {
    message:
      /\(WEIR_REDIS_\w+\) cannot be|WEIR_REDIS_(CERT|KEY) requires|a WEIR_REDIS_URL with TLS/,
    text: '{"engine":"redis","redisUrl":"rediss://a","redisCa":"/nowhere"}',
  },
  redisPassword: {
    message: /: WEIR_REDIS_URL (contains a password, and|names a user without a password)/,
    text: '{"engine":"redis","redisUrl":"redis://:a@b","redisPasswordFile":"c"}',
  },
  dashboardProxy: {
    message:
      / requires (WEIR_DASHBOARD_|the dashboard)|^the secret in|WEIR_DASHBOARD_\w+\) cannot be read/,
    text: '{"dashboardUserHeader":"Remote-User"}',
  },
  dashboardUsers: {
    message: /: "dashboardUser(Header|Roles)" must be/,
    text: '{"dashboardUserRoles":"ann"}',
  },
  rls: {
    message: / requires WEIR_RLS_(PORT|CONFIG|TLS_CERT|TLS_KEY)\b/,
    text: '{"rlsPort":1}',
  },
  rlsAccess: {
    message: /WEIR_RLS_HOST is .*, which other machines reach/,
    text: '{"rlsPort":1,"rlsConfig":"a","rlsHost":"0.0.0.0"}',
  },
  rlsJson: {
    message: /WEIR_RLS_JSON_PORT has no TLS/,
    text: '{"rlsPort":1,"rlsConfig":"a","rlsJsonPort":2,"rlsTlsCert":"a","rlsTlsKey":"a"}',
  },
  rlsThreads: {
    message: /WEIR_RLS_THREADS (is|must be) /,
    text: '{"rlsSocket":"a","rlsConfig":"a","rlsThreads":2}',
  },
  durations: {
    message: /: ("drainMs"|"\w+Ms" must be an integer from \d+ to|.*"duration" must be from)/,
    text: policyText({ duration: '10ms' }),
  },
  memory: { message: / and the memory limit is /, text: '{"counters":16777216}' },
  burst: {
    message: /: "burst" must be an integer from 1 to the limit/,
    text: policyText({ algorithm: 'gcra', burst: 101 }),
  },
  cost: {
    message: /: "cost" must be at most the smallest limit or burst/,
    text: policyText({ cost: 101 }),
  },
  windows: {
    message: /: "windows" must differ in their duration$/,
    text: JSON.stringify({ policies: { a: { gateway: 'nginx', windows } } }),
  },
  parts: {
    message: /: "identify" must not repeat a part$/,
    text: policyText({ identify: ['header:X-Key', 'header:x-key'] }),
  },
};
const isBeyondSchema = (error: string) => {
  return Object.values(VIOLATIONS).some(({ message }) => message.test(error));
};

interface Field {
  name: string;
  rules: AnySchema;
  /** A file in which the field has this value. */
  textWith: (value: unknown) => string;
}
const { $schema: _schema, policies, ...settings } = schema.properties;
const policy = policies.additionalProperties;
const window = policy.properties.windows.items;
const fieldsOf = (
  properties: Record<string, AnySchema>,
  textWith: (name: string, value: unknown) => string,
): Field[] => {
  return Object.entries(properties).map(([name, rules]) => {
    return { name, rules, textWith: (value) => textWith(name, value) };
  });
};
/** A setting of Redis is only valid with its engine. */
const ENGINE_SETTINGS = /^(engine|redis\w+|leases|syncMs|onEngineDown|localShare|recovery)$/;
/** A setting of the rate limit service is only valid where that is on. */
const RLS = { rlsSocket: 'rls.sock', rlsConfig: 'rules' };
const REDIS = { engine: 'redis', redisUrl: 'redis://a' };
const SETTING_FIELDS = fieldsOf(settings, (name, value) => {
  const needed = ENGINE_SETTINGS.test(name) ? REDIS : name.startsWith('rls') ? RLS : {};
  return JSON.stringify({ ...needed, [name]: value });
});
const POLICY_FIELDS = fieldsOf(policy.properties, (name, value) => {
  if (name !== 'windows') return policyText({ algorithm: 'gcra', [name]: value });
  return JSON.stringify({ policies: { a: { gateway: 'nginx', windows: value } } });
});
const WINDOW_FIELDS = fieldsOf(window.properties, (name, value) => {
  const windows = [{ limit: 100, duration: 60_000, algorithm: 'gcra', [name]: value }];
  return JSON.stringify({ policies: { a: { gateway: 'nginx', windows } } });
});
const FIELDS = [...SETTING_FIELDS, ...POLICY_FIELDS, ...WINDOW_FIELDS];

describe('the schema of the configuration file', () => {
  test('is a valid JSON Schema of draft-07', () => {
    expect(schema.$schema).toBe('http://json-schema.org/draft-07/schema#');
    expect(ajv.validateSchema(schema)).toBe(true);
  });

  test('has a description of every setting and of every field', () => {
    expect(Object.keys(settings)).toEqual(SETTING_NAMES.filter((name) => name !== 'config'));
    expect(Object.keys(policy.properties)).toEqual(Object.keys(PolicySchema.properties));
    expect(Object.keys(window.properties)).toEqual(Object.keys(WindowSchema.properties));
    for (const { name, rules } of FIELDS) {
      expect([name, rules.description]).toEqual([name, expect.stringMatching(/^[A-Z`w].*\.$/)]);
      expect([name, rules.description]).toEqual([name, expect.not.stringContaining('](')]);
    }
  });

  test('has defaults and examples that the server accepts', () => {
    const texts = FIELDS.flatMap(({ rules, textWith }) => {
      const shown = [...(rules.examples ?? []), ...('default' in rules ? [rules.default] : [])];
      return shown.map(textWith);
    });
    for (const example of policies.examples) texts.push(JSON.stringify({ policies: example }));
    for (const text of texts) {
      const isPolicy = text.startsWith('{"policies"');
      const errors = serverErrors(text).filter((error) => isPolicy || !isBeyondSchema(error));
      expect([text, schemaErrors(text), errors]).toEqual([text, [], []]);
    }
  });

  test('is in the published package', () => {
    const { files } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
    expect(files).toContain('docs/weir.schema.json');
  });

  test('accepts the line that names it', () => {
    const text = '{"$schema":"./docs/weir.schema.json","port":7080}';
    expect([schemaErrors(text), serverErrors(text)]).toEqual([[], []]);
  });

  test('lists every rule that only the server checks, and no other', () => {
    expect(Object.keys(VIOLATIONS)).toEqual(Object.keys(RULES_BEYOND_SCHEMA));
    for (const { message, text } of Object.values(VIOLATIONS)) {
      expect([text, schemaErrors(text)]).toEqual([text, []]);
      expect([text, serverErrors(text, SMALL)]).toEqual([text, [expect.stringMatching(message)]]);
    }
  });
});

/** The configuration files in the pages and the examples of the repository. */
function repositoryFiles(): { place: string; text: string }[] {
  // Other JSON in the pages are responses of the API, which also list policies.
  const isConfiguration = (text: string) => {
    const { policies, ...others } = JSON.parse(blankJsonc(text));
    if (policies !== undefined) return !Array.isArray(policies);
    return Object.keys(others).every((name) => name in schema.properties);
  };
  const inPages = findPages(ROOT).flatMap((page) => {
    return blocksOf(readFileSync(join(ROOT, page), 'utf8')).flatMap((block) => {
      if (block.kind !== 'fence' || !/^jsonc?$/.test(block.language)) return [];
      const isObject = block.text.startsWith('{') && !block.text.includes('…');
      if (!isObject || !isConfiguration(block.text)) return [];
      return [{ place: `${page}:${block.line}`, text: block.text }];
    });
  });
  const folder = join(ROOT, 'examples');
  const names = existsSync(folder)
    ? readdirSync(folder, { recursive: true, encoding: 'utf8' })
    : [];
  const inExamples = names
    .filter((name) => /^(?!.*node_modules).*\bweir[\w-]*\.json$/.test(name))
    .map((name) => ({ place: `examples/${name}`, text: readFileSync(join(folder, name), 'utf8') }));
  return [...inPages, ...inExamples];
}

test('each configuration file of the repository is valid by the schema and by weir', async () => {
  const files = repositoryFiles();
  expect(files.map(({ place }) => place.split(':')[0])).toContain('docs/policies.md');
  for (const { place, text } of files) {
    expect([place, schemaErrors(text)]).toEqual([place, []]);
    writeFileSync(FILE, text);
    const { code, stdout, stderr } = await callWeir('', ['config', 'check', FILE]);
    // Some examples are policies without the settings.
    const others = stderr.split('\n').filter((line) => !line.includes('WEIR_GATEWAY_SOCKET'));
    expect([place, code, others]).toEqual([place, 0, ['']]);
    expect(stdout).toContain(' valid: ');
  }
});

/** Texts near the rules of all settings and fields. */
const TEXTS = [
  ...['', 'a', '\0', 'localhost', '127.0.0.1', '127.1.1.1111', '::1', '0660', '660', '06600'],
  ...['https://weir.example', 'HTTP://[::1]:1/a', 'ftp://weir', 'https:weir', ' https://weir'],
  ...['https://weir?', 'https://weir/#a', 'https://me:secret@weir', 'http://weir:99999'],
  ...['a.example', 'a.example, B_c', 'a..b', 'a,', '-a', `${'a'.repeat(64)}`, 'a:80'],
  ...['60s', '1500ms', '20m', '0s', '99999999d', '5', '5 s', '5x', '-5s', '1.5s'],
  ...['/run/a', 'k'.repeat(16), 'k'.repeat(15), 'k'.repeat(513), 'é'.repeat(60), 'a b'.repeat(9)],
  ...['ip', 'method', 'path', 'IP', 'header:x-key', 'header:X-Key', 'header:x key', 'header:'],
  ...['ip:header:x-real-IP', 'ip:header:x-key', 'ip:header:Host', 'ip:header:X-Real-IPs', 'ip:a'],
  ...['header:X-Real-IP', 'header:x-forwarded-for', 'header:TE', 'header:tea', 'header:Proxy-a'],
  ...['redis://a', 'REDISS+cluster://a:1,b', 'redis+sentinel://a/b?db=1', 'redis://:a@b/x'],
  ...['cookie:session', 'cookie:te', `cookie:${'a'.repeat(128)}`, `cookie:${'a'.repeat(129)}`],
];
const NAMESPACES = [
  ...['login', 'a.b~c:d@e-f', '_', '.a', '-a', 'a/b', 'a b', '', 'rlns_a', 'rlns', '__proto__'],
  ...['constructor', 'é', 'n'.repeat(512), 'n'.repeat(513)],
];

const hasText = (rules: AnySchema): boolean => {
  if (rules.anyOf !== undefined) return rules.anyOf.some(hasText);
  return rules.type === 'string' || (rules.items !== undefined && hasText(rules.items));
};
const numbersIn = ({ minimum, maximum, anyOf = [] }: AnySchema): number[] => {
  return [minimum ?? [], maximum ?? [], ...anyOf.map(numbersIn)].flat();
};

/** Values that match the rules of a field, and values that nearly do. */
function valuesNear(rules: AnySchema): unknown[] {
  const numbers = numbersIn(rules).flatMap((bound) => [bound - 1, bound, bound + 0.5, bound + 1]);
  const texts = hasText(rules) ? TEXTS : ['', 'a'];
  const others = [null, true, [], {}, 0, 20, 2 ** 53, ...(rules.enum ?? [])];
  const lists = texts.flatMap((text) => [[text], ['ip', text], [text, 7]]);
  return [...numbers, ...texts, ...others, ...(rules.type === 'string' ? [] : lists)];
}

/** Files that lack a field, have too many, or combine what excludes each other. */
const STRUCTURES = [
  ...['[]', '{}', '{"limt":1}', '{"config":"a"}', '{"policies":[]}', '{"policies":{"a":[]}}'],
  ...NAMESPACES.map((name) => `{"policies":{${JSON.stringify(name)}:${JSON.stringify(POLICY)}}}`),
  ...['gateway', 'limit', 'duration'].map((name) => policyText({ [name]: undefined })),
  ...[
    { limt: 1 },
    ...['allow', 'deny'].flatMap((onError) => {
      return ['traefik', ['nginx', 'traefik'], ['nginx']].map((gateway) => ({ gateway, onError }));
    }),
    { windows },
    { windows: [] },
    { burst: 5 },
    { algorithm: 'fixed', burst: 5 },
    { limit: undefined, duration: undefined, windows, algorithm: 'gcra' },
  ].map(policyText),
  ...[
    [{ limit: 1 }],
    [{ duration: 1_000 }],
    [{ limit: 9, duration: 1_000, burst: 5 }],
    [{ limit: 9, duration: 1_000, limt: 1 }],
    [7],
    Array(9).fill(windows[0]),
  ].map((list) => JSON.stringify({ policies: { a: { gateway: 'nginx', windows: list } } })),
  '{"rootKey":"kkkkkkkkkkkkkkkk","rootKeyFile":"/a"}',
];

test('each value of each field gets the same verdict from the schema and from the server', () => {
  const verdicts = { valid: 0, invalid: 0, beyondSchema: 0 };
  const texts = FIELDS.flatMap(({ rules, textWith }) => valuesNear(rules).map(textWith));
  for (const text of new Set([...texts, ...STRUCTURES])) {
    const bySchema = schemaErrors(text);
    const byServer = serverErrors(text);
    if (bySchema.length > 0) {
      expect([text, bySchema, byServer]).not.toEqual([text, bySchema, []]);
      verdicts.invalid++;
    } else {
      const other = byServer.filter((error) => !isBeyondSchema(error));
      expect([text, other]).toEqual([text, []]);
      if (byServer.length > 0) verdicts.beyondSchema++;
      else verdicts.valid++;
    }
  }
  for (const count of Object.values(verdicts)) expect(count).toBeGreaterThan(100);
});

test('every list of gateways gets the same verdict from the schema and from the server', () => {
  const lists = fc.array(fc.constantFrom(...GATEWAYS), { maxLength: 4 });
  fc.assert(
    fc.property(lists, (gateway) => {
      const text = policyText({ gateway });
      const isValid =
        gateway.length > 0 &&
        new Set(gateway).size === gateway.length &&
        !(gateway.includes('envoy') && gateway.includes('istio'));
      const verdicts = [schemaErrors(text), serverErrors(text)].map(({ length }) => length === 0);
      expect([text, verdicts]).toEqual([text, [isValid, isValid]]);
    }),
    { numRuns: trialCount(150, 1_000) },
  );
});
