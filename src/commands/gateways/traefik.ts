/**
 * Prints the configuration of Traefik v3 for a policy: a file of its file provider. Traefik reads
 * it as a template and takes the key from its environment.
 */

import {
  checkPath,
  httpUrl,
  identifyingHeaders,
  quotaHeaders,
  tcpOnlyError,
  yamlList,
} from './common.ts';
import type { GatewaySetup } from './setup.ts';

/** @throws StartError if weir listens for gateways on a Unix socket only */
export function traefik({ policy, weir, listenPort, upstream }: GatewaySetup): string {
  if ('socket' in weir) throw tcpOnlyError('Traefik');
  const isBehindProxies = policy.trustedHops > 1;
  const checkHeaders = ['x-forwarded-for', ...identifyingHeaders(policy)];
  if (weir.needsKey) checkHeaders.push('x-weir-key');
  const trusted = isBehindProxies
    ? `
# and, so that Traefik keeps X-Forwarded-For of the proxies in front of it:
#     --entryPoints.web.forwardedHeaders.trustedIPs=<their addresses>`
    : '';
  const key = weir.needsKey
    ? `# From the environment of Traefik. It replaces a client's header.
          X-Weir-Key: '{{ env "WEIR_KEY" }}'`
    : `# Only weir reads this header: remove a client's.
          X-Weir-Key: ""`;
  const removed = isBehindProxies
    ? `
          # Proxies in front may forward the client's values; Traefik sets removed ones itself.
          X-Forwarded-Method: ""
          X-Forwarded-Uri: ""`
    : '';
  const address = isBehindProxies
    ? 'Traefik appends the address of the connection to X-Forwarded-For.'
    : "Traefik replaces the client's X-Forwarded-For by the address of the connection.";
  return `# Policy ${policy.namespace} of weir for Traefik v3, a file of its file provider:
#   traefik --entryPoints.web.address=:${listenPort} --providers.file.filename=<this file>${trusted}
#
${failureNote(policy.onError)}
#
# Traefik keeps idle connections to weir for 90 s, and weir closes them after 10 s. If weir has
# closed a connection, Traefik repeats the check on another one. It has no setting for this either.
#
# Before v3.7.13 a client can upgrade to h2c, if the application supports it, and bypass Traefik and
# weir.
http:
  routers:
    application:
      entryPoints:
        - web
      rule: PathPrefix(\`/\`)
      # The order matters.
      middlewares:
        - weir-before
        - weir${weir.needsKey ? '\n        - weir-after' : ''}
      service: application
  middlewares:
    weir-before:
      headers:
        customRequestHeaders:
          ${key}${removed}
    weir:
      forwardAuth:
        address: ${JSON.stringify(httpUrl(weir.host, weir.port, checkPath(policy)))}
        # ${address}
        trustForwardHeader: ${isBehindProxies}
        # Traefik sends no other header of the client to weir. An empty list would mean all headers.
        authRequestHeaders:
${yamlList(checkHeaders, 10)}
        # For an allowed request Traefik adds these to the request to the application; it cannot
        # add them to the response. The client receives a denial completely.
        authResponseHeaders:
${yamlList(quotaHeaders(policy), 10)}
${weir.needsKey ? REMOVE_KEY_MIDDLEWARE : ''}  services:
    application:
      loadBalancer:
        servers:
          - url: ${JSON.stringify(httpUrl(upstream.host, upstream.port))}
`;
}

const REMOVE_KEY_MIDDLEWARE = `\
    weir-after:
      headers:
        customRequestHeaders:
          # Hide the key from the application.
          X-Weir-Key: ""
`;

function failureNote(onError: 'allow' | 'deny'): string {
  const [setting, decision] = {
    allow: ['onError is allow, which Traefik cannot do', 'allowed'],
    deny: ['onError is deny', 'denied'],
  }[onError];
  return `# ${setting}: clients receive a 500 if weir is stopped, and
# after 30 s if it does not respond; Traefik has no setting for either. If weir responds, but cannot
# count, requests are ${decision}.`;
}
