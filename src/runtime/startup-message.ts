/**
 * Where weir serves, as its log, its links and its standard output name it. A start prints that on
 * standard output, and the first start its root key too, in a command that works as it is.
 */

import { writeSync } from 'node:fs';
import { withoutTrailingSlash } from '../config/validators.ts';
import { isWildcardAddress, locallyReachableHost, urlHost } from '../core/hosts.ts';

/** The addresses of a listener. */
export interface ListenerUrls {
  /** What it listens on. */
  listenUrl: string;
  /** By which clients on this machine reach it. */
  localUrl: string;
  /** By which all clients reach it; undefined where nobody has said. */
  clientUrl: string | undefined;
}

/** @param publicUrl as configured */
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

/** Throws when standard output does not take all of it. */
function writeStandardOutput(text: string): void {
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; ) at += writeSync(1, bytes, at);
}

/** An address, and what a client on this machine uses in its place. */
function describeUrls({ listenUrl, localUrl, clientUrl }: ListenerUrls): string {
  const url = clientUrl ?? listenUrl;
  return url === localUrl ? url : `${url} (from this machine: ${localUrl})`;
}

/** What a start prints. */
export interface StartupMessage {
  checkUrls: ListenerUrls;
  adminUrls: ListenerUrls;
  socket: string | undefined;
  /** The root key that the first start has made. */
  firstKey: string | undefined;
  /** A certificate that signs itself, which clients have to be told to trust. */
  selfSignedCert: string | undefined;
}

/** @throws where there is a key and it cannot be printed */
export function printStartupMessage({
  checkUrls,
  adminUrls,
  socket,
  firstKey,
  selfSignedCert,
}: StartupMessage): void {
  const body = '{"identifier":"user_1","limit":10,"duration":60000}';
  // In quotes of a shell.
  const quoted = (path: string) => `'${path.replaceAll("'", "'\\''")}'`;
  const plain = (path: string) => ` and by curl --unix-socket ${quoted(path)} http://localhost`;
  const also = socket === undefined ? '' : plain(socket);
  const trusting = selfSignedCert === undefined ? '' : ` --cacert ${quoted(selfSignedCert)}`;
  const serves = `weir serves checks on ${describeUrls(checkUrls)}${also}; health and metrics on`;
  if (firstKey === undefined) {
    try {
      writeStandardOutput(`${serves} ${describeUrls(adminUrls)}\n`);
    } catch {
      // Nobody reads standard output; the log has the same line.
    }
    return;
  }
  writeStandardOutput(
    `${serves} ${describeUrls(adminUrls)}.\n` +
      'This is the first start. weir does not store the root key and prints it only now:\n\n' +
      `export WEIR_KEY=${firstKey}\n\nA check from this machine:\n\n` +
      `curl -s${trusting} ${checkUrls.localUrl}/v1/ratelimits.limit` +
      ` -H 'Authorization: Bearer ${firstKey}'` +
      ` -H 'Content-Type: application/json' -d '${body}'\n`,
  );
}
