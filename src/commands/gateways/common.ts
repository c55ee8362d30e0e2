/**
 * Shared by the templates: the headers that identify a client, the headers of weir's responses, the
 * path of a check, and the application. Header names are tokens of RFC 9110, so they contain no
 * quotes.
 */

import { isIP } from 'node:net';
import { StartError } from '../../core/errors.ts';
import { CONTENT_TYPE, gatewayQuery } from '../../policies/gateway-readers.ts';
import type { Gateway } from '../../policies/gateways.ts';
import { type Policy, PREFLIGHT } from '../../policies/policy.ts';
import { PREFLIGHT_HEADERS } from '../../policies/skip.ts';
import type { ListenAddress, Route, Upstream } from './setup.ts';

/**
 * Names of the identifying headers or cookies, spelled as in the policy. Those of headers with the
 * address of the client are among them.
 */
export function identifyingNames({ identify }: Policy, kind: 'header' | 'cookie'): string[] {
  const parts = identify.map((part) => part.replace(/^ip:header:/, 'header:'));
  const names = parts.filter((part) => part.startsWith(`${kind}:`));
  return [...new Set(names)].map((part) => part.slice(kind.length + 1));
}

/** The client's own headers from which weir reads the identifier, in lower case. */
export function identifyingHeaders(policy: Policy): string[] {
  const names = identifyingNames(policy, 'header').map((name) => name.toLowerCase());
  if (identifyingNames(policy, 'cookie').length > 0) names.push('cookie');
  return [...new Set(names)];
}

/** The client's own headers by which weir recognizes requests to skip, in lower case. */
export function skipHeaders({ skip = [] }: Policy): readonly string[] {
  return skip.includes(PREFLIGHT) ? PREFLIGHT_HEADERS : [];
}

/** Whether weir reads the method of a request. */
export function readsMethod({ identify, skip = [] }: Policy): boolean {
  return identify.includes('method') || skip.includes(PREFLIGHT);
}

/** Whether weir reads the path of a request. */
export function readsPath({ identify, skip = [] }: Policy): boolean {
  return identify.includes('path') || skip.some((entry) => entry !== PREFLIGHT);
}

/** The client's own headers that weir reads if the gateway returns its denials, in lower case. */
export function clientHeaders(policy: Policy): string[] {
  const read = [...identifyingHeaders(policy), ...skipHeaders(policy), CONTENT_TYPE];
  return [...new Set(read)];
}

/**
 * The headers that a gateway of the Envoy family sends to weir, in lower case.
 *
 * @throws StartError for a policy that reads Content-Type, which a failed check must not have
 */
export function forwardedHeaders(policy: Policy): string[] {
  if (identifyingHeaders(policy).includes(CONTENT_TYPE)) {
    throw new StartError(
      'Envoy allows a gRPC call if weir is down and the check has its Content-Type: remove' +
        ' header:content-type from "identify"',
    );
  }
  const address = policy.identify.includes('ip') ? ['x-forwarded-for'] : [];
  return [...new Set([...address, ...identifyingHeaders(policy), ...skipHeaders(policy)])];
}

/**
 * Whether to remove headers whose names contain `_`. Applications behind CGI or WSGI read
 * `X_Api_Key` as `X-Api-Key`, so a client could send an identifier that weir has not counted.
 */
export function dropsUnderscores(...policies: Policy[]): boolean {
  const names = policies.flatMap(identifyingHeaders);
  return names.some((name) => name.includes('-')) && !names.some((name) => name.includes('_'));
}

/** Headers of both decisions. */
export function quotaHeaders({ legacyHeaders }: Policy): string[] {
  const legacy = ['X-RateLimit-Limit', 'X-RateLimit-Remaining', 'X-RateLimit-Reset'];
  return ['RateLimit-Policy', 'RateLimit', ...(legacyHeaders ? legacy : [])];
}

/** Headers of both decisions of any of the policies. */
export function commonQuotaHeaders(routes: readonly Route[]): string[] {
  return [...new Set(routes.flatMap(({ policy }) => quotaHeaders(policy)))];
}

/** Headers of a denial. */
export function denialHeaders(policy: Policy): string[] {
  return [...quotaHeaders(policy), 'Retry-After', 'Cache-Control', 'Content-Type'];
}

/** Without the query that names the gateway. */
export function checkPath({ namespace }: Policy): string {
  return `/v1/check/${namespace}`;
}

/** The address of a check at weir. A client must not be able to change its query. */
export function checkTarget(policy: Policy, gateway: Gateway): string {
  return `${checkPath(policy)}?${gatewayQuery(gateway)}`;
}

/**
 * The prefix to which Envoy appends the client's path and query. It ends with a slash, so that no
 * path of a client ends the namespace or begins the query that names a gateway.
 */
export function checkPrefix(policy: Policy): string {
  return `${checkPath(policy)}/`;
}

/** A namespace as a name for gateways that accept letters, digits, `.`, `_` and `-` only. */
export function plainName(namespace: string): string {
  return namespace.replace(/[^A-Za-z0-9._-]/g, (character) => {
    return `_${character.charCodeAt(0).toString(16)}`;
  });
}

/** A host without the brackets that an IPv6 address has in a URL. */
export function bareHost(host: string): string {
  return host.replace(/^\[(.*)\]$/, '$1');
}

export function httpUrl(host: string, port: number, path = ''): string {
  return `http://${authority({ host, port })}${path}`;
}

/** @param omittedPort the port that is left out */
export function authority(at: { host: string; port: number }, omittedPort?: number): string {
  const bare = bareHost(at.host);
  const host = bare.includes(':') ? `[${bare}]` : bare;
  return at.port === omittedPort ? host : `${host}:${at.port}`;
}

/** Whether a gateway serves clients on all addresses of IPv6 and IPv4. */
export function listensEverywhere({ host }: ListenAddress): boolean {
  return bareHost(host) === '::';
}

/**
 * A regular expression, to be compared without case, for a dot segment in a request target.
 * Gateways that choose a policy by the normalized path, but forward the path as received, must
 * reject it: /login/../x is outside the prefix /login, but some applications handle all of /login/
 * alike.
 */
export const DOT_SEGMENT = '(/|%2f|%5c)([.]|%2e)([.]|%2e)?(/|%2f|%5c|[;?#]|$)';

/** The certificates of public CAs on Debian, Ubuntu and Alpine. */
export const SYSTEM_CA_FILE = '/etc/ssl/certs/ca-certificates.crt';

/** @throws StartError for an https application with an address, for gateways that compare names */
export function requireHostName(gateway: string, { isHttps, host }: Upstream): void {
  if (!isHttps || isIP(bareHost(host)) === 0) return;
  throw new StartError(
    `--upstream must have a host name: ${gateway} cannot compare an address with a certificate;` +
      ` got https://${host}`,
  );
}

/** Whether one policy protects all paths. */
export function isWholeSite(routes: readonly Route[]): boolean {
  return routes.length === 1 && protectsEveryPath(routes);
}

export function protectsEveryPath(routes: readonly Route[]): boolean {
  return routes.some(({ prefix }) => prefix === '/');
}

/** Which requests are checked with which policies: the continuation of a first comment line. */
export function describeRoutes(routes: readonly Route[], comment = '#'): string {
  if (isWholeSite(routes)) {
    return `checks each request with the policy ${routes[0].policy.namespace} of weir.`;
  }
  const width = Math.max(...routes.map(({ prefix }) => prefix.length));
  return [
    'checks requests with weir. The beginning of a path selects the policy:',
    ...routes.map(({ policy, prefix }) => {
      return `${comment}   ${prefix.padEnd(width)}  ${policy.namespace}`;
    }),
  ].join('\n');
}

/** For gateways that cannot connect to a Unix socket. */
export function tcpOnlyError(gateway: string): StartError {
  return new StartError(`${gateway} cannot connect to a Unix socket: set WEIR_GATEWAY_PORT`);
}

/** Lines of text after the line before, each indented; empty lines stay empty. */
export function indentLines(indent: string, ...lines: (readonly string[])[]): string {
  return lines
    .flat()
    .map((line) => (line === '' ? '\n' : `\n${indent}${line}`))
    .join('');
}

/** A YAML list, one item per line. */
export function yamlList(items: readonly string[], indent: number): string {
  return items.map((item) => `${' '.repeat(indent)}- ${JSON.stringify(item)}`).join('\n');
}
