/** Parts of an answer besides its statuses: headers, the body, and times. */

import { describe, expect, test } from 'vitest';
import { useRlsServer } from '../support/rls/rls-server.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

const files = {
  'd.yaml': `
domain: d
descriptors:
  - { key: h, rate_limit: { unit: hour, requests_per_unit: 2 } }
  - { key: y, rate_limit: { unit: day, requests_per_unit: 9, name: 'a "day" é' } }
  - { key: m, rate_limit: { unit: minute, requests_per_unit: 5 } }
  - { key: mm, rate_limit: { unit: minute, unit_multiplier: 5, requests_per_unit: 5 } }
  - { key: q, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 0 } }
  - { key: s, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 0 } }
  - { key: u, rate_limit: { unlimited: true } }
  - key: b
    rate_limit: { unit: day, requests_per_unit: 0, raw_body: '{"error":"b"}', content_type: application/json }
  - key: t
    rate_limit: { unit: day, requests_per_unit: 0, raw_body: "slow down" }
  - key: g
    rate_limit: { unit: day, requests_per_unit: 2, algorithm: gcra, raw_body: gcra }
allow_negative_hits: true
`,
};

/** Moves the clock to one hour and 1.5 s before the end of a day: all windows end together. */
async function toEndOfDay(server: ReturnType<typeof useRlsServer>): Promise<void> {
  const target = DAY_MS - HOUR_MS + 500;
  await server.stepClock((target - (server.nowMs() % DAY_MS) + DAY_MS) % DAY_MS);
}

/** Expects a time in seconds that has passed on by less than a minute. */
function expectSeconds(text: string | number | undefined, atMost: number): void {
  expect(Number(text)).toBeLessThanOrEqual(atMost);
  expect(Number(text)).toBeGreaterThan(atMost - 60);
}

describe('an answer without headers', () => {
  const server = useRlsServer({ files, hasSteppedClock: true });

  test('says when each window ends, in whole seconds', async () => {
    await toEndOfDay(server);
    const { resets } = await server.rls.call('d', ['h=resets', 'y=resets', 'x=1', 'u=1']);
    expect(resets.map((seconds) => seconds !== undefined)).toEqual([true, true, false, false]);
    for (const seconds of resets.slice(0, 2)) expectSeconds(seconds, 3_600);
    const { headers, body, metadata } = await server.rls.call('d', ['q=1']);
    expect([headers, body, metadata]).toEqual([{}, '', undefined]);
  });

  test('says that a minute ends in 58 seconds, 2 seconds after its start', async () => {
    const start = 60_000 - (server.nowMs() % 60_000);
    await server.stepClock(start + 2_000);
    const before = server.nowMs();
    const { resets } = await server.rls.call('d', ['m=58']);
    const end = Math.ceil(before / 60_000) * 60_000;
    const [least, most] = [server.nowMs(), before].map((ms) => Math.ceil((end - ms) / 1_000));
    expect(most).toBeLessThanOrEqual(58);
    expect(resets[0]).toBeGreaterThanOrEqual(least);
    expect(resets[0]).toBeLessThanOrEqual(most + 1);
  });

  test('begins a new window with all of the limit', async () => {
    await toEndOfDay(server);
    const ask = () => server.rls.ask('d', ['h=new', 'mm=new']);
    expect(await ask()).toEqual(['OK', 'OK 1/2 HOUR', 'OK 4']);
    expect(await ask()).toEqual(['OK', 'OK 0/2 HOUR', 'OK 3']);
    expect(await ask()).toEqual(['OVER_LIMIT', 'OVER_LIMIT 0/2 HOUR', 'OK 2']);
    await server.stepClock(5 * 60_000);
    expect(await ask()).toEqual(['OVER_LIMIT', 'OVER_LIMIT 0/2 HOUR', 'OK 4']);
    await server.stepClock(HOUR_MS);
    expect(await ask()).toEqual(['OK', 'OK 1/2 HOUR', 'OK 4']);
  });

  test('to a denied request has the body of the first limit that is over and has one', async () => {
    const bodyOf = async (...descriptors: string[]) => {
      const { overall, body, headers } = await server.rls.call('d', descriptors);
      return [overall, body, headers];
    };
    const json = { 'Content-Type': 'application/json' };
    expect(await bodyOf('b=1')).toEqual(['OVER_LIMIT', '{"error":"b"}', json]);
    expect(await bodyOf('h=body', 't=1', 'b=1')).toEqual(['OVER_LIMIT', 'slow down', {}]);
    expect(await bodyOf('g=1')).toEqual(['OK', '', {}]);
    expect(await bodyOf('s=1')).toEqual(['OK', '', {}]);
  });
});

describe('legacy headers', () => {
  const server = useRlsServer({
    files,
    env: { WEIR_RLS_HEADERS: 'legacy' },
    hasSteppedClock: true,
  });
  const headersOf = async (...descriptors: string[]) => {
    const { headers } = await server.rls.call('d', descriptors);
    const { 'RateLimit-Reset': reset, ...others } = headers;
    return [others['RateLimit-Limit'], others['RateLimit-Remaining'], reset];
  };

  test('are of the limit with the least left, and the first of equal ones', async () => {
    await toEndOfDay(server);
    const [limit, remaining, reset] = await headersOf('y=least', 'h=least');
    expect([limit, remaining]).toEqual(['2', '1']);
    expectSeconds(reset, 3_600);
    expect((await headersOf('s=1', 'q=1')).slice(0, 2)).toEqual(['0', '0']);
    expect(await headersOf('x=1', 'u=1')).toEqual([undefined, undefined, undefined]);
  });

  test('are of the last limit that is over', async () => {
    for (let n = 0; n < 2; n++) await server.rls.call('d', ['h=last']);
    expect((await headersOf('b=1', 'h=last', 'y=last')).slice(0, 2)).toEqual(['2', '0']);
    expect((await headersOf('h=last', 'b=1', 'q=1')).slice(0, 2)).toEqual(['0', '0']);
  });

  test('of a refund are those of its limit', async () => {
    await server.rls.call('d', ['y=refund']);
    const { headers } = await server.rls.call('d', [{ of: 'y=refund', isRefund: true }]);
    expect([headers['RateLimit-Limit'], headers['RateLimit-Remaining']]).toEqual(['9', '9']);
  });
});

describe('headers of the IETF draft', () => {
  const server = useRlsServer({ files, env: { WEIR_RLS_HEADERS: 'ietf' }, hasSteppedClock: true });

  test('have each limit, and Retry-After where the request is denied', async () => {
    await toEndOfDay(server);
    const allowed = (await server.rls.call('d', ['h=1', 'y=1', 'u=1', 'x=1'])).headers;
    expect(allowed['RateLimit-Policy']).toBe('"d.h";q=2;w=3600, "a _day_ _";q=9;w=86400');
    expect(allowed.RateLimit.replaceAll(/t=\d+/g, 't=T')).toBe(
      '"d.h";r=1;t=T, "a _day_ _";r=8;t=T',
    );
    expect(allowed['Retry-After']).toBeUndefined();
    await server.rls.call('d', ['h=1']);
    const denied = (await server.rls.call('d', ['h=1', 'y=1'])).headers;
    expect(denied.RateLimit.replaceAll(/t=\d+/g, 't=T')).toBe('"d.h";r=0;t=T, "a _day_ _";r=7;t=T');
    expectSeconds(denied['Retry-After'], 3_600);
    expect((await server.rls.call('d', ['u=1', 'x=1'])).headers).toEqual({});
  });

  test('have a limit of several descriptors once, with the least that is left', async () => {
    await server.rls.call('d', [{ of: 'y=twice', hits: 4 }]);
    const { headers } = await server.rls.call('d', ['y=twice', 'y=other']);
    expect(headers['RateLimit-Policy']).toBe('"a _day_ _";q=9;w=86400');
    expect(headers.RateLimit).toMatch(/^"a _day_ _";r=4;t=\d+$/);
  });
});

describe('in shadow mode', () => {
  const server = useRlsServer({
    files,
    env: { WEIR_RLS_HEADERS: 'ietf', WEIR_RLS_SHADOW_MODE: 'true' },
  });

  test('a request over its limit is allowed, without Retry-After and without a body', async () => {
    const { overall, statuses, headers, body } = await server.rls.call('d', ['b=1']);
    expect([overall, statuses, body]).toEqual(['OK', ['OVER_LIMIT 0/0 DAY'], '']);
    expect(Object.keys(headers)).toEqual(['RateLimit-Policy', 'RateLimit']);
  });
});
