/** Hosts that a listener is configured with, as URLs have them. */

import { isIPv6 } from 'node:net';

/** A host as it is written in a URL. */
export function urlHost(host: string): string {
  return isIPv6(host) ? `[${host}]` : host;
}

/** Whether the host stands for all addresses of this machine, in whatever spelling. */
export function isWildcardAddress(host: string): boolean {
  const url = `http://${urlHost(host)}`;
  return URL.canParse(url) && ['0.0.0.0', '[::]'].includes(new URL(url).hostname);
}

/** An address that clients on this machine can use for the one that is listened on. */
export function locallyReachableHost(host: string): string {
  if (!isWildcardAddress(host)) return urlHost(host);
  return isIPv6(host) ? '[::1]' : '127.0.0.1';
}
