import { expect, test } from 'vitest';
import { AMOUNT_MAX } from '../../../src/core/constants.ts';
import { decodeRecord, Snapshot } from '../../../src/registry/shared/snapshot.ts';

const override = {
  ...{ id: `rlor_${'0'.repeat(24)}`, scope: 'rlns_1', identifier: 'a', isAsync: false },
  ...{ limit: AMOUNT_MAX, durationMs: AMOUNT_MAX, createdMs: 1 },
};
const decode = (changed: object) => {
  return () => decodeRecord('overrides', '7', JSON.stringify({ ...override, ...changed }));
};

test('an override of a CIDR block from Redis is rejected unless its block is canonical', () => {
  const block = { isCidr: true, identifier: '203.0.113.0/24' };
  expect(decode(block)()).toEqual({ ...override, ...block, row: 7 });
  for (const identifier of ['a', '203.0.113.7/24', '203.0.113.7', '2001:DB8::/32', 7]) {
    expect(decode({ isCidr: true, identifier })).toThrow('an invalid record of overrides');
  }
  expect(decode({ ...block, isCidr: 'yes' })).toThrow('an invalid record of overrides');
});

test('the end of an override from Redis is a time, or missing', () => {
  expect(decode({ expiresMs: 5 })()).toEqual({ ...override, expiresMs: 5, row: 7 });
  for (const expiresMs of [null, '5', -1, 1.5]) {
    expect(decode({ expiresMs })).toThrow('an invalid record of overrides');
  }
});

test('the concurrency of an override from Redis is an amount, or missing', () => {
  for (const concurrency of [0, AMOUNT_MAX]) {
    expect(decode({ concurrency })()).toEqual({ ...override, concurrency, row: 7 });
  }
  for (const concurrency of [null, '5', -1, 1.5, AMOUNT_MAX + 1]) {
    expect(decode({ concurrency })).toThrow('an invalid record of overrides');
  }
});

test('an override from Redis is rejected unless a counter can hold its limit and duration', () => {
  expect(decode({})()).toEqual({ ...override, row: 7 });
  expect(decode({ limit: 0 })()).toMatchObject({ limit: 0 });
  for (const amount of [AMOUNT_MAX + 1, -1, 1.5, '1', null, undefined]) {
    for (const field of ['limit', 'durationMs']) {
      expect(decode({ [field]: amount })).toThrow('an invalid record of overrides');
    }
  }
});

test('a block and an identifier of one text are different records of one row', () => {
  const snapshotOf = (changed: object) => {
    return Snapshot.of((table) => (table === 'overrides' ? [decode(changed)()] : []));
  };
  const literal = snapshotOf({ identifier: '10.0.0.0/8' });
  const block = snapshotOf({ identifier: '10.0.0.0/8', isCidr: true });
  expect(block.changesFrom(literal)).toMatchObject([
    { before: { identifier: '10.0.0.0/8' }, after: undefined },
    { before: undefined, after: { isCidr: true } },
  ]);
});

test('a block of an identifier from Redis has one namespace and an end', () => {
  const block = { isBlocking: true, limit: 0, concurrency: 0, expiresMs: 5, reason: 'spam' };
  expect(decode({ ...block, identifier: 'a*' })()).toMatchObject({ ...block, identifier: 'a*' });
  for (const changed of [
    { expiresMs: undefined },
    { scope: 'a*' },
    { isCidr: true, identifier: '203.0.113.0/24' },
    { isBlocking: false },
    { reason: 7 },
  ]) {
    expect(decode({ ...block, ...changed })).toThrow('an invalid record of overrides');
  }
});
