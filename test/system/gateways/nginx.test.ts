/** nginx with the configuration that weir prints for it. */

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { nginxSnippet } from '../../../src/commands/gateways/nginx.ts';
import type { GatewaySetup } from '../../../src/commands/gateways/setup.ts';
import { CERTIFICATE_A } from '../../support/certificates.ts';
import { exchange, type ParsedResponse, type RequestParts } from '../../support/http.ts';
import { freePort } from '../../support/server.ts';
import { defineGatewayTests } from './gateway-cases.ts';
import {
  type Gateway,
  newKey,
  sendThrough,
  startApplication,
  statusesOf,
} from './gateway-process.ts';
import { nginxSite } from './gateway-sites.ts';
import { atPort, useGatewayStack } from './gateway-stack.ts';
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

const HEADERS_OF_SITE = {
  'strict-transport-security': 'max-age=31536000',
  'access-control-allow-origin': 'https://app.example',
};
const LINES_OF_SITE = Object.entries(HEADERS_OF_SITE)
  .map(([name, value]) => `add_header ${name} "${value}" always;`)
  .join(' ');

describe.skipIf(realNginx.isMissing)('add_header lines of the server', () => {
  const identify = 'header:x-api-key';
  const stack = useGatewayStack(realNginx, {
    open: { limit: 1, identify },
    closed: { limit: 1, identify, onError: 'deny' },
  });
  const inServer = (text: string) => {
    return text.replace(/^ *server \{$/m, `$&\n${LINES_OF_SITE} types { text/html html; }`);
  };
  const quotaHeaders = ({ headers }: ParsedResponse) => {
    const names = ['ratelimit-policy', 'ratelimit', 'retry-after', 'cache-control'];
    return names.filter((name) => name in headers);
  };

  test.each([
    ['complete', inServer, undefined],
    [
      'added to a site',
      (text: string, { listen }: GatewaySetup) => {
        const { port } = stack.application;
        return inServer(nginxSite(text, { listen: listen.port, application: port }));
      },
      nginxSnippet,
    ],
  ])('survive in the text, %s', async (_name, edit, print = realNginx.print) => {
    const options = { print, edit };
    const gateway = await stack.serve({ closed: '/login' }, options);
    await stack.firstResponse(gateway, '/login');
    const headers = newKey();
    const send = (path: string) => sendThrough(gateway.port, { path, headers });
    const allowed = await send('/login');
    const denied = [await send('/login'), await send('/login/page.html')];
    const others = [await send('/'), await send('/404')];
    const withoutWeir = await stack.serve(
      { closed: '/login' },
      { ...options, weir: atPort(await freePort()) },
    );
    const failed = await sendThrough(withoutWeir.port, { path: '/login' });
    const all = [allowed, ...denied, ...others, failed];
    expect(statusesOf(all)).toEqual([200, 429, 429, 200, 404, 429]);
    for (const { headers } of all) expect(headers).toMatchObject(HEADERS_OF_SITE);
    expect(quotaHeaders(allowed)).toEqual(['ratelimit-policy', 'ratelimit']);
    for (const response of denied) {
      expect(response.headers['content-type']).toBe('application/problem+json');
      expect(response.headers['cache-control']).toBe('no-store');
      expect(quotaHeaders(response)).toHaveLength(4);
    }
    for (const response of others) expect(quotaHeaders(response)).toEqual([]);
    expect(quotaHeaders(failed)).toEqual(['retry-after', 'cache-control']);
  });

  test('survive in a request that onError allows, and in a 403 of nginx itself', async () => {
    const gateway = await stack.serve('open', {
      weir: atPort(await freePort()),
      edit: (text) => inServer(text).replace('location / {', 'location /denied { deny all; }\n$&'),
    });
    for (const [path, status] of [
      ['/', 200],
      ['/denied', 403],
    ] as const) {
      const response = await sendThrough(gateway.port, { path });
      expect(response.status).toBe(status);
      expect(response.headers).toMatchObject(HEADERS_OF_SITE);
      expect(quotaHeaders(response)).toEqual([]);
    }
  });
});

describe.skipIf(realNginx.isMissing)('the Host of a request without the header', () => {
  const stack = useGatewayStack(realNginx, { open: { limit: 100 } });
  const { directory } = stack;

  /** Over HTTP/3 too, $http_host is empty and $host has the name. */
  test.each([
    ['is the name that nginx knows', 'server_name shop.example;', 'shop.example'],
    ['is that of the upstream if nginx knows none', '', 'application'],
  ])('%s', async (_name, line, expected) => {
    const gateway = await stack.serve('open', {
      edit: (text) => text.replace(/^ *listen .*$/m, `$&\n${line}`),
    });
    await exchange(gateway.port, [Buffer.from('GET /old HTTP/1.0\r\n\r\n')]);
    expect(stack.application.requests.at(-1)).toMatchObject({
      url: '/old',
      headers: { host: expected },
    });
  });

  test('is X-Forwarded-Host for an application over TLS', async () => {
    const application = await startApplication({ tls: CERTIFICATE_A });
    stack.stops.push(application.stop);
    const caFile = join(directory, 'ca.pem');
    writeFileSync(caFile, CERTIFICATE_A.cert);
    const gateway = await stack.serve('open', {
      upstream: { isHttps: true, host: 'localhost', port: application.port },
      edit: (text) => {
        return realNginx
          .trust(text, caFile)
          .replace(/^ *listen .*$/m, '$&\nserver_name shop.example;');
      },
    });
    await exchange(gateway.port, [Buffer.from('GET /old HTTP/1.0\r\n\r\n')]);
    expect(application.requests.at(-1)?.headers['x-forwarded-host']).toBe('shop.example');
  });
});
