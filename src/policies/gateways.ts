/** The supported gateways, and how they differ in a check. */

/** Istio uses Envoy; express and fastify are Node applications. */
export const GATEWAYS = [
  'nginx',
  'caddy',
  'haproxy',
  'traefik',
  'envoy',
  'istio',
  'apisix',
  'express',
  'fastify',
] as const;
export type Gateway = (typeof GATEWAYS)[number];

/**
 * Envoy sends a check with the method of the client's request, and appends its path to that of the
 * check. It joins repeated headers with a comma in a check, but forwards the lines separately. All
 * others send `X-Forwarded-Method` and `X-Forwarded-Uri`.
 */
export function isEnvoyBased(gateway: Gateway): boolean {
  return gateway === 'envoy' || gateway === 'istio';
}

/**
 * Whether the client gets the headers of weir's own denial, so that it has another form for gRPC.
 * Envoy makes a denial of gRPC itself. It must not send weir the Content-Type of gRPC: its response
 * to its own check would then be one of gRPC if weir is down, a 200, which allows the request.
 */
export function returnsDenials(gateway: Gateway): boolean {
  return ['caddy', 'traefik', 'apisix'].includes(gateway);
}

/** Traefik denies a request whose check gets no response. It has no setting for this. */
export const FAIL_CLOSED_GATEWAYS: readonly Gateway[] = ['traefik'];
