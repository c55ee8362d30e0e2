/** Converts the configured host of a listener for use in URLs. */

import { isIPv6 } from 'node:net';

/** A host as in a URL: an IPv6 address has brackets. */
export function urlHost(host: string): string {
  return isIPv6(host) ? `[${host}]` : host;
}

/** Whether the host means all addresses of this machine, in any spelling. */
export function isWildcardAddress(host: string): boolean {
  const url = `http://${urlHost(host)}`;
  return URL.canParse(url) && ['0.0.0.0', '[::]'].includes(new URL(url).hostname);
}

/** An address with which clients on this machine reach a listener on the host. */
export function locallyReachableHost(host: string): string {
  if (!isWildcardAddress(host)) return urlHost(host);
  return isIPv6(host) ? '[::1]' : '127.0.0.1';
}

/** Whether only this machine can reach a listener on the host. */
export function isLoopbackHost(host: string): boolean {
  const url = `http://${urlHost(host)}`;
  if (!URL.canParse(url)) return false;
  return /^(localhost|127(\.\d+){3}|\[::1\])$/.test(new URL(url).hostname);
}
