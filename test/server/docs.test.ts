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
