/** nginx with the configuration that weir prints for it. */

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import type { RequestParts } from '../../support/http.ts';
import { defineGatewayTests } from './gateway-cases.ts';
import { type Gateway, sendThrough } from './gateway-process.ts';
import { useGatewayStack } from './gateway-stack.ts';
import { realNginx } from './real-gateways.ts';

describe.skipIf(realNginx.isMissing)('nginx', () => {
  defineGatewayTests(realNginx);
});

const LIMIT = 3;

describe.skipIf(realNginx.isMissing).each(['allow', 'deny'] as const)(
  'a 403 of nginx itself with onError %s',
  (onError) => {
    const identify = 'header:x-api-key';
    const stack = useGatewayStack(realNginx, { denials: { limit: LIMIT, identify, onError } });
    const { directory } = stack;
    let gateway: Gateway;
    beforeAll(async () => {
      gateway = await stack.serve('denials', { edit: withDenials });
      await stack.firstResponse(gateway);
    });

    /** Adds copies of the printed location that deny requests by other directives. */
    function withDenials(text: string): string {
      const [location] = /^ {4}location \/ \{\n[\s\S]*?^ {4}\}\n/m.exec(text)!;
      const proxied = 'proxy_pass http://application;';
      const files = join(directory, 'root', 'files');
      mkdirSync(files, { recursive: true });
      writeFileSync(join(directory, 'users'), 'user:{PLAIN}secret\n');
      const basic = `auth_basic "b"; auth_basic_user_file ${join(directory, 'users')};`;
      const others = [
        ['/denied', `deny all; ${proxied}`],
        ['/reading', `limit_except POST { deny all; } ${proxied}`],
        ['/forbidden', 'return 403;'],
        ['/files', `root ${join(directory, 'root')};`],
        ['/basic', `${basic} ${proxied}`],
        ['/broken', `auth_basic "b"; auth_basic_user_file ${directory}; ${proxied}`],
        ['/any', `satisfy any; deny all; ${proxied}`],
      ].map(([path, text]) => location.replace('/ {', `${path} {`).replace(proxied, text));
      return text.replace(location, location + others.join(''));
    }

    function get(path: string, key: string, headers: RequestParts['headers'] = {}) {
      return sendThrough(gateway.port, { path, headers: { 'X-Api-Key': key, ...headers } });
    }

    test.each([
      ['by "deny all", before a check', '/denied', LIMIT],
      ['by "limit_except", before a check', '/reading', LIMIT],
      ['by "return 403", without a check', '/forbidden', LIMIT],
      ['for a directory, after weir has allowed the request', '/files/', LIMIT - 1],
    ])('%s stays a 403', async (_, path, remaining) => {
      const { status, headers, body } = await get(path, path);
      expect([status, headers['content-type']]).toEqual([403, 'text/html']);
      expect(body).toContain('403 Forbidden');
      expect(headers).not.toHaveProperty('retry-after');
      expect(headers).not.toHaveProperty('cache-control');
      const { headers: next } = await get('/', path);
      expect(next.ratelimit).toContain(`;r=${remaining - 1};`);
    });

    test('becomes a 429 only if weir has denied the request', async () => {
      // With "satisfy any" one of both rules is enough.
      expect((await get('/any', 'any')).status).toBe(200);
      for (let i = 0; i < LIMIT; i++) expect((await get('/', 'used')).status).toBe(200);
      const statuses = async (paths: string[]) => {
        return Promise.all(paths.map(async (path) => [path, (await get(path, 'used')).status]));
      };
      expect(await statuses(['/denied', '/reading', '/forbidden', '/files/', '/any'])).toEqual([
        ['/denied', 403],
        ['/reading', 403],
        ['/forbidden', 403],
        ['/files/', 429],
        ['/any', 429],
      ]);
      const denied = await get('/files/', 'used');
      expect(Number(denied.headers['retry-after'])).toBeGreaterThan(0);
      expect(denied.headers['content-type']).toBe('application/problem+json');
    });

    test('becomes a 401 with "auth_basic", and nginx checks with weir only after it', async () => {
      expect((await get('/basic', 'basic')).status).toBe(401);
      const Authorization = `Basic ${btoa('user:secret')}`;
      const { status, headers } = await get('/basic', 'basic', { Authorization });
      expect([status, headers.ratelimit]).toEqual([200, expect.stringContaining(';r=2;')]);
    });

    test('and a 500 of nginx itself deny the request', async () => {
      const Authorization = `Basic ${btoa('user:secret')}`;
      const before = stack.application.requests.length;
      const { status, headers } = await get('/broken', 'broken', { Authorization });
      expect([status, headers['retry-after']]).toEqual([onError === 'deny' ? 403 : 500, undefined]);
      expect(stack.application.requests).toHaveLength(before);
    });

    test('while weir is stopped becomes a 429 only if onError denies the request', async () => {
      await stack.weir.stop();
      const expected = onError === 'deny' ? 429 : 403;
      const { status, headers } = await get('/files/', 'stopped');
      expect([status, headers['retry-after']]).toEqual([
        expected,
        onError === 'deny' ? '1' : undefined,
      ]);
      expect((await get('/denied', 'stopped')).status).toBe(403);
    });
  },
);
