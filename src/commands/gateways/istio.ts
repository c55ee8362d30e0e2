/**
 * The configuration of Istio for a policy: four resources, for the Envoys of its ingress gateway.
 * The first belongs to the configuration of the mesh, the others into the cluster.
 */

import { isIP } from 'node:net';
import type { Policy } from '../../policies/policy.ts';
import {
  bareHost,
  checkPath,
  denialHeaders,
  identifyingHeaders,
  quotaHeaders,
  tcpOnlyError,
  yamlList,
} from './common.ts';
import { CONNECTIONS_MAX, type GatewaySetup, QUEUE_TIMEOUT_MS, TIMEOUT_MS } from './setup.ts';

/** By which Istio knows weir; nobody has to resolve it. */
const WEIR_HOST = 'weir.internal';

/** @throws StartError where weir is on a Unix socket */
export function istio({ policy, weir }: GatewaySetup): string {
  if ('socket' in weir) throw tcpOnlyError('Istio');
  return `# Policy ${policy.namespace} of weir for the ingress gateway of Istio 1.22 or later.
# The first of these is for istioctl install -f, or to be merged into the mesh's configuration; the
# others are for kubectl apply -f.
apiVersion: install.istio.io/v1alpha1
kind: IstioOperator
spec:
  meshConfig:
    extensionProviders:
      - name: weir
        envoyExtAuthzHttp:
          service: ${WEIR_HOST}
          port: ${weir.port}
          # The wait for a connection counts as well, and a flood makes it long.
          timeout: ${QUEUE_TIMEOUT_MS / 1_000}s
          # Before the client's own path, as it came; the method is the client's too.
          pathPrefix: ${JSON.stringify(checkPath(policy))}
${failureMode(policy)}
${requestHeaders(policy)}${weir.needsKey ? KEY_HEADER : ''}
          # Of a refusal, whose body is passed on.
          headersToDownstreamOnDeny:
${yamlList(denialHeaders(policy), 12)}
          # Of an admission, added to what the application answers.
          headersToDownstreamOnAllow:
${yamlList(quotaHeaders(policy), 12)}
---
# Where weir is${isLoopback(weir.host) ? LOOPBACK_NOTE : '.'}
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata:
  name: weir
  namespace: istio-system
spec:
  hosts:
    - ${WEIR_HOST}
  location: MESH_EXTERNAL
  resolution: ${isIP(bareHost(weir.host)) === 0 ? 'DNS' : 'STATIC'}
  ports:
    - number: ${weir.port}
      name: http
      protocol: HTTP
  endpoints:
    - address: ${JSON.stringify(bareHost(weir.host))}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata:
  name: weir
  namespace: istio-system
spec:
  host: ${WEIR_HOST}
  trafficPolicy:
    tls:
      mode: DISABLE
    connectionPool:
      tcp:
        connectTimeout: ${TIMEOUT_MS / 1_000}s
        # A flood waits for one of these connections. How many requests may wait has no bound in
        # Istio, unless http1MaxPendingRequests sets one: those beyond it would be failures of weir.
        maxConnections: ${CONNECTIONS_MAX}
      http:
        # weir closes an idle connection after 10 s, and must not be the first to.
        idleTimeout: 5s
---
# Every request that comes in at the gateway. Its Service needs externalTrafficPolicy: Local, or
# all clients have the address of a node.
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata:
  name: weir
  namespace: istio-system
spec:
  selector:
    matchLabels:
      istio: ingressgateway
  action: CUSTOM
  provider:
    name: weir
  rules:
    - {}
`;
}

/** Without it every request would be let through, or refused, by onError. */
const LOOPBACK_NOTE = `: on the loopback of the ingress gateway's pod, so it has to be a container
# of that pod. Elsewhere Envoy asks it on WEIR_PORT, with a key.`;

function isLoopback(host: string): boolean {
  return /^(127\.|\[?::1\]?$)/.test(host);
}

const KEY_HEADER = `
          # The key of weir, which whoever reads the mesh's configuration reads here. A client's own
          # is overwritten.
          includeAdditionalHeadersInCheck:
            X-Weir-Key: "<key>"`;

function failureMode({ onError }: Policy): string {
  const status = `
          statusOnError: "429"`;
  return `\
          # While weir is stopped, late, or answers with a 5xx. Anything else but a 200 refuses, as
          # the 401 for a wrong key does.
          failOpen: ${onError === 'allow'}${onError === 'allow' ? '' : status}`;
}

/** What of the client's request reaches weir. */
function requestHeaders(policy: Policy): string {
  const names = identifyingHeaders(policy);
  if (policy.identify.includes('ip')) names.unshift('x-forwarded-for');
  const unasked = `\
          # Of the client's headers no others reach weir, but its Host and its Authorization: Envoy
          # sends these unasked, and Istio has no setting for that. weir does not read them.`;
  if (names.length === 0) return unasked;
  return `${unasked}
          includeRequestHeadersInCheck:
${yamlList(names, 12)}`;
}
