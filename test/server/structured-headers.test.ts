/**
 * `RateLimit-Policy` and `RateLimit` of every kind of gateway response, read by an independent
 * parser of structured fields (RFC 9651).
 */

import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { type BareItem, parseList } from 'structured-headers';
import { afterAll, describe, expect, test } from 'vitest';
import { AMOUNT_MAX, NAMESPACE_MAX_CHARACTERS } from '../../src/core/constants.ts';
import { LONGEST_WINDOW_MS, type ParsedResponse } from '../support/http.ts';
import { forwardedFor, type PolicySettings, sendGatewayCheck } from '../support/policy-config.ts';
import { DECIDE_MODES, removeDirectory, temporaryDirectory, waitUntil } from '../support/server.ts';
import { useServer } from '../support/test-server.ts';

const LONGEST_WINDOW_S = LONGEST_WINDOW_MS / 1_000;
/** The largest integer of a structured field. */
const INTEGER_MAX = 999_999_999_999_999;
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
  largest: { limit: AMOUNT_MAX },
  overridden: { limit: 2 },
  unidentified: { limit: 2, identify: 'header:x-key', missing: 'deny' },
  allowed: { limit: 2, identify: 'header:x-key', missing: 'allow' },
  shadow: { limit: 1, shadow: true },
  allowing: { limit: 2, onError: 'allow' },
  denying: { limit: 2, onError: 'deny' },
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
  const fault = new URL('../support/acceptor-fault.preload.mjs', import.meta.url).pathname;
  const faultFile = join(temporaryDirectory(), 'fault');
  const server = useServer({
    args: ['--decide', mode],
    policies: POLICIES,
    execArgv: ['--import', fault],
    env: { FAULT: 'address', FAULT_FILE: faultFile },
  });
  afterAll(() => removeDirectory(dirname(faultFile)));

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

  test('the largest limit as the largest integer of a structured field', async () => {
    const [quota] = quotasOf(await send('largest'));
    expect([quota.q, quota.r]).toEqual([INTEGER_MAX, INTEGER_MAX]);
  });

  test('the limit and window of an override', async () => {
    const override = { identifier: '10.0.0.1', limit: 9, duration: 86_400_000 };
    const fields = { namespaceName: 'overridden', ...override };
    await server.ok('ratelimits.setOverride', fields);
    const expected = { name: 'overridden', q: 9, w: 86_400, r: 8 };
    expect(quotasOf(await send('overridden'))).toEqual([expected]);
  });

  test('a check without an identifier, and a check that is denied in shadow mode', async () => {
    const window = { q: 2, w: LONGEST_WINDOW_S };
    const denied = await send('unidentified');
    const expected = [{ ...window, name: 'unidentified', r: 0 }];
    expect([denied.status, quotasOf(denied)]).toEqual([429, expected]);
    expect(quotasOf(await send('allowed'))).toEqual([{ ...window, name: 'allowed', r: 2 }]);
    const shadow = { name: 'shadow', q: 1, w: LONGEST_WINDOW_S, r: 0 };
    for (let i = 0; i < 2; i++) expect(quotasOf(await send('shadow'))).toEqual([shadow]);
  });

  test('the policy after an internal error, without RateLimit', async () => {
    writeFileSync(faultFile, '');
    await waitUntil('weir fails', () => server.stderr().includes('fault injected'));
    for (const [name, status] of [
      ['allowing', 200],
      ['denying', 429],
    ] as const) {
      const response = await send(name);
      expect(response.status).toBe(status);
      const policy: StructuredMember = [name, { q: 2, w: LONGEST_WINDOW_S }];
      expect(membersOf(response, 'ratelimit-policy')).toEqual([policy]);
      expect(response.headers).not.toHaveProperty('ratelimit');
    }
  });
});
