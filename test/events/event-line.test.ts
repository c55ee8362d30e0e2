import { expect, test } from 'vitest';
import { EVENT_LINE_BYTES_MAX, IDENTIFIER_MAX_CHARACTERS } from '../../src/core/constants.ts';
import { EventLineWriter } from '../../src/events/event-line.ts';
import { EVENT, TIME_MS } from '../support/decision-event.ts';
import { testNamespace } from '../support/namespace.ts';

const BASE = {
  ...{ time: TIME_MS, namespace: 'a', decision: 'denied', cost: 2 },
  ...{ limit: 10, duration: 60_000, remaining: 1, reset: 1_795_179_600_000 },
};

const writer = new EventLineWriter('text');
const read = (line: Uint8Array) => {
  const text = Buffer.from(line).toString();
  expect(text.indexOf('\n')).toBe(text.length - 1);
  return JSON.parse(text);
};

test('an event is a line of JSON without the fields that have no value', () => {
  expect(read(writer.write(TIME_MS, EVENT))).toEqual({ ...BASE, identifier: 'é "1"' });
  const request = { traceparent: 'x"', meta: '{"é":[1]}', resources: '[]' };
  const gateway = { ...EVENT, overrideId: 'rlor_1', policy: 'site', isShadow: true, request };
  expect(read(writer.write(TIME_MS, gateway))).toEqual({
    ...{ ...BASE, identifier: 'é "1"', override: 'rlor_1', policy: 'site', shadow: true },
    ...{ traceparent: 'x"', meta: { é: [1] }, resources: [] },
  });
  const lease = { ...EVENT, window: undefined, lease: { limit: 5, inUse: 4 } };
  expect(read(writer.write(TIME_MS, lease))).toEqual({
    ...{ time: TIME_MS, namespace: 'a', identifier: 'é "1"', decision: 'denied', cost: 2 },
    ...{ kind: 'lease', limit: 5, inUse: 4 },
  });
  const undecided = { identifier: undefined, identity: undefined, window: undefined };
  expect(read(writer.write(1, { ...EVENT, ...undecided, isAllowed: true, cost: 0 }))).toEqual({
    ...{ time: 1, namespace: 'a', decision: 'allowed', cost: 0 },
  });
});

test('an identifier is replaced by its hash on request', () => {
  const hashes = new EventLineWriter('hash');
  const identifierHash = '00000001ffffffff0000000000000010';
  expect(read(hashes.write(TIME_MS, EVENT))).toEqual({ ...BASE, identifierHash });
  const undecided = { ...EVENT, identifier: undefined, identity: undefined };
  expect(read(hashes.write(TIME_MS, undecided))).toEqual(BASE);
});

test('the longest event is written whole', () => {
  const longest = '\u0001'.repeat(IDENTIFIER_MAX_CHARACTERS);
  const namespace = testNamespace(longest);
  const names = { identifier: longest, namespace, policy: longest, isShadow: true };
  const json = JSON.stringify('x'.repeat(65_534));
  const request = { traceparent: `"${'\\'.repeat(255)}`, meta: json, resources: json };
  const overrideId = 'rlor_0123456789abcdef0123456789abcdef';
  const line = writer.write(TIME_MS, { ...EVENT, ...names, overrideId, request });
  expect(read(line)).toMatchObject({ identifier: longest, policy: longest, override: overrideId });
  expect(line.length).toBeLessThan(EVENT_LINE_BYTES_MAX);
});
