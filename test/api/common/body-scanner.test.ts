import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { BodyScanner } from '../../../src/api/common/body-scanner.ts';
import type { CheckBody, CheckRequest } from '../../../src/api/common/check-request.ts';
import { parseBody } from '../../../src/api/common/input.ts';
import { NamespaceFinder } from '../../../src/api/common/namespace-finder.ts';
import { CheckReaderV1, limitV1 } from '../../../src/api/operations/v1/limit.ts';
import { CheckReaderV2, limitV2 } from '../../../src/api/operations/v2/limit.ts';
import { CheckListReader, multiLimit } from '../../../src/api/operations/v2/multi-limit.ts';
import { Permissions } from '../../../src/auth/permissions.ts';
import { requireValidBurst } from '../../../src/core/algorithm-fields.ts';
import { ApiError } from '../../../src/core/errors.ts';
import { Hasher } from '../../../src/core/hash.ts';
import { NO_BURST, RULE, type RuleNumber } from '../../../src/core/window-rules.ts';
import { KnownNamespaces } from '../../../src/registry/known-namespaces.ts';
import { newSeed, trialCount } from '../../support/guarantees.ts';
import { seededRandom } from '../../support/seeded-random.ts';

/** Reading a check creates its namespace; the maximum is 10 000. */
const PER_READER = 5_000;

const key = {
  id: 'key_test',
  permissions: new Permissions(['*']),
  expiresMs: null,
  isRevoked: false,
};
const hasher = new Hasher(Buffer.alloc(16));
const scan = new BodyScanner();

function newNamespaceFinder(): NamespaceFinder {
  const known = new KnownNamespaces(
    (name) => hasher.namespace(name),
    () => new Float64Array(4),
    () => {},
  );
  return new NamespaceFinder(known);
}

function newReaderV1(): CheckReaderV1 {
  return new CheckReaderV1(scan, newNamespaceFinder(), () => {}, false);
}

/** The result of a body as text: the checks or the error. */
function outcome(checks: () => readonly (readonly unknown[])[]): string {
  try {
    return JSON.stringify(checks());
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return JSON.stringify([error.code, error.message, error.faultLocation]);
  }
}

function fieldsOfRead(check: CheckRequest): readonly unknown[] {
  const { namespaceIdOrName, identifier, limit, durationMs, cost, isAsync, rule, burst } = check;
  return [namespaceIdOrName, identifier, limit, durationMs, cost, isAsync, rule, String(burst)];
}

/** @param defaultRule the window rule of a body that names no algorithm */
function fieldsOfParsed(body: CheckBody, defaultRule: RuleNumber): readonly unknown[] {
  const { namespace = 'default', identifier, limit, duration, cost = 1, async = false } = body;
  const { algorithm, burst = NO_BURST } = body;
  const rule = algorithm === undefined ? defaultRule : RULE[algorithm];
  return [namespace, identifier, limit, duration, cost, async, rule, String(burst)];
}

function validateBurst(body: CheckBody): CheckBody {
  requireValidBurst(body);
  return body;
}

/** An operation of a version: its reader, and `JSON.parse` with the schema for the same body. */
interface Operation {
  name: string;
  /** Number of bodies. */
  bodies: number;
  isList: boolean;
  defaultRule: RuleNumber;
  reader(): (bytes: Uint8Array) => readonly CheckRequest[];
  parsed(bytes: Uint8Array): readonly CheckBody[];
}

function oneCheck(
  newReader: () => Pick<CheckReaderV1 | CheckReaderV2, 'read'>,
  validator: typeof limitV1.validator | typeof limitV2.validator,
): Pick<Operation, 'isList' | 'reader' | 'parsed'> {
  return {
    isList: false,
    reader: () => {
      const reader = newReader();
      return (bytes) => [reader.read(key, bytes)];
    },
    parsed: (bytes) => [validateBurst(validator.validate(parseBody(bytes)))],
  };
}

const operations: Operation[] = [
  {
    name: 'v1, one check',
    bodies: trialCount(20_000, 650_000),
    defaultRule: RULE.fixed,
    ...oneCheck(() => newReaderV1(), limitV1.validator),
  },
  {
    name: 'v2, one check',
    bodies: trialCount(10_000, 350_000),
    defaultRule: RULE.sliding,
    ...oneCheck(() => new CheckReaderV2(scan, newNamespaceFinder()), limitV2.validator),
  },
  {
    name: 'v2, many checks',
    bodies: trialCount(1_500, 50_000),
    isList: true,
    defaultRule: RULE.sliding,
    reader: () => {
      const reader = new CheckListReader(scan, newNamespaceFinder());
      return (bytes) => reader.read(key, bytes);
    },
    parsed: (bytes) => {
      const items = parseBody(bytes);
      if (!Array.isArray(items) || items.length < 1 || items.length > 100) {
        throw new ApiError('BAD_REQUEST', 'no list of 1 to 100');
      }
      return items.map((item, at) => {
        try {
          return validateBurst(multiLimit.validator.validate(item));
        } catch (error) {
          throw error instanceof ApiError ? error.forListItem('', at) : error;
        }
      });
    },
  },
];

function parsedFields({ parsed, defaultRule }: Operation, bytes: Uint8Array) {
  return parsed(bytes).map((body) => fieldsOfParsed(body, defaultRule));
}

type RandomBelow = (below: number) => number;

const pick = <T>(below: RandomBelow, values: readonly T[]): T => values[below(values.length)];

const TEXTS = [
  ...['"a"', '""', '"user_1"', '"a b~!"', '"\\u0041"', '"\\n"', '"é€😀"', '"\\""', '"\\\\"'],
  ...[`"${'x'.repeat(512)}"`, `"${'x'.repeat(513)}"`, `"${'é'.repeat(512)}"`, '"\\ud800"'],
  ...['"\u007f"', '"\u0001"', '"rlns_1"', '"identifier"', 'null', '7', '{}', '["a"]'],
];
const NUMBERS = [
  ...['0', '1', '10', '999', '1000', '60000', '1000000', '2592000000', '2592000001'],
  ...['3155760000000', '3155760000001', '999999999999999', '1000000000000000'],
  ...['9007199254740991', '9007199254740992', '-1', '-0', '0.5', '1.0', '1e3', '1E+2', '01'],
  ...['+1', '.5', '1.', '0x10', 'null', 'true', '"1"', '4294967296', '2147483648', '1e400'],
];
const ALGORITHMS = ['"fixed"', '"sliding"', '"gcra"'];
const ODD_ALGORITHMS = ['"GCRA"', '"token"', '""', '"constructor"', '"gcra "', 'null', '2', '[]'];
const FLAGS = ['true', 'false', 'null', '1', '"true"', 'True', 'tru', 'truee', 'false '];
const OTHERS = [
  ...['"meta":{}', '"meta":{"identifier":"b","limit":3}', '"meta":[]', '"resources":[]', '"x":1'],
  ...['"__proto__":{"limit":1}', '"Limit":5', '"limits":5', '"cos":2', '"identifie":"c"', '""'],
  ...['"\\u006cimit":4', '"limit" :4', '"resources":[{"id":"a"}]', '"\\ud800":1'],
  ...['"meta":{"\\udead":"\\ud800"}', '"resources":[{"id":"\\ud800"}]'],
];

/** An object with the fields, mostly in their usual order. */
function randomObject(below: RandomBelow): string {
  const isOdd = below(4) === 0;
  const value = (usual: readonly string[], odd: readonly string[]) => {
    return isOdd && below(4) === 0 ? pick(below, odd) : pick(below, usual);
  };
  const fields = [
    `"identifier":${value([`"user_${below(1_000)}"`, '"10.0.0.1"', '"a"'], TEXTS)}`,
    `"limit":${value(['10', '100', '1000000'], NUMBERS)}`,
    `"duration":${value(['1000', '60000', '3600000'], NUMBERS)}`,
    `"namespace":${value(['"api"', '"email.send"', '"n"'], TEXTS)}`,
  ];
  if (below(2) === 0) fields.push(`"cost":${value(['1', '0', '5'], NUMBERS)}`);
  if (below(4) === 0) fields.push(`"async":${value(['true', 'false'], FLAGS)}`);
  if (below(8) === 0) {
    const usesGcra = below(2) === 0;
    fields.push(`"algorithm":${usesGcra ? '"gcra"' : value(ALGORITHMS, ODD_ALGORITHMS)}`);
    if (usesGcra || isOdd) fields.push(`"burst":${value(['1', '5', '10'], NUMBERS)}`);
  }
  if (isOdd && below(3) === 0) fields.push(pick(below, OTHERS));
  if (isOdd && below(6) === 0) fields.push(pick(below, fields));
  if (isOdd && below(6) === 0) fields.splice(below(fields.length), 1);
  if (below(2) === 0) {
    for (let i = fields.length - 1; i > 0; i--) {
      const j = below(i + 1);
      [fields[i], fields[j]] = [fields[j], fields[i]];
    }
  }
  const space = below(3) === 0 ? ' ' : '';
  const text = `{${space}${fields.join(`,${space}`)}${space}}`;
  return space === '' ? text : text.replaceAll('":', '": ');
}

function randomBody(below: RandomBelow, isList: boolean): Uint8Array {
  const items = isList
    ? `[${Array.from({ length: below(30) === 0 ? 100 + below(2) : below(4) }, () => randomObject(below)).join(below(3) === 0 ? ', ' : ',')}]`
    : randomObject(below);
  return Buffer.from(items);
}

const ASCII = Buffer.from('{}[]",:\\ \t\n\r0123456789.-+eEtfn"itelc/\u0000\u0001\u007f');
const BYTES = [...ASCII, 0x80, 0xc3, 0xff];

/** Changes, removes, inserts, repeats or cuts off some bytes. */
function mutateBytes(below: RandomBelow, bytes: Uint8Array): Uint8Array {
  const list = [...bytes];
  for (let count = 1 + below(3); count > 0; count--) {
    const at = below(list.length + 1);
    const changes = [
      () => list.splice(at, 1, pick(below, BYTES)),
      () => list.splice(at, 1 + below(3)),
      () => list.splice(at, 0, pick(below, BYTES)),
      () => list.splice(at, 0, ...list.slice(at, at + below(20))),
      () => list.splice(at, 1, below(256)),
      () => list.splice(at),
    ];
    pick(below, changes)();
  }
  return Uint8Array.from(list);
}

/** Calls of `JSON.parse`: a body that is read without one was scanned. */
let parses = 0;
const { parse } = JSON;
beforeAll(() => {
  JSON.parse = (text) => {
    parses++;
    return parse(text);
  };
});
afterAll(() => {
  JSON.parse = parse;
});

describe('the reader of checks', () => {
  test.each(operations)(
    'gets the same result as JSON.parse and the schema: $name',
    (operation) => {
      const seed = newSeed();
      const below = seededRandom(seed);
      const count = operation.bodies;
      let read = operation.reader();
      let scanned = 0;
      let inOrder = 0;
      for (let i = 0; i < count; i++) {
        if (i % PER_READER === 0) read = operation.reader();
        const whole = randomBody(below, operation.isList);
        const bytes = below(3) === 0 ? mutateBytes(below, whole) : whole;
        const wanted = outcome(() => parsedFields(operation, bytes));
        const parsedBefore = parses;
        const got = outcome(() => read(bytes).map(fieldsOfRead));
        const isScanned = parses === parsedBefore;
        if (!wanted.startsWith('[[')) {
          // The error for a body that is not an array is not from the schema.
          const isError = !got.startsWith('[[');
          if (isError && (got === wanted || wanted.includes('no list'))) continue;
        } else {
          inOrder++;
          if (isScanned) scanned++;
          // The id does not exist, which the look-up after the reader finds out.
          if (got === wanted || (wanted.includes('rlns_') && !got.startsWith('[['))) continue;
        }
        expect.fail(`seed ${seed}, body ${i}: ${Buffer.from(bytes)}\n${wanted}\n${got}`);
      }
      expect(inOrder).toBeGreaterThan(count / 8);
      expect(scanned).toBeGreaterThan(inOrder / 2);
    },
    240_000,
  );

  test('reads no bytes of an earlier, longer body', () => {
    const reader = newReaderV1();
    const whole = Buffer.from('{"identifier":"user_1","limit":10,"duration":60000}');
    for (let cut = 0; cut < whole.length; cut++) {
      expect(reader.read(key, whole).identifier).toBe('user_1');
      expect(() => reader.read(key, whole.subarray(0, cut))).toThrow(ApiError);
    }
  });

  test('uses no field of an earlier check for an absent field', () => {
    const reader = newReaderV1();
    const read = (text: string) => fieldsOfRead(reader.read(key, Buffer.from(text)));
    read('{"namespace":"n","identifier":"a","limit":9,"duration":9000,"cost":7,"async":true}');
    const plain = read('{"identifier":"b","limit":10,"duration":60000}');
    expect(plain).toEqual(['default', 'b', 10, 60_000, 1, false, RULE.fixed, 'Infinity']);
    // A check that names an algorithm is parsed, one without an algorithm is scanned.
    read('{"identifier":"b","limit":10,"duration":60000,"algorithm":"gcra","burst":3}');
    expect(read('{"identifier":"b","limit":10,"duration":60000}')).toEqual(plain);
    // An unusual body without an algorithm is parsed as well.
    read('{"identifier":"b","limit":10,"duration":60000,"algorithm":"sliding"}');
    expect(read('{"identifier":"b","limit":10,"duration":60000,"meta":{}}')).toEqual(plain);
  });

  test('keeps no `requestId` of an earlier check', () => {
    const reader = newReaderV1();
    const read = (body: object) => reader.read(key, Buffer.from(JSON.stringify(body)));
    const body = { identifier: 'a', limit: 10, duration: 60_000 };
    const check = read({ ...body, requestId: 'own' });
    expect([check.requestId, check.copy().requestId]).toEqual(['own', undefined]);
    expect(read(body).requestId).toBeUndefined();
    expect(read({ ...body, meta: {} }).requestId).toBeUndefined();
  });

  test('says whether a body may have more than the check', () => {
    const reader = newReaderV1();
    const hasMore = (body: object) => {
      return reader.read(key, Buffer.from(JSON.stringify(body))).mayHaveOtherFields;
    };
    const fields = { identifier: '', limit: 1, duration: 1_000 };
    expect(hasMore(fields)).toBe(false);
    expect(hasMore({ ...fields, namespace: 'n', cost: 1, async: true })).toBe(false);
    expect(hasMore({ ...fields, meta: {} })).toBe(true);
    expect(hasMore({ meta: {}, ...fields, identifier: 'a' })).toBe(true);
  });
});
