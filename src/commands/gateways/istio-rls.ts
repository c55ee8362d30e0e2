/**
 * Prints the configuration of Istio for weir's rate limit service: an EnvoyFilter for its ingress
 * gateway, with the parts of `envoy-rls.ts`.
 */

import { indentLines } from './common.ts';
import { spaces } from './envoy.ts';
import { filterLines, RATE_LIMITS, rulesComment, weirCluster } from './envoy-rls.ts';
import { isLoopback } from './istio.ts';
import type { RlsSetup } from './setup.ts';

export function istioRls(setup: RlsSetup): string {
  const { domain, service } = setup;
  const isInPod = 'socket' in service || isLoopback(service.host);
  return `# Domain ${JSON.stringify(domain)} of weir's rate limit service, for the ingress gateway
# of Istio 1.22 or later. Use it with kubectl apply -f. The Service of the gateway needs
# externalTrafficPolicy: Local; otherwise all clients have the address of a node.
#${indentLines('', isInPod ? IN_POD : [], rulesComment(setup))}
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata:
  name: weir
  namespace: istio-system
spec:
  workloadSelector:
    labels:
      istio: ingressgateway
  configPatches:
    - applyTo: CLUSTER
      match:
        context: GATEWAY
      patch:
        operation: ADD
        value:${indentLines(spaces(10), asMapping(weirCluster(service)))}
    - applyTo: HTTP_FILTER
      match:
        context: GATEWAY
        listener:
          filterChain:
            filter:
              name: envoy.filters.network.http_connection_manager
              subFilter:
                name: envoy.filters.http.router
      patch:
        operation: INSERT_BEFORE
        value:${indentLines(spaces(10), asMapping(filterLines(setup)))}
    # All virtual hosts. To protect one, match routeConfiguration.vhost.name, such as
    # app.example.com:443.
    - applyTo: VIRTUAL_HOST
      match:
        context: GATEWAY
      patch:
        operation: MERGE
        value:${indentLines(spaces(10), RATE_LIMITS)}
`;
}

/** If weir is outside the pod, no call succeeds, and failure_mode_deny decides. */
const IN_POD = [
  '# weir must be a container in the pod of the ingress gateway, with the address below. For a',
  '# Service of Kubernetes, print it with --service weir.default.svc.cluster.local:8081.',
  '#',
];

/** The lines of an element of a list without its dash. */
function asMapping(lines: readonly string[]): string[] {
  return lines.map((line) => line.slice(2));
}
