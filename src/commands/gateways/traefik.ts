/**
 * The configuration of Traefik v3 for a policy: a file of its file provider. Traefik reads it as a
 * template, which takes the key from the environment.
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

/** @throws StartError where weir is on a Unix socket */
export function traefik({ policy, weir, listenPort, upstream }: GatewaySetup): string {
  if ('socket' in weir) throw tcpOnlyError('Traefik');
  const isBehindProxies = policy.trustedHops > 1;
  const asked = ['x-forwarded-for', ...identifyingHeaders(policy)];
  if (weir.needsKey) asked.push('x-weir-key');
  const trusted = isBehindProxies
    ? `
# and, for the proxies in front of Traefik, from whom alone X-Forwarded-For is kept:
#     --entryPoints.web.forwardedHeaders.trustedIPs=<their addresses>`
    : '';
  const key = weir.needsKey
    ? `# From the environment of Traefik; a client's own is overwritten.
          X-Weir-Key: '{{ env "WEIR_KEY" }}'`
    : `# A client's own goes nowhere.
          X-Weir-Key: ""`;
  const forged = isBehindProxies
    ? `
          # Proxies in front may pass on what the client has put here; without, Traefik sets them.
          X-Forwarded-Method: ""
          X-Forwarded-Uri: ""`
    : '';
  const address = isBehindProxies
    ? 'The address of the connection is appended to X-Forwarded-For.'
    : "X-Forwarded-For is the address of the connection, whatever the client's own says.";
  return `# Policy ${policy.namespace} of weir for Traefik v3, a file of its file provider:
#   traefik --entryPoints.web.address=:${listenPort} --providers.file.filename=<this file>${trusted}
#
${failureNote(policy.onError)}
#
# Traefik keeps an idle connection to weir for 90 s, longer than weir does: where weir has closed
# it, Traefik asks again on another. It has no setting for that either.
#
# Before v3.7.13 a client can change to the protocol h2c, where the application takes it, and ask by
# it past Traefik and weir.
http:
  routers:
    application:
      entryPoints:
        - web
      rule: PathPrefix(\`/\`)
      # In this order.
      middlewares:
        - weir-before
        - weir${weir.needsKey ? '\n        - weir-after' : ''}
      service: application
  middlewares:
    weir-before:
      headers:
        customRequestHeaders:
          ${key}${forged}
    weir:
      forwardAuth:
        address: ${JSON.stringify(httpUrl(weir.host, weir.port, checkPath(policy)))}
        # ${address}
        trustForwardHeader: ${isBehindProxies}
        # Of the client's headers no others reach weir. An empty list would mean all of them.
        authRequestHeaders:
${yamlList(asked, 10)}
        # Of an admission these go to the application, which may answer with them: Traefik has no
        # way for them to the client. A refusal is passed on whole, with its headers and its body.
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
          # The application is not to see the key.
          X-Weir-Key: ""
`;

function failureNote(onError: 'allow' | 'deny'): string {
  const [whole, inside] = {
    allow: ['onError is allow, which Traefik cannot do', 'admitted'],
    deny: ['onError is deny', 'refused'],
  }[onError];
  return `# ${whole}: clients get a 500 while weir is stopped, and
# while it does not answer, after 30 s, for which there is no setting. Where weir answers, but fails
# to count, clients are ${inside} by its answer.`;
}
