/** The URLs by which weir names itself: in its log, its links and on standard output. */

import { describe, expect, test } from 'vitest';
import { listenerUrls } from '../../src/runtime/listener-urls.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import { errorIn, sendRequest } from '../support/http.ts';
import { logRecords } from '../support/log-records.ts';
import { waitUntil } from '../support/server.ts';

const own = useDataDirectory(['--counters', '1024', '--acceptors', '1']);

describe('the URLs of a listener', () => {
  test('have the configured host, unless it means all addresses of the machine', () => {
    for (const [host, listening, local, client] of [
      ['127.0.0.1', '127.0.0.1', '127.0.0.1', '127.0.0.1'],
      ['weir.example', 'weir.example', 'weir.example', 'weir.example'],
      ['::1', '[::1]', '[::1]', '[::1]'],
      ['fe80::1%eth0', '[fe80::1%eth0]', '[fe80::1%eth0]', '[fe80::1%eth0]'],
      ['0.0.0.0', '0.0.0.0', '127.0.0.1', undefined],
      ['0', '0', '127.0.0.1', undefined],
      ['::', '[::]', '[::1]', undefined],
      ['0:0::0', '[0:0::0]', '[::1]', undefined],
    ] as const) {
      const url = (name: string | undefined) => name && `https://${name}:7070`;
      expect(listenerUrls('https', host, 7070)).toEqual({
        listenUrl: url(listening),
        localUrl: url(local),
        clientUrl: url(client),
      });
    }
  });

  test('have the public URL for clients, where one is set', () => {
    for (const [publicUrl, clientUrl] of [
      ['https://weir.example', 'https://weir.example'],
      ['HTTPS://Weir.Example:443/', 'https://weir.example'],
      ['http://weir:80/limits//', 'http://weir/limits'],
    ] as const) {
      expect(listenerUrls('http', '0.0.0.0', 1, publicUrl)).toEqual({
        listenUrl: 'http://0.0.0.0:1',
        localUrl: 'http://127.0.0.1:1',
        clientUrl,
      });
    }
  });
});

/** The documentation links in errors of both API versions. */
async function links(port: number): Promise<string[]> {
  const v1 = await sendRequest(port, { body: '{}' });
  const v2 = await sendRequest(port, { path: '/v2/ratelimit.limit', body: '{}' });
  return [errorIn(v1).docs, JSON.parse(v2.body).error.type];
}

const PATH = '/docs/errors/BAD_REQUEST';

describe('a server', () => {
  test.each([
    ['0.0.0.0', '127.0.0.1'],
    ['::', '[::1]'],
  ])('on %s does not point remote clients at 127.0.0.1', async (host, local) => {
    const server = await own.start({ args: ['--host', host], env: { WEIR_ROOT_KEY: undefined } });
    const { port } = server;
    const listening = `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
    const unauthorized = await sendRequest(port, { body: '{}' });
    expect(errorIn(unauthorized).docs).toBe('/docs/errors/UNAUTHORIZED');
    await waitUntil('the log has the line', () => logRecords(server, 'serving').length === 1);
    const [serving] = logRecords(server, 'serving');
    expect(serving).toMatchObject({ url: listening, listening, admin: server.adminUrl });
    expect(server.stdout()).toContain(
      `serves checks on ${listening} (from this machine: http://${local}:${port})`,
    );
    const [command] = server.stdout().match(/^curl .*$/m)!;
    expect(command).toContain(` http://${local}:${port}/`);
  });

  test('on a host name has links with that name', async () => {
    const server = await own.start({ args: ['--host', 'localhost'] });
    const url = `http://localhost:${server.port}`;
    expect(await links(server.port)).toEqual([url + PATH, url + PATH]);
    expect(server.stdout()).toContain(`serves checks on ${url}; `);
  });

  test('with a public URL uses it in links, log and message, and a local URL in the command', async () => {
    const env = { WEIR_PUBLIC_URL: 'https://weir.example/limits/', WEIR_ROOT_KEY: undefined };
    const server = await own.start({ args: ['--host', '0.0.0.0'], env });
    const url = 'https://weir.example/limits';
    const [, key] = /Bearer (\S+)'/.exec(server.stdout())!;
    const headers = { Authorization: `Bearer ${key}` };
    const v1 = await server.send({ headers, body: '{}' });
    const path = '/v2/ratelimit.limit';
    const v2 = await server.send({ path, headers, body: '{}' });
    expect([errorIn(v1).docs, JSON.parse(v2.body).error.type]).toEqual([url + PATH, url + PATH]);
    await waitUntil('the log has the line', () => logRecords(server, 'serving').length === 1);
    const listening = `http://0.0.0.0:${server.port}`;
    expect(logRecords(server, 'serving')).toMatchObject([{ url, listening }]);
    const local = `http://127.0.0.1:${server.port}`;
    expect(server.stdout()).toContain(`serves checks on ${url} (from this machine: ${local})`);
    expect(server.stdout()).toContain(`\ncurl -s ${local}/`);
  });

  test('on free ports names the ports that it got, also that of the admin port', async () => {
    const server = await own.start({ args: ['--port', '0', '--admin-port', '0'] });
    await waitUntil('the log has the line', () => logRecords(server, 'serving').length === 1);
    const [{ url, admin }] = logRecords(server, 'serving');
    expect(server.stdout()).toBe(`weir serves checks on ${url}; health and metrics on ${admin}\n`);
    expect((await fetch(`${admin}/readyz`)).status).toBe(200);
    expect((await fetch(`${url}${PATH}`)).status).toBe(200);
  });
});
