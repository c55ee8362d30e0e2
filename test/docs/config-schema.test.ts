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
import { loadSettings } from '../../src/config/load.ts';
import { SETTING_NAMES } from '../../src/config/schema.ts';
import { attempt } from '../../src/config/setting-value.ts';
import { RULES_BEYOND_SCHEMA } from '../../src/docs/config-schema.ts';
import { findPages } from '../../src/docs/generator.ts';
import { GATEWAYS } from '../../src/policies/gateways.ts';
import { PolicySchema, WindowSchema } from '../../src/policies/policy.ts';
import { TlsCertificate } from '../../src/runtime/tls.ts';
import { UnixSocket } from '../../src/runtime/unix-socket.ts';
import { trialCount } from '../support/guarantees.ts';
import { blocksOf } from '../support/markdown.ts';
import { removeDirectory, temporaryDirectory } from '../support/server.ts';
import { callWeir } from '../support/weir-command.ts';

const ROOT = new URL('../..', import.meta.url).pathname;
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

/** The values that an editor shows for a field. */
function shownValues(rules: AnySchema): unknown[] {
  return [...(rules.examples ?? []), ...('default' in rules ? [rules.default] : [])];
}

function schemaErrors(text: string): string[] {
  if (matchesSchema(JSON.parse(text))) return [];
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
    message: /^WEIR_TLS_(CERT|KEY) requires|^the certificate|cannot be read/,
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
  redisFiles: {
    message:
      /\(WEIR_REDIS_\w+\) cannot be|WEIR_REDIS_(CERT|KEY) requires|a WEIR_REDIS_URL with TLS/,
    text: '{"engine":"redis","redisUrl":"rediss://a","redisCa":"/nowhere"}',
  },
  redisPassword: {
    message: /^WEIR_REDIS_URL (contains a password, and|names a user without a password)/,
    text: '{"engine":"redis","redisUrl":"redis://:a@b","redisPasswordFile":"c"}',
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
  durations: {
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

describe('the schema of the configuration file', () => {
  test('is a valid JSON Schema of draft-07', () => {
    expect(schema.$schema).toBe('http://json-schema.org/draft-07/schema#');
    expect(ajv.validateSchema(schema)).toBe(true);
  });

  test('has a description of every setting and of every field', () => {
    const { $schema: _schema, policies, ...settings } = schema.properties;
    expect(Object.keys(settings)).toEqual(SETTING_NAMES.filter((name) => name !== 'config'));
    const policy = policies.additionalProperties;
    expect(Object.keys(policy.properties)).toEqual(Object.keys(PolicySchema.properties));
    const window = policy.properties.windows.items;
    expect(Object.keys(window.properties)).toEqual(Object.keys(WindowSchema.properties));
    const all = { ...schema.properties, ...policy.properties, ...window.properties };
    for (const [name, { description }] of Object.entries<{ description: string }>(all)) {
      expect([name, description]).toEqual([name, expect.stringMatching(/^[A-Z`w].*\.$/)]);
      expect([name, description]).toEqual([name, expect.not.stringContaining('](')]);
    }
  });

  test('has defaults and examples that the server accepts', () => {
    const { policies, ...settings } = schema.properties;
    for (const [name, rules] of Object.entries<AnySchema>(settings)) {
      for (const value of shownValues(rules)) {
        const text = JSON.stringify({ [name]: value });
        const errors = serverErrors(text).filter((error) => !isBeyondSchema(error));
        expect([text, schemaErrors(text), errors]).toEqual([text, [], []]);
      }
    }
    for (const example of shownValues(policies)) {
      const text = JSON.stringify({ policies: example });
      expect([text, schemaErrors(text), serverErrors(text)]).toEqual([text, [], []]);
    }
    const fields: Record<string, AnySchema> = policies.additionalProperties.properties;
    for (const [name, rules] of Object.entries(fields)) {
      const { gateway } = POLICY;
      const needed: Record<string, object> = {
        burst: { ...POLICY, algorithm: 'gcra' },
        windows: { gateway },
      };
      for (const value of shownValues(rules)) {
        const policy = { ...(needed[name] ?? POLICY), [name]: value };
        const text = JSON.stringify({ policies: { a: policy } });
        expect([text, schemaErrors(text), serverErrors(text)]).toEqual([text, [], []]);
      }
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
    const { policies, ...others } = JSON.parse(text);
    if (policies !== undefined) return !Array.isArray(policies);
    return Object.keys(others).every((name) => name in schema.properties);
  };
  const inPages = findPages(ROOT).flatMap((page) => {
    return blocksOf(readFileSync(join(ROOT, page), 'utf8')).flatMap((block) => {
      if (block.kind !== 'fence' || block.language !== 'json') return [];
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
  expect(files.length).toBeGreaterThanOrEqual(2);
  for (const { place, text } of files) {
    expect([place, schemaErrors(text)]).toEqual([place, []]);
    writeFileSync(FILE, text);
    const { code, stdout, stderr } = await callWeir('', ['config', 'check', FILE]);
    expect([place, code, stderr]).toEqual([place, 0, '']);
    expect(stdout).toContain(' valid: ');
  }
});

/** Texts near the rules of all settings and fields. */
const TEXTS = [
  ...['', 'a', '\0', 'localhost', '127.0.0.1', '127.1.1.1111', '::1', '0660', '660', '06600'],
  ...['https://weir.example', 'HTTP://[::1]:1/a', 'ftp://weir', 'https:weir', ' https://weir'],
  ...['https://weir?', 'https://weir/#a', 'https://me:secret@weir', 'http://weir:99999'],
  ...['a.example', 'a.example, B_c', 'a..b', 'a,', '-a', `${'a'.repeat(64)}`, 'a:80'],
  ...['/run/a', 'k'.repeat(16), 'k'.repeat(15), 'k'.repeat(513), 'é'.repeat(60), 'a b'.repeat(9)],
  ...['ip', 'method', 'path', 'IP', 'header:x-key', 'header:X-Key', 'header:x key', 'header:'],
  ...['header:X-Real-IP', 'header:x-forwarded-for', 'header:TE', 'header:tea', 'header:Proxy-a'],
  ...[
    'redis://a',
    'REDISS+cluster://a:1,b',
    'redis+sentinel://a/b?db=1',
    'redis://:a@b/x',
    'redis',
  ],
  ...['cookie:session', 'cookie:te', `cookie:${'a'.repeat(128)}`, `cookie:${'a'.repeat(129)}`],
];
/** A file is only valid with none of them, or with those of one engine. */
const ENGINE_SETTINGS = /^(engine|redis\w+|leases|syncMs|onEngineDown|localShare|recovery)$/;
const NAMESPACES = [
  ...['login', 'a.b~c:d@e-f', '_', '.a', '-a', 'a/b', 'a b', '', 'rlns_a', 'rlns', '__proto__'],
  ...['constructor', 'é', 'n'.repeat(512), 'n'.repeat(513)],
];

/** Values that match a schema, and values that nearly do. */
function valuesNear(rules: AnySchema): fc.Arbitrary<unknown> {
  const other = fc.oneof(fc.jsonValue({ maxDepth: 1 }), fc.constantFrom(...TEXTS));
  return fc.oneof({ weight: 30, arbitrary: likelyValues(rules) }, { weight: 1, arbitrary: other });
}

function likelyValues({ type, properties = {}, ...rules }: AnySchema): fc.Arbitrary<unknown> {
  if (rules.enum !== undefined) return fc.constantFrom(...rules.enum);
  if (rules.anyOf !== undefined && type !== 'object') {
    return fc.oneof(...rules.anyOf.map(valuesNear));
  }
  switch (type) {
    case 'boolean':
      return fc.boolean();
    case 'integer': {
      const { minimum = 0, maximum = 0 } = rules;
      const usual = [minimum, minimum + 1, 10, 20, 60_000, maximum].filter((value) => {
        return value >= minimum && value <= maximum;
      });
      const invalid = [minimum - 1, maximum + 1, minimum + 0.5, 2 ** 53];
      return fc.oneof(
        { weight: 20, arbitrary: fc.constantFrom(...usual) },
        { weight: 1, arbitrary: fc.constantFrom(...invalid) },
      );
    }
    case 'array':
      return fc.array(valuesNear(rules.items ?? {}), { maxLength: 9, size: 'xsmall' });
    case 'object':
      return objectsNear(properties, rules.additionalProperties);
    default:
      return fc.oneof(fc.constantFrom(...TEXTS), fc.string({ unit: 'binary', maxLength: 20 }));
  }
}

function objectsNear(
  properties: Record<string, AnySchema>,
  values: AnySchema | false | undefined,
): fc.Arbitrary<unknown> {
  if (values) {
    const name = fc.oneof(
      { weight: 5, arbitrary: fc.constantFrom('login', 'api', 'search') },
      { weight: 1, arbitrary: fc.constantFrom(...NAMESPACES) },
    );
    return fc
      .array(fc.tuple(name, valuesNear(values)), { maxLength: 3 })
      .map((entries) => Object.fromEntries(entries));
  }
  const known = Object.entries(properties).map(([name, rules]) => {
    // Most policies and windows have what is required.
    const isUsual = ['gateway', 'limit', 'duration'].includes(name);
    const arbitrary = valuesNear(rules).map((value) => [[name, value]]);
    return fc.oneof(
      { weight: isUsual ? 8 : 1, arbitrary },
      { weight: isUsual ? 1 : ENGINE_SETTINGS.test(name) ? 40 : 6, arbitrary: fc.constant([]) },
    );
  });
  const unknown = fc.oneof(
    { weight: 20, arbitrary: fc.constant([]) },
    { weight: 1, arbitrary: fc.constantFrom([['limt', 1]], [['config', 'a']]) },
  );
  return fc.tuple(...known, unknown).map((parts) => Object.fromEntries(parts.flat()));
}

test('generated files get the same verdict from the schema and from the server', () => {
  const verdicts = { valid: 0, invalid: 0, beyondSchema: 0 };
  fc.assert(
    fc.property(valuesNear({ ...schema, anyOf: undefined }), (file) => {
      const text = JSON.stringify(file);
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
    }),
    { numRuns: trialCount(1_000, 4_000) },
  );
  for (const count of Object.values(verdicts)) expect(count).toBeGreaterThan(20);
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
      expect([text, schemaErrors(text).length === 0]).toEqual([text, isValid]);
      expect([text, serverErrors(text).length === 0]).toEqual([text, isValid]);
    }),
    { numRuns: trialCount(150, 1_000) },
  );
});
