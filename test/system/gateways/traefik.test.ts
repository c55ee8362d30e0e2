/** A real Traefik with the file that weir prints for it. */

import { describe, expect, test } from 'vitest';
import { traefikSnippet } from '../../../src/commands/gateways/traefik.ts';
import { defineGatewayTests } from './gateway-cases.ts';
import { newKey, sendSequentially, statusesOf } from './gateway-process.ts';
import { useGatewayStack } from './gateway-stack.ts';
import { realTraefik } from './real-gateways.ts';

const traefik = await realTraefik();

describe.skipIf(traefik.isMissing)('Traefik', () => {
  defineGatewayTests(traefik);

  describe('with other forms of the file', () => {
    const identify = 'header:x-api-key';
    const stack = useGatewayStack(traefik, {
      keys: { limit: 3, identify },
      others: { limit: 3, identify },
    });

    test('with several policies in one text, the longest prefix selects one', async () => {
      const gateway = await stack.serve({ others: '/', keys: '/keys' });
      const headers = newKey();
      const paths = ['/keys', '/./keys/a', '//keys', '/other', '/%6beys'];
      const responses = await sendSequentially(
        gateway.port,
        paths.map((path) => ({ path, headers })),
      );
      expect(statusesOf(responses)).toEqual([200, 200, 200, 200, 429]);
      const policies = responses.map((response) => response.headers['ratelimit-policy']);
      expect(policies.map((text) => text.split(';', 1)[0])).toEqual([
        ...['"keys"', '"keys"', '"keys"', '"others"', '"keys"'],
      ]);
    });

    test('the snippet protects the router to which its middlewares are added', async () => {
      const site = [
        '  routers:',
        '    login:',
        '      rule: PathPrefix(`/login`)',
        '      middlewares: [weir-before, weir]',
        '      service: shop',
        '    others:',
        '      rule: PathPrefix(`/`)',
        '      service: shop',
        '  services:',
        '    shop:',
        `      loadBalancer: { servers: [{ url: "http://127.0.0.1:${stack.application.port}" }] }`,
      ];
      const merged = await stack.serve(
        { keys: '/login' },
        { print: traefikSnippet, edit: (text) => `${text.trimEnd()}\n${site.join('\n')}\n` },
      );
      const headers = newKey();
      const all = Array.from({ length: 4 }, () => ({ path: '/login', headers }));
      const responses = await sendSequentially(merged.port, [...all, { path: '/', headers }]);
      expect(statusesOf(responses)).toEqual([200, 200, 200, 429, 200]);
    });
  });
});
