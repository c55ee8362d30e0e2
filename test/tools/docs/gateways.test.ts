import { describe, expect, test } from 'vitest';
import { changedLines, GATEWAY_PARTS } from '../../../tools/docs/gateways.ts';

describe('the parts of the pages about gateways', () => {
  test('show the printed text in one fence', () => {
    const text = GATEWAY_PARTS['gateway-nginx']();
    expect(text).toMatch(/^```nginx\n# For nginx [\s\S]*\n}\n```$/);
    expect(text.match(/```/g)).toHaveLength(2);
  });

  test('show each place that changes with onError after the line before it', () => {
    expect(GATEWAY_PARTS['gateway-envoy-deny']()).toMatch(
      /^```diff\n .*\n- +failure_mode_allow: true\n\+ +failure_mode_allow: false\n\+ .*\n```$/,
    );
  });
});

describe('changed lines', () => {
  test.each([
    ['equal texts', 'a\nb', 'a\nb', []],
    ['a replaced line', 'a\nb\nc', 'a\nx\nc', [' a', '-b', '+x']],
    ['a changed first line', 'a\nb', 'x\nb', ['-a', '+x']],
    ['an added last line', 'a', 'a\nb', [' a', '+b']],
    ['a removed last line', 'a\nb', 'a', [' a', '-b']],
    ['two places', 'a\nb\nc\nd', 'x\nb\nc\ny', ['-a', '+x', '', ' c', '-d', '+y']],
  ])('of %s', (_, before, after, expected) => {
    expect(changedLines(before, after)).toEqual(expected);
  });
});
