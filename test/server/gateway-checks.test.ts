/** The responses to checks of gateways over real connections: the contract for all gateways. */

import { execFileSync } from 'node:child_process';
import { existsSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { useDataDirectory } from '../support/data-directory.ts';
import { describeEngines, testInMemory } from '../support/engine-modes.ts';
import type { RequestHeaders } from '../support/http.ts';
import { errorIn, exchange, type ParsedResponse, sendRequest } from '../support/http.ts';
import {
  configText,
  forwardedFor,
  gatewayRequestBytes,
  type PolicySettings,
  sendGatewayCheck,
  writeConfig,
} from '../support/policy-config.ts';
import {
  freePort,
  ROOT_KEY,
  removeDirectory,
  temporaryDirectory,
  waitUntil,
} from '../support/server.ts';
import { addKey, addRecords } from '../support/store.ts';
import { SMALL, useServer } from '../support/test-server.ts';
import { startWithoutWorkerRestart } from '../support/worker-faults.ts';

const place = temporaryDirectory();
afterAll(() => removeDirectory(place));

const WINDOWS = [
  { limit: 2, duration: 86_400_000 },
  { limit: 5, duration: 31_536_000_000 },
];
const POLICIES: Record<string, PolicySettings> = {
  login: { limit: 3 },
  five: { limit: 5, cost: 2 },
  old: { limit: 3, legacyHeaders: true },
  shared: { limit: 2, identify: 'header:x-key' },
  admitting: { limit: 1, identify: 'header:x-key', missing: 'allow' },
  refusing: { limit: 1, identify: ['ip', 'header:x-key'], missing: 'deny' },
  shadow: { limit: 1, shadow: true },
  shadowed: { limit: 1, shadow: true, missing: 'deny', identify: 'cookie:id' },
  many: { windows: WINDOWS },
  hops: { limit: 1, trustedHops: 2 },
  network: { limit: 1, ipv6Prefix: 56 },
  cookie: { limit: 1, identify: 'cookie:session' },
  listed: { gateway: ['envoy', 'caddy'], limit: 1, identify: ['method', 'path'] },
  appending: { gateway: 'istio', limit: 3 },
  gcra: { limit: 100, algorithm: 'gcra', burst: 2, identify: 'header:x-key', missing: 'allow' },
  sliding: { limit: 60, duration: 3_600_000, algorithm: 'sliding' },
  skipping: { limit: 1, skip: ['preflight', '/healthz'], missing: 'deny' },
  default: { limit: 60, duration: 3_600_000 },
  fixed: { limit: 60, duration: 3_600_000, algorithm: 'fixed' },
  lowered: { limit: 100, algorithm: 'gcra', burst: 3 },
};

describeEngines('decided %s, a gateway', (mode) => {
  const socket = join(place, `${mode}.sock`);
  const keys = { limit: '', other: '', expired: '' };
  const server = useServer({
    mode,
    args: ['--acceptors', '2', '--gateway-socket', socket],
    policies: POLICIES,
    prepare: (store) => {
      addRecords(store, 'namespaces', [{ id: 'rlns_login', name: 'login', createdMs: 1 }]);
      keys.limit = addKey(store, { permissions: ['ratelimit.rlns_login.limit'] });
      keys.other = addKey(store, { permissions: ['ratelimit.*.read_override'] });
      keys.expired = addKey(store, { permissions: ['*'], expiresMs: 1 });
    },
  });
  afterAll(async () => {
    expect(statSync(socket).mode & 0o777).toBe(0o660);
    await server.expectStop();
    expect(existsSync(socket)).toBe(false);
  });

  const ask = (path: string, headers: RequestHeaders = {}, method?: string) => {
    return sendGatewayCheck(server.gatewayPort, path, headers, method);
  };
  const statuses = async (count: number, asking: () => Promise<ParsedResponse>) => {
    const answers: number[] = [];
    for (let i = 0; i < count; i++) answers.push((await asking()).status);
    return answers;
  };

  test('gets a 200 without a body for an allowed request, with the remaining quota', async () => {
    const answer = await ask('/v1/check/login', forwardedFor('10.0.0.1'));
    expect([answer.status, answer.body, answer.headers['content-length']]).toEqual([200, '', '0']);
    expect(answer.headers['ratelimit-policy']).toMatch(/^"login";q=3;w=3155760000$/);
    expect(answer.headers.ratelimit).toMatch(/^"login";r=2;t=\d+$/);
    expect(answer.headers).not.toHaveProperty('retry-after');
    expect(answer.headers).not.toHaveProperty('x-ratelimit-limit');
  });

  test('gets a 429 with a problem for a denied request, with Retry-After and no-store', async () => {
    const asking = () => ask('/v1/check/login', forwardedFor('10.0.0.2'));
    expect(await statuses(3, asking)).toEqual([200, 200, 200]);
    const { status, headers, body } = await asking();
    expect([status, headers['content-type']]).toEqual([429, 'application/problem+json']);
    expect(headers['cache-control']).toBe('no-store');
    expect(JSON.parse(body)).toMatchObject({ status: 429, 'violated-policies': ['login'] });
    const [, t] = /^"login";r=0;t=(\d+)$/.exec(headers.ratelimit) ?? [];
    expect(Number(headers['retry-after'])).toBeGreaterThanOrEqual(Number(t));
    const head = await ask('/v1/check/login', forwardedFor('10.0.0.2'), 'HEAD');
    expect([head.status, head.body, head.headers['retry-after'] > '0']).toEqual([429, '', true]);
    // The same counter, with the one status that nginx accepts.
    const other = await ask('/v1/auth-request/login', forwardedFor('10.0.0.2'));
    expect([other.status, other.body, other.headers['content-length']]).toEqual([403, '', '0']);
    expect(other.headers.ratelimit).toContain('"login";r=0;t=');
    expect(other.headers).not.toHaveProperty('content-type');
  });

  test('may use any method, and any path after the namespace', async () => {
    const methods = ['GET', 'HEAD', 'POST', 'OPTIONS', 'PATCH', 'X-Y'];
    for (const [i, method] of methods.entries()) {
      for (const tail of ['', '/', '/a/b?limit=1&gateway=x', '//../%2F']) {
        const who = forwardedFor(`10.1.${i}.${tail.length}`);
        const answer = await ask(`/v1/check/appending${tail}`, who, method);
        expect([method, tail, answer.status, answer.body]).toEqual([method, tail, 200, '']);
        expect(answer.headers.ratelimit).toContain('"appending";r=2;');
      }
    }
    const path = '/v1/auth-request/appending/x';
    expect((await ask(path, forwardedFor('10.1.9.9'))).status).toBe(404);
  });

  test('uses the cost of the policy, which a client cannot change', async () => {
    const forged = {
      'X-Forwarded-Host': 'other',
      'X-Real-Ip': '1.1.1.1',
      'RateLimit-Policy': '"five";q=100',
      'X-Weir-Key': 'wrong',
      Authorization: 'Bearer of an end user',
    };
    const asking = () =>
      ask('/v1/check/five?cost=0&limit=100', { ...forwardedFor('10.0.0.4'), ...forged });
    expect(await statuses(3, asking)).toEqual([200, 200, 429]);
    expect((await asking()).headers.ratelimit).toContain('"five";r=0;');
  });

  const chain = (...lines: string[]) => ({ 'X-Forwarded-For': lines });
  const filler = 'x'.repeat(3_000);
  const session = (id: string) => {
    return { Cookie: [`a=${filler}`, `b=${filler}; c=${filler}`, `session=${id}`] };
  };
  const keyed = (...keys: string[]) => ({ ...forwardedFor('10.0.0.14'), 'X-Key': keys });
  test.each<
    [what: string, policy: string, identities: [RequestHeaders, RequestHeaders, RequestHeaders]]
  >([
    [
      'is trusted for the last X-Forwarded-For header, and for the configured number of proxies',
      'hops',
      [
        chain('forged', '10.0.0.5', '10.9.9.9'),
        chain('other', '10.0.0.5, 10.9.9.8'),
        chain('10.0.0.6', '10.9.9.8'),
      ],
    ],
    [
      'separates IPv6 networks by the prefix of the policy',
      'network',
      [chain('2001:db8:1:ff00::1'), chain('2001:DB8:1:ffab:1:2:3:4'), chain('2001:db8:1:fe00::1')],
    ],
    [
      'forwards a head with 9 KB of cookies in several headers',
      'cookie',
      [session('one'), session('one'), session('two')],
    ],
  ])('%s', async (_what, policy, [first, same, other]) => {
    for (const [headers, status] of [
      [first, 200],
      [same, 429],
      [other, 200],
    ] as const) {
      expect((await ask(`/v1/check/${policy}`, headers)).status).toBe(status);
    }
  });

  test('is named by the address of a check, if the policy serves several', async () => {
    const forwarded = { 'X-Forwarded-Uri': '/sent', 'X-Forwarded-Method': 'PUT' };
    const asking = (address: string, method?: string) => {
      return ask(`/v1/check/listed${address}`, forwarded, method);
    };
    for (const [address, status, method] of [
      // Envoy: the method and the path of the check itself. The client has sent the headers.
      ['/a?gateway=caddy', 200],
      ['//a?gateway=caddy&b', 429],
      ['/?gateway=caddy', 200],
      // Caddy sets the headers itself.
      ['?gateway=caddy', 200],
      ['?gateway=caddy', 429, 'DELETE'],
    ] as const) {
      expect([address, (await asking(address, method)).status]).toEqual([address, status]);
    }
    const denied = await ask('/v1/auth-request/listed?gateway=caddy', forwarded);
    expect(denied.status).toBe(403);
    for (const address of ['', '?', '?gateway=nginx', '?gateway=caddy&a', '?a&gateway=caddy']) {
      expect((await asking(address, 'HEAD')).status).toBe(404);
      const answer = await asking(address);
      expect([address, answer.status, answer.headers.ratelimit]).toEqual([address, 404, undefined]);
      const serves = 'the policy for the namespace "listed" serves caddy, envoy; the query of';
      expect(errorIn(answer).message).toContain(serves);
    }
    // nginx does not append a path, so a path comes from another gateway than the policy's.
    const other = await ask('/v1/check/login/a', forwardedFor('10.0.0.4'));
    expect([other.status, errorIn(other).message]).toEqual([404, expect.stringContaining('nginx')]);
    expect((await ask('/v1/check/login?gateway=caddy')).status).toBe(404);
    expect((await ask('/v1/check/login?gateway=nginx', forwardedFor('10.0.0.4'))).status).toBe(200);
  });

  test('has requests that the policy skips allowed without a decision, and counted apart', async () => {
    const client = forwardedFor('10.0.0.21');
    const preflight = {
      ...client,
      'X-Forwarded-Method': 'OPTIONS',
      Origin: 'https://app.example',
      'Access-Control-Request-Method': 'PUT',
    };
    const health = { ...client, 'X-Forwarded-Uri': '/healthz?a' };
    const figure = (name: string) => server.metric(name);
    // Without an address the policy denies a request that it checks.
    for (const headers of [preflight, health, { 'X-Forwarded-Uri': '/healthz' }, preflight]) {
      for (const path of ['/v1/check/skipping', '/v1/auth-request/skipping?gateway=nginx']) {
        const answer = await ask(path, headers);
        expect([answer.status, answer.body, answer.headers.ratelimit]).toEqual([
          200,
          '',
          undefined,
        ]);
        expect(answer.headers['ratelimit-policy']).toMatch(/^"skipping";q=1;/);
      }
    }
    expect(await figure('weir_skipped_checks_total{namespace="skipping"}')).toBe(8);
    expect(await figure('weir_unidentified_checks_total{namespace="skipping"}')).toBe(0);
    const decisions = 'weir_decisions_total{namespace="skipping",outcome=';
    expect([await figure(`${decisions}"allowed"}`), await figure(`${decisions}"denied"}`)]).toEqual(
      [0, 0],
    );
    // The same client has used nothing.
    const checked = { ...preflight, 'X-Forwarded-Method': 'POST' };
    expect(await statuses(2, () => ask('/v1/check/skipping', checked))).toEqual([200, 429]);
    expect((await ask('/v1/check/skipping', preflight)).status).toBe(200);
    // An invalid head is rejected before.
    const doubled = { ...preflight, 'Content-Length': ['1', '2'] };
    expect((await ask('/v1/check/skipping', doubled)).status).toBe(400);
  });

  test('gets the headers of gRPC with a denial, if it returns that to a gRPC client', async () => {
    const call = {
      ...forwardedFor('10.0.0.22'),
      'X-Forwarded-Method': 'POST',
      'X-Forwarded-Uri': '/g',
    };
    const denied = async (address: string, type: string) => {
      await ask(address, { ...call, 'Content-Type': type });
      return ask(address, { ...call, 'Content-Type': type });
    };
    const answer = await denied('/v1/check/listed?gateway=caddy', 'application/grpc+proto');
    expect([answer.status, answer.body, answer.headers['content-length']]).toEqual([429, '', '0']);
    expect(answer.headers).toMatchObject({
      'content-type': 'application/grpc',
      'grpc-status': '8',
      'grpc-message': 'rate limit exceeded',
      'cache-control': 'no-store',
    });
    const web = await denied('/v1/check/listed?gateway=caddy', 'application/grpc-web');
    expect(web.headers['content-type']).toBe('application/problem+json');
    // Envoy makes such a response itself.
    const envoy = await denied('/v1/check/listed/g', 'application/grpc');
    expect([envoy.status, envoy.headers['grpc-status']]).toEqual([429, undefined]);
  });

  test('has clients without an identity share a counter, allowed or denied, and counts them', async () => {
    const unidentified = (name: string) => {
      return server.metric(`weir_unidentified_checks_total{namespace="${name}"}`);
    };
    expect(await statuses(3, () => ask('/v1/check/shared'))).toEqual([200, 200, 429]);
    expect((await ask('/v1/check/shared', { 'X-Key': '' })).status).toBe(429);
    expect((await ask('/v1/check/shared', { 'X-Key': 'a' })).status).toBe(200);
    expect(await unidentified('shared')).toBe(4);
    expect(await statuses(3, () => ask('/v1/check/admitting'))).toEqual([200, 200, 200]);
    expect((await ask('/v1/check/admitting')).headers.ratelimit).toContain('r=1;');
    // Two values are no identity, and an invalid identity is not an absent one.
    for (const [keys, status] of [
      [['one', 'two'], 429],
      [['one', 'one'], 429],
      [['one'], 200],
    ] as const) {
      expect((await ask('/v1/check/refusing', keyed(...keys))).status).toBe(status);
    }
    const long = { 'X-Key': 'x'.repeat(9_000) };
    expect(await statuses(2, () => ask('/v1/check/admitting', long))).toEqual([200, 429]);
    expect((await ask('/v1/check/admitting')).status).toBe(200);
    const denied = await ask('/v1/check/refusing', forwardedFor('10.0.0.7'));
    expect([denied.status, denied.headers['retry-after']]).toEqual([429, undefined]);
    expect(denied.headers.ratelimit).toBe('"refusing";r=0');
    expect(JSON.parse(denied.body).detail).toContain('an address and the header x-key');
    expect((await ask('/v1/auth-request/refusing')).status).toBe(403);
    const name = 'weir_decisions_total{namespace="refusing",outcome="denied"}';
    expect(await server.metric(name)).toBeGreaterThanOrEqual(2);
  });

  test('denies no request under a shadow policy, and counts its denials', async () => {
    const asking = () => ask('/v1/check/shadow', forwardedFor('10.0.0.8'));
    expect(await statuses(3, asking)).toEqual([200, 200, 200]);
    const answer = await asking();
    expect([answer.body, answer.headers['retry-after']]).toEqual(['', undefined]);
    expect(answer.headers.ratelimit).toContain('r=0;');
    const figure = (name: string) => server.metric(name);
    expect(await figure('weir_shadow_denials_total{namespace="shadow"}')).toBe(3);
    expect(await figure('weir_decisions_total{namespace="shadow",outcome="denied"}')).toBe(3);
    expect((await ask('/v1/auth-request/shadowed')).status).toBe(200);
    expect(await figure('weir_shadow_denials_total{namespace="shadowed"}')).toBe(1);
  });

  test('has several windows counted, either all or none', async () => {
    const asking = () => ask('/v1/check/many', forwardedFor('10.0.0.9'));
    const first = await asking();
    expect(first.headers['ratelimit-policy']).toBe(
      '"many-1d";q=2;w=86400, "many-365d";q=5;w=31536000',
    );
    expect(first.headers.ratelimit).toMatch(/^"many-1d";r=1;t=\d+, "many-365d";r=4;t=\d+$/);
    expect(await statuses(3, asking)).toEqual([200, 429, 429]);
    const denied = await asking();
    // A request that one window denies is not counted in the other.
    expect(denied.headers.ratelimit).toMatch(/^"many-1d";r=0;t=\d+, "many-365d";r=3;t=\d+$/);
    expect(JSON.parse(denied.body)['violated-policies']).toEqual(['many-1d']);
    const name = 'weir_decisions_total{namespace="many",outcome="denied"}';
    expect(await server.metric(name)).toBe(3);
  });

  test('counts by GCRA: the burst passes at once, and the headers have limit and duration', async () => {
    const asking = () => ask('/v1/check/gcra', { 'X-Key': 'a' });
    const first = await asking();
    expect(first.status).toBe(200);
    expect(first.headers['ratelimit-policy']).toBe('"gcra";q=100;w=3155760000');
    expect(first.headers.ratelimit).toMatch(/^"gcra";r=1;t=\d+$/);
    expect(await statuses(3, asking)).toEqual([200, 429, 429]);
    const { headers } = await asking();
    expect(headers.ratelimit).toMatch(/^"gcra";r=0;t=\d+$/);
    // One token comes back in a hundredth of the duration.
    expect(Number(headers['retry-after'])).toBeGreaterThan(31_557_500);
    expect(Number(headers['retry-after'])).toBeLessThanOrEqual(31_557_600);
    // A request without identity is not counted, so its bucket is full now.
    const unidentified = await ask('/v1/check/gcra');
    expect([unidentified.status, unidentified.headers.ratelimit]).toEqual([200, '"gcra";r=2;t=0']);
  });

  test('gets the limit of an override, which replaces all windows', async () => {
    const set = (namespace: string, identifier: string, limit: number) => {
      const fields = { namespace, identifier, limit, duration: 3_155_760_000_000 };
      return server.ok('ratelimit.setOverride', fields);
    };
    await set('many', '10.0.1.*', 1);
    const asking = () => ask('/v1/check/many', forwardedFor('10.0.1.1'));
    expect((await asking()).headers['ratelimit-policy']).toBe('"many";q=1;w=3155760000');
    expect((await asking()).status).toBe(429);
    const other = await ask('/v1/check/many', forwardedFor('10.0.2.1'));
    expect(other.headers.ratelimit).toContain('many-1d');
    // The limit lowers the burst of a bucket.
    await set('lowered', '10.0.0.16', 1);
    const lowered = () => ask('/v1/check/lowered', forwardedFor('10.0.0.16'));
    expect(await statuses(2, lowered)).toEqual([200, 429]);
    await set('login', '10.0.3.0', 0);
    const blocked = await ask('/v1/check/login', forwardedFor('10.0.3.0'));
    expect([blocked.status, blocked.headers['retry-after']]).toEqual([429, undefined]);
    expect(blocked.headers.ratelimit).toBe('"login";r=0');
    expect(JSON.parse(blocked.body).detail).toBe('all requests are denied: the limit is 0');
    await set('five', '10.0.3.1', 1);
    const above = await ask('/v1/check/five', forwardedFor('10.0.3.1'));
    expect([above.status, above.headers['retry-after']]).toEqual([429, undefined]);
    expect(JSON.parse(above.body).detail).toContain('can never pass: its cost is above the limit');
  });

  testInMemory(
    'allows twice the limit around the end of a window only if it is fixed',
    async () => {
      const untilNextHour = () => 3_600_000 - (server.nowMs() % 3_600_000);
      const allowed = async (namespace: string, address: string) => {
        const all = await statuses(60, () => ask(`/v1/check/${namespace}`, forwardedFor(address)));
        return all.filter((status) => status === 200).length;
      };
      await server.stepClock(untilNextHour() + 3_590_000);
      for (const rule of ['fixed', 'sliding', 'default']) {
        expect([rule, await allowed(rule, '10.0.3.9')]).toEqual([rule, 60]);
      }
      // A minute and more of this hour passes: the sliding window has carried over all but two.
      await server.stepClock(untilNextHour() + 61_000);
      for (const [rule, tokens] of [
        ['fixed', 60],
        ['sliding', 2],
        ['default', 2],
      ] as const) {
        expect([rule, await allowed(rule, '10.0.3.9')]).toEqual([rule, tokens]);
      }
    },
  );

  testInMemory('a client that obeys Retry-After passes within its window', async () => {
    const asking = () => ask('/v1/check/sliding', forwardedFor('10.0.3.2'));
    const untilNextHour = () => 3_600_000 - (server.nowMs() % 3_600_000);
    await server.stepClock(untilNextHour());
    await statuses(60, asking);
    await server.stepClock(untilNextHour() + 122_000);
    // In each minute of this hour one token less is carried over.
    expect(await statuses(4, asking)).toEqual([200, 200, 200, 429]);
    const { status, headers, body } = await asking();
    const seconds = Number(headers['retry-after']);
    expect([status, seconds > 0, seconds < 60]).toEqual([429, true, true]);
    expect(headers.ratelimit).toBe(`"sliding";r=0;t=${seconds}`);
    expect(JSON.parse(body).detail).toBe(`retry after ${seconds} s`);
    await server.stepClock(seconds * 1_000);
    expect((await asking()).status).toBe(200);
  });

  test('counts in the same counters as every other check', async () => {
    await ask('/v1/check/login', forwardedFor('10.0.0.10'));
    const fields = { namespace: 'login', identifier: '10.0.0.10', limit: 3, cost: 0 };
    const look = { ...fields, duration: 3_155_760_000_000 };
    expect(await server.ok('ratelimits.limit', look)).toMatchObject({ remaining: 2 });
  });

  test('gets legacy headers as well, if the policy has them', async () => {
    const { headers } = await ask('/v1/check/old', forwardedFor('10.0.0.11'));
    expect(headers).toMatchObject({
      'x-ratelimit-limit': '3',
      'x-ratelimit-remaining': '2',
      'x-ratelimit-reset': '3155760000',
    });
  });

  test('needs no key on its own listener, also a Unix socket, which serves nothing else', async () => {
    const [answer] = await exchange(connect(socket), [
      gatewayRequestBytes('/v1/check/login', forwardedFor('10.0.0.12')),
    ]);
    expect(answer.headers.ratelimit).toContain('r=2;');
    const paths = ['/v1/ratelimits.limit', '/v1/keys.list', '/', '/v1/check/', '/v1/check/nobody'];
    for (const path of paths) {
      const method = path.endsWith('limit') ? 'POST' : 'GET';
      const other = await sendRequest(server.gatewayPort, { path, method, body: '{}' });
      expect([path, other.status, JSON.parse(other.body)]).toMatchObject([path, 404, {}]);
    }
  });

  test('needs a key on the port, in a header of its own', async () => {
    const asking = (key: string, name = 'login') => {
      const headers: Record<string, string> = key === '' ? {} : { 'X-Weir-Key': key };
      return sendGatewayCheck(server.port, `/v1/check/${name}`, {
        ...forwardedFor('10.0.0.13'),
        ...headers,
      });
    };
    expect((await asking(ROOT_KEY)).headers.ratelimit).toContain('r=2;');
    expect((await asking(keys.limit)).headers.ratelimit).toContain('r=1;');
    for (const key of ['', 'wrong', keys.expired, `Bearer ${ROOT_KEY}`, 'x'.repeat(600)]) {
      const denied = await asking(key);
      expect([key, denied.status, errorIn(denied).code]).toEqual([key, 401, 'UNAUTHORIZED']);
      expect(denied.body).not.toContain(ROOT_KEY);
    }
    const byUser = { ...forwardedFor('10.0.0.13'), Authorization: `Bearer ${ROOT_KEY}` };
    expect((await sendGatewayCheck(server.port, '/v1/check/login', byUser)).status).toBe(401);
    expect(errorIn(await asking(keys.other)).message).toContain('"ratelimit.*.limit"');
    expect((await asking(keys.limit, 'five')).status).toBe(403);
    // Without the permission, a client does not learn whether a policy exists.
    expect((await asking(keys.other, 'nobody')).status).toBe(403);
    expect((await asking(ROOT_KEY, 'nobody')).status).toBe(404);
    const head = { ...forwardedFor('10.0.0.13'), 'X-Weir-Key': 'wrong' };
    const [bare, next] = await exchange(
      server.port,
      [
        gatewayRequestBytes('/v1/check/login', head, 'HEAD'),
        gatewayRequestBytes('/v1/check/login', { ...head, 'X-Weir-Key': ROOT_KEY }),
      ],
      2,
      true,
      ['HEAD', 'GET'],
    );
    expect([bare.status, bare.body, next.headers.ratelimit.slice(0, 13)]).toEqual([
      401,
      '',
      '"login";r=0;t',
    ]);
  });
});

describe('policies', () => {
  const own = useDataDirectory(SMALL);

  const start = async (config: string, more: string[] = [], options = {}) => {
    const port = await freePort();
    const args = [...SMALL, '--gateway-port', `${port}`, '--config', config, ...more];
    return { port, server: await own.start({ args, ...options }) };
  };

  test('are replaced on SIGHUP, all at once, under load; an invalid file changes nothing', async () => {
    // More than the load can use, however long the reloads take.
    const config = writeConfig(place, { a: { limit: 2e9 }, b: { limit: 5 } });
    const { port, server } = await start(config, ['--acceptors', '2']);
    await waitUntil('the log has their number', () =>
      /"policies":2,.*"serving"/.test(server.stderr()),
    );
    const reload = async (text: string, said: string) => {
      const before = server.stderr().length;
      writeFileSync(config, text);
      server.child.kill('SIGHUP');
      await waitUntil(said, () => server.stderr().slice(before).includes(said));
    };
    let isLoaded = true;
    const seen = new Set<string>();
    const load = Array.from({ length: 4 }, async () => {
      while (isLoaded) {
        const answer = await sendGatewayCheck(port, '/v1/check/a', forwardedFor('10.0.0.1'));
        seen.add(`${answer.status} ${answer.headers['ratelimit-policy']}`);
      }
    });
    await sendGatewayCheck(port, '/v1/check/b', forwardedFor('10.0.0.1'));
    const changed = { a: { limit: 1e9, duration: 31_557_600_000 }, c: { limit: 1 } };
    for (let i = 0; i < 2; i++) {
      await reload(configText(changed), 'the policies were reloaded');
      const { headers } = await sendGatewayCheck(port, '/v1/check/a', forwardedFor('10.0.0.2'));
      expect(headers['ratelimit-policy']).toBe('"a";q=1000000000;w=31557600');
      expect((await sendGatewayCheck(port, '/v1/check/b')).status).toBe(404);
      await waitUntil('b is named', () => {
        const said = server
          .stderr()
          .match(/"namespaces":\["b"\].*the policies of these namespaces were removed/g);
        return said?.length === i + 1;
      });
      const wrong = { ...changed, c: { limit: 0 } };
      await reload(configText(wrong), 'policy \\"c\\": \\"limit\\" must be an integer from 1');
      expect(
        (await sendGatewayCheck(port, '/v1/check/a', forwardedFor('10.0.0.2'))).headers,
      ).toHaveProperty('ratelimit');
      await reload('{', 'the policies were not reloaded');
      await reload('{"policies":{},"counters":"many"}', '\\"counters\\" must be an integer');
      expect((await sendGatewayCheck(port, '/v1/check/c')).status).not.toBe(404);
      await reload(configText({ a: { limit: 2e9 }, b: { limit: 5 } }), 'were reloaded');
    }
    rmSync(config);
    execFileSync('mkfifo', [config]);
    server.child.kill('SIGHUP');
    await waitUntil('it is told', () => server.stderr().includes('is no regular file'));
    rmSync(config);
    // A counter outlives the policy that counted it.
    const { headers } = await sendGatewayCheck(port, '/v1/check/b', forwardedFor('10.0.0.1'));
    expect(headers.ratelimit).toContain('"b";r=3;');
    isLoaded = false;
    await Promise.all(load);
    // Never a mixture of two versions: each limit has its own window.
    const policies = ['200 "a";q=1000000000;w=31557600', '200 "a";q=2000000000;w=3155760000'];
    expect([...seen].sort()).toEqual(policies);
    await reload('{"counters":2048}', 'take effect at the next start');
    expect(await server.ok('ratelimits.listPolicies')).toMatchObject({
      policies: [],
    });
    const { total } = await server.ok('ratelimits.listNamespaces');
    expect(total).toBe(3);
  });

  test('have metrics: their number, and the time of the last reload that was valid', async () => {
    const config = writeConfig(place, { a: { limit: 1 } });
    const server = await own.start({ args: [...SMALL, '--config', config] });
    const loadedS = () => server.metric('weir_policies_loaded_timestamp_seconds');
    const reload = async (text: string, said: string) => {
      const before = server.stderr().length;
      writeFileSync(config, text);
      server.child.kill('SIGHUP');
      await waitUntil(said, () => server.stderr().slice(before).includes(said));
    };
    const atStart = await loadedS();
    expect(atStart).toBeGreaterThan((await server.metric('process_start_time_seconds')) - 1);
    expect(Math.abs(atStart * 1_000 - Date.now())).toBeLessThan(60_000);
    await reload('{', 'the policies were not reloaded');
    expect([await server.metric('weir_policies'), await loadedS()]).toEqual([1, atStart]);
    await reload(configText({ a: { limit: 1 }, b: { limit: 1 } }), 'the policies were reloaded');
    expect(await server.metric('weir_policies')).toBe(2);
    expect(await loadedS()).toBeGreaterThan(atStart);
  });

  test('cause a warning at the start and after a reload if gateways need a key', async () => {
    const config = writeConfig(place, { a: { limit: 1 } });
    const server = await own.start({ args: [...SMALL, '--config', config] });
    const warningsOf = (text: string) => text.match(/"level":40,.*in X-Weir-Key: set/g)?.length;
    await waitUntil('it warns', () => warningsOf(server.stderr()) === 1);
    server.child.kill('SIGHUP');
    await waitUntil('it warns again', () => warningsOf(server.stderr()) === 2);
    await server.stop();
    const { port, server: reachable } = await start(config);
    await sendGatewayCheck(port, '/v1/check/a');
    await waitUntil('it serves', () => reachable.stderr().includes('"serving"'));
    expect(warningsOf(reachable.stderr())).toBeUndefined();
  });

  test('that are invalid stop the start with an error', async () => {
    const config = writeConfig(place, { a: { limit: 1, identify: 'header:x-real-ip' } });
    await expect(start(config)).rejects.toThrow('policy "a": "identify" must be ip');
    const outside = ['--gateway-host', '0.0.0.0'];
    await expect(start(writeConfig(place, {}), outside)).rejects.toThrow(
      '--gateway-host must be 127.x.x.x or ::1',
    );
  });

  test('serve gateways while the port has its maximum of connections', async () => {
    const config = writeConfig(place, { a: { limit: 100 } });
    const { port, server } = await start(config, ['--acceptors', '1', '--connections', '16']);
    const idle = Array.from({ length: 40 }, () => connect(server.port, '127.0.0.1').resume());
    for (const socket of idle) socket.on('error', () => {});
    await waitUntil('the port is full', async () => {
      return (await server.metric('weir_shed_total{reason="connections"}')) >= 26;
    });
    expect((await sendGatewayCheck(port, '/v1/check/a', forwardedFor('10.0.0.1'))).status).toBe(
      200,
    );
    const [rejected] = await exchange(server.port, []);
    expect([rejected.status, errorIn(rejected).message]).toEqual([
      503,
      'the limit of open connections is reached',
    ]);
    for (const socket of idle) socket.destroy();
  });

  test('decide the response when weir fails, which is never a 5xx', async () => {
    const strike = join(place, 'strike');
    const config = writeConfig(place, {
      allowed: { limit: 1 },
      denied: { limit: 1, onError: 'deny' },
    });
    const fault = new URL('../support/acceptor-fault.preload.mjs', import.meta.url).pathname;
    const { port, server } = await start(config, ['--acceptors', '1'], {
      execArgv: ['--import', fault],
      env: { FAULT: 'address', FAULT_FILE: strike },
    });
    writeFileSync(strike, '');
    await waitUntil('it strikes', () => server.stderr().includes('fault injected'));
    for (let i = 0; i < 2; i++) {
      const allowed = await sendGatewayCheck(port, '/v1/check/allowed', forwardedFor('10.0.0.1'));
      expect([allowed.status, allowed.body]).toEqual([200, '']);
      expect(allowed.headers['ratelimit-policy']).toBe('"allowed";q=1;w=3155760000');
      expect(allowed.headers).not.toHaveProperty('ratelimit');
      const denied = await sendGatewayCheck(port, '/v1/check/denied', forwardedFor('10.0.0.1'));
      expect([denied.status, denied.headers['retry-after']]).toEqual([429, '1']);
      expect(JSON.parse(denied.body).type).toContain('#temporary-reduced-capacity');
      expect(
        (await sendGatewayCheck(port, '/v1/auth-request/denied', forwardedFor('1.1.1.1'))).status,
      ).toBe(403);
    }
    const failures = (answer: string) => {
      return server.metric(`weir_gateway_failures_total{decision="${answer}"}`);
    };
    expect([await failures('allow'), await failures('deny')]).toEqual([2, 4]);
    await waitUntil('the log says why', () => server.stderr().includes('an internal detail'));
  });

  test('decide it as well when a worker dies while it decides a check', async () => {
    const port = await freePort();
    const config = writeConfig(place, { denied: { limit: 9, onError: 'deny' } });
    const args = ['--counters', '1024', '--decide', 'worker', '--gateway-port', `${port}`];
    const server = own.adopt(
      await startWithoutWorkerRestart(own.dataDir, [...args, '--config', config]),
    );
    await waitUntil('the worker runs', async () => {
      return (await server.metric('weir_workers_running')) === 1;
    });
    // On a busy computer the worker may be late, and the acceptor decides.
    const answers: Awaited<ReturnType<typeof exchange>> = [];
    await waitUntil('the worker has died over a check', async () => {
      const client = forwardedFor(`10.0.0.${2 + answers.length}`);
      answers.push(...(await exchange(port, [gatewayRequestBytes('/v1/check/denied', client)])));
      return answers.at(-1)?.status !== 200;
    });
    const lost = answers.at(-1);
    expect([lost?.status, lost?.headers['retry-after']]).toEqual([429, '1']);
    expect(
      (await sendGatewayCheck(port, '/v1/check/denied', forwardedFor('10.0.0.1'))).status,
    ).toBe(200);
  });
});
