/**
 * `weir gateway`: prints a gateway configuration for active policies of a running server: a
 * complete configuration to start from, the parts to add to an existing one, or a middleware. With
 * --rls it prints one for the rate limit service, whose rules are in files, and calls no server.
 * The tests run the printed text.
 */

import { isIPv4, isIPv6 } from 'node:net';
import { formatValue } from '../core/describe.ts';
import { StartError } from '../core/errors.ts';
import { didYouMean } from '../core/nearest.ts';
import { GATEWAYS, type Gateway } from '../policies/gateways.ts';
import { PLAIN_PATH, PLAIN_PATH_RULE } from '../policies/path.ts';
import { gatewaysOf, type Policy } from '../policies/policy.ts';
import { CLIENT_EXIT_CODES, type Command, subcommand } from './command.ts';
import { apisix, apisixSnippet } from './gateways/apisix.ts';
import { caddy, caddySnippet } from './gateways/caddy.ts';
import { envoy, envoySnippet } from './gateways/envoy.ts';
import { envoyRls, envoyRlsSnippet } from './gateways/envoy-rls.ts';
import { haproxy, haproxySnippet } from './gateways/haproxy.ts';
import { haproxyLua } from './gateways/haproxy-lua.ts';
import { istio } from './gateways/istio.ts';
import { istioRls } from './gateways/istio-rls.ts';
import { nginx, nginxSnippet } from './gateways/nginx.ts';
import { express, expressSnippet, fastify, fastifySnippet } from './gateways/node-client.ts';
import {
  everyPath,
  type GatewaySetup,
  type ListenAddress,
  type RlsSetup,
  type Route,
  type ServiceAddress,
  type Upstream,
  type WeirAddress,
} from './gateways/setup.ts';
import { traefik, traefikSnippet } from './gateways/traefik.ts';
import { formatCell } from './output.ts';
import type { ServerClient } from './server-client.ts';

const LISTEN = '127.0.0.1:8080';
const UPSTREAM = 'http://127.0.0.1:3000';
/** By convention, the port of WEIR_RLS_PORT and a domain. */
const SERVICE = '127.0.0.1:8081';
const DOMAIN = 'site';
const ON_ERROR = ['allow', 'deny'] as const;
const LISTEN_ADDRESS = /^(?:(?:([\d.]+)|\[([\da-f:.]+)\]):)?(\d{1,5})$/i;
const HOST = /^([a-z0-9._-]+|\[[0-9a-f:]+\])$/;
const SERVICE_ADDRESS = /^([a-z0-9._-]+|\[[0-9a-f:]+\]):(\d{1,5})$/i;

type Template = (setup: GatewaySetup) => string;

interface Templates {
  complete: Template;
  /** Only what must be added to an existing configuration; by default the complete text is that. */
  snippet?: Template;
  /** Why one text cannot have several policies. */
  onePolicyReason?: string;
  /** Why a policy cannot protect some paths only. */
  everyPathReason?: string;
}

const TEMPLATES: Record<Gateway, Templates> = {
  nginx: { complete: nginx, snippet: nginxSnippet },
  caddy: { complete: caddy, snippet: caddySnippet },
  haproxy: { complete: haproxy, snippet: haproxySnippet },
  traefik: { complete: traefik, snippet: traefikSnippet },
  envoy: { complete: envoy, snippet: envoySnippet },
  istio: { complete: istio, onePolicyReason: 'Istio checks a workload with one provider' },
  apisix: { complete: apisix, snippet: apisixSnippet },
  express: middleware(express, expressSnippet, "app.use('/login', limit)"),
  fastify: middleware(fastify, fastifySnippet, 'the option onRequest of a route'),
};

type RlsTemplate = (setup: RlsSetup) => string;

/** The gateways that can call the rate limit service: the complete text, and the snippet. */
const RLS_TEMPLATES: Partial<Record<Gateway, Record<'complete' | 'snippet', RlsTemplate>>> = {
  envoy: { complete: envoyRls, snippet: envoyRlsSnippet },
  istio: { complete: istioRls, snippet: istioRls },
};

/** @param use how an application uses a middleware for some paths */
function middleware(complete: Template, snippet: Template, use: string): Templates {
  const reason = `print weir.mjs once for each namespace, and choose the paths with ${use}`;
  return { complete, snippet, onePolicyReason: reason, everyPathReason: reason };
}

interface ListPoliciesResponse {
  policies: Policy[];
  gateway: { url?: string; socket?: string };
  cursor?: string;
}

const print = subcommand({
  usage: '<gateway> [--namespace <name>[=<path prefix>]]... [--snippet] [options]',
  argumentNames: ['gateway'],
  argumentChoices: GATEWAYS,
  options: {
    namespace: {
      type: 'string',
      multiple: true,
      value: '<name>[=<prefix>]',
      help: 'namespace of a policy, and the paths it protects; may be repeated',
    },
    snippet: {
      type: 'boolean',
      help: 'print only what must be added to an existing configuration',
    },
    listen: {
      type: 'string',
      value: '<address>',
      help: `where the gateway serves clients; default: ${LISTEN}`,
    },
    upstream: {
      type: 'string',
      value: '<url>',
      help: `the application behind the gateway; default: ${UPSTREAM}`,
    },
    lua: {
      type: 'boolean',
      help: 'for haproxy: print weir.lua, with the same --namespace options',
    },
    rls: {
      type: 'boolean',
      help: 'use the rate limit service; for envoy and istio',
    },
    service: {
      type: 'string',
      value: '<address>',
      help: `with --rls: host and port, or Unix socket; default: ${SERVICE}`,
    },
    'on-error': {
      type: 'string',
      value: '<decision>',
      choices: ON_ERROR,
      help: 'with --rls: allow (default) or deny if weir does not respond',
    },
  },
  hasJsonOption: false,
  run: async (call) => {
    const { values, positionals } = call;
    const gateway = parseGateway(positionals[0]);
    if (values.rls) {
      process.stdout.write(printRls(gateway, values));
      return undefined;
    }
    for (const option of ['service', 'on-error'] as const) {
      if (values[option] === undefined) continue;
      throw new StartError(`--${option} is valid with --rls only; got ${values[option]} without`);
    }
    const template = chooseTemplate(gateway, values.snippet ?? false, values.lua ?? false);
    const listen = parseListen(values.listen ?? LISTEN);
    const upstream = parseUpstream(values.upstream ?? UPSTREAM);
    const prefixes = parseNamespaces(gateway, values.namespace ?? []);
    const { policies, weir } = await fetchPolicies(call.server());
    const routes = chooseRoutes(policies, gateway, prefixes);
    process.stdout.write(template({ routes, weir, listen, upstream }));
    return undefined;
  },
});

export const gateway: Command = {
  subcommands: { '': print },
  notes: `
<gateway> is one of ${GATEWAYS.join(', ')}.
The configuration sends checks to WEIR_GATEWAY_PORT of the server, or to WEIR_GATEWAY_SOCKET, where
gateways need no key. If the server has neither, it sends them to the server's URL, with a key.
Limits are not part of the configuration. Print it again only after a change of a policy's gateway,
identify, skip, onError, shadow, trustedHops or legacyHeaders.

A namespace protects all paths that begin with its prefix, such as /login. The first --namespace has
the prefix / by default. Of several matching prefixes, the longest applies. A gateway decodes a path
before it compares it. Only Caddy ignores case: for the others /LOGIN does not begin with /login.
--namespace is required if the gateway has several policies.

--snippet prints parts, and where in an existing configuration each part goes. For express and
fastify it prints a module that imports its code from the npm package of weir. Of the other options,
only --namespace and --lua apply to all snippets; a snippet for caddy contains --upstream, and one
for haproxy a port next to --listen.

--listen 8080 means 127.0.0.1:8080, which only this machine reaches. --listen 0.0.0.0:8080 means all
IPv4 addresses, and --listen [::]:8080 all addresses. Istio, express and fastify ignore the option.

--rls prints a configuration for Envoy's rate limit service, which weir serves at WEIR_RLS_PORT. The
limits are rules in the folder WEIR_RLS_CONFIG, not policies, and --namespace is the domain of these
rules. The command calls no server. The printed comment has rules to start with.

The application may have an https URL. The gateway then sends the host of the URL as SNI and as
Host, and verifies the certificate with the CAs of the system.
`,
  examples: [
    'weir gateway nginx > nginx.conf',
    'weir gateway nginx --namespace login=/login --snippet',
    'weir gateway caddy --namespace site --namespace login=/login > Caddyfile',
    'weir gateway haproxy --lua > weir.lua',
    'weir gateway envoy --listen 0.0.0.0:8443 --upstream https://app.example.com > envoy.yaml',
    'weir gateway envoy --rls --namespace site --on-error deny > envoy.yaml',
  ],
  exitCodes: CLIENT_EXIT_CODES,
};

interface RlsValues {
  namespace?: string[];
  snippet?: true;
  listen?: string;
  upstream?: string;
  lua?: true;
  service?: string;
  'on-error'?: string;
}

/** The configuration for the rate limit service. */
function printRls(gateway: Gateway, values: RlsValues): string {
  const templates = RLS_TEMPLATES[gateway];
  if (templates === undefined) {
    const known = Object.keys(RLS_TEMPLATES).join(' and ');
    throw new StartError(`--rls is valid for ${known} only; got ${gateway}`);
  }
  if (values.lua) throw new StartError(`--lua is valid for haproxy only; got ${gateway}`);
  const print = values.snippet ? templates.snippet : templates.complete;
  const service = parseService(values.service ?? SERVICE);
  return print({
    domain: parseDomain(values.namespace ?? [DOMAIN]),
    service,
    onError: parseOnError(values['on-error'] ?? ON_ERROR[0]),
    listen: parseListen(values.listen ?? LISTEN),
    upstream: parseUpstream(values.upstream ?? UPSTREAM),
  });
}

/** @param values of --namespace */
function parseDomain(values: readonly string[]): string {
  const [domain] = values;
  if (values.length === 1 && domain !== '' && !domain.includes('=')) return domain;
  throw new StartError(
    'with --rls, one --namespace must name the domain of all requests, without a path prefix; got' +
      ` ${values.map(formatValue).join(', ')}`,
  );
}

function parseService(text: string): ServiceAddress {
  if (text.startsWith('/')) return { socket: text };
  const [, host = '', digits = '0'] = SERVICE_ADDRESS.exec(text) ?? [];
  const port = Number(digits);
  if (port >= 1 && port <= 65_535) return { host, port };
  throw new StartError(
    '--service must be a host and a port, such as 127.0.0.1:8081, or the path of a Unix socket;' +
      ` got ${formatValue(text)}`,
  );
}

function parseOnError(text: string): RlsSetup['onError'] {
  const known = ON_ERROR.find((decision) => decision === text);
  if (known !== undefined) return known;
  throw new StartError(`--on-error must be ${ON_ERROR.join(' or ')}; got ${formatValue(text)}`);
}

function parseGateway(name: string): Gateway {
  const known = GATEWAYS.find((gateway) => gateway === name);
  if (known !== undefined) return known;
  const accepted = `<gateway> must be one of ${GATEWAYS.join(', ')}`;
  throw new StartError(`${accepted}; got ${formatValue(name)}${didYouMean(name, GATEWAYS)}`);
}

function chooseTemplate(gateway: Gateway, isSnippet: boolean, wantsLua: boolean): Template {
  const { complete, snippet = complete } = TEMPLATES[gateway];
  if (!wantsLua) return isSnippet ? snippet : complete;
  if (gateway !== 'haproxy')
    throw new StartError(`--lua is valid for haproxy only; got ${gateway}`);
  return haproxyLua;
}

/** A port alone means loopback: without TLS a gateway is not ready for other machines. */
function parseListen(text: string): ListenAddress {
  const [, ipv4 = '127.0.0.1', ipv6, digits] = LISTEN_ADDRESS.exec(text) ?? [];
  const port = Number(digits ?? 0);
  const isAddress = ipv6 === undefined ? isIPv4(ipv4) : isIPv6(ipv6);
  if (isAddress && port >= 1 && port <= 65_535) {
    return { host: ipv6 === undefined ? ipv4 : `[${ipv6}]`, port };
  }
  throw new StartError(
    '--listen must be a port from 1 to 65535, or an IP address and a port, such as 0.0.0.0:8080' +
      ` or [::1]:8080; got ${formatValue(text)}`,
  );
}

function parseUpstream(text: string): Upstream {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isPlain =
    url !== undefined &&
    ['http:', 'https:'].includes(url.protocol) &&
    url.href === `${url.origin}${url.pathname}` &&
    HOST.test(url.hostname) &&
    PLAIN_PATH.test(url.pathname);
  if (!isPlain) {
    // It may contain a password before an @.
    const received = text.includes('@') ? 'one with "@"' : formatValue(text);
    throw new StartError(
      '--upstream must be a URL such as http://127.0.0.1:3000 or https://app.example.com/shop,' +
        ` without user, query and fragment; its path must ${PLAIN_PATH_RULE}; got ${received}`,
    );
  }
  const isHttps = url.protocol === 'https:';
  const port = Number(url.port || (isHttps ? 443 : 80));
  const path = url.pathname.replace(/\/$/, '');
  return { isHttps, host: url.hostname, port, ...(path === '' ? {} : { path }) };
}

/** The values of --namespace. @returns path prefixes by namespace; empty for none */
function parseNamespaces(gateway: Gateway, values: readonly string[]): Map<string, string> {
  const { onePolicyReason, everyPathReason } = TEMPLATES[gateway];
  if (values.length > 1 && onePolicyReason !== undefined) {
    throw new StartError(
      `${gateway} accepts one --namespace: ${onePolicyReason}; got ${values.length}`,
    );
  }
  const prefixes = new Map<string, string>();
  for (const value of values) {
    const [namespace, ...rest] = value.split('=');
    const prefix = rest.length > 0 ? rest.join('=') : undefined;
    if (prefix === undefined && prefixes.size > 0) {
      throw new StartError(
        'each --namespace after the first needs a path prefix, such as' +
          ` ${namespace}=/${namespace}; got ${formatValue(value)}`,
      );
    }
    if (prefix !== undefined && everyPathReason !== undefined) {
      throw new StartError(
        `${gateway} accepts --namespace <name> without a path prefix: ${everyPathReason};` +
          ` got ${formatValue(value)}`,
      );
    }
    if (prefix !== undefined && !(prefix.startsWith('/') && PLAIN_PATH.test(prefix))) {
      throw new StartError(
        `the path prefix of --namespace must begin with "/" and ${PLAIN_PATH_RULE};` +
          ` got ${formatValue(value)}`,
      );
    }
    if (prefixes.has(namespace)) {
      const rule = 'each --namespace must name a different namespace';
      throw new StartError(`${rule}; got ${formatValue(namespace)} more than once`);
    }
    const other = [...prefixes].find(([, known]) => known === (prefix ?? '/'));
    if (other !== undefined) {
      throw new StartError(
        `each --namespace must have a different path prefix; got ${formatValue(other[1])} for` +
          ` ${formatValue(other[0])} and ${formatValue(namespace)}`,
      );
    }
    prefixes.set(namespace, prefix ?? '/');
  }
  return prefixes;
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

function isFor(policy: Policy, gateway: Gateway): boolean {
  return gatewaysOf(policy).includes(gateway);
}

/** @param prefixes by namespace; empty for the only policy of the gateway */
function chooseRoutes(
  policies: readonly Policy[],
  gateway: Gateway,
  prefixes: ReadonlyMap<string, string>,
): Route[] {
  const candidates = policies.filter((policy) => isFor(policy, gateway));
  const names = candidates.map((policy) => formatCell(policy.namespace)).join(', ');
  if (prefixes.size === 0) {
    if (candidates.length === 1) return everyPath(candidates[0]);
    if (candidates.length > 1) {
      throw new StartError(`${gateway} has several policies: set --namespace to one of ${names}`);
    }
    throw new StartError(
      `there is no policy for ${gateway}: add one to the file that WEIR_CONFIG names, such as` +
        ` {"policies":{"login":{"gateway":"${gateway}","limit":100,"duration":"60s"}}}`,
    );
  }
  const routes = [...prefixes].map(([namespace, prefix]): Route => {
    const policy = policies.find((policy) => policy.namespace === namespace);
    if (policy !== undefined && isFor(policy, gateway)) return { policy, prefix };
    const place = `the namespace ${formatValue(namespace)}`;
    const fault =
      policy === undefined
        ? `there is no policy for ${place}`
        : `the policy for ${place} is for ${gatewaysOf(policy).join(', ')}`;
    throw new StartError(`${fault}; policies for ${gateway}: ${names || 'none'}`);
  });
  requireSameTrustedHops(routes);
  return routes;
}

/** All requests reach the gateway through the same proxies. */
function requireSameTrustedHops(routes: readonly Route[]): void {
  const [{ policy: first }] = routes;
  const other = routes.find(({ policy }) => policy.trustedHops !== first.trustedHops);
  if (other === undefined) return;
  throw new StartError(
    'policies in one configuration must have the same "trustedHops"; got' +
      ` ${first.trustedHops} for ${formatValue(first.namespace)} and` +
      ` ${other.policy.trustedHops} for ${formatValue(other.policy.namespace)}`,
  );
}
