/**
 * Prints the configuration of Istio for a policy: four resources for its ingress gateway. The first
 * is part of the mesh configuration; the others are applied to the cluster.
 */

import { isIP } from 'node:net';
import type { Policy } from '../../policies/policy.ts';
import {
  bareHost,
  checkPrefix,
  denialHeaders,
  forwardedHeaders,
  quotaHeaders,
  tcpOnlyError,
  yamlList,
} from './common.ts';
import { CONNECTIONS_MAX, type GatewaySetup, QUEUE_TIMEOUT_MS, TIMEOUT_MS } from './setup.ts';

/** The host name of weir inside the mesh. The ServiceEntry resolves it, without DNS. */
const WEIR_HOST = 'weir.internal';

/** @throws StartError if weir listens for gateways on a Unix socket only */
export function istio({ routes, weir }: GatewaySetup): string {
  const [{ policy, prefix }] = routes;
  if ('socket' in weir) throw tcpOnlyError('Istio');
  const which = prefix === '/' ? 'every request' : `requests whose path begins with ${prefix}`;
  return `# Policy ${policy.namespace} of weir for the ingress gateway of Istio 1.22 or later.
# Use the first resource with istioctl install -f, or merge it into the configuration of the mesh.
# Use the others with kubectl apply -f.
apiVersion: install.istio.io/v1alpha1
kind: IstioOperator
spec:
  meshConfig:${prefix === '/' ? '' : NORMALIZED_PATH}
    extensionProviders:
      - name: weir
        envoyExtAuthzHttp:
          service: ${WEIR_HOST}
          port: ${weir.port}
          # Includes the wait for a connection, which a flood makes long.
          timeout: ${QUEUE_TIMEOUT_MS / 1_000}s
          # Envoy appends the path of the client, unchanged, and uses its method.
          pathPrefix: ${JSON.stringify(checkPrefix(policy))}
${failureMode(policy)}
${requestHeaders(policy)}${weir.needsKey ? KEY_HEADER : ''}
          # Headers of a denial. Envoy also forwards its body to the client.
          headersToDownstreamOnDeny:
${yamlList(denialHeaders(policy), 12)}
          # Headers of an allowed request, added to the application's response.
          headersToDownstreamOnAllow:
${yamlList(quotaHeaders(policy), 12)}
---
# The address of weir${isLoopback(weir.host) ? LOOPBACK_NOTE : '.'}
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
        # A flood queues for these connections. Istio does not bound the queue, unless
        # http1MaxPendingRequests is set: requests beyond it would count as failures of weir.
        maxConnections: ${CONNECTIONS_MAX}
      http:
        # weir closes an idle connection after 10 s; Envoy must close it earlier.
        idleTimeout: 5s
---
# Checks ${which} of the gateway. Its Service needs externalTrafficPolicy: Local; otherwise
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
${prefix === '/' ? '    - {}' : pathRule(prefix)}
`;
}

function pathRule(prefix: string): string {
  return `\
    - to:
        - operation:
            paths:
              - ${JSON.stringify(`${prefix}*`)}`;
}

const NORMALIZED_PATH = `
    # Envoy compares the path with the prefix after it has decoded slashes and merged repeated ones,
    # and forwards that path. By default //login is outside the prefix /login.
    pathNormalization:
      normalization: DECODE_AND_MERGE_SLASHES`;

/** If weir is outside the pod, every check fails and onError decides. */
const LOOPBACK_NOTE = `: loopback, so weir must be a container in the pod of the ingress gateway.
# To run weir elsewhere, use WEIR_PORT with a key.`;

export function isLoopback(host: string): boolean {
  return /^(127\.|\[?::1\]?$)/.test(host);
}

const KEY_HEADER = `
          # The key of weir, readable for all readers of the mesh configuration. It replaces a
          # client's header.
          includeAdditionalHeadersInCheck:
            X-Weir-Key: "<key>"`;

function failureMode({ onError }: Policy): string {
  const status = `
          statusOnError: "429"`;
  return `\
          # Applies if weir is stopped, late, or responds with a 5xx. Every other status except 200
          # denies the request, for example the 401 for a wrong key.
          failOpen: ${onError === 'allow'}${onError === 'allow' ? '' : status}`;
}

/** Which headers of the client Envoy sends to weir. */
function requestHeaders(policy: Policy): string {
  const names = forwardedHeaders(policy);
  const comment = `\
          # Envoy sends no other header of the client to weir, except Host and Authorization: Istio
          # has no setting to remove these. weir does not read them.`;
  if (names.length === 0) return comment;
  return `${comment}
          includeRequestHeadersInCheck:
${yamlList(names, 12)}`;
}
