/**
 * Prints the configuration of Traefik v3: a file of its file provider, complete or with middlewares
 * only. Traefik reads it as a template and takes the key from its environment.
 */

import {
  authority,
  checkTarget,
  clientHeaders,
  describeRoutes,
  httpUrl,
  indentLines,
  isWholeSite,
  plainName,
  protectsEveryPath,
  quotaHeaders,
  tcpOnlyError,
  yamlList,
} from './common.ts';
import type { GatewaySetup, Route, Upstream, WeirAddress } from './setup.ts';

/** @throws StartError if weir listens for gateways on a Unix socket only */
export function traefik(setup: GatewaySetup): string {
  const { routes, listen, upstream } = setup;
  const [{ policy }] = routes;
  const trusted = policy.trustedHops > 1 ? `\n${TRUSTED_PROXIES}` : '';
  const address = authority(listen);
  const title = isWholeSite(routes)
    ? `Policy ${policy.namespace} of weir for Traefik v3, a file of its file provider:`
    : `For Traefik v3, a file of its file provider: ${describeRoutes(routes)}`;
  return `# ${title}
#   traefik --entryPoints.web.address=${address} --providers.file.filename=<this file>${trusted}
#
${notes(routes)}
http:
  routers:${indentLines('    ', ...routers(setup))}
  middlewares:${indentLines('    ', ...middlewares(setup), addPrefix(upstream))}
  services:
    application:
      loadBalancer:${indentLines('        ', serverLines(upstream))}
`;
}

/** @throws StartError if weir listens for gateways on a Unix socket only */
export function traefikSnippet(setup: GatewaySetup): string {
  const { routes, weir } = setup;
  const [{ policy }] = routes;
  const trusted =
    policy.trustedHops > 1
      ? `#
# Traefik must keep X-Forwarded-For of the proxies in front of it:
${TRUSTED_PROXIES.split('\n')[1]}
`
      : '';
  const uses = routes.map((route) => {
    const which =
      route.prefix === '/'
        ? 'each router to protect'
        : `each router for PathPrefix(\`${route.prefix}\`)`;
    return `#   ${which}: ${middlewareNames(route, routes, weir)
      .map((name) => `${name}@file`)
      .join(', ')}`;
  });
  return `# For Traefik v3: ${describeRoutes(routes)}
# Add this file to the directory of the file provider, or its middlewares to an existing file. Then
# add the middlewares to existing routers, in this order. A label of a container is, for example:
#   traefik.http.routers.<router>.middlewares=<the names below, with commas>
${uses.join('\n')}
${trusted}#
${notes(routes)}
http:
  middlewares:${indentLines('    ', ...middlewares(setup))}
`;
}

const TRUSTED_PROXIES = `\
# and, so that Traefik keeps X-Forwarded-For of the proxies in front of it:
#     --entryPoints.web.forwardedHeaders.trustedIPs=<their addresses>`;

function notes(routes: readonly Route[]): string {
  const lines = new Set(routes.map(({ policy }) => policy.onError));
  const path = `\
# Use Traefik v3.6 or later. It decodes a path and removes dot segments and repeated slashes before
# it compares the path with a prefix. In older versions a client could bypass weir with /./login.
# An encoded slash (%2F) is not the slash of a prefix: do not allow it in a path.
#
`;
  return `\
${[...lines].map(failureNote).join('\n#\n')}
#
# Traefik keeps idle connections to weir for 90 s, and weir closes them after 10 s. If weir has
# closed a connection, Traefik repeats the check on another one. It has no setting for this either.
#
${isWholeSite(routes) ? '' : path}\
# Before v3.7.13 a client can upgrade to h2c, if the application supports it, and bypass Traefik and
# weir.`;
}

/** A suffix for names. */
function suffix({ policy }: Route, routes: readonly Route[]): string {
  if (routes.length === 1) return '';
  return `-${plainName(policy.namespace)}`;
}

/** The middlewares of a router, in their order. */
function middlewareNames(
  route: Route,
  routes: readonly Route[],
  { needsKey }: WeirAddress,
): string[] {
  return ['weir-before', `weir${suffix(route, routes)}`, ...(needsKey ? ['weir-after'] : [])];
}

/** Traefik prefers the longest rule. */
function routers(setup: GatewaySetup): string[][] {
  const { routes, weir, upstream } = setup;
  const after = upstream.path === undefined ? [] : ['application-path'];
  const router = (name: string, prefix: string, names: string[]) => [
    `${name}:`,
    '  entryPoints:',
    '    - web',
    `  rule: PathPrefix(\`${prefix}\`)`,
    ...(names.length > 0
      ? ['  # The order matters.', '  middlewares:', ...names.map((each) => `    - ${each}`)]
      : []),
    '  service: application',
  ];
  const entries = routes.map((route) => {
    const names = [...middlewareNames(route, routes, weir), ...after];
    return router(`application${suffix(route, routes)}`, route.prefix, names);
  });
  if (protectsEveryPath(routes)) return entries;
  return [
    ...entries,
    ['# No namespace protects the other paths.', ...router('unprotected', '/', after)],
  ];
}

function middlewares({ routes, weir }: GatewaySetup): string[][] {
  if ('socket' in weir) throw tcpOnlyError('Traefik');
  const isBehindProxies = routes[0].policy.trustedHops > 1;
  const before = [
    'weir-before:',
    '  headers:',
    '    customRequestHeaders:',
    ...(weir.needsKey
      ? [
          "      # From the environment of Traefik. It replaces a client's header.",
          `      X-Weir-Key: '{{ env "WEIR_KEY" }}'`,
        ]
      : [
          "      # Only weir reads this header: remove it from clients' requests.",
          '      X-Weir-Key: ""',
        ]),
    ...(isBehindProxies ? FORWARDED_BY_PROXIES : []),
  ];
  const checks = routes.map(({ policy }, i) => {
    const url = httpUrl(weir.host, weir.port, checkTarget(policy, 'traefik'));
    const checkHeaders = ['x-forwarded-for', ...clientHeaders(policy)];
    if (weir.needsKey) checkHeaders.push('x-weir-key');
    const address = isBehindProxies
      ? 'Traefik appends the address of the connection to X-Forwarded-For.'
      : "Traefik replaces the client's X-Forwarded-For by the address of the connection.";
    return `\
weir${suffix(routes[i], routes)}:
  forwardAuth:
    address: ${JSON.stringify(url)}
    # ${address}
    trustForwardHeader: ${isBehindProxies}
    # Traefik sends no other header of the client to weir. An empty list would mean all headers.
    authRequestHeaders:
${yamlList(checkHeaders, 6)}
    # For an allowed request Traefik adds these to the request to the application; it cannot
    # add them to the response. The client receives a denial completely.
    authResponseHeaders:
${yamlList(quotaHeaders(policy), 6)}`.split('\n');
  });
  return [before, ...checks, weir.needsKey ? REMOVE_KEY_MIDDLEWARE : []];
}

const FORWARDED_BY_PROXIES = `\
      # Proxies in front may forward the client's values; Traefik sets removed ones itself.
      X-Forwarded-Method: ""
      X-Forwarded-Uri: ""`.split('\n');

const REMOVE_KEY_MIDDLEWARE = [
  'weir-after:',
  '  headers:',
  '    customRequestHeaders:',
  '      # Hide the key from the application.',
  '      X-Weir-Key: ""',
];

function addPrefix({ path }: Upstream): string[] {
  if (path === undefined) return [];
  return ['application-path:', '  addPrefix:', `    prefix: ${path}`];
}

function serverLines(upstream: Upstream): string[] {
  const scheme = upstream.isHttps ? 'https' : 'http';
  const servers = ['servers:', `  - url: ${JSON.stringify(`${scheme}://${authority(upstream)}`)}`];
  if (!upstream.isHttps) return servers;
  return [
    '# Send the host of the URL as Host; X-Forwarded-Host has that of the client.',
    'passHostHeader: false',
    '# Traefik verifies the certificate. For a private CA, add to the static configuration:',
    '#     --serversTransport.rootCAs=<file>',
    ...servers,
  ];
}

function failureNote(onError: 'allow' | 'deny'): string {
  const [setting, decision] = {
    allow: ['onError is allow, which Traefik does not support', 'allowed'],
    deny: ['onError is deny', 'denied'],
  }[onError];
  return `# ${setting}: clients receive a 500 if weir is stopped, and
# after 30 s if it does not respond; Traefik has no setting for either. If weir responds, but cannot
# count, requests are ${decision}.`;
}
