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
