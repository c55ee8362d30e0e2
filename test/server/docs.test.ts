/** The pages of the documentation over HTTP: headers, and requests of clients that have a page. */

import { cpSync, renameSync, rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { exchange } from '../support/http.ts';
import { removeDirectory, startServer, temporaryDirectory } from '../support/server.ts';
import { SMALL, useServer } from '../support/test-server.ts';

const HTML = 'text/html; charset=utf-8';
const PAGES: [path: string, contentType: string][] = [
  ['/docs', HTML],
  ['/docs/errors/NOT_FOUND', HTML],
  ['/docs/style.css', 'text/css; charset=utf-8'],
  ['/docs/icon.svg', 'image/svg+xml'],
  ['/openapi.json', 'application/json'],
];

describe('pages of the documentation', () => {
  const server = useServer();

  test.each(PAGES)('%s allows no script, no frame and no other origin', async (path, type) => {
    const response = await fetch(server.url + path);
    expect(response.status).toBe(200);
    expect(Object.fromEntries(response.headers)).toMatchObject({
      'content-type': type,
      'cache-control': 'no-cache',
      'content-security-policy':
        "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; " +
        "form-action 'none'; frame-ancestors 'none'",
      'cross-origin-resource-policy': 'same-origin',
      'referrer-policy': 'no-referrer',
      'x-content-type-options': 'nosniff',
    });
    expect((await response.arrayBuffer()).byteLength).toBeGreaterThan(0);
  });

  test.each(PAGES)('%s is sent again only after a change', async (path) => {
    const etag = (await fetch(server.url + path, { method: 'HEAD' })).headers.get('etag')!;
    expect(etag).toMatch(/^"[\w-]{22}"$/);
    for (const method of ['GET', 'HEAD']) {
      for (const condition of [etag, `W/${etag}`, `"other", ${etag}`, '*']) {
        const headers = { 'If-None-Match': condition };
        const response = await fetch(server.url + path, { method, headers });
        expect([condition, response.status, await response.text()]).toEqual([condition, 304, '']);
        expect(response.headers.get('etag')).toBe(etag);
      }
      const headers = { 'If-None-Match': '"other"' };
      const response = await fetch(server.url + path, { method, headers });
      expect((await response.text()).length > 0).toBe(method === 'GET');
      expect(response.status).toBe(200);
    }
  });

  const EXAMPLE = 'http://127.0.0.1:7070';
  /** The base URLs that a page shows to a client with this header, and the response. */
  const shownTo = async (host: string, path = '/docs', port = server.port) => {
    const text = `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n\r\n`;
    const [response] = await exchange(port, [Buffer.from(text)], 1);
    const urls = [
      ...response.body.matchAll(/\bhttps?:\/\/[^\s"'&<]+?(?=\/(?:v[12]|docs\/errors)\/)/g),
    ];
    return { urls: [...new Set(urls.map(([url]) => url))], count: urls.length, ...response };
  };

  test('a page shows the address by which the client reaches the server', async () => {
    for (const path of ['/docs', '/docs/errors/NOT_FOUND', '/openapi.json']) {
      const { urls, count, headers } = await shownTo(`127.0.0.1:${server.port}`, path);
      expect([path, urls]).toEqual([path, [server.url]]);
      expect(count).toBeGreaterThan(path === '/docs' ? 200 : 1);
      expect(headers.vary).toBe('Host');
      for (const host of ['weir', 'weir.example:8443', '[::1]:80', '10.0.0.7', 'A_b-c.d']) {
        expect([host, (await shownTo(host, path)).urls]).toEqual([host, [`http://${host}`]]);
      }
    }
    const { body } = await shownTo('weir.example:80', '/openapi.json');
    expect(JSON.parse(body).servers).toMatchObject([
      { url: '/' },
      { url: 'http://weir.example:80' },
    ]);
    expect((await shownTo('weir.example:80')).body).not.toContain(EXAMPLE);
  });

  test('a header Host that is no address is not shown', async () => {
    for (const host of [
      ...[
        '',
        'a/b',
        'a"><script>',
        "a'b",
        'a&b',
        'a b',
        'a@b',
        'a:b',
        'a:99999',
        'a:80:80',
        '[::1',
      ],
      ...[
        '[::g]',
        '1.2.3.999',
        '-a',
        '.',
        `${'a'.repeat(300)}`,
        'a$(b)',
        'a`b`',
        'é',
        'a%2fb',
        '<',
      ],
    ]) {
      const { status, urls, body } = await shownTo(host);
      expect([host, status, urls]).toEqual([host, 200, [server.url]]);
      expect(body).not.toContain('<script');
    }
  });

  test('every header Host has an entity tag of its own, and its responses are whole', async () => {
    const tags = new Set<string>();
    for (let i = 0; i < 100; i++) {
      const { headers, body } = await shownTo(`host-${i % 50}.example`);
      tags.add(headers.etag);
      expect(Buffer.byteLength(body)).toBe(Number(headers['content-length']));
      expect(body.endsWith('</html>\n')).toBe(true);
    }
    expect(tags.size).toBe(50);
    // Files without a URL are the same for all.
    const [one, other] = [
      await shownTo('a', '/docs/style.css'),
      await shownTo('b', '/docs/style.css'),
    ];
    expect(one.headers.etag).toBe(other.headers.etag);
  });

  test('WEIR_PUBLIC_URL has precedence over the header, in characters that need no escape', async () => {
    const directory = temporaryDirectory();
    const env = { WEIR_PUBLIC_URL: `https://Weir.Example/a"b'c&d<e/` };
    const other = await startServer(join(directory, 'data'), { env, args: SMALL });
    for (const path of ['/docs', '/openapi.json']) {
      const { urls, headers } = await shownTo('weir', path, other.port);
      expect(urls).toEqual(['https://weir.example/a%22b%27c%26d%3Ce']);
      expect(headers.vary).toBe('Host');
    }
    await other.stop();
    removeDirectory(directory);
  });

  test('a slash at the end of /docs redirects to the page, also behind a path prefix', async () => {
    for (const method of ['GET', 'HEAD']) {
      const response = await fetch(`${server.url}/docs/`, { method, redirect: 'manual' });
      const location = response.headers.get('location')!;
      expect(response.status).toBe(308);
      expect(await response.text()).toBe(
        method === 'GET' ? 'The API reference is at ../docs\n' : '',
      );
      expect(new URL(location, 'https://proxy/weir/docs/').href).toBe('https://proxy/weir/docs');
      expect((await fetch(`${server.url}/docs/`, { method })).url).toBe(`${server.url}/docs`);
    }
    const { status, headers } = await fetch(`${server.url}/docs/`, { method: 'POST' });
    expect([status, headers.get('allow')]).toEqual([405, 'GET, HEAD']);
  });

  test('a connection stays usable after a 304', async () => {
    const { headers, body } = (await exchange(server.port, [request('')], 1))[0];
    const known = request(`If-None-Match: ${headers.etag}\r\n`);
    const requests = [known, request(''), known, known, request('')];
    // The parser of the tests reads a response to HEAD as one without a body.
    const methods = ['HEAD', 'GET', 'HEAD', 'HEAD', 'GET'];
    for (const packets of [requests, [Buffer.concat(requests)]]) {
      const isSequential = packets.length > 1;
      const responses = await exchange(server.port, packets, 5, isSequential, methods);
      expect(responses.map(({ status }) => status)).toEqual([304, 200, 304, 304, 200]);
      expect(responses[4].body).toBe(body);
    }
  });
  test('missing files are errors of their pages, and nothing else fails', async () => {
    const copy = temporaryDirectory();
    const root = new URL('../../', import.meta.url).pathname;
    for (const name of ['dist', 'docs', 'package.json']) {
      cpSync(join(root, name), join(copy, name), { recursive: true });
    }
    symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
    rmSync(join(copy, 'docs/openapi.json'));
    const main = join(copy, 'dist/cli.js');
    const incomplete = await startServer(join(copy, 'data'), { main, args: SMALL });
    const statusOf = async (path: string) => {
      const signal = AbortSignal.timeout(5_000);
      return (await fetch(incomplete.url + path, { signal })).status;
    };
    expect(await statusOf('/openapi.json')).toBe(500);
    expect(await statusOf('/docs')).toBe(200);
    // Without it the server does not know where the pages are.
    renameSync(join(copy, 'package.json'), join(copy, 'other.json'));
    expect(await statusOf('/docs/errors/NOT_FOUND')).toBe(500);
    expect(await statusOf('/docs')).toBe(200);
    expect(await statusOf('/no')).toBe(404);
    await incomplete.stop();
    removeDirectory(copy);
  });
});

function request(header: string): Buffer {
  return Buffer.from(`GET /docs/errors/NOT_FOUND HTTP/1.1\r\nHost: a\r\n${header}\r\n`);
}
