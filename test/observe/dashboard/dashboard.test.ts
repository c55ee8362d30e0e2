import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ANALYTICS_FILE } from '../../../src/analytics/database.ts';
import {
  DASHBOARD_FAILED_SIGN_INS_PER_S,
  DASHBOARD_STREAMS_MAX,
  IMPORT_MAX_BYTES,
} from '../../../src/core/constants.ts';
import { requirePackage } from '../../../src/core/packages.ts';
import type { Minutes, Snapshot } from '../../../src/observe/dashboard/snapshot.ts';
import {
  DashboardClient,
  type EventStream,
  messageOf,
  sendToAdmin,
  signIn,
} from '../../support/dashboard.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { LONGEST_WINDOW_MS } from '../../support/http.ts';
import { ROOT_KEY, waitUntil } from '../../support/server.ts';
import { SMALL, useServer } from '../../support/test-server.ts';

const Database = requirePackage('libsql');
const HOUR_MS = 3_600_000;
const HTML = { Accept: 'text/html,application/xhtml+xml,*/*;q=0.8' };

const server = useServer({ args: ['--acceptors', '2'], hasSteppedClock: true });

const send = (sent: Parameters<typeof sendToAdmin>[1]) => sendToAdmin(server.adminUrl, sent);
const createKey = (permissions: string[], fields = {}) => {
  const body = { name: 'k', permissions, ...fields };
  return server.ok<{ keyId: string; key: string }>('keys.create', body);
};
const snapshotOf = (data: unknown) => data as Snapshot;
const minutesIn = ({ events }: EventStream) => {
  const found = events.filter(({ event }) => event === 'minutes');
  return found.map(({ data }) => data as unknown as Minutes);
};
const snapshotsOf = ({ events }: EventStream) => {
  return events.filter(({ event }) => event === 'snapshot').map(({ data }) => snapshotOf(data));
};

describe('the page', () => {
  test('is at / for browsers; other clients get the list of paths', async () => {
    const page = await send({ path: '/', headers: HTML });
    expect([page.status, page.headers['content-type']]).toEqual([200, 'text/html; charset=utf-8']);
    const list = await send({ path: '/', headers: { Accept: '*/*' } });
    expect([list.status, list.headers['content-type']]).toEqual([200, 'application/json']);
    const moved = await send({ path: '/dashboard' });
    expect([moved.status, moved.headers.location]).toEqual([308, '/']);
  });

  test('has no inline script or style, and a policy that forbids them and other origins', async () => {
    const page = await send({ path: '/', headers: HTML });
    expect(page.text).not.toMatch(/<script(?![^>]* src=)|<style|\son\w+=|style=/);
    const policy = page.headers['content-security-policy'];
    for (const rule of [
      "default-src 'self'",
      "base-uri 'none'",
      "form-action 'self'",
      "frame-ancestors 'none'",
    ]) {
      expect(policy).toContain(rule);
    }
    expect(policy).not.toContain('unsafe');
    const files = [...page.text.matchAll(/(?:href|src)="(\/dashboard\/[^"]+)"/g)];
    const sessions = await send({ path: '/dashboard/session' });
    const responses = await Promise.all(files.map(([, path]) => send({ path })));
    expect(responses.length).toBe(3);
    for (const { status, headers } of [page, sessions, ...responses]) {
      expect(status).toBe(200);
      expect(headers).toMatchObject({
        'content-security-policy': policy,
        'x-content-type-options': 'nosniff',
        'referrer-policy': 'no-referrer',
        'cross-origin-opener-policy': 'same-origin',
      });
    }
  });

  test('is asked for each time and answered by a 304; its files are kept for good', async () => {
    const page = await send({ path: '/', headers: HTML });
    expect(page.headers['cache-control']).toBe('no-cache');
    const headers = { ...HTML, 'If-None-Match': page.headers.etag! };
    const again = await send({ path: '/', headers });
    expect([again.status, again.text]).toEqual([304, '']);
    const [, script] = /src="([^"]+)"/.exec(page.text)!;
    expect(script).toMatch(/-[0-9a-f]{16}\.js$/);
    const file = await send({ path: script });
    expect(file.headers['cache-control']).toBe('public, max-age=31536000, immutable');
    expect((await send({ path: script, method: 'HEAD' })).text).toBe('');
  });

  test('is compressed only for clients that accept that', async () => {
    const plain = await send({ path: '/', headers: HTML });
    expect(plain.headers['content-encoding']).toBeUndefined();
    for (const [accepted, encoding] of [
      ['gzip, deflate', 'gzip'],
      ['br;q=1.0, gzip;q=0.5', 'gzip'],
      ['gzip;q=0', undefined],
      ['identity', undefined],
    ] as const) {
      const response = await send({ path: '/', headers: { ...HTML, 'Accept-Encoding': accepted } });
      expect([accepted, response.headers['content-encoding']]).toEqual([accepted, encoding]);
    }
  });

  test('has no path but those of its files', async () => {
    for (const name of ['assets/../cli.js', 'assets/index.html', 'assets/', 'nothing']) {
      const path = `/dashboard/${name}`;
      const response = await send({ path });
      expect([path, response.status]).toEqual([path, 404]);
      expect(messageOf(response)).toContain(path);
    }
    expect((await send({ path: '/', method: 'POST', headers: HTML })).status).toBe(405);
  });

  test('is not shown under an unknown Host, nor are its other paths', async () => {
    for (const name of ['', 'dashboard/session', 'dashboard/events', 'dashboard/api/keys.list']) {
      const path = `/${name}`;
      const headers = { ...HTML, Host: 'evil.example' };
      expect([path, (await send({ path, headers })).status]).toEqual([path, 403]);
    }
  });
});

describe('a sign-in', () => {
  test('gives a cookie that scripts cannot read, for this port and this path only', async () => {
    const { headers, text } = await signIn(server.adminUrl, ROOT_KEY);
    const { port } = new URL(server.adminUrl);
    const form = `^weir_session_${port}=[\\w-]{43}; HttpOnly; SameSite=Strict; Path=/dashboard$`;
    expect(headers['set-cookie']).toEqual([expect.stringMatching(new RegExp(form))]);
    expect(headers['cache-control']).toBe('no-store');
    const { session } = JSON.parse(text);
    expect(session).toMatchObject({ permissions: ['*'], server: { engine: 'memory' } });
    expect(text).not.toContain(ROOT_KEY);
    const [cookie] = headers['set-cookie']![0].split(';');
    const current = await send({ path: '/dashboard/session', headers: { Cookie: cookie } });
    expect(JSON.parse(current.text).session).toEqual(session);
    const none = await send({ path: '/dashboard/session' });
    const keysUrl = `${server.url}/docs#keys-and-permissions`;
    expect(JSON.parse(none.text)).toEqual({ session: null, keysUrl });
    expect(await (await fetch(keysUrl)).text()).toContain('id="keys-and-permissions"');
  });

  test('fails for an unknown, an expired and a revoked key with a 401 that says why', async () => {
    const revoked = await createKey(['keys.read']);
    await server.ok('keys.revoke', { keyId: revoked.keyId });
    const expired = await createKey(['keys.read'], { expires: server.nowMs() + HOUR_MS });
    await server.stepClock(HOUR_MS + 1_000);
    const unknown = 'the API key is not known here, or was revoked';
    for (const [key, message] of [
      [expired.key, 'the API key has expired'],
      ['not-a-key-of-weir', unknown],
      [revoked.key, unknown],
    ]) {
      const response = await signIn(server.adminUrl, key);
      expect([response.status, messageOf(response)]).toEqual([401, message]);
      expect(response.headers['set-cookie']).toBeUndefined();
    }
    const post = { method: 'POST', path: '/dashboard/session', body: '{}' };
    const headers = { Origin: server.adminUrl, 'Content-Type': 'application/json' };
    const invalid = await send({ ...post, headers });
    expect([invalid.status, messageOf(invalid)]).toEqual([400, expect.stringContaining('"key"')]);
  });

  test('needs the own Origin', async () => {
    const https = server.adminUrl.replace('http:', 'https:');
    for (const Origin of ['', 'http://evil.example', 'null', 'http://127.0.0.1:1', https]) {
      const response = await signIn(server.adminUrl, ROOT_KEY, { Origin });
      expect([Origin, response.status]).toEqual([Origin, 403]);
    }
  });

  test('with a valid key is possible while too many others fail, which get a 503', async () => {
    const attempts = Array.from({ length: 5 * DASHBOARD_FAILED_SIGN_INS_PER_S }, () => {
      return [
        signIn(server.adminUrl, 'not-a-key-of-weir'),
        signIn(server.adminUrl, ROOT_KEY),
      ] as const;
    });
    const failed = await Promise.all(attempts.map(([unknown]) => unknown));
    const valid = await Promise.all(attempts.map(([, known]) => known));
    expect(new Set(failed.map(({ status }) => status))).toEqual(new Set([401, 503]));
    expect(new Set(valid.map(({ status }) => status))).toEqual(new Set([200]));
    await waitUntil('an unknown key gets a 401 again', async () => {
      return (await signIn(server.adminUrl, 'not-a-key-of-weir')).status === 401;
    });
  });

  test('ends the session that the browser had, and no other session of the key', async () => {
    const [first, other] = [
      await DashboardClient.signIn(server.adminUrl),
      await DashboardClient.signIn(server.adminUrl),
    ];
    const events = await first.openEvents();
    const failed = await signIn(server.adminUrl, 'not-a-key-of-weir', { Cookie: first.cookie });
    expect([failed.status, (await first.call('keys.list')).status]).toEqual([401, 200]);
    const again = await signIn(server.adminUrl, ROOT_KEY, { Cookie: first.cookie });
    const [cookie] = again.headers['set-cookie']![0].split(';');
    const current = await send({ path: '/dashboard/session', headers: { Cookie: cookie } });
    expect(JSON.parse(current.text).session).not.toBeNull();
    expect((await first.call('keys.list')).status).toBe(401);
    expect((await other.call('keys.list')).status).toBe(200);
    await waitUntil('the stream ends', events.isEnded);
    const data = { reason: 'this browser has signed in again' };
    expect(events.events.at(-1)).toEqual({ event: 'signed-out', data });
  });

  test('needs a body of the type application/json', async () => {
    for (const type of ['', 'text/plain', 'application/x-www-form-urlencoded', 'text/json']) {
      const response = await signIn(server.adminUrl, ROOT_KEY, { 'Content-Type': type });
      expect([type, response.status]).toEqual([type, 415]);
      expect(response.headers['set-cookie']).toBeUndefined();
    }
    const type = 'application/json; charset=utf-8';
    const response = await signIn(server.adminUrl, ROOT_KEY, { 'Content-Type': type });
    expect(response.status).toBe(200);
  });

  test('leaves no key in the log, but its id', async () => {
    const { key, keyId } = await createKey(['keys.read']);
    await DashboardClient.signIn(server.adminUrl, key);
    await waitUntil('it is logged', () => {
      const lines = server.stderr().split('\n');
      return lines.some((line) => line.includes('signed in') && line.includes(keyId));
    });
    expect(server.stderr()).not.toContain(key);
    expect(server.stderr()).not.toContain(ROOT_KEY);
  });
});

describe('a session', () => {
  const ends: [string, (client: DashboardClient, keyId: string) => Promise<unknown>, string?][] = [
    [
      'its client signs out',
      async (client) => {
        const out = await client.send({ method: 'DELETE', path: '/dashboard/session' });
        expect(out.headers['set-cookie']).toEqual([expect.stringContaining('Max-Age=0')]);
      },
    ],
    [
      'its key is revoked',
      async (client, keyId) => {
        await server.ok('keys.revoke', { keyId });
        expect((await client.call('keys.list')).status).toBe(401);
      },
      'the API key of the session was revoked',
    ],
    [
      'its key has expired',
      () => server.stepClock(HOUR_MS + 1_000),
      'the API key of the session has expired',
    ],
  ];
  test.each(ends)('ends with its stream when %s', async (_when, end, reason) => {
    const { key, keyId } = await createKey(['*'], { expires: server.nowMs() + HOUR_MS });
    const client = await DashboardClient.signIn(server.adminUrl, key);
    const events = await client.openEvents();
    expect((await client.call('keys.list')).status).toBe(200);
    await end(client, keyId);
    await waitUntil('the stream ends', events.isEnded);
    const response = await client.call('keys.list');
    const message = 'there is no session: sign in with an API key';
    expect([response.status, messageOf(response)]).toEqual([401, message]);
    if (reason === undefined) return;
    expect(events.events.at(-1)).toEqual({ event: 'signed-out', data: { reason } });
  });

  test('changes nothing without its token and the own Origin', async () => {
    const client = await DashboardClient.signIn(server.adminUrl);
    const other = await DashboardClient.signIn(server.adminUrl);
    const fields = { namespaceName: 'csrf', identifier: 'abc', limit: 1, duration: 1_000 };
    for (const headers of [
      { 'X-Weir-Csrf': '' },
      { 'X-Weir-Csrf': 'x' },
      { 'X-Weir-Csrf': other.session.csrfToken },
      { Origin: '' },
      { Origin: 'http://evil.example' },
    ]) {
      for (const sent of [
        { path: '/dashboard/api/ratelimits.setOverride', body: JSON.stringify(fields) },
        { path: '/dashboard/api/ratelimits.limit', body: '{}' },
      ]) {
        const response = await client.send({ method: 'POST', ...sent, headers });
        expect([sent.path, headers, response.status]).toEqual([sent.path, headers, 403]);
      }
      const out = await client.send({ method: 'DELETE', path: '/dashboard/session', headers });
      expect(out.status).toBe(403);
    }
    const { namespaces } = JSON.parse((await client.call('ratelimits.listNamespaces')).text);
    expect(namespaces.some(({ name }: { name: string }) => name === 'csrf')).toBe(false);
  });

  test('is not found by another cookie', async () => {
    const client = await DashboardClient.signIn(server.adminUrl);
    const [name, id] = client.cookie.split('=');
    for (const Cookie of ['', `${name}=`, `${name}=${id.slice(1)}A`, `other=${id}`, `${name}=*`]) {
      const response = await client.send({ path: '/dashboard/api/keys.list', headers: { Cookie } });
      expect([Cookie, response.status]).toEqual([Cookie, 401]);
    }
    const among = { Cookie: `a=b; ${client.cookie}; c=d` };
    const response = await client.send({ path: '/dashboard/api/keys.list', headers: among });
    expect(response.status).toBe(200);
  });
});

describe('operations', () => {
  test('are those of the API: the same results and errors, and audit entries of the key', async () => {
    const { key, keyId } = await createKey(['*'], { name: 'operator' });
    const client = await DashboardClient.signIn(server.adminUrl, key);
    const override = { namespaceName: 'ops', identifier: 'abc', limit: 7, duration: 60_000 };
    const set = await client.call('ratelimits.setOverride', override);
    expect([set.status, JSON.parse(set.text).overrideId]).toEqual([
      200,
      expect.stringMatching(/^rlor_/),
    ]);
    const own = JSON.parse((await client.call('ratelimits.getOverride', override)).text);
    expect(own).toEqual(
      await server.ok('ratelimits.getOverride', { namespaceName: 'ops', identifier: 'abc' }),
    );
    const invalid = await client.call('ratelimits.setOverride', { ...override, limit: 0 });
    expect([invalid.status, JSON.parse(invalid.text).error]).toEqual([
      400,
      {
        code: 'BAD_REQUEST',
        message: expect.stringContaining('"limit" must be'),
        docs: expect.stringContaining('/docs/errors/BAD_REQUEST'),
        requestId: invalid.headers['x-request-id'],
      },
    ]);
    const { entries } = JSON.parse((await client.call('audit.list', { limit: 2 })).text);
    expect(entries[0]).toMatchObject({ action: 'override.create', keyId });
  });

  test('need the permissions of the key', async () => {
    const { key } = await createKey(['keys.read']);
    const client = await DashboardClient.signIn(server.adminUrl, key);
    expect((await client.call('keys.list')).status).toBe(200);
    for (const response of [
      await client.call('keys.create', { name: 'k', permissions: ['*'] }),
      await client.call('ratelimits.limit', { identifier: 'a', limit: 1, duration: 1_000 }),
    ]) {
      expect([response.status, messageOf(response)]).toEqual([
        403,
        expect.stringMatching(/^the API key lacks the permission/),
      ]);
    }
  });

  test('exist in v1 only, each with its method', async () => {
    const client = await DashboardClient.signIn(server.adminUrl);
    for (const name of ['ratelimit.limit', 'ratelimit.setOverride', 'nothing', '', 'toString']) {
      const path = `/dashboard/api/${name}`;
      const response = await client.send({ method: 'POST', path, body: '{}' });
      expect([name, response.status]).toEqual([name, 404]);
    }
    const post = { method: 'POST', body: '{}' };
    const read = await client.send({ path: '/dashboard/api/keys.revoke' });
    const change = await client.send({ ...post, path: '/dashboard/api/keys.list' });
    expect([read.status, read.headers.allow]).toEqual([405, 'POST']);
    expect([change.status, change.headers.allow]).toEqual([405, 'GET']);
    const headers = { 'Content-Type': 'text/plain' };
    const form = await client.send({ ...post, path: '/dashboard/api/keys.revoke', headers });
    expect(form.status).toBe(415);
  });

  test('have bounded bodies', async () => {
    const client = await DashboardClient.signIn(server.adminUrl);
    const call = (name: string, bytes: number) => {
      const path = `/dashboard/api/${name}`;
      return client.send({ method: 'POST', path, body: ' '.repeat(bytes) });
    };
    expect((await call('keys.revoke', 65_537)).status).toBe(413);
    expect((await call('ratelimits.importOverrides', IMPORT_MAX_BYTES)).status).toBe(400);
    expect((await call('ratelimits.importOverrides', IMPORT_MAX_BYTES + 1)).status).toBe(413);
  });
});

describe('the event stream', () => {
  test('has the decisions of each second by namespace, the latency and the health', async () => {
    const client = await DashboardClient.signIn(server.adminUrl);
    const events = await client.openEvents();
    const first = snapshotOf(await events.next('snapshot'));
    expect(first.health).toMatchObject({ status: 'ready', acceptors: 2 });
    const check = { namespace: 'live', identifier: 'a', limit: 3, duration: LONGEST_WINDOW_MS };
    for (let i = 0; i < 5; i++) await server.check({ ...check, cost: 2 });
    await waitUntil('the decisions were reported', () => {
      const last = snapshotsOf(events).at(-1)!;
      return last.namespaces.some(({ name, total }) => name === 'live' && total.denied === 4);
    });
    const snapshots = snapshotsOf(events);
    const live = snapshots.flatMap(({ namespaces }) =>
      namespaces.filter((it) => it.name === 'live'),
    );
    const total = { allowed: 1, denied: 4, tokensAllowed: 2, tokensDenied: 8 };
    expect(live.at(-1)?.total).toMatchObject(total);
    const sum = (name: 'allowed' | 'denied') => {
      return live.reduce((all, { recent }) => all + recent[name], 0);
    };
    expect([sum('allowed'), sum('denied')]).toEqual([1, 4]);
    const requests = snapshots.flatMap(({ latency }) => latency).reduce((a, b) => a + b, 0);
    expect(requests).toBe(5);
    events.close();
  });

  test('shows only namespaces whose analytics the key may read', async () => {
    for (const namespace of ['seen', 'hidden']) {
      await server.check({ namespace, identifier: 'a', limit: 1, duration: 1_000 });
    }
    // A namespace gets its id, and its own figures, after its first check was answered.
    const all = await (await DashboardClient.signIn(server.adminUrl)).openEvents();
    const idOf = (name: string) => {
      const last = snapshotsOf(all).at(-1);
      return last?.namespaces.find((it) => it.name === name)?.id;
    };
    await waitUntil('both have figures', () => Boolean(idOf('seen') && idOf('hidden')));
    const seenId = idOf('seen');
    all.close();
    for (const [permissions, names] of [
      [[`ratelimit.${seenId}.read_analytics`], ['seen']],
      [['ratelimit.*.read_namespace'], []],
    ] as const) {
      const { key } = await createKey([...permissions]);
      const client = await DashboardClient.signIn(server.adminUrl, key);
      const events = await client.openEvents();
      const snapshot = snapshotOf(await events.next('snapshot'));
      expect(snapshot.namespaces.map(({ name }) => name)).toEqual(names);
      const { decisions } = minutesIn(events)[0];
      expect(decisions?.namespaces.map(({ name }) => name)).toEqual(names);
      expect(snapshot.health.status).toBe('ready');
      events.close();
    }
  });

  test('begins with the last hour, also for a second stream, and has each further minute', async () => {
    await waitUntil('the minute does not end soon', () => server.nowMs() % 60_000 < 50_000);
    await server.check({ namespace: 'past', identifier: 'a', limit: 9, duration: 60_000 });
    const open = async () => (await DashboardClient.signIn(server.adminUrl)).openEvents();
    const countsIn = ({ decisions }: Minutes) => {
      return decisions?.namespaces.find(({ name }) => name === 'past')?.allowed;
    };
    // The namespace gets its figures after its first check was answered.
    await waitUntil('the minutes have the namespace', async () => {
      const stream = await open();
      await waitUntil('there is an event', () => stream.events.length > 0);
      stream.close();
      return countsIn(minutesIn(stream)[0]) !== undefined;
    });
    const streams = [await open(), await open()];
    for (const stream of streams) {
      await waitUntil('there is an event', () => stream.events.length > 0);
      const [{ event }] = stream.events;
      const [minutes] = minutesIn(stream);
      expect([event, minutes.at.length, minutes.at[1] - minutes.at[0]]).toEqual([
        'minutes',
        60,
        60_000,
      ]);
      expect(countsIn(minutes)?.reduce((a, b) => a + b)).toBe(1);
      expect(minutes.decisions!.ranMs.at(-1)).toBeGreaterThan(0);
      expect(minutes.latency.at(-1)!.reduce((a, b) => a + b)).toBeGreaterThan(0);
    }
    const [first] = minutesIn(streams[0]);
    const next = streams[0].next('minutes');
    await server.stepClock(60_000);
    const { at, decisions } = (await next) as unknown as Minutes;
    expect(at).toEqual([first.at.at(-1), first.at.at(-1)! + 60_000]);
    expect(decisions!.ranMs[0]).toBe(60_000);
    expect(minutesIn(streams[0]).length).toBe(2);
    for (const stream of streams) stream.close();
  });

  test('has the latency of the times before it, and how much of each is covered', async () => {
    const client = await DashboardClient.signIn(server.adminUrl);
    const before = await server.metric('weir_check_duration_seconds_count');
    const events = await client.openEvents();
    const { latencySpans } = snapshotOf(await events.next('snapshot'));
    events.close();
    expect(latencySpans.map(({ spanMs }) => spanMs)).toEqual([10_000, 60_000, 300_000, 3_600_000]);
    const hour = latencySpans[3];
    expect(hour.counts.reduce((a, b) => a + b)).toBe(before);
    expect(hour.coveredMs).toBeLessThan(3_600_000);
    expect(hour.coveredMs).toBeGreaterThan(latencySpans[0].coveredMs - 1);
  });

  test('needs a session, whose second one replaces the first', async () => {
    expect((await send({ path: '/dashboard/events' })).status).toBe(401);
    const client = await DashboardClient.signIn(server.adminUrl);
    const first = await client.openEvents();
    const second = await client.openEvents();
    await waitUntil('the first one ends', first.isEnded);
    expect(first.events.at(-1)?.event).toBe('replaced');
    await second.next('snapshot');
    second.close();
  });

  test('is there for ten browsers beside probes, and their number is bounded', async () => {
    // Of several keys, because the number of sessions of one key is bounded too.
    const { key } = await createKey(['keys.read']);
    const clients = await Promise.all(
      Array.from({ length: DASHBOARD_STREAMS_MAX }, (_, i) => {
        return DashboardClient.signIn(server.adminUrl, i % 2 === 0 ? key : ROOT_KEY);
      }),
    );
    const streams = await Promise.all(clients.map((client) => client.openEvents()));
    await Promise.all(streams.map((stream) => stream.next('snapshot')));
    const more = await DashboardClient.signIn(server.adminUrl);
    expect((await more.openEvents()).status).toBe(503);
    for (const path of ['/livez', '/readyz', '/metrics']) {
      expect((await send({ path })).status).toBe(200);
    }
    for (const stream of streams) stream.close();
    await waitUntil('a stream is free', async () => {
      const stream = await more.openEvents();
      stream.close();
      return stream.status === 200;
    });
  });
});

describe('the last hour', () => {
  const own = useDataDirectory(SMALL);

  async function minutesOf(args: string[] = []): Promise<Minutes> {
    const server = await own.start({ args: [...SMALL, ...args] });
    await server.ok('ratelimits.limit', { identifier: 'a', limit: 9, duration: 60_000 });
    const events = await (await DashboardClient.signIn(server.adminUrl)).openEvents();
    await waitUntil('there is an event', () => events.events.length > 0);
    events.close();
    await server.stop();
    return minutesIn(events)[0];
  }

  test('includes earlier runs, and a gap between them', async () => {
    await minutesOf();
    const database = new Database(join(own.dataDir, ANALYTICS_FILE));
    database.exec(
      'UPDATE minutes SET time = time - 10; ' +
        'UPDATE runs SET start = start - 600000, until = until - 600000',
    );
    database.close();
    const { decisions, latency } = await minutesOf();
    const [{ name, allowed }] = decisions!.namespaces;
    expect([name, allowed.reduce((a, b) => a + b)]).toEqual(['default', 2]);
    const ran = decisions!.ranMs.map((ms) => ms > 0);
    expect([ran.filter((did) => did).length, ran.at(-1)]).toEqual([
      expect.toSatisfy((count: number) => count >= 2 && count <= 4),
      true,
    ]);
    expect(ran.slice(-8, -2)).toEqual(Array(6).fill(false));
    expect(ran.slice(-13, -9)).toContain(true);
    // The latency of an earlier run is not kept.
    expect(latency.slice(0, -2)).toEqual(Array(58).fill(null));
  });

  test('has the latency, and no decisions, without analytics', async () => {
    const { decisions, latency } = await minutesOf(['--analytics', 'off']);
    expect(decisions).toBeUndefined();
    expect(latency.flatMap((counts) => counts ?? []).reduce((a, b) => a + b)).toBe(1);
  });
});

describe('the setting WEIR_DASHBOARD', () => {
  const own = useDataDirectory(SMALL);
  const start = (env: Record<string, string>) => own.start({ env });

  test('auto: on where the admin port is on a loopback address only; false: off there too', async () => {
    for (const env of [{ WEIR_ADMIN_HOST: '0.0.0.0' }, { WEIR_DASHBOARD: 'false' }]) {
      const server = await start(env as Record<string, string>);
      const page = await sendToAdmin(server.adminUrl, { path: '/', headers: HTML });
      expect([page.status, page.headers['content-type']]).toEqual([200, 'application/json']);
      for (const path of ['/dashboard', '/dashboard/session', '/dashboard/events']) {
        const response = await sendToAdmin(server.adminUrl, { path });
        const error = expect.stringContaining('WEIR_DASHBOARD');
        expect([path, response.status, JSON.parse(response.text)]).toEqual([path, 404, { error }]);
      }
      await server.stop();
    }
  });

  test('true: on everywhere, also behind a proxy with TLS, where the cookie is Secure', async () => {
    const on = await start({ WEIR_DASHBOARD: 'true', WEIR_ADMIN_HOST: '0.0.0.0' });
    const page = await sendToAdmin(on.adminUrl, { path: '/', headers: HTML });
    expect(page.headers['content-type']).toBe('text/html; charset=utf-8');
    const host = '192.0.2.1';
    const proxied = { Host: host, Origin: `https://${host}` };
    const { status, headers } = await signIn(on.adminUrl, ROOT_KEY, proxied);
    expect(status).toBe(200);
    expect(headers['set-cookie']).toEqual([
      expect.stringMatching(
        /^weir_session=[\w-]{43}; HttpOnly; SameSite=Strict; Path=\/dashboard; Secure$/,
      ),
    ]);
    const other = await signIn(on.adminUrl, ROOT_KEY, { Host: host, Origin: 'https://a.example' });
    expect(other.status).toBe(403);
  });
});
