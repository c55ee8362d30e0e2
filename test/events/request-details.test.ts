import { expect, test } from 'vitest';
import { detailsOfHead, withBodyDetails } from '../../src/events/request-details.ts';

const NONE = { traceparent: undefined };

test('meta and resources are read from a body that has them', () => {
  const details = (body: object) => withBodyDetails(NONE, Buffer.from(JSON.stringify(body)));
  expect(details({ identifier: 'a' })).toEqual({});
  expect(details({ identifier: 'a', meta: { b: null }, resources: [{ id: '1' }] })).toEqual({
    ...{ meta: '{"b":null}', resources: '[{"id":"1"}]' },
  });
  const traced = { traceparent: 'trace' };
  const body = Buffer.from('{"identifier":"\\"meta\\""}');
  expect(withBodyDetails(traced, body)).toEqual(traced);
});

test('meta that is nested too deeply for JSON.stringify is left out', () => {
  const deep = `{"a":${'['.repeat(32_000)}${']'.repeat(32_000)}}`;
  expect(() => JSON.stringify(JSON.parse(deep))).toThrow(RangeError);
  const body = Buffer.from(`{"meta":${deep},"resources":[{"id":"1"}]}`);
  expect(withBodyDetails(NONE, body)).toEqual({ resources: '[{"id":"1"}]' });
});

test('meta that is longer than a body when it is written again is left out', () => {
  const meta = (count: number) => `{"a":[${Array(count).fill('1e20').join(',')}]}`;
  const details = (json: string) => withBodyDetails(NONE, Buffer.from(`{"meta":${json}}`));
  expect(details(meta(2))).toEqual({
    meta: '{"a":[100000000000000000000,100000000000000000000]}',
  });
  expect(details(meta(13_000))).toEqual({});
});

test('a traceparent that is not valid is ignored, as W3C Trace Context says', () => {
  const valid = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
  expect(detailsOfHead(valid)).toEqual({ traceparent: valid });
  for (const header of ['', 'x', valid.toUpperCase(), `${valid}-\n`, ` ${valid}`, valid.slice(1)]) {
    expect(detailsOfHead(header)).toEqual(NONE);
  }
});
