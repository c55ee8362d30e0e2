/**
 * What configurations have in common: which headers say who asks, with which ones weir
 * answers, and where it is asked. Names of headers are tokens of RFC 9110, which end no quotes.
 */

import { StartError } from '../../core/errors.ts';
import type { Policy } from '../../policies/policy.ts';

/** Names of the headers or cookies that identify, as the policy has them. */
export function identifyingNames({ identify }: Policy, kind: 'header' | 'cookie'): string[] {
  const ofKind = identify.filter((part) => part.startsWith(`${kind}:`));
  return ofKind.map((part) => part.slice(kind.length + 1));
}

/** What who asks is read from in what the client itself sends: not addresses, methods, paths. */
export function identifyingHeaders(policy: Policy): string[] {
  const names = identifyingNames(policy, 'header').map((name) => name.toLowerCase());
  if (identifyingNames(policy, 'cookie').length > 0) names.push('cookie');
  return [...new Set(names)];
}

/**
 * Whether names with a `_` are kept from the application: by CGI and WSGI it would take `X_Api_Key`
 * for the `X-Api-Key` by which it knows who asks, and by which weir has not counted.
 */
export function dropsUnderscores(policy: Policy): boolean {
  const names = identifyingHeaders(policy);
  return names.some((name) => name.includes('-')) && !names.some((name) => name.includes('_'));
}

/** What an admitted client is told as well as a refused one. */
export function quotaHeaders({ legacyHeaders }: Policy): string[] {
  const legacy = ['X-RateLimit-Limit', 'X-RateLimit-Remaining', 'X-RateLimit-Reset'];
  return ['RateLimit-Policy', 'RateLimit', ...(legacyHeaders ? legacy : [])];
}

/** What a refused client is told. */
export function denialHeaders(policy: Policy): string[] {
  return [...quotaHeaders(policy), 'Retry-After', 'Cache-Control', 'Content-Type'];
}

/** Where a policy is asked for. */
export function checkPath({ namespace }: Policy): string {
  return `/v1/check/${namespace}`;
}

/** An address of IPv6 stands in brackets only where it stands in a URL. */
export function bareHost(host: string): string {
  return host.replace(/^\[(.*)\]$/, '$1');
}

export function httpUrl(host: string, port: number, path = ''): string {
  const bare = bareHost(host);
  return `http://${bare.includes(':') ? `[${bare}]` : bare}:${port}${path}`;
}

/** Where weir is on a Unix socket, which not every gateway has a way to. */
export function tcpOnlyError(gateway: string): StartError {
  return new StartError(`${gateway} asks over TCP only: give weir a port by WEIR_GATEWAY_PORT`);
}

/** Items of a list in YAML, a line each. */
export function yamlList(items: readonly string[], indent: number): string {
  return items.map((item) => `${' '.repeat(indent)}- ${JSON.stringify(item)}`).join('\n');
}
