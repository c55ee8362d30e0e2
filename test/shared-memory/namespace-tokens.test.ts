import { expect, test } from 'vitest';
import {
  NAMESPACE_TOKENS_DOUBLES,
  NamespaceTokens,
} from '../../src/shared-memory/namespace-tokens.ts';

const newTokens = () => new NamespaceTokens(new Float64Array(NAMESPACE_TOKENS_DOUBLES));

test('tokens are added up by the tag of their namespace, 0 and negative tags included', () => {
  const tokens = newTokens();
  for (const tag of [-5, 0, 7, -5]) tokens.add(tag, 2);
  expect([-5, 0, 7, 8].map((tag) => tokens.get(tag))).toEqual([4, 2, 2, 0]);
});

test('tokens of a namespace without a free row are dropped, and change no other', () => {
  const tokens = newTokens();
  const rows = NAMESPACE_TOKENS_DOUBLES / 2;
  for (let tag = 1; tag <= rows + 1; tag++) tokens.add(tag, tag);
  tokens.add(rows, 1);
  expect([1, rows, rows + 1].map((tag) => tokens.get(tag))).toEqual([1, rows + 1, 0]);
});
