/** A session of a user whom a proxy has signed in. The test sends what the proxy would send. */

import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import {
  DASHBOARD_FAILED_SIGN_INS_PER_S,
  USER_NAME_MAX_CHARACTERS,
} from '../../../src/core/constants.ts';
import { DashboardClient, messageOf, sendToAdmin, signIn } from '../../support/dashboard.ts';
import { logRecords } from '../../support/log-records.ts';
import { sendUntilClosed } from '../../support/raw-connection.ts';
import { ROOT_KEY, removeDirectory, temporaryDirectory, waitUntil } from '../../support/server.ts';
import { useServer } from '../../support/test-server.ts';
import { callWeir } from '../../support/weir-command.ts';

const SECRET = randomBytes(32).toString('hex');
const USER = 'X-Forwarded-User';
const PROXY_SECRET = 'X-Weir-Proxy-Secret';
const ANN = 'ann@example.com';
const OPERATOR = 'o=1@ops.example.com';

const directory = temporaryDirectory();
const secretFile = join(directory, 'secret');
writeFileSync(secretFile, `${SECRET}\n`);
afterAll(() => removeDirectory(directory));

const server = useServer({
  env: {
    WEIR_DASHBOARD_USER_HEADER: USER,
    WEIR_DASHBOARD_PROXY_SECRET_FILE: secretFile,
    WEIR_DASHBOARD_USER_ROLES: `root@example.com=admin, ${OPERATOR} = operator`,
  },
});

const of = (user: string) => ({ [USER]: user, [PROXY_SECRET]: SECRET });
const asUser = (user: string) => DashboardClient.signInUser(server.adminUrl, of(user));
const send = (sent: Parameters<typeof sendToAdmin>[1]) => sendToAdmin(server.adminUrl, sent);
const state = (headers: Record<string, string>) => send({ path: '/dashboard/session', headers });
/** Repeats a request after a second with too many failed ones. */
async function untilAnswered<R extends { status: number }>(request: () => Promise<R>): Promise<R> {
  let response = await request();
  await waitUntil('sign-ins may fail again', async () => {
    if (response.status === 503) response = await request();
    return response.status !== 503;
  });
  return response;
}
/** A request that no client would send, on a connection of its own. */
const sendRaw = async (lines: string[], path = '/dashboard/session') => {
  const { host, port } = new URL(server.adminUrl);
  const head = [`GET ${path} HTTP/1.1`, `Host: ${host}`, 'Connection: close', ...lines];
  const { text, statuses } = await sendUntilClosed(
    Number(port),
    [`${head.join('\r\n')}\r\n\r\n`],
    5_000,
    1,
    1,
  );
  return { status: statuses[0], text };
};

describe('a user whom the proxy has signed in', () => {
  test('needs no key: the state names the user, and a POST of the page starts the session', async () => {
    const before = await state(of(ANN));
    expect(JSON.parse(before.text)).toMatchObject({ session: null, user: ANN });
    expect(before.headers['set-cookie']).toBeUndefined();
    const client = await asUser(ANN);
    expect(client.session.holder).toEqual({ user: ANN, role: 'viewer' });
    const current = await client.send({ path: '/dashboard/session' });
    expect(JSON.parse(current.text)).toMatchObject({ session: client.session, user: ANN });
    // The log may come later than the response.
    await expect
      .poll(() => logRecords(server, 'dashboard: signed in'))
      .toContainEqual(expect.objectContaining({ user: ANN, role: 'viewer' }));
  });

  test('starts a session from the own Origin with JSON only, as with a key', async () => {
    for (const [headers, status] of [
      [{ Origin: '' }, 403],
      [{ Origin: 'http://evil.example' }, 403],
      [{ 'Content-Type': 'text/plain' }, 415],
    ] as const) {
      const response = await signIn(server.adminUrl, undefined, { ...of(ANN), ...headers });
      expect([headers, response.status]).toEqual([headers, status]);
      expect(response.headers['set-cookie']).toBeUndefined();
    }
  });

  test('cannot sign in with a key: the proxy decides who it is', async () => {
    const response = await signIn(server.adminUrl, ROOT_KEY, of(ANN));
    expect([response.status, messageOf(response)]).toEqual([400, expect.stringContaining('"key"')]);
  });

  test('may do what the role permits, whose name is in the 403', async () => {
    const override = { namespaceName: 'api', identifier: 'abc', limit: 7, duration: 60_000 };
    await server.ok('ratelimits.setOverride', override);
    const check = { namespace: 'api', identifier: 'abc', limit: 1, duration: 60_000 };
    const viewer = await asUser(ANN);
    const operator = await asUser(OPERATOR);
    const admin = await asUser('root@example.com');
    const reads = ['ratelimits.listNamespaces', 'analytics.getNamespaces', 'audit.list'] as const;
    for (const name of reads) expect([name, (await viewer.call(name)).status]).toEqual([name, 200]);
    // An acceptor explains, and asks the main thread for the overrides.
    const explanation = await viewer.call('ratelimits.explain', check);
    expect([explanation.status, explanation.text]).toEqual([
      200,
      expect.stringContaining('"limit":7'),
    ]);
    for (const [client, name, fields, missing] of [
      [viewer, 'ratelimits.setOverride', override, 'the role "viewer" lacks the permission '],
      [viewer, 'ratelimits.limit', check, 'the role "viewer" lacks the permission '],
      [
        viewer,
        'ratelimits.reset',
        { namespaceName: 'api', identifier: 'abc' },
        'the role "viewer"',
      ],
      [viewer, 'keys.list', {}, 'the role "viewer" lacks the permission "keys.read"'],
      [operator, 'keys.create', { name: 'k', permissions: ['*'] }, 'the role "operator" lacks'],
      [operator, 'ratelimits.deleteNamespace', { namespaceName: 'api' }, 'the role "operator"'],
      [operator, 'ratelimits.limit', check, undefined],
      [operator, 'ratelimits.setOverride', { ...override, limit: 8 }, undefined],
      [admin, 'keys.create', { name: 'k', permissions: ['keys.read'] }, undefined],
    ] as const) {
      const response = await client.call(name, fields);
      const [status, text] = missing === undefined ? [200, ''] : [403, JSON.stringify(missing)];
      expect([name, response.status, response.text]).toEqual([
        name,
        status,
        expect.stringContaining(text.slice(1, -1)),
      ]);
    }
    const { entries } = await server.ok<{ entries: object[] }>('audit.list', { limit: 2 });
    expect(entries).toMatchObject([
      { action: 'key.create', keyId: null, by: 'user', user: 'root@example.com' },
      { action: 'override.update', keyId: null, by: 'user', user: OPERATOR },
    ]);
    const table = await callWeir(server.url, ['audit', 'list', '--limit', '2']);
    expect(table.stdout).toContain(` user ${OPERATOR} `);
    const logged = logRecords(server, 'audit').filter(({ user }) => user === OPERATOR);
    expect(logged).toMatchObject([{ action: 'override.update', by: 'user' }]);
  });

  test('changes nothing without the token of the session', async () => {
    const operator = await asUser(OPERATOR);
    const other = await asUser(OPERATOR);
    const body = JSON.stringify({
      namespaceName: 'api',
      identifier: 'abc',
      limit: 1,
      duration: 1e3,
    });
    for (const headers of [
      { 'X-Weir-Csrf': '' },
      { 'X-Weir-Csrf': other.session.csrfToken },
      { Origin: '' },
    ]) {
      const path = '/dashboard/api/ratelimits.setOverride';
      const response = await operator.send({ method: 'POST', path, body, headers });
      expect([headers, response.status]).toEqual([headers, 403]);
    }
  });

  test('gets snapshots of what the role may see', async () => {
    await server.check({ namespace: 'api', identifier: 'abc', limit: 9, duration: 60_000 });
    const events = await (await asUser(ANN)).openEvents();
    await waitUntil('the namespace is shown', () => {
      return JSON.stringify(events.events.at(-1)?.data.namespaces ?? '').includes('"api"');
    });
    events.close();
  });
});

describe('a session of a user', () => {
  test('is of no use without the proxy, and goes on', async () => {
    const client = await asUser(ANN);
    for (const path of ['/dashboard/api/audit.list', '/dashboard/events']) {
      const direct = await send({ path, headers: { Cookie: client.cookie } });
      const message = 'a user whom the proxy has signed in can use a session through it only';
      expect([path, direct.status, messageOf(direct)]).toEqual([path, 401, message]);
    }
    const none = await state({ Cookie: client.cookie });
    expect(JSON.parse(none.text)).toMatchObject({ session: null });
    expect((await client.call('audit.list')).status).toBe(200);
  });

  test('ends with its event stream when the proxy has signed in another user', async () => {
    const client = await asUser(ANN);
    const events = await client.openEvents();
    await events.next('snapshot');
    const headers = of('bob@example.com');
    const response = await client.send({ path: '/dashboard/api/audit.list', headers });
    const reason = 'the proxy has signed in another user';
    expect([response.status, messageOf(response)]).toEqual([401, reason]);
    await waitUntil('the stream ends', events.isEnded);
    expect(events.events.at(-1)).toEqual({ event: 'signed-out', data: { reason } });
    expect((await client.call('audit.list')).status).toBe(401);
  });

  test('of a key is not that of a user', async () => {
    const client = await DashboardClient.signIn(server.adminUrl);
    const headers = of('root@example.com');
    const response = await client.send({ path: '/dashboard/api/keys.list', headers });
    expect(response.status).toBe(401);
    expect((await client.call('keys.list')).status).toBe(401);
  });

  test('ends by a sign-out; the next sign-in needs no key either', async () => {
    const client = await asUser(ANN);
    const out = await client.send({ method: 'DELETE', path: '/dashboard/session' });
    expect(out.status).toBe(200);
    expect((await client.call('audit.list')).status).toBe(401);
    expect((await (await asUser(ANN)).call('audit.list')).status).toBe(200);
  });
});

describe('a request that does not come through the proxy', () => {
  test('is an ordinary one: a key signs in, and its text in a header does not', async () => {
    const client = await DashboardClient.signIn(server.adminUrl);
    expect(client.session.permissions).toEqual(['*']);
    expect((await client.call('keys.list')).status).toBe(200);
    const headers = { Authorization: `Bearer ${ROOT_KEY}` };
    const withHeader = await send({ path: '/dashboard/api/keys.list', headers });
    expect(withHeader.status).toBe(401);
  });

  test('is rejected where it has the user without the secret, or another secret', async () => {
    for (const [secret, message] of [
      ['', 'the header X-Weir-Proxy-Secret is missing: X-Forwarded-User requires it'],
      [SECRET.slice(1), 'the header X-Weir-Proxy-Secret must have the secret in the file of'],
      [`${SECRET}a`, 'the header X-Weir-Proxy-Secret must have the secret in the file of'],
      [SECRET.toUpperCase(), 'the header X-Weir-Proxy-Secret must have the secret in the file of'],
    ]) {
      const headers = { [USER]: 'root@example.com', [PROXY_SECRET]: secret };
      for (const path of ['session', 'events', 'api/keys.list']) {
        const response = await untilAnswered(() => {
          return send({ path: `/dashboard/${path}`, headers });
        });
        expect([response.status, messageOf(response)]).toEqual([
          403,
          expect.stringContaining(message),
        ]);
      }
      const started = await untilAnswered(() => signIn(server.adminUrl, undefined, headers));
      expect([started.status, started.headers['set-cookie']]).toEqual([403, undefined]);
    }
    expect(server.stderr()).not.toContain(SECRET.slice(1));
  });

  test('cannot send a header twice, in any case of letters, or by another name', async () => {
    const secret = `${PROXY_SECRET}: ${SECRET}`;
    const user = `${USER}: ${ANN}`;
    const twice = (name: string) => `the header ${name} must occur once; got several`;
    for (const [lines, status, message] of [
      [[secret, user], 200, `"user":"${ANN}"`],
      [[secret.toLowerCase(), user.toUpperCase()], 200, `"user":"${ANN.toUpperCase()}"`],
      [[secret, user, user], 400, twice(USER)],
      [[secret, user, 'x-FORWARDED-user: root@example.com'], 400, twice(USER)],
      [[secret, `${USER}:`, user], 400, twice(USER)],
      [[secret, secret, user], 400, twice(PROXY_SECRET)],
      [['X-Weir-Proxy-Secret: a', secret, user], 400, twice(PROXY_SECRET)],
      // Such a name is the same one to CGI, and another one here.
      [[secret, user, 'X_Forwarded_User: root@example.com'], 200, `"user":"${ANN}"`],
      [[user, secret.replaceAll('-', '_')], 403, 'is missing: X-Forwarded-User requires it'],
      [[secret], 403, 'the header X-Forwarded-User is missing: the proxy has signed in no user'],
      [[secret, `${USER} : ${ANN}`], 400, ''],
    ] as const) {
      const { status: received, text } = await untilAnswered(() => sendRaw([...lines]));
      expect([lines, received, text]).toEqual([lines, status, expect.stringContaining(message)]);
    }
  });

  test('cannot name a user that is empty, too long or not printable', async () => {
    const longest = 'a'.repeat(USER_NAME_MAX_CHARACTERS);
    for (const [name, status] of [
      [longest, 200],
      ['Ann Lee', 200],
      ['key_0', 200],
      ['', 400],
      ['   ', 400],
      [`${longest}a`, 400],
      ['a\tb', 400],
      ['a\u007fb', 400],
      ['\u00e4nn', 400],
      [Buffer.from('аnn').toString('latin1'), 400],
    ] as const) {
      const { status: received, text } = await untilAnswered(() => {
        return sendRaw([`${PROXY_SECRET}: ${SECRET}`, `${USER}: ${name}`]);
      });
      expect([name, received]).toEqual([name, status]);
      // Node itself rejects a control character.
      const rule = name.includes('\u007f') ? '' : 'the header X-Forwarded-User must be 1 to 128 ';
      if (status === 400) expect(text).toContain(rule);
    }
  });

  test('is counted as a failed sign-in: more than some in a second get a 503', async () => {
    const headers = { ...of(ANN), [PROXY_SECRET]: 'x' };
    const attempts = Array.from({ length: 3 * DASHBOARD_FAILED_SIGN_INS_PER_S }, () => {
      return [state(headers), state(of(ANN))] as const;
    });
    const failed = await Promise.all(attempts.map(([wrong]) => wrong));
    const valid = await Promise.all(attempts.map(([, right]) => right));
    expect(new Set(failed.map(({ status }) => status))).toEqual(new Set([403, 503]));
    expect(new Set(valid.map(({ status }) => status))).toEqual(new Set([200]));
  });
});
