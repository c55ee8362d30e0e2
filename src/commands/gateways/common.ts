/**
 * Shared by the templates: the headers that identify a client, the headers of weir's responses, and
 * the path of a check. Header names are tokens of RFC 9110, so they contain no quotes.
 */

import { StartError } from '../../core/errors.ts';
import type { Policy } from '../../policies/policy.ts';

/** Names of the identifying headers or cookies, spelled as in the policy. */
export function identifyingNames({ identify }: Policy, kind: 'header' | 'cookie'): string[] {
  const parts = identify.filter((part) => part.startsWith(`${kind}:`));
  return parts.map((part) => part.slice(kind.length + 1));
}

/** The client's own headers from which weir reads the identifier, in lower case. */
export function identifyingHeaders(policy: Policy): string[] {
  const names = identifyingNames(policy, 'header').map((name) => name.toLowerCase());
  if (identifyingNames(policy, 'cookie').length > 0) names.push('cookie');
  return [...new Set(names)];
}

/** The headers that a gateway of the Envoy family sends to weir, in lower case. */
export function forwardedHeaders(policy: Policy): string[] {
  const address = policy.identify.includes('ip') ? ['x-forwarded-for'] : [];
  return [...address, ...identifyingHeaders(policy)];
}

/**
 * Whether to remove headers whose names contain `_`. Applications behind CGI or WSGI read
 * `X_Api_Key` as `X-Api-Key`, so a client could send an identifier that weir has not counted.
 */
export function dropsUnderscores(policy: Policy): boolean {
  const names = identifyingHeaders(policy);
  return names.some((name) => name.includes('-')) && !names.some((name) => name.includes('_'));
}

/** Headers of both decisions. */
export function quotaHeaders({ legacyHeaders }: Policy): string[] {
  const legacy = ['X-RateLimit-Limit', 'X-RateLimit-Remaining', 'X-RateLimit-Reset'];
  return ['RateLimit-Policy', 'RateLimit', ...(legacyHeaders ? legacy : [])];
}

/** Headers of a denial. */
export function denialHeaders(policy: Policy): string[] {
  return [...quotaHeaders(policy), 'Retry-After', 'Cache-Control', 'Content-Type'];
}

export function checkPath({ namespace }: Policy): string {
  return `/v1/check/${namespace}`;
}

/** A host without the brackets that an IPv6 address has in a URL. */
export function bareHost(host: string): string {
  return host.replace(/^\[(.*)\]$/, '$1');
}

export function httpUrl(host: string, port: number, path = ''): string {
  const bare = bareHost(host);
  return `http://${bare.includes(':') ? `[${bare}]` : bare}:${port}${path}`;
}

/** For gateways that cannot connect to a Unix socket. */
export function tcpOnlyError(gateway: string): StartError {
  return new StartError(`${gateway} cannot connect to a Unix socket: set WEIR_GATEWAY_PORT`);
}

/** Lines of text after the line before, each indented; empty lines stay empty. */
export function indentLines(indent: string, ...lines: string[][]): string {
  return lines
    .flat()
    .map((line) => (line === '' ? '\n' : `\n${indent}${line}`))
    .join('');
}

/** A YAML list, one item per line. */
export function yamlList(items: readonly string[], indent: number): string {
  return items.map((item) => `${' '.repeat(indent)}- ${JSON.stringify(item)}`).join('\n');
}
