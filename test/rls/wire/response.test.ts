import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { JsonObject, JsonValue } from '../../../src/core/json.ts';
import { ResponseWriter } from '../../../src/rls/wire/response.ts';
import { newSeed, trialCount } from '../../support/guarantees.ts';
import { SHOULD_RATE_LIMIT } from '../../support/rls/definitions.ts';

/** With its body as text: a comparison of long buffers takes long. */
function decode(bytes: Buffer) {
  const { raw_body: body, ...rest } = SHOULD_RATE_LIMIT.responseDeserialize(bytes) as {
    raw_body: Buffer;
  };
  return { ...rest, body: body.toString() };
}
/** As protobufjs reads a message again that it wrote itself. */
const expected = (message: object) => decode(SHOULD_RATE_LIMIT.responseSerialize(message));

interface Response {
  code: number;
  statuses: {
    code: number;
    limit?: { requestsPerUnit: number; unit: number; name?: string };
    remaining: number;
    resetSeconds?: number;
  }[];
  headers: [string, string][];
  rawBody: string;
  metadata?: JsonObject;
}

function write(writer: ResponseWriter, response: Response): Buffer {
  writer.begin();
  for (const { code, limit, remaining, resetSeconds } of response.statuses) {
    writer.addStatus(code, limit, remaining, resetSeconds);
  }
  for (const [key, value] of response.headers) writer.addResponseHeader(key, value);
  writer.setRawBody(response.rawBody);
  if (response.metadata !== undefined) writer.setDynamicMetadata(response.metadata);
  return writer.finish(response.code);
}

function messageOf(response: Response): object {
  return {
    overall_code: response.code,
    statuses: response.statuses.map(({ code, limit, remaining, resetSeconds }) => ({
      code,
      ...(limit && {
        current_limit: {
          requests_per_unit: limit.requestsPerUnit,
          unit: limit.unit,
          name: limit.name ?? '',
        },
      }),
      limit_remaining: remaining,
      ...(resetSeconds !== undefined && { duration_until_reset: { seconds: resetSeconds } }),
    })),
    response_headers_to_add: response.headers.map(([key, value]) => ({ key, value })),
    raw_body: Buffer.from(response.rawBody),
    ...(response.metadata && { dynamic_metadata: structOf(response.metadata) }),
  };
}

function structOf(object: JsonObject): object {
  return { fields: Object.fromEntries(Object.entries(object).map(([k, v]) => [k, jsonOf(v)])) };
}

function jsonOf(value: JsonValue): object {
  if (value === null) return { nullValue: 0 };
  if (typeof value === 'number') return { numberValue: value };
  if (typeof value === 'boolean') return { boolValue: value };
  if (typeof value === 'string') return { stringValue: value };
  if (Array.isArray(value)) return { listValue: { values: value.map(jsonOf) } };
  return { structValue: structOf(value) };
}

const text = fc.oneof(
  fc.string({ unit: 'grapheme', maxLength: 20 }),
  fc.nat(3).map((n) => 'a'.repeat([127, 128, 16_383, 16_384][n])),
);
const uint32 = fc.oneof(fc.nat(300), fc.integer({ min: 0, max: 0xffff_ffff }));
/** protobufjs reads maps into plain objects. */
const name = fc.string({ maxLength: 9 }).filter((name) => name !== '__proto__');
const { value: json } = fc.letrec<{ value: JsonValue }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small' },
    fc.constant(null),
    fc.boolean(),
    fc.double({ noNaN: true }),
    fc.string({ maxLength: 9 }),
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(name, tie('value'), { maxKeys: 4, noNullPrototype: true }),
  ),
}));
const limit = fc.record(
  {
    requestsPerUnit: uint32,
    unit: fc.nat(7),
    name: text,
  },
  { requiredKeys: ['requestsPerUnit', 'unit'] },
);
const response: fc.Arbitrary<Response> = fc.record(
  {
    code: fc.nat(2),
    statuses: fc.array(
      fc.record(
        { code: fc.nat(2), limit, remaining: uint32, resetSeconds: fc.maxSafeNat() },
        { requiredKeys: ['code', 'remaining'] },
      ),
      { maxLength: 6 },
    ),
    headers: fc.array(fc.tuple(text, text), { maxLength: 4 }),
    rawBody: text,
    metadata: fc.dictionary(name, json, {
      maxKeys: 5,
      noNullPrototype: true,
    }),
  },
  { requiredKeys: ['code', 'statuses', 'headers', 'rawBody'] },
);

describe('a response', () => {
  test('is what protobufjs reads, also after other responses', () => {
    const writer = new ResponseWriter();
    fc.assert(
      fc.property(response, (response) => {
        expect(decode(write(writer, response))).toEqual(expected(messageOf(response)));
      }),
      { seed: newSeed(), numRuns: trialCount(300, 10_000) },
    );
  });

  test('without values has no bytes', () => {
    const empty = { code: 0, statuses: [], headers: [], rawBody: '' };
    expect(write(new ResponseWriter(), empty).length).toBe(0);
  });

  test('omits values that are 0, and keeps a reset that is now', () => {
    const writer = new ResponseWriter();
    writer.begin();
    writer.addStatus(1, { requestsPerUnit: 0, unit: 0 }, 0, 0);
    expect(writer.finish(1).toString('hex')).toBe('08011206080112002200');
  });

  test('has the nearest number that a field can hold', () => {
    const writer = new ResponseWriter();
    writer.begin();
    writer.addStatus(1, { requestsPerUnit: 2 ** 40, unit: 1 }, 2 ** 33, 2 ** 60);
    expect(decode(writer.finish(1))).toMatchObject({
      statuses: [
        {
          current_limit: { requests_per_unit: 0xffff_ffff },
          limit_remaining: 0xffff_ffff,
          duration_until_reset: { seconds: String(Number.MAX_SAFE_INTEGER) },
        },
      ],
    });
  });
});
