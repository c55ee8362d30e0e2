/** `RateLimit-Policy` and `RateLimit`, read by a parser of structured fields (RFC 9651). */

import { type BareItem, parseList } from 'structured-headers';
import { describe, expect, test } from 'vitest';
import { NAMESPACE_MAX_CHARACTERS } from '../../src/core/constants.ts';
import { LONGEST_WINDOW_MS, type ParsedResponse } from '../support/http.ts';
import { forwardedFor, type PolicySettings, sendGatewayCheck } from '../support/policy-config.ts';
import { DECIDE_MODES } from '../support/server.ts';
import { useServer } from '../support/test-server.ts';

const LONGEST_WINDOW_S = LONGEST_WINDOW_MS / 1_000;
const SPECIAL = 'aZ09._~:@-';
const LONG = 'n'.repeat(NAMESPACE_MAX_CHARACTERS);
const WINDOWS = [
  { limit: 1, duration: 86_400_000 },
  { limit: 5, duration: LONGEST_WINDOW_MS },
  { limit: 7, duration: 3_600_001 },
];
const POLICIES: Record<string, PolicySettings> = {
  one: { limit: 2 },
  [SPECIAL]: { limit: 2 },
  [LONG]: { limit: 2 },
  windows: { windows: WINDOWS },
};

/** A list member: a string, and its parameters. */
type StructuredMember = [name: string, parameters: Record<string, BareItem>];

/** @throws if the header is not a list of strings with parameters */
function membersOf({ headers }: ParsedResponse, name: string): StructuredMember[] {
  return parseList(headers[name]).map(([value, parameters]) => {
    if (typeof value !== 'string') throw new Error(`${name} has an item that is no string`);
    return [value, Object.fromEntries(parameters)];
  });
}

/** The quotas in both headers, by window. */
function quotasOf(response: ParsedResponse) {
  const policies = membersOf(response, 'ratelimit-policy');
  const limits = membersOf(response, 'ratelimit');
  expect(limits.map(([name]) => name)).toEqual(policies.map(([name]) => name));
  return policies.map(([name, { q, w, ...other }], i) => {
    const [, { r, t, ...others }] = limits[i];
    expect([other, others]).toEqual([{}, {}]);
    for (const value of [q, w, r, t]) expect(value).toSatisfy(Number.isInteger);
    expect(t).toBeGreaterThanOrEqual(0);
    expect(t).toBeLessThanOrEqual(w as number);
    return { name, q, w, r };
  });
}

describe.each(DECIDE_MODES)('with decisions %s, an RFC 9651 parser reads', (mode) => {
  const server = useServer({ args: ['--decide', mode], policies: POLICIES });

  const send = (namespace: string, method = 'GET', route = 'check') => {
    return sendGatewayCheck(
      server.gatewayPort,
      `/v1/${route}/${namespace}`,
      forwardedFor('10.0.0.1'),
      method,
    );
  };

  test.each(['one', SPECIAL, LONG])(
    'the remaining tokens of an allowed and of a denied check under %s',
    async (name) => {
      const window = { name, q: 2, w: LONGEST_WINDOW_S };
      for (const [status, r] of [
        [200, 1],
        [200, 0],
        [429, 0],
      ]) {
        const response = await send(name);
        expect([response.status, quotasOf(response)]).toEqual([status, [{ ...window, r }]]);
      }
      const others = [await send(name, 'HEAD'), await send(name, 'GET', 'auth-request')];
      expect(others.map(({ status }) => status)).toEqual([429, 403]);
      for (const response of others) expect(quotasOf(response)).toEqual([{ ...window, r: 0 }]);
    },
  );

  test('each of several windows, under its own name', async () => {
    const windows = [
      { name: 'windows-1d', q: 1, w: 86_400 },
      { name: `windows-${LONGEST_WINDOW_MS / 86_400_000}d`, q: 5, w: LONGEST_WINDOW_S },
      { name: 'windows-3600001ms', q: 7, w: 3_601 },
    ];
    const withRemaining = (all: number[]) => windows.map((window, i) => ({ ...window, r: all[i] }));
    const allowed = await send('windows');
    expect([allowed.status, quotasOf(allowed)]).toEqual([200, withRemaining([0, 4, 6])]);
    const denied = await send('windows');
    expect([denied.status, quotasOf(denied)]).toEqual([429, withRemaining([0, 4, 6])]);
  });
});
