import { expect, test } from 'vitest';
import { AMOUNT_MAX } from '../../../src/core/constants.ts';
import { decodeRecord } from '../../../src/registry/shared/snapshot.ts';

const override = {
  ...{ id: `rlor_${'0'.repeat(24)}`, scope: 'rlns_1', identifier: 'a', isAsync: false },
  ...{ limit: AMOUNT_MAX, durationMs: AMOUNT_MAX, createdMs: 1 },
};
const decode = (changed: object) => {
  return () => decodeRecord('overrides', '7', JSON.stringify({ ...override, ...changed }));
};

test('an override from Redis is rejected unless a counter can hold its limit and duration', () => {
  expect(decode({})()).toEqual({ ...override, row: 7 });
  expect(decode({ limit: 0 })()).toMatchObject({ limit: 0 });
  for (const amount of [AMOUNT_MAX + 1, -1, 1.5, '1', null, undefined]) {
    for (const field of ['limit', 'durationMs']) {
      expect(decode({ [field]: amount })).toThrow('an invalid record of overrides');
    }
  }
});
