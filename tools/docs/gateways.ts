/**
 * The parts of the pages about gateways: what `weir gateway` prints for the policy of these pages,
 * with and without `--snippet`, and the lines that change with `onError` or with an application
 * over TLS. Also what it prints for the rate limit service.
 */

import { apisix, apisixSnippet } from '../../src/commands/gateways/apisix.ts';
import { caddy, caddySnippet } from '../../src/commands/gateways/caddy.ts';
import { envoy, envoySnippet } from '../../src/commands/gateways/envoy.ts';
import { envoyRls, envoyRlsSnippet } from '../../src/commands/gateways/envoy-rls.ts';
import { haproxy, haproxySnippet } from '../../src/commands/gateways/haproxy.ts';
import { haproxyLua } from '../../src/commands/gateways/haproxy-lua.ts';
import { istio } from '../../src/commands/gateways/istio.ts';
import { istioRls } from '../../src/commands/gateways/istio-rls.ts';
import { nginx, nginxSnippet } from '../../src/commands/gateways/nginx.ts';
import {
  express,
  expressSnippet,
  fastify,
  fastifySnippet,
} from '../../src/commands/gateways/node-client.ts';
import type { GatewaySetup, RlsSetup, Upstream } from '../../src/commands/gateways/setup.ts';
import { traefik, traefikSnippet } from '../../src/commands/gateways/traefik.ts';
import type { Gateway } from '../../src/policies/gateways.ts';
import { readPolicies } from '../../src/policies/policy.ts';
import { codeBlock } from './markdown.ts';

interface PrintedFile {
  gateway: Gateway;
  print: (setup: GatewaySetup) => string;
  /** Only what must be added to an existing configuration. */
  printSnippet?: (setup: GatewaySetup) => string;
  /** Of the text, for the highlighting of a page. */
  language: string;
  /** Whether the text without a decision of weir depends on `onError`. */
  hasOnError: boolean;
}

/** By the name of the part. */
const FILES: Readonly<Record<string, PrintedFile>> = {
  'gateway-apisix': {
    gateway: 'apisix',
    print: apisix,
    printSnippet: apisixSnippet,
    language: 'yaml',
    hasOnError: true,
  },
  'gateway-caddy': {
    gateway: 'caddy',
    print: caddy,
    printSnippet: caddySnippet,
    language: 'caddyfile',
    hasOnError: true,
  },
  'gateway-envoy': {
    gateway: 'envoy',
    print: envoy,
    printSnippet: envoySnippet,
    language: 'yaml',
    hasOnError: true,
  },
  'gateway-haproxy': {
    gateway: 'haproxy',
    print: haproxy,
    printSnippet: haproxySnippet,
    language: 'haproxy',
    hasOnError: true,
  },
  'gateway-haproxy-lua': {
    gateway: 'haproxy',
    print: haproxyLua,
    language: 'lua',
    hasOnError: false,
  },
  'gateway-istio': { gateway: 'istio', print: istio, language: 'yaml', hasOnError: true },
  'gateway-nginx': {
    gateway: 'nginx',
    print: nginx,
    printSnippet: nginxSnippet,
    language: 'nginx',
    hasOnError: true,
  },
  'gateway-traefik': {
    gateway: 'traefik',
    print: traefik,
    printSnippet: traefikSnippet,
    language: 'yaml',
    hasOnError: false,
  },
};

const HTTP: Upstream = { host: '127.0.0.1', port: 3000 };
const HTTPS: Upstream = { isHttps: true, host: 'app.example.com', port: 443 };

interface Changes {
  onError?: 'allow' | 'deny';
  prefix?: string;
  upstream?: Upstream;
}

/** The policy, the addresses and the ports of the pages. */
function setupOf(
  gateway: Gateway,
  { onError, prefix = '/', upstream = HTTP }: Changes = {},
): GatewaySetup {
  const fields = onError === undefined ? {} : { onError };
  const [policy] = readPolicies({ login: { gateway, limit: 3, duration: 60_000, ...fields } });
  return {
    routes: [{ policy, prefix }],
    weir: { host: '127.0.0.1', port: 7072, needsKey: false },
    listen: { host: '127.0.0.1', port: 8080 },
    upstream,
  };
}

/** What `weir gateway --rls` prints without further options. */
const RLS: RlsSetup = {
  domain: 'site',
  service: { host: '127.0.0.1', port: 8081 },
  onError: 'allow',
  listen: { host: '127.0.0.1', port: 8080 },
  upstream: HTTP,
};

const RLS_PARTS = {
  'gateway-envoy-rls': () => codeBlock('yaml', envoyRls(RLS)),
  'gateway-envoy-rls-snippet': () => codeBlock('yaml', envoyRlsSnippet(RLS)),
  'gateway-istio-rls': () => codeBlock('yaml', istioRls(RLS)),
};

/** Renders the lines of the printed text that change. */
function changesPart({ gateway, print }: PrintedFile, changes: Changes): string {
  const lines = changedLines(print(setupOf(gateway)), print(setupOf(gateway, changes)));
  return codeBlock('diff', lines.join('\n'));
}

function partsOf(name: string, file: PrintedFile): [string, () => string][] {
  const { gateway, print, printSnippet, language, hasOnError } = file;
  const parts: [string, () => string][] = [
    [name, () => codeBlock(language, print(setupOf(gateway)))],
  ];
  if (hasOnError) parts.push([`${name}-deny`, () => changesPart(file, { onError: 'deny' })]);
  if (printSnippet !== undefined) {
    const setup = () => setupOf(gateway, { prefix: '/login' });
    parts.push(
      [`${name}-snippet`, () => codeBlock(language, printSnippet(setup()))],
      [`${name}-https`, () => changesPart(file, { upstream: HTTPS })],
    );
  }
  return parts;
}

/** The parts for an application: the code that follows the options is in `examples`. */
function moduleParts(
  gateway: 'express' | 'fastify',
  print: PrintedFile['print'],
  printSnippet: PrintedFile['print'],
): [string, () => string][] {
  const file: PrintedFile = { gateway, print, language: 'js', hasOnError: true };
  return [
    [`gateway-${gateway}-snippet`, () => codeBlock('js', printSnippet(setupOf(gateway)))],
    [`gateway-${gateway}-deny`, () => changesPart(file, { onError: 'deny' })],
  ];
}

export const GATEWAY_PARTS: Readonly<Record<string, () => string>> = Object.fromEntries([
  ...Object.entries(RLS_PARTS),
  ...Object.entries(FILES).flatMap(([name, file]) => partsOf(name, file)),
  ...moduleParts('express', express, expressSnippet),
  ...moduleParts('fastify', fastify, fastifySnippet),
]);

/** The lines that differ, after the line before them. Each place is separated by an empty line. */
export function changedLines(before: string, after: string): string[] {
  const [old, now] = [before.split('\n'), after.split('\n')];
  const common = commonLengths(old, now);
  const changes: string[] = [];
  let isInChange = false;
  const change = (line: string, context: string | undefined) => {
    if (!isInChange) {
      if (changes.length > 0) changes.push('');
      if (context !== undefined) changes.push(` ${context}`);
    }
    changes.push(line);
    isInChange = true;
  };
  for (let i = 0, j = 0; i < old.length || j < now.length; ) {
    if (i < old.length && old[i] === now[j]) {
      isInChange = false;
      i++;
      j++;
    } else if (j === now.length || (i < old.length && common[i + 1][j] >= common[i][j + 1])) {
      change(`-${old[i]}`, old[i - 1]);
      i++;
    } else {
      change(`+${now[j]}`, old[i - 1]);
      j++;
    }
  }
  return changes;
}

/** How many lines two texts have in common, in this order, from line i and line j on. */
function commonLengths(old: readonly string[], now: readonly string[]): number[][] {
  const lengths = Array.from({ length: old.length + 1 }, () => {
    return new Array<number>(now.length + 1).fill(0);
  });
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = now.length - 1; j >= 0; j--) {
      lengths[i][j] =
        old[i] === now[j]
          ? lengths[i + 1][j + 1] + 1
          : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  return lengths;
}
