/**
 * Users of the dashboard whom a proxy has signed in: nginx with passwords, and the examples of
 * docs/dashboard.md with nginx, Caddy and a server in place of oauth2-proxy.
 */

import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { DashboardClient, messageOf, sendToAdmin, signIn } from '../../support/dashboard.ts';
import { listen } from '../../support/http.ts';
import { blocksOf } from '../../support/markdown.ts';
import { freePort, ROOT_KEY, removeDirectory, waitUntil } from '../../support/server.ts';
import { useServer } from '../../support/test-server.ts';
import { callWeir } from '../../support/weir-command.ts';
import { type Gateway, startGateway } from './gateway-process.ts';
import { realCaddy, realNginx } from './real-gateways.ts';
import {
  basicAuth,
  PROXY_SECRET,
  proxySettings,
  startBasicAuth,
  startNginx,
} from './sign-in-proxies.ts';

const VIEWER = 'vic';
const OPERATOR = 'olga@example.com';
const OVERRIDE = { namespaceName: 'api', identifier: 'user_1', limit: 5, duration: 60_000 };
const SESSION = '/dashboard/session';

const settings = proxySettings(`${OPERATOR}=operator`);
afterAll(() => removeDirectory(settings.directory));

describe.skipIf(realNginx.isMissing)('nginx with passwords in front of the dashboard', () => {
  const server = useServer({ env: settings.env });
  let proxy: Gateway;
  let url: string;
  beforeAll(async () => {
    // The workers of nginx run as another user.
    chmodSync(settings.directory, 0o755);
    await server.ok('ratelimits.setOverride', { ...OVERRIDE, limit: 1 });
    proxy = await startBasicAuth(server.adminUrl, [VIEWER, OPERATOR], settings.directory);
    url = `http://127.0.0.1:${proxy.port}`;
  });
  afterAll(() => proxy?.stop());
  const as = (user: string) => DashboardClient.signInUser(url, basicAuth(user));

  test('a viewer sees and changes nothing; the 403 names the role', async () => {
    const viewer = await as(VIEWER);
    expect(viewer.session.holder).toEqual({ user: VIEWER, role: 'viewer' });
    const listed = await viewer.call('ratelimits.listOverrides', { namespaceName: 'api' });
    expect(JSON.parse(listed.text).overrides).toMatchObject([{ identifier: 'user_1', limit: 1 }]);
    const events = await viewer.openEvents();
    await events.next('snapshot');
    events.close();
    const check = { namespace: 'api', identifier: 'user_1', limit: 1, duration: 60_000 };
    for (const [name, fields] of [
      ['ratelimits.setOverride', OVERRIDE],
      ['ratelimits.deleteOverride', OVERRIDE],
      ['ratelimits.importOverrides', { overrides: [OVERRIDE] }],
      ['ratelimits.deleteNamespace', { namespaceName: 'api' }],
      ['ratelimits.reset', { namespaceName: 'api', identifier: 'user_1' }],
      ['ratelimits.limit', check],
      ['keys.create', { name: 'k', permissions: ['read_audit'] }],
      ['keys.revoke', { keyId: 'key_0' }],
    ] as const) {
      const response = await viewer.call(name, fields);
      const message = expect.stringContaining('the role "viewer" lacks the permission "');
      expect([name, response.status, messageOf(response)]).toEqual([name, 403, message]);
    }
  });

  test('an operator sets an override, and the audit log names the user', async () => {
    const operator = await as(OPERATOR);
    const set = await operator.call('ratelimits.setOverride', OVERRIDE);
    expect(set.status).toBe(200);
    const { entries } = await server.ok<{ entries: object[] }>('audit.list', { limit: 1 });
    const entry = { action: 'override.update', keyId: null, by: 'user', user: OPERATOR };
    expect(entries).toMatchObject([{ ...entry, before: { limit: 1 }, after: { limit: 5 } }]);
    const { stdout } = await callWeir(server.url, ['audit', 'list', '--limit', '1']);
    expect(stdout).toMatch(/ user olga@example\.com +api "user_1" +limit: 1 -> 5\n$/);
    for (const headers of [{ 'X-Weir-Csrf': '' }, { Origin: '' }, { Origin: server.adminUrl }]) {
      const path = '/dashboard/api/ratelimits.setOverride';
      const body = JSON.stringify({ ...OVERRIDE, limit: 9 });
      const forged = await operator.send({ method: 'POST', path, body, headers });
      expect([headers, forged.status]).toEqual([headers, 403]);
    }
  });

  test('a user cannot send the headers of the proxy, whatever their names look like', async () => {
    for (const forged of [
      { 'X-Forwarded-User': OPERATOR },
      { 'x-forwarded-user': OPERATOR, 'X-WEIR-PROXY-SECRET': PROXY_SECRET },
      { X_Forwarded_User: OPERATOR },
      { 'X-Forwarded-User': '', 'X-Weir-Proxy-Secret': '' },
    ]) {
      const headers = { ...basicAuth(VIEWER), ...(forged as Record<string, string>) };
      const response = await sendToAdmin(url, { path: SESSION, headers });
      expect([forged, JSON.parse(response.text)]).toMatchObject([forged, { user: VIEWER }]);
    }
  });

  test('another user ends the session that the browser has, with its event stream', async () => {
    const viewer = await as(VIEWER);
    const events = await viewer.openEvents();
    await events.next('snapshot');
    const switched = await viewer.send({ path: SESSION, headers: basicAuth(OPERATOR) });
    expect(JSON.parse(switched.text)).toMatchObject({ session: null, user: OPERATOR });
    await waitUntil('the stream ends', events.isEnded);
    const data = { reason: 'the proxy has signed in another user' };
    expect(events.events.at(-1)).toEqual({ event: 'signed-out', data });
    expect((await viewer.call('audit.list')).status).toBe(401);
  });

  test('a cookie is of no use at the port itself, nor to another user', async () => {
    const operator = await as(OPERATOR);
    const path = '/dashboard/api/ratelimits.setOverride';
    const body = JSON.stringify({ ...OVERRIDE, limit: 99 });
    const own = { Host: new URL(url).host, Origin: url, 'Content-Type': 'application/json' };
    const { cookie, session } = operator;
    const stolen = { ...own, Cookie: cookie, 'X-Weir-Csrf': session.csrfToken };
    const post = { method: 'POST', path, body };
    const direct = await sendToAdmin(server.adminUrl, { ...post, headers: stolen });
    expect([direct.status, messageOf(direct)]).toEqual([
      401,
      'a user whom the proxy has signed in can use a session through it only',
    ]);
    const wrong = { ...stolen, 'X-Forwarded-User': OPERATOR, 'X-Weir-Proxy-Secret': 'guessed' };
    expect((await sendToAdmin(server.adminUrl, { ...post, headers: wrong })).status).toBe(403);
    const other = await operator.send({ ...post, headers: basicAuth(VIEWER) });
    expect(other.status).toBe(401);
    const listed = await server.ok('ratelimits.listOverrides', { namespaceName: 'api' });
    expect(JSON.stringify(listed)).not.toContain('"limit":99');
  });

  test('a key signs in at the port itself, and not through the proxy', async () => {
    expect((await signIn(server.adminUrl, ROOT_KEY)).status).toBe(200);
    expect((await signIn(url, ROOT_KEY, basicAuth(OPERATOR))).status).toBe(400);
    expect((await sendToAdmin(url, { path: SESSION })).status).toBe(401);
  });
});

/** Whom the server signs in without a name. */
const NOBODY = 'nobody';
const USERS = Object.fromEntries(
  [VIEWER, OPERATOR, NOBODY].map((user) => [user, basicAuth(user).Authorization]),
);

/** An example of the page. */
function exampleOf(language: string): string {
  const page = readFileSync(new URL('../../../docs/dashboard.md', import.meta.url), 'utf8');
  const found = blocksOf(page).find((block) => {
    return block.kind === 'fence' && block.language === language;
  });
  if (found?.kind !== 'fence') throw new Error(`docs/dashboard.md has no example in ${language}`);
  return found.text;
}

interface ExampleProxy {
  name: string;
  isMissing: boolean;
  start: (ports: { port: number; admin: string; auth: number }) => Promise<Gateway>;
}

const EXAMPLES: ExampleProxy[] = [
  {
    name: 'nginx',
    isMissing: realNginx.isMissing,
    start: ({ port, admin, auth }) => {
      const secret = join(settings.directory, 'weir-proxy-secret.conf');
      writeFileSync(secret, `proxy_set_header X-Weir-Proxy-Secret ${PROXY_SECRET};\n`);
      const example = exampleOf('nginx')
        .replace('listen 443 ssl;', `listen 127.0.0.1:${port};`)
        .replace(/ +ssl_certificate.*\n/g, '')
        .replace('/etc/nginx/weir-proxy-secret.conf', secret)
        .replaceAll('127.0.0.1:7071', admin)
        .replaceAll('127.0.0.1:4180', `127.0.0.1:${auth}`);
      return startNginx(example, port);
    },
  },
  {
    name: 'Caddy',
    isMissing: realCaddy.isMissing,
    start: ({ port, admin, auth }) => {
      const example = exampleOf('caddyfile')
        .replace('weir.example {', `http://weir.example:${port} {`)
        .replaceAll('127.0.0.1:7071', admin)
        .replaceAll('127.0.0.1:4180', `127.0.0.1:${auth}`);
      return startGateway({
        configuration: `{\n\tadmin off\n\tauto_https off\n}\n${example}`,
        fileName: 'Caddyfile',
        port,
        command: (path) => ['caddy', 'run', '--config', path, '--adapter', 'caddyfile'],
        env: { WEIR_PROXY_SECRET: PROXY_SECRET },
      });
    },
  },
];

describe.each(EXAMPLES)('the example of the page with $name', ({ isMissing, start }) => {
  describe.skipIf(isMissing)('and a server in place of oauth2-proxy', () => {
    const server = useServer({ env: { ...settings.env, WEIR_ADMIN_HOSTS: 'weir.example' } });
    /** Knows users by a header, and sends their name as oauth2-proxy does. */
    const auth = createServer(({ url = '', headers: { authorization } }, res) => {
      const user = Object.keys(USERS).find((name) => USERS[name] === authorization);
      if (!url.startsWith('/oauth2/auth')) res.end('the page to sign in');
      else if (user === undefined) res.writeHead(401).end();
      else res.writeHead(202, user === NOBODY ? {} : { 'X-Auth-Request-Email': user }).end();
    });
    let proxy: Gateway;
    let url: string;
    let own: Record<string, string>;
    beforeAll(async () => {
      chmodSync(settings.directory, 0o755);
      const { host: admin } = new URL(server.adminUrl);
      const port = await freePort();
      proxy = await start({ port, admin, auth: await listen(auth) });
      url = `http://127.0.0.1:${port}`;
      const Host = `weir.example:${port}`;
      own = { Host, Origin: `http://${Host}` };
    });
    afterAll(async () => {
      await proxy?.stop();
      auth.closeAllConnections();
      auth.close();
    });
    const headersOf = (user: string) => ({ ...own, ...basicAuth(user) });
    const get = (path: string, headers: Record<string, string>) => {
      return sendToAdmin(url, { path, headers: { ...headers, Host: own.Host, Origin: '' } });
    };

    test('leads a page to the sign-in, and answers other requests with a 401', async () => {
      const page = await get('/', { Accept: 'text/html,*/*;q=0.8' });
      expect([page.status, page.headers.location]).toEqual([302, expect.any(String)]);
      expect(page.headers.location).toMatch(/\/oauth2\/sign_in\?rd=\/$/);
      expect((await get(SESSION, { Accept: '*/*' })).status).toBe(401);
      expect((await get('/oauth2/sign_in', {})).text).toBe('the page to sign in');
    });

    test('signs in users, and replaces the headers of clients', async () => {
      const forged = { 'X-Forwarded-User': 'root', 'X-Weir-Proxy-Secret': 'guessed' };
      const { text } = await get(SESSION, { ...basicAuth(VIEWER), ...forged });
      expect(JSON.parse(text)).toMatchObject({ session: null, user: VIEWER });
      const { session } = await DashboardClient.signInUser(url, headersOf(OPERATOR));
      expect(session.holder).toEqual({ user: OPERATOR, role: 'operator' });
      // A client asks the proxy to remove its headers, as those of one connection.
      for (const removed of ['X-Forwarded-User', 'X-Weir-Proxy-Secret']) {
        const headers = { ...basicAuth(VIEWER), ...forged, Connection: `close, ${removed}` };
        const { status, text } = await get(SESSION, headers);
        expect([removed, status, text]).toEqual([
          removed,
          expect.any(Number),
          expect.stringMatching(status === 200 ? `"user":"${VIEWER}"` : ' is missing: '),
        ]);
      }
      // Where the server names nobody, Caddy 2.6 sends a name of its own.
      const nobody = await get(SESSION, { ...basicAuth(NOBODY), ...forged });
      expect(nobody.text).toMatch(/"user":"\{http\.|the header X-Forwarded-User is missing/);
    });

    test('does not buffer the events', async () => {
      const client = await DashboardClient.signInUser(url, headersOf(VIEWER));
      const events = await client.openEvents();
      await events.next('snapshot');
      await events.next('snapshot');
      events.close();
    });
  });
});
