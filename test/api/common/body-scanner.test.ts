import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { BodyScanner, FIELD } from '../../../src/api/common/body-scanner.ts';
import type { CheckBody, CheckRequest } from '../../../src/api/common/check-request.ts';
import { HoldReader } from '../../../src/api/common/hold-reader.ts';
import { parseBody } from '../../../src/api/common/input.ts';
import { NamespaceFinder } from '../../../src/api/common/namespace-finder.ts';
import { AcquireReader, acquire } from '../../../src/api/operations/v1/acquire.ts';
import { commit } from '../../../src/api/operations/v1/commit.ts';
import { CheckReaderV1, limitV1 } from '../../../src/api/operations/v1/limit.ts';
import { release } from '../../../src/api/operations/v1/release.ts';
import { renew } from '../../../src/api/operations/v1/renew.ts';
import { ReserveReader, reserve } from '../../../src/api/operations/v1/reserve.ts';
import { CheckReaderV2, limitV2 } from '../../../src/api/operations/v2/limit.ts';
import { CheckListReader, multiLimit } from '../../../src/api/operations/v2/multi-limit.ts';
import { Permissions } from '../../../src/auth/permissions.ts';
import { requireValidBurst } from '../../../src/core/algorithm-fields.ts';
import { ApiError } from '../../../src/core/errors.ts';
import { Hasher } from '../../../src/core/hash.ts';
import { NO_BURST, RULE, type RuleNumber } from '../../../src/core/window-rules.ts';
import {
  formatHoldId,
  HOLD_KIND,
  type HoldId,
  type HoldKind,
} from '../../../src/engine/hold-id.ts';
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

type RandomBelow = (below: number) => number;

/** @returns mostly one of the usual values, now and then an odd one */
type RandomValue = (usual: readonly string[], odd: readonly string[]) => string;
type RandomFields = (value: RandomValue, below: RandomBelow) => string[];

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
  ...['"reservationId":"a"', '"leaseId":"b"', '"reservationId":7', '"leaseId":null', '"ttl":5'],
  ...['"meta":{"\\udead":"\\ud800"}', '"resources":[{"id":"\\ud800"}]'],
];

const checkFields: RandomFields = (value, below) => {
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
    if (usesGcra || below(4) === 0) fields.push(`"burst":${value(['1', '5', '10'], NUMBERS)}`);
  }
  return fields;
};

/** An operation of a version: its reader, and `JSON.parse` with the schema for the same body. */
interface Operation {
  name: string;
  /** Number of bodies. */
  bodies: number;
  isList: boolean;
  /** The fields of a random body as JSON. */
  fields: RandomFields;
  /** The fields of each item. */
  reader(): (bytes: Uint8Array) => readonly (readonly unknown[])[];
  parsed(bytes: Uint8Array): readonly (readonly unknown[])[];
}

function oneCheck(
  newReader: () => Pick<CheckReaderV1 | CheckReaderV2, 'read'>,
  validator: typeof limitV1.validator | typeof limitV2.validator,
  defaultRule: RuleNumber,
): Pick<Operation, 'isList' | 'fields' | 'reader' | 'parsed'> {
  return {
    isList: false,
    fields: checkFields,
    reader: () => {
      const reader = newReader();
      return (bytes) => [fieldsOfRead(reader.read(key, bytes))];
    },
    parsed: (bytes) => {
      const body = validateBurst(validator.validate(parseBody(bytes)));
      return [fieldsOfParsed(body, defaultRule)];
    },
  };
}

const ignoreUnknown = () => {};

const TTLS = ['1000', '60000', '86400000'];
const ODD_TTLS = ['999', '86400001', '0', '-1', '1e4', '2000.5', '"1000"', 'null'];
const ttl = (value: RandomValue) => [`"ttl":${value(TTLS, ODD_TTLS)}`];

const idOf = (kind: HoldKind) => formatHoldId({ kind, shard: 3, record: 7, secret: [1, -2, 3] });
const RESERVATION_ID = idOf(HOLD_KIND.reservation);
const LEASE_ID = idOf(HOLD_KIND.lease);
const ODD_IDS = [
  ...[`"${RESERVATION_ID}"`, `"${LEASE_ID}"`, '""', '"a"', `"${LEASE_ID.slice(1)}"`, '7', 'null'],
  ...[
    `"${LEASE_ID}a"`,
    `"${'x'.repeat(64)}"`,
    `"${'x'.repeat(65)}"`,
    `"${LEASE_ID.slice(0, -1)}é"`,
  ],
];

/** An operation on a hold that its body names. @param others the fields beside the id */
function onHold(
  name: string,
  kind: HoldKind,
  fields: number,
  parse: (bytes: Uint8Array) => HoldBody,
  others: RandomFields,
): Operation {
  const isLease = kind === HOLD_KIND.lease;
  const id = isLease ? LEASE_ID : RESERVATION_ID;
  const usesTtl = (fields & FIELD.ttl) !== 0;
  const shown = (hold: HoldId | undefined, text: string) => (hold ? formatHoldId(hold) : text);
  return {
    name,
    bodies: trialCount(5_000, 150_000),
    isList: false,
    fields: (value, below) => [
      `"${isLease ? 'leaseId' : 'reservationId'}":${value([`"${id}"`], ODD_IDS)}`,
      ...others(value, below),
    ],
    reader: () => {
      const reader = new HoldReader(scan, kind, fields, (_, bytes) => {
        return parse(bytes as Uint8Array);
      });
      return (bytes) => {
        const { id, invalidId, cost, costs, ttlMs } = reader.read(key, bytes);
        return [[shown(id, invalidId), cost, costs, usesTtl ? ttlMs : undefined]];
      };
    },
    parsed: (bytes) => {
      const { reservationId, leaseId, cost, costs, ttl } = parse(bytes);
      return [[isLease ? leaseId : reservationId, cost, costs, usesTtl ? ttl : undefined]];
    },
  };
}

/** The fields of a body that names a hold. */
type HoldBody = ReturnType<ConstructorParameters<typeof HoldReader>[3]>;

const operations: Operation[] = [
  {
    name: 'v1, one check',
    bodies: trialCount(20_000, 650_000),
    ...oneCheck(() => newReaderV1(), limitV1.validator, RULE.fixed),
  },
  {
    name: 'v2, one check',
    bodies: trialCount(10_000, 350_000),
    ...oneCheck(
      () => new CheckReaderV2(scan, newNamespaceFinder()),
      limitV2.validator,
      RULE.sliding,
    ),
  },
  {
    name: 'v2, many checks',
    bodies: trialCount(1_500, 50_000),
    isList: true,
    fields: checkFields,
    reader: () => {
      const reader = new CheckListReader(scan, newNamespaceFinder());
      return (bytes) => reader.read(key, bytes).map(fieldsOfRead);
    },
    parsed: (bytes) => {
      const items = parseBody(bytes);
      if (!Array.isArray(items) || items.length < 1 || items.length > 100) {
        throw new ApiError('BAD_REQUEST', 'no list of 1 to 100');
      }
      return items.map((item, at) => {
        try {
          const body = validateBurst(multiLimit.validator.validate(item));
          return fieldsOfParsed(body, RULE.sliding);
        } catch (error) {
          throw error instanceof ApiError ? error.forListItem('', at) : error;
        }
      });
    },
  },
  {
    name: 'reserve',
    bodies: trialCount(10_000, 300_000),
    isList: false,
    fields: (value, below) => [...checkFields(value, below), ...ttl(value)],
    reader: () => {
      const reader = new ReserveReader(scan, newNamespaceFinder(), ignoreUnknown, false);
      return (bytes) => {
        const { checks, ttlMs } = reader.read(key, bytes);
        return [[...fieldsOfRead(checks[0]), ttlMs]];
      };
    },
    parsed: (bytes) => {
      const body = reserve.validator.validate(parseBody(bytes));
      const check = validateBurst(body as CheckBody);
      // Not a field of it, so that it may have any value.
      const isAsync = check.async === true;
      return [[...fieldsOfParsed({ ...check, async: isAsync }, RULE.fixed), body.ttl]];
    },
  },
  {
    name: 'acquire',
    bodies: trialCount(10_000, 300_000),
    isList: false,
    fields: (value, below) => [
      ...checkFields(value, below).filter((field) => !/^"(duration|async|al|bu)/.test(field)),
      ...ttl(value),
    ],
    reader: () => {
      const reader = new AcquireReader(scan, newNamespaceFinder(), ignoreUnknown);
      return (bytes) => {
        const { namespace, identifier, limit, cost, ttlMs } = reader.read(key, bytes);
        return [[namespace.name, identifier, limit, cost, ttlMs]];
      };
    },
    parsed: (bytes) => {
      const body = acquire.validator.validate(parseBody(bytes));
      const { namespace = 'default', identifier, limit, cost = 1, ttl } = body;
      return [[namespace, identifier, limit, cost, ttl]];
    },
  },
  onHold(
    'commit',
    HOLD_KIND.reservation,
    FIELD.cost,
    (bytes) => commit.validator.validate(parseBody(bytes)),
    (value) => [`"cost":${value(['0', '1', '700'], NUMBERS)}`],
  ),
  onHold(
    'renew',
    HOLD_KIND.lease,
    FIELD.ttl,
    (bytes) => renew.validator.validate(parseBody(bytes)),
    ttl,
  ),
  onHold(
    'release',
    HOLD_KIND.lease,
    0,
    (bytes) => release.validator.validate(parseBody(bytes)),
    () => [],
  ),
];

/** An object with the fields, mostly in their usual order. */
function randomObject(below: RandomBelow, fieldsOf: RandomFields): string {
  const isOdd = below(4) === 0;
  const fields = fieldsOf((usual, odd) => {
    return isOdd && below(4) === 0 ? pick(below, odd) : pick(below, usual);
  }, below);
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

function randomBody(below: RandomBelow, { isList, fields }: Operation): Uint8Array {
  if (!isList) return Buffer.from(randomObject(below, fields));
  const length = below(30) === 0 ? 100 + below(2) : below(4);
  const items = Array.from({ length }, () => randomObject(below, fields));
  return Buffer.from(`[${items.join(below(3) === 0 ? ', ' : ',')}]`);
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

describe('the readers of checks and holds', () => {
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
        const whole = randomBody(below, operation);
        const bytes = below(3) === 0 ? mutateBytes(below, whole) : whole;
        const wanted = outcome(() => operation.parsed(bytes));
        const parsedBefore = parses;
        const got = outcome(() => read(bytes));
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
