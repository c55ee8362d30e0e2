/**
 * `weir gateway`: prints a gateway configuration for an active policy of a running server: a
 * complete configuration to start from, or a middleware. The tests run the printed text.
 */

import { formatValue } from '../core/describe.ts';
import { StartError } from '../core/errors.ts';
import { GATEWAYS, type Gateway, type Policy } from '../policies/policy.ts';
import { CLIENT_EXIT_CODES, type Command, subcommand } from './command.ts';
import { apisix } from './gateways/apisix.ts';
import { caddy } from './gateways/caddy.ts';
import { envoy } from './gateways/envoy.ts';

import { haproxy } from './gateways/haproxy.ts';
import { haproxyLua } from './gateways/haproxy-lua.ts';
import { istio } from './gateways/istio.ts';
import { nginx } from './gateways/nginx.ts';
import { express, fastify } from './gateways/node-client.ts';
import type { GatewaySetup, WeirAddress } from './gateways/setup.ts';
import { traefik } from './gateways/traefik.ts';
import { formatCell } from './output.ts';
import type { ServerClient } from './server-client.ts';

const LISTEN = '8080';
const UPSTREAM = 'http://127.0.0.1:3000';

type Template = (setup: GatewaySetup) => string;

const TEMPLATES: Record<Gateway, Template> = {
  apisix,
  caddy,
  envoy,
  express,
  fastify,
  haproxy,
  istio,
  nginx,
  traefik,
};

interface ListPoliciesResponse {
  policies: Policy[];
  gateway: { url?: string; socket?: string };
  cursor?: string;
}

const print = subcommand({
  usage: '<gateway> [--namespace <name>] [--listen <port>] [--upstream <url>] [--lua]',
  argumentNames: ['gateway'],
  options: {
    namespace: {
      type: 'string',
      value: '<name>',
      help: 'namespace of the policy; required if the gateway has several',
    },
    listen: {
      type: 'string',
      value: '<port>',
      help: `port on which the gateway serves clients; default: ${LISTEN}`,
    },
    upstream: {
      type: 'string',
      value: '<url>',
      help: `the application behind the gateway; default: ${UPSTREAM}`,
    },
    lua: {
      type: 'boolean',
      help: 'for haproxy: print weir.lua, with the same --namespace',
    },
  },
  hasJsonOption: false,
  run: async (call) => {
    const { values, positionals } = call;
    const template = chooseTemplate(positionals[0], values.lua ?? false);
    const listenPort = parsePort(values.listen ?? LISTEN);
    const upstream = parseUpstream(values.upstream ?? UPSTREAM);
    const { policies, weir } = await fetchPolicies(call.server());
    const policy = choosePolicy(policies, positionals[0], values.namespace);
    process.stdout.write(template({ policy, weir, listenPort, upstream }));
    return undefined;
  },
});

export const gateway: Command = {
  subcommands: { '': print },
  notes: `
<gateway> is one of ${GATEWAYS.join(', ')}.
The configuration sends checks to WEIR_GATEWAY_PORT of the server, or to WEIR_GATEWAY_SOCKET, where
gateways need no key. If the server has neither, it sends them to the server's URL, with a key.
Limits are not part of the configuration. Print it again only after a change of a policy's identify,
onError, shadow, trustedHops or legacyHeaders.
`,
  examples: [
    'weir gateway nginx > nginx.conf',
    'weir gateway haproxy --lua > weir.lua',
    'weir gateway caddy --namespace login --listen 8443 --upstream http://127.0.0.1:3000',
  ],
  exitCodes: CLIENT_EXIT_CODES,
};

function chooseTemplate(name: string, wantsLua: boolean): Template {
  const known = GATEWAYS.find((gateway) => gateway === name);
  if (known === undefined) {
    throw new StartError(
      `<gateway> must be one of ${GATEWAYS.join(', ')}; got ${formatValue(name)}`,
    );
  }
  if (!wantsLua) return TEMPLATES[known];
  if (known !== 'haproxy') throw new StartError(`--lua is valid for haproxy only; got ${known}`);
  return haproxyLua;
}

function parsePort(text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  if (port >= 1 && port <= 65_535) return port;
  throw new StartError(`--listen must be a port from 1 to 65535; got ${formatValue(text)}`);
}

function parseUpstream(text: string): GatewaySetup['upstream'] {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol !== 'http:' || url.href !== `${url.origin}/`) {
    throw new StartError(
      `--upstream must be a URL like http://127.0.0.1:3000; got ${formatValue(text)}`,
    );
  }
  return { host: url.hostname, port: Number(url.port || 80) };
}

/** All policies that the key may read, and the address to which gateways send checks. */
async function fetchPolicies(
  server: ServerClient,
): Promise<{ policies: Policy[]; weir: WeirAddress }> {
  const policies: Policy[] = [];
  for (let cursor: string | undefined; ; ) {
    const page = await server.get<ListPoliciesResponse>('ratelimits.listPolicies', { cursor });
    if (!Array.isArray(page.policies)) throw server.unexpectedResponseError(200);
    policies.push(...page.policies);
    cursor = page.cursor;
    if (cursor === undefined) return { policies, weir: weirAddressOf(server.url, page.gateway) };
  }
}

function weirAddressOf(
  serverUrl: string,
  { url, socket }: ListPoliciesResponse['gateway'],
): WeirAddress {
  if (url === undefined && socket !== undefined) return { socket };
  const { protocol, hostname, port } = new URL(url ?? serverUrl);
  if (protocol !== 'http:') {
    throw new StartError(
      'the server uses TLS, which the printed configurations do not support: set' +
        ' WEIR_GATEWAY_PORT or WEIR_GATEWAY_SOCKET',
    );
  }
  // localhost has two addresses, and weir listens on one: a gateway would try both in turn.
  const host = hostname === 'localhost' ? '127.0.0.1' : hostname;
  return { host, port: Number(port || 80), needsKey: url === undefined };
}

function choosePolicy(
  policies: readonly Policy[],
  gateway: string,
  namespace: string | undefined,
): Policy {
  const candidates = policies.filter((policy) => policy.gateway === gateway);
  const names = candidates.map((policy) => formatCell(policy.namespace)).join(', ');
  if (namespace !== undefined) {
    const policy = policies.find((policy) => policy.namespace === namespace);
    if (policy?.gateway === gateway) return policy;
    const place = `the namespace ${formatValue(namespace)}`;
    const fault =
      policy === undefined
        ? `there is no policy for ${place}`
        : `the policy for ${place} is for ${policy.gateway}`;
    throw new StartError(`${fault}; policies for ${gateway}: ${names || 'none'}`);
  }
  if (candidates.length === 1) return candidates[0];
  if (candidates.length === 0) {
    throw new StartError(
      `there is no policy for ${gateway}: add one to the file that WEIR_CONFIG names, such as` +
        ` {"policies":{"login":{"gateway":"${gateway}","limit":100,"duration":60000}}}`,
    );
  }
  throw new StartError(`${gateway} has several policies: set --namespace to one of ${names}`);
}
