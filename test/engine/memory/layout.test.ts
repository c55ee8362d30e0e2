import { expect, test } from 'vitest';
import {
  CHECKPOINT_AT,
  cellAt,
  changedAt,
  deniedAt,
  limitAt,
  namespaceAt,
  newestAt,
} from '../../../src/engine/memory/layout.ts';
import { lockAt, type Slot } from '../../../src/engine/table/layout.ts';

const FIRST = 0 as Slot;

test('the layout of a counter table is the one that its drawing shows', () => {
  expect([CHECKPOINT_AT, changedAt(lockAt(0))]).toEqual([2, 24]);
  expect([namespaceAt, deniedAt].map((at) => at(FIRST))).toEqual([4, 5]);
  expect([newestAt, limitAt].map((at) => at(FIRST))).toEqual([4, 7]);
  expect([0, 1].map((parity) => cellAt(FIRST, parity))).toEqual([5, 6]);
});
