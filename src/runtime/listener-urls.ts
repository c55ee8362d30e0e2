/** The URLs by which weir names a listener in its log, its links and its startup message. */

import { withoutTrailingSlash } from '../config/validators.ts';
import { isWildcardAddress, locallyReachableHost, urlHost } from '../core/hosts.ts';

export interface ListenerUrls {
  /** With the address that it listens on. */
  listenUrl: string;
  /** For clients on this machine. */
  localUrl: string;
  /** For all clients; undefined where it listens on all addresses and no public URL is set. */
  clientUrl: string | undefined;
}

/** @param publicUrl the setting WEIR_PUBLIC_URL */
export function listenerUrls(
  scheme: 'http' | 'https',
  host: string,
  port: number,
  publicUrl?: string,
): ListenerUrls {
  const listenUrl = `${scheme}://${urlHost(host)}:${port}`;
  const localUrl = `${scheme}://${locallyReachableHost(host)}:${port}`;
  const own = isWildcardAddress(host) ? undefined : listenUrl;
  return {
    listenUrl,
    localUrl,
    clientUrl: publicUrl === undefined ? own : withoutTrailingSlash(publicUrl),
  };
}
