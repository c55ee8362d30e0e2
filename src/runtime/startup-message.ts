/**
 * The URLs by which weir names itself in its log, its links and on standard output, and the message
 * that a start prints there. The first start also prints its root key, in a command that works as
 * printed; it fails where the key cannot be printed.
 */

import { writeSync } from 'node:fs';
import { withoutTrailingSlash } from '../config/validators.ts';
import { isWildcardAddress, locallyReachableHost, urlHost } from '../core/hosts.ts';

/** The URLs of a listener. */
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

/** @throws where standard output does not accept all of the text */
function writeStandardOutput(text: string): void {
  const bytes = Buffer.from(text);
  for (let written = 0; written < bytes.length; ) written += writeSync(1, bytes, written);
}

/** The URL for clients and, where it differs, the one for clients on this machine. */
function describeUrls({ listenUrl, localUrl, clientUrl }: ListenerUrls): string {
  const url = clientUrl ?? listenUrl;
  return url === localUrl ? url : `${url} (from this machine: ${localUrl})`;
}

export interface StartupMessage {
  checkUrls: ListenerUrls;
  adminUrls: ListenerUrls;
  socket: string | undefined;
  /** The root key that this start has made. */
  firstKey: string | undefined;
  /** The file of a self-signed certificate, which clients must be configured to trust. */
  selfSignedCert: string | undefined;
}

/** @throws where a root key was made and cannot be printed */
export function printStartupMessage({
  checkUrls,
  adminUrls,
  socket,
  firstKey,
  selfSignedCert,
}: StartupMessage): void {
  const body = '{"identifier":"user_1","limit":10,"duration":60000}';
  const shellQuoted = (path: string) => `'${path.replaceAll("'", "'\\''")}'`;
  const socketHint =
    socket === undefined
      ? ''
      : ` and by curl --unix-socket ${shellQuoted(socket)} http://localhost`;
  const trustOption =
    selfSignedCert === undefined ? '' : ` --cacert ${shellQuoted(selfSignedCert)}`;
  const summary =
    `weir serves checks on ${describeUrls(checkUrls)}${socketHint};` +
    ` health and metrics on ${describeUrls(adminUrls)}`;
  if (firstKey === undefined) {
    try {
      writeStandardOutput(`${summary}\n`);
    } catch {
      // Standard output is closed or full; the log line `serving` has the same URLs.
    }
    return;
  }
  writeStandardOutput(
    `${summary}.\n` +
      'This is the first start. weir does not store the root key and prints it only now:\n\n' +
      `export WEIR_KEY=${firstKey}\n\nA check from this machine:\n\n` +
      `curl -s${trustOption} ${checkUrls.localUrl}/v1/ratelimits.limit` +
      ` -H 'Authorization: Bearer ${firstKey}'` +
      ` -H 'Content-Type: application/json' -d '${body}'\n`,
  );
}
