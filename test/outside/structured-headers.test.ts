/**
 * `RateLimit-Policy` and `RateLimit` of every kind of answer to a gateway, read by a parser of
 * structured fields (RFC 9651) that is not weir's.
 */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type BareItem, parseList } from 'structured-headers';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { AMOUNT_MAX, NAMESPACE_MAX_CHARACTERS } from '../../src/core/constants.ts';
import { LONGEST_WINDOW_MS, type ParsedResponse } from '../support/http.ts';
import { callOperationOk } from '../support/operations.ts';
import {
  forwardedFor,
  type PolicySettings,
  sendGatewayCheck,
  writeConfig,
} from '../support/policy-config.ts';
import {
  DECIDE_MODES,
  freePort,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
  waitUntil,
} from '../support/server.ts';

const LASTING_S = LONGEST_WINDOW_MS / 1_000;
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

/** A member of a list: a string, and its parameters. */
type StructuredMember = [name: string, parameters: Record<string, BareItem>];

/** @throws where the header is not a list of strings with parameters */
function membersOf({ headers }: ParsedResponse, name: string): StructuredMember[] {
  return parseList(headers[name]).map(([value, parameters]) => {
    if (typeof value !== 'string') throw new Error(`${name} has an item that is no string`);
    return [value, Object.fromEntries(parameters)];
  });
}

/** What both headers say, window by window. */
function quotasOf(answer: ParsedResponse) {
  const policies = membersOf(answer, 'ratelimit-policy');
  const limits = membersOf(answer, 'ratelimit');
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

describe.each(DECIDE_MODES)('decided %s, a parser of structured fields reads', (mode) => {
  const dataDir = temporaryDirectory();
  const place = temporaryDirectory();
  const strike = join(place, 'strike');
  let server: ServerProcess;
  let port = 0;
  beforeAll(async () => {
    port = await freePort();
    const fault = new URL('../support/acceptor-fault.preload.mjs', import.meta.url).pathname;
    const config = ['--config', writeConfig(place, POLICIES), '--gateway-port', `${port}`];
    server = await startServer(dataDir, {
      args: ['--counters', '1024', '--acceptors', '1', '--decide', mode, ...config],
      execArgv: ['--import', fault],
      env: { FAULT: 'address', FAULT_FILE: strike },
    });
  });
  afterAll(async () => {
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    for (const path of [dataDir, place]) removeDirectory(path);
  });

  const ask = (namespace: string, method = 'GET', route = 'check') => {
    return sendGatewayCheck(port, `/v1/${route}/${namespace}`, forwardedFor('10.0.0.1'), method);
  };

  test.each(['one', SPECIAL, LONG])(
    'what is left of an allowed and of a denied check under %s',
    async (name) => {
      const window = { name, q: 2, w: LASTING_S };
      for (const [status, r] of [
        [200, 1],
        [200, 0],
        [429, 0],
      ]) {
        const answer = await ask(name);
        expect([answer.status, quotasOf(answer)]).toEqual([status, [{ ...window, r }]]);
      }
      const others = [await ask(name, 'HEAD'), await ask(name, 'GET', 'auth-request')];
      expect(others.map(({ status }) => status)).toEqual([429, 403]);
      for (const answer of others) expect(quotasOf(answer)).toEqual([{ ...window, r: 0 }]);
    },
  );

  test('each of several windows, by a name of its own', async () => {
    const windows = [
      { name: 'windows-1d', q: 1, w: 86_400 },
      { name: `windows-${LONGEST_WINDOW_MS / 86_400_000}d`, q: 5, w: LASTING_S },
      { name: 'windows-3600001ms', q: 7, w: 3_601 },
    ];
    const left = (all: number[]) => windows.map((window, i) => ({ ...window, r: all[i] }));
    const allowed = await ask('windows');
    expect([allowed.status, quotasOf(allowed)]).toEqual([200, left([0, 4, 6])]);
    const denied = await ask('windows');
    expect([denied.status, quotasOf(denied)]).toEqual([429, left([0, 4, 6])]);
  });

  test('the largest limit as the largest integer that a structured field has', async () => {
    const [quota] = quotasOf(await ask('largest'));
    expect([quota.q, quota.r]).toEqual([INTEGER_MAX, INTEGER_MAX]);
  });

  test('the limit and window of an override', async () => {
    const override = { identifier: '10.0.0.1', limit: 9, duration: 86_400_000 };
    const fields = { namespaceName: 'overridden', ...override };
    await callOperationOk(server.port, 'ratelimits.setOverride', fields);
    const expected = { name: 'overridden', q: 9, w: 86_400, r: 8 };
    expect(quotasOf(await ask('overridden'))).toEqual([expected]);
  });

  test('a check without an identity, and one that is denied in shadow', async () => {
    const window = { q: 2, w: LASTING_S };
    const refused = await ask('unidentified');
    const expected = [{ ...window, name: 'unidentified', r: 0 }];
    expect([refused.status, quotasOf(refused)]).toEqual([429, expected]);
    expect(quotasOf(await ask('admitted'))).toEqual([{ ...window, name: 'admitted', r: 2 }]);
    const shadow = { name: 'shadow', q: 1, w: LASTING_S, r: 0 };
    for (let i = 0; i < 2; i++) expect(quotasOf(await ask('shadow'))).toEqual([shadow]);
  });

  test('the policy where weir has failed, and no RateLimit', async () => {
    writeFileSync(strike, '');
    await waitUntil('weir fails', () => server.stderr().includes('the fault strikes'));
    for (const [name, status] of [
      ['allowing', 200],
      ['denying', 429],
    ] as const) {
      const answer = await ask(name);
      expect(answer.status).toBe(status);
      const policy: StructuredMember = [name, { q: 2, w: LASTING_S }];
      expect(membersOf(answer, 'ratelimit-policy')).toEqual([policy]);
      expect(answer.headers).not.toHaveProperty('ratelimit');
    }
  });
});
