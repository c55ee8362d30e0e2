/**
 * The gateway configurations of the examples, as `weir gateway` prints them for a server with the
 * configuration file of the example.
 */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { envoy } from '../../src/commands/gateways/envoy.ts';
import { envoyRls } from '../../src/commands/gateways/envoy-rls.ts';
import { nginx } from '../../src/commands/gateways/nginx.ts';
import { express, fastify } from '../../src/commands/gateways/node-client.ts';
import type { GatewaySetup, RlsSetup } from '../../src/commands/gateways/setup.ts';
import { readPolicies } from '../../src/policies/policy.ts';
import type { Generated } from './generator.ts';

const ADDRESS = '127.0.0.1';
/** The defaults of `weir gateway`. */
const LISTEN_PORT = 8080;
const UPSTREAM_PORT = 3000;

const RLS_SETUP: RlsSetup = {
  domain: 'api',
  service: { host: ADDRESS, port: 8081 },
  onError: 'allow',
  listen: { host: ADDRESS, port: LISTEN_PORT },
  upstream: { host: ADDRESS, port: UPSTREAM_PORT },
};

export const gatewayExamples: Generated['files'] = {
  'examples/nginx/nginx.conf': (root) => nginx(setupOf(root, 'nginx', ['/', '/login'])),
  'examples/envoy/envoy.yaml': (root) => envoy(setupOf(root, 'envoy')),
  'examples/envoy-rls/envoy.yaml': () => envoyRls(RLS_SETUP),
  'examples/express/weir.mjs': (root) => express(setupOf(root, 'express')),
  'examples/fastify/weir.mjs': (root) => fastify(setupOf(root, 'fastify')),
};

/**
 * @param root the directory of the repository
 * @param prefixes the paths that each policy of the file protects
 */
function setupOf(root: string, name: string, prefixes = ['/']): GatewaySetup {
  const file = join(root, 'examples', name, 'weir.json');
  const { policies, gatewayPort } = JSON.parse(readFileSync(file, 'utf8'));
  return {
    routes: readPolicies(policies).map((policy, i) => ({ policy, prefix: prefixes[i] })),
    weir: { host: ADDRESS, port: gatewayPort, needsKey: false },
    listen: { host: ADDRESS, port: LISTEN_PORT },
    upstream: { host: ADDRESS, port: UPSTREAM_PORT },
  };
}
