/** The parts for CORS on the pages about gateways, added to what weir prints. */

import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { parse, stringify } from 'yaml';
import { blocksOf } from '../../support/markdown.ts';
import { freePort } from '../../support/server.ts';
import { newKey, sendThrough } from './gateway-process.ts';
import { atPort, useGatewayStack } from './gateway-stack.ts';
import {
  type RealGateway,
  realCaddy,
  realEnvoy,
  realExpress,
  realFastify,
  realHaproxy,
  realNginx,
  realTraefik,
} from './real-gateways.ts';

const ORIGIN = 'https://app.example';
const EXPOSED = ['RateLimit', 'RateLimit-Policy', 'Retry-After'];

/** The parts of the section about CORS on the page of a gateway. */
function partsOf(name: string): string[] {
  const page = readFileSync(new URL(`../../../docs/gateways/${name}.md`, import.meta.url), 'utf8');
  const [section] = page.split('\n## CORS\n')[1].split('\n## ');
  return blocksOf(section).flatMap((block) => (block.kind === 'fence' ? [block.text] : []));
}

interface TestedRecipe {
  gateway: RealGateway;
  /** Adds the parts to the printed text, as the page says. */
  add: (text: string, parts: string[]) => string;
  /** Whether the gateway answers preflights, and sends the headers with every response. */
  ownsCors?: boolean;
}

/** Adds the headers in the printed module, before the middleware that it exports. */
function middleware(gateway: RealGateway): TestedRecipe {
  return {
    gateway,
    // The test application uses only `limit`, so let that run the part first.
    add: (text, [part]) => {
      const handler = /^app\.\w+\((?:'onRequest', )?([\s\S]*)\);$/.exec(part)![1];
      const renamed = text.replace('export const limit', 'const check');
      return gateway.name === 'express'
        ? `${renamed}\nconst cors = ${handler};
           export const limit = (request, response, next) =>
             cors(request, response, () => check(request, response, next));\n`
        : `${renamed}\nconst cors = ${handler};
           export const limit = async (request, reply) => {
             await cors(request, reply);
             return check(request, reply);
           };\n`;
    },
  };
}

const traefik = await realTraefik();
const envoy = await realEnvoy();
const RECIPES: TestedRecipe[] = [
  {
    gateway: realNginx,
    add: (text, [http, server]) =>
      text.replace(/^http \{$/m, `$&\n${http}`).replace(/^ {2}server \{$/m, `$&\n${server}`),
  },
  {
    gateway: realCaddy,
    add: (text, [definition, site]) =>
      text
        .replace(/^:\d+ \{$/m, `${definition}\n$&\n${site}`)
        .replace('handle_errors {', '$&\nimport cors'),
  },
  {
    gateway: realHaproxy,
    add: (text, [part]) => text.replace(/^ *http-request lua\.weir$/m, `${part}\n$&`),
  },
  {
    gateway: traefik,
    ownsCors: true,
    add: (text, [part]) => {
      const file = parse(text);
      Object.assign(file.http.middlewares, parse(part));
      file.http.routers.application.middlewares.unshift('cors');
      return stringify(file);
    },
  },
  {
    gateway: envoy,
    ownsCors: true,
    add: (text, [filter, policy]) => {
      const file = parse(text);
      const [chain] = file.static_resources.listeners[0].filter_chains;
      const manager = chain.filters[0].typed_config;
      manager.http_filters.unshift(...parse(filter));
      Object.assign(manager.route_config.virtual_hosts[0], parse(policy));
      return stringify(file);
    },
  },
  middleware(realExpress),
  middleware(realFastify),
];

for (const { gateway, add, ownsCors = false } of RECIPES) {
  const { name } = gateway;
  describe.skipIf(gateway.isMissing)(name, () => {
    const stack = useGatewayStack(gateway, {
      pages: { limit: 1, identify: 'header:x-api-key', skip: ['preflight'], onError: 'deny' },
    });
    const edit = (text: string) => add(text, partsOf(name));
    const preflight = { Origin: ORIGIN, 'Access-Control-Request-Method': 'GET' };

    test('a page can read a 429, and its preflights use no tokens', async () => {
      const { port } = await stack.serve('pages', { edit });
      const headers = { ...newKey(), Origin: ORIGIN };
      const send = (path = '/', more: Record<string, string> = {}) =>
        sendThrough(port, { path, headers: { ...headers, ...more } });
      const sendPreflight = () =>
        sendThrough(port, { method: 'OPTIONS', headers: { ...headers, ...preflight } });
      await stack.firstResponse({ port, output: () => '', stop: async () => {} });
      for (let i = 0; i < 2; i++) expect((await sendPreflight()).status).toBe(200);
      // A browser rejects a repeated header.
      const own = await send('/cors');
      expect([own.status, own.headers['access-control-allow-origin']]).toEqual([200, ORIGIN]);
      const denied = await send();
      expect(denied.status).toBe(429);
      expect(denied.headers['access-control-allow-origin']).toBe(ORIGIN);
      const exposed = denied.headers['access-control-expose-headers'].split(/, ?/);
      expect(exposed).toEqual(EXPOSED);
      // Envoy sends none; no cache stores a 429 of weir.
      if (name !== 'envoy') expect(denied.headers.vary).toContain('Origin');
      expect(Number(denied.headers['retry-after'])).toBeGreaterThan(0);
      const other = await send('/', { Origin: 'https://other.example' });
      expect(other.status).toBe(429);
      expect(other.headers).not.toHaveProperty('access-control-allow-origin');
      const answer = await sendPreflight();
      expect(answer.status).toBe(200);
      if (ownsCors) expect(answer.headers['access-control-allow-origin']).toBe(ORIGIN);
    });

    test('a page can read the response while weir is down', async () => {
      const { port } = await stack.serve('pages', { edit, weir: atPort(await freePort()) });
      const { status, headers } = await sendThrough(port, { headers: { Origin: ORIGIN } });
      expect(status).toBe(name === 'traefik' ? 500 : 429);
      expect(headers['access-control-allow-origin']).toBe(ORIGIN);
    });
  });
}
