import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { MULTI_LIMIT_MAX, RLS_ENTRIES_MAX } from '../../../src/core/constants.ts';
import { GRPC_STATUS, GrpcError } from '../../../src/rls/transport/status.ts';
import { RequestReader } from '../../../src/rls/wire/request.ts';
import { newSeed, trialCount } from '../../support/guarantees.ts';
import { SHOULD_RATE_LIMIT } from '../../support/rls/definitions.ts';
import { seededRandom } from '../../support/seeded-random.ts';

const MUTATIONS = trialCount(12_000, 120_000);

/** As proto-loader writes it. */
interface Message {
  domain: string;
  descriptors: {
    entries: { key: string; value: string }[];
    limit?: { requests_per_unit: number; unit: number; unit_multiplier?: { value: number } };
    hits_addend?: { value: string };
    is_negative_hits: boolean;
  }[];
  hits_addend: number;
}

const encode = (message: object) => SHOULD_RATE_LIMIT.requestSerialize(message);
/** The bytes of a text of numbers in hexadecimal. */
const hex = (text: string) => Buffer.from(text.replaceAll(' ', ''), 'hex');

/** What a reader has read. */
function requestIn(reader: RequestReader) {
  const descriptors = reader.descriptors.slice(0, reader.descriptorCount).map((descriptor) => {
    const { entryCount, keys, values, ...rest } = descriptor;
    const entries = Array.from({ length: entryCount }, (_, i) => [keys[i], values[i]]);
    return { entries, ...rest };
  });
  return { domain: reader.domain, hitsAddend: reader.hitsAddend, descriptors };
}

/** What a reader has to read. */
function expectedOf({ domain, hits_addend, descriptors }: Message) {
  return {
    domain,
    hitsAddend: hits_addend,
    descriptors: descriptors.map((descriptor) => ({
      entries: descriptor.entries.map(({ key, value }) => [key, value]),
      hitsAddend:
        descriptor.hits_addend === undefined
          ? -1
          : Math.min(Number(descriptor.hits_addend.value), Number.MAX_SAFE_INTEGER),
      isNegativeHits: descriptor.is_negative_hits,
      limitUnit: descriptor.limit === undefined ? -1 : descriptor.limit.unit,
      limitRequests: descriptor.limit?.requests_per_unit ?? 0,
      limitUnitMultiplier: descriptor.limit?.unit_multiplier?.value ?? -1,
    })),
  };
}

function read(bytes: Uint8Array) {
  const reader = new RequestReader();
  reader.read(bytes);
  return requestIn(reader);
}

const text = fc.oneof(
  fc.constantFrom('generic_key', 'remote_address', ''),
  fc.string({ maxLength: 12 }),
  fc.string({ unit: 'binary', maxLength: 200 }),
  fc.string({ maxLength: 8 }).map((rest) => `\ufeff${rest}`),
);
const uint32 = fc.oneof(fc.integer({ min: 0, max: 200 }), fc.nat(0x7fff_ffff)).map((n) => n * 2);
const uint64 = fc.oneof(fc.bigInt(0n, 300n), fc.bigInt(0n, 2n ** 64n - 1n)).map(String);
const wrapped = <T>(value: fc.Arbitrary<T>) => value.map((value) => ({ value }));
const message: fc.Arbitrary<Message> = fc.record({
  domain: text,
  descriptors: fc.array(
    fc.record(
      {
        entries: fc.array(fc.record({ key: text, value: text }), { maxLength: 6 }),
        limit: fc.record(
          {
            requests_per_unit: uint32,
            unit: fc.integer({ min: 0, max: 7 }),
            unit_multiplier: wrapped(uint32),
          },
          { requiredKeys: ['requests_per_unit', 'unit'] },
        ),
        hits_addend: wrapped(uint64),
        is_negative_hits: fc.boolean(),
      },
      { requiredKeys: ['entries', 'is_negative_hits'] },
    ),
    { maxLength: 8 },
  ),
  hits_addend: uint32,
});

describe('a request', () => {
  test('has the values that protobufjs wrote, also in a reader of other requests before', () => {
    const reader = new RequestReader();
    fc.assert(
      fc.property(message, (message) => {
        reader.read(encode(message));
        expect(requestIn(reader)).toEqual(expectedOf(message));
      }),
      { seed: newSeed(), numRuns: trialCount(1_000, 20_000) },
    );
  });

  test('is read from a part of a larger buffer, as from bytes that are no Buffer', () => {
    const bytes = encode({ domain: 'd', descriptors: [{ entries: [{ key: 'k', value: 'é' }] }] });
    const larger = new Uint8Array(bytes.length + 8).fill(0xff);
    larger.set(bytes, 4);
    const { domain, descriptors } = read(larger.subarray(4, 4 + bytes.length));
    expect([domain, descriptors[0].entries]).toEqual(['d', [['k', 'é']]]);
  });

  test('without bytes has no values', () => {
    expect(read(new Uint8Array())).toEqual({ domain: '', hitsAddend: 0, descriptors: [] });
  });

  test('retains no string of the request before', () => {
    const reader = new RequestReader();
    const entries = [{ key: 'k', value: 'long' }];
    reader.read(encode({ descriptors: [{ entries }, { entries }] }));
    const { descriptors } = reader;
    reader.read(new Uint8Array());
    expect(descriptors.flatMap(({ keys, values }) => [...keys, ...values]).join('')).toBe('');
  });

  test('shares the string of a key that was read before', () => {
    const reader = new RequestReader();
    const long = 'k'.repeat(65);
    for (const key of ['a', 'a', 'b', 'a', 'é', long, long, 'é']) {
      reader.read(encode({ domain: key, descriptors: [{ entries: [{ key, value: key }] }] }));
      expect([reader.domain, reader.descriptors[0].keys[0]]).toEqual([key, key]);
    }
  });
});

describe('the rules of proto3', () => {
  test('the last of several scalars wins', () => {
    expect(read(hex('0a0161 1805 0a0162 1807'))).toMatchObject({ domain: 'b', hitsAddend: 7 });
  });

  test('occurrences of an embedded message are merged', () => {
    // Requests in the first and the unit in the second; a value, and no value.
    const { descriptors } = read(hex('120e 12020805 12021003 1a020809 1a00'));
    expect(descriptors).toMatchObject([{ limitRequests: 5, limitUnit: 3, hitsAddend: 9 }]);
  });

  test('an empty embedded message is present', () => {
    const { descriptors } = read(hex('1204 1200 1a00'));
    expect(descriptors).toMatchObject([{ limitRequests: 0, limitUnit: 0, hitsAddend: 0 }]);
  });

  test('unknown fields are skipped, by their wire type', () => {
    const unknown = ['20ff01', '210102030405060708', '22020101', '250a0b0c0d', '23 0801 2b2c 24'];
    const { domain } = read(hex(`${unknown.join('')} 0a0161 ${unknown.join('')}`));
    expect(domain).toBe('a');
  });

  test('a known field of another wire type is unknown', () => {
    expect(read(hex('0805 1a020101 0d01020304'))).toMatchObject({ domain: '', hitsAddend: 0 });
  });

  test('a varint is truncated to 32 bits in a field of 32 bits', () => {
    expect(read(hex('18 8180808010')).hitsAddend).toBe(1);
    expect(read(hex('18 ffffffffffffffffff01')).hitsAddend).toBe(0xffff_ffff);
    expect(read(hex('1204 12021002')).descriptors[0].limitUnit).toBe(2);
    const negative = read(hex('120d 120b 10ffffffffffffffffff01'));
    expect(negative.descriptors[0].limitUnit).toBe(0xffff_ffff);
  });

  test('a tag may have more bytes than it needs', () => {
    expect(read(hex('8a00 0161')).domain).toBe('a');
  });
});

describe('an invalid request', () => {
  test.each([
    ['a tag of field 0', '0000'],
    ['a field number of 30 bits', '80808080 10 00'],
    ['the wire type 6', '0e00'],
    ['the wire type 7', '0f00'],
    ['a truncated tag', '80'],
    ['a truncated varint', '18ff'],
    ['a varint of eleven bytes', '18 ffffffffffffffffffff01'],
    ['a varint of 65 bits', '18 ffffffffffffffffff02'],
    ['a text beyond the message', '0a0561'],
    ['a length of more than 32 bits', '0a 8180808010 61'],
    ['a descriptor beyond the message', '120a 0a00'],
    ['an entry beyond its descriptor', '1202 0a05 0a01610000'],
    ['a truncated fixed32', '2500'],
    ['a truncated fixed64', '2100000000'],
    ['a group without an end', '2308'],
    ['the end of another group', '232c 24 24'],
    ['the end of no group', '24'],
    ['groups in groups', '23'.repeat(40) + '24'.repeat(40)],
    ['a domain that is not UTF-8', '0a01ff'],
    ['an overlong character', '0a02c080'],
    ['a surrogate', '0a03eda080'],
    ['a value that is not UTF-8', '1208 0a06 0a0161 1201c3'],
  ])('with %s is INTERNAL, with the place', (_name, bytes) => {
    const error = errorOf(() => read(hex(bytes)));
    expect(error.status).toBe(GRPC_STATUS.INTERNAL);
    expect(error.message).toMatch(/^the message must be valid protobuf; it has .* at byte \d+$/);
  });

  test('over the bound of descriptors names the bound and their number', () => {
    const descriptors = Array.from({ length: MULTI_LIMIT_MAX + 7 }, () => ({}));
    expect(read(encode({ descriptors: descriptors.slice(7) })).descriptors.length).toBe(100);
    const error = errorOf(() => read(encode({ descriptors })));
    expect(error.status).toBe(GRPC_STATUS.INVALID_ARGUMENT);
    expect(error.message).toBe('a request must have at most 100 descriptors; got 107');
  });

  test('over the bound of entries names the bound, their number and the descriptor', () => {
    const entries = Array.from({ length: RLS_ENTRIES_MAX + 1 }, () => ({ key: 'k', value: 'v' }));
    const longest = read(encode({ descriptors: [{ entries: entries.slice(1) }] }));
    expect(longest.descriptors[0].entries.length).toBe(RLS_ENTRIES_MAX);
    const error = errorOf(() => read(encode({ descriptors: [{}, { entries }] })));
    expect(error.status).toBe(GRPC_STATUS.INVALID_ARGUMENT);
    expect(error.message).toBe('a descriptor must have at most 64 entries; got 65 in descriptor 2');
  });

  test('leaves nothing in the request after it', () => {
    const reader = new RequestReader();
    const bytes = encode({ domain: 'd', hits_addend: 3, descriptors: [{ limit: { unit: 2 } }] });
    errorOf(() => reader.read(Buffer.concat([bytes, hex('00')])));
    reader.read(encode({ descriptors: [{}] }));
    expect(requestIn(reader)).toEqual(read(encode({ descriptors: [{}] })));
  });
});

test(`${MUTATIONS} changed requests are read, or are a GrpcError, and nothing after them is read`, () => {
  const seed = newSeed();
  const below = seededRandom(seed);
  const reader = new RequestReader();
  const samples = fc.sample(message, { seed, numRuns: 200 }).map((message) => encode(message));
  const outcomes = { read: 0, failed: 0 };
  for (let i = 0; i < MUTATIONS; i++) {
    const bytes = mutate(samples[below(samples.length)], below);
    // The bytes around them differ, so a reader of them gets other values.
    const results = [0x00, 0x61].map((around) => {
      const larger = Buffer.alloc(bytes.length + 64, around);
      bytes.copy(larger, 32);
      try {
        reader.read(larger.subarray(32, 32 + bytes.length));
        return requestIn(reader);
      } catch (error) {
        if (!(error instanceof GrpcError)) throw new Error(`seed ${seed}`, { cause: error });
        return error.message;
      }
    });
    if (i % 16 === 0) expect({ seed, is: results[0] }).toEqual({ seed, is: results[1] });
    outcomes[typeof results[0] === 'string' ? 'failed' : 'read']++;
  }
  expect(outcomes.read).toBeGreaterThan(0);
  expect(outcomes.failed).toBeGreaterThan(0);
});

function mutate(sample: Buffer, below: (below: number) => number): Buffer {
  let bytes = Buffer.from(sample);
  for (let changes = 1 + below(4); changes > 0; changes--) {
    const at = below(bytes.length + 1);
    const kind = below(5);
    if (kind === 0) bytes = bytes.subarray(0, at);
    else if (kind === 1) {
      bytes = Buffer.concat([bytes.subarray(0, at), Buffer.from([below(256)]), bytes.subarray(at)]);
    } else if (kind === 2) bytes = Buffer.concat([bytes.subarray(at), bytes.subarray(0, at)]);
    else if (at < bytes.length) bytes[at] = kind === 3 ? below(256) : bytes[at] ^ (1 << below(8));
  }
  return bytes;
}

function errorOf(run: () => unknown): GrpcError {
  try {
    run();
  } catch (error) {
    if (error instanceof GrpcError) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
}
