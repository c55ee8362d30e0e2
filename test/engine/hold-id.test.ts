import fc from 'fast-check';
import { expect, test } from 'vitest';
import { SHARDS } from '../../src/core/constants.ts';
import {
  formatHoldId,
  HOLD_KIND,
  type HoldId,
  handleOf,
  newSecret,
  parseHoldId,
} from '../../src/engine/hold-id.ts';
import { trialCount } from '../support/guarantees.ts';

const HOLD_ID_CHARACTERS = 27;
/** A record and its shard have 32 bits. */
const RECORD_MAX = 2 ** 28 - 1;
const KINDS = Object.values(HOLD_KIND);
const word = fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 });
const ids: fc.Arbitrary<HoldId> = fc.record({
  kind: fc.constantFrom(...KINDS),
  shard: fc.nat(SHARDS - 1),
  record: fc.oneof(fc.nat(20), fc.nat(RECORD_MAX), fc.constant(RECORD_MAX)),
  secret: fc.tuple(word, word, word),
});
const options = { numRuns: trialCount(2_000, 50_000) };

test('an id becomes a text of one length, and the same id again', () => {
  const property = fc.property(ids, (id) => {
    const text = formatHoldId(id);
    expect(text).toHaveLength(HOLD_ID_CHARACTERS);
    expect(text).toMatch(/^rl[rl]s_[\w-]{22}$/);
    expect(parseHoldId(id.kind, text)).toEqual(id);
  });
  fc.assert(property, options);
});

test('an id of a reservation is none of a lease, and the other way round', () => {
  const [reservation, lease] = KINDS.map((kind) => {
    return formatHoldId({ kind, shard: 3, record: 7, secret: [1, 2, 3] });
  });
  expect([reservation.slice(0, 5), lease.slice(0, 5)]).toEqual(['rlrs_', 'rlls_']);
  expect(reservation.slice(5)).toBe(lease.slice(5));
  expect(parseHoldId(HOLD_KIND.lease, reservation)).toBeUndefined();
  expect(parseHoldId(HOLD_KIND.reservation, lease)).toBeUndefined();
});

test('no other text is an id: each id has one text', () => {
  const text = fc.oneof(
    fc.string(),
    fc.string({ minLength: 22, maxLength: 22, unit: 'binary' }).map((code) => `rlrs_${code}`),
    fc.base64String({ minLength: 20, maxLength: 24 }).map((code) => `rlrs_${code}`),
    // One character of an id is replaced: also by one that decodes to the same bytes.
    fc
      .tuple(ids, fc.nat(HOLD_ID_CHARACTERS - 1), fc.string({ unit: 'grapheme' }))
      .map((changed) => {
        const [id, at, by] = changed;
        const text = formatHoldId(id);
        return text.slice(0, at) + by + text.slice(at + 1);
      }),
    fc.tuple(ids, fc.constantFrom(...'AQgwBRhx+/=_-')).map(([id, last]) => {
      return formatHoldId(id).slice(0, -1) + last;
    }),
  );
  let parsed = 0;
  const property = fc.property(text, (text) => {
    for (const kind of KINDS) {
      const id = parseHoldId(kind, text);
      if (id === undefined) continue;
      parsed++;
      expect(formatHoldId(id)).toBe(text);
    }
  });
  fc.assert(property, options);
  expect(parsed).toBeGreaterThan(0);
  const id = formatHoldId({ kind: HOLD_KIND.lease, shard: 0, record: 1, secret: [1, 2, 3] });
  const others = [
    '',
    id.slice(0, -1),
    `${id}A`,
    ` ${id.slice(1)}`,
    id.toUpperCase(),
    `${id.slice(0, -2)}==`,
  ];
  for (const other of others) expect(parseHoldId(HOLD_KIND.lease, other)).toBeUndefined();
});

test('secrets differ, and no word of them is constant', () => {
  // More than the process has in store.
  const secrets = Array.from({ length: 5_000 }, newSecret);
  expect(new Set(secrets.map(String)).size).toBe(secrets.length);
  for (const word of [0, 1, 2]) {
    const values = secrets.map((secret) => secret[word]);
    expect(new Set(values).size).toBeGreaterThan(4_990);
    for (let bit = 0; bit < 32; bit++) {
      const ones = values.filter((value) => ((value >>> bit) & 1) === 1).length;
      expect(ones).toBeGreaterThan(2_000);
      expect(ones).toBeLessThan(3_000);
    }
  }
});

test('a handle tells a hold from others, and changes with its secret', () => {
  const property = fc.property(ids, ids, (one, other) => {
    const handle = handleOf(one);
    expect(handle).toMatch(/^[\da-z]+-[\da-f]{4}$/);
    const isSamePlace = one.shard === other.shard && one.record === other.record;
    if (!isSamePlace) expect(handleOf(other)).not.toBe(handle);
    // It has 16 bits of the secret mixed, so most of the 96 bits do not follow from it.
    const [first, second, third] = one.secret;
    expect(handleOf({ ...one, secret: [first ^ 1, second, third] })).not.toBe(handle);
    expect(handleOf({ ...one, secret: [first ^ 77, second ^ 77, third] })).toBe(handle);
  });
  fc.assert(property, options);
});
