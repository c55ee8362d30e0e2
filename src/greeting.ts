/**
 * Where weir serves, as its log, its links and its standard output name it. A start prints that on
 * standard output, and the first start its root key too, in a command that works as it is.
 */

import { writeSync } from 'node:fs';
import { isIPv6 } from 'node:net';
import { withoutSlash } from './config/faults.ts';

/** A host as it is written in a URL. */
function inUrl(host: string): string {
  return isIPv6(host) ? `[${host}]` : host;
}

/** Whether the host stands for all addresses of this machine, in whatever spelling. */
function isEveryAddress(host: string): boolean {
  const url = `http://${inUrl(host)}`;
  return URL.canParse(url) && ['0.0.0.0', '[::]'].includes(new URL(url).hostname);
}

/** An address that clients on this machine can use for the one that is listened on. */
export function reachable(host: string): string {
  if (!isEveryAddress(host)) return inUrl(host);
  return isIPv6(host) ? '[::1]' : '127.0.0.1';
}

/** The addresses of a listener. */
export interface Addresses {
  /** What it listens on. */
  listening: string;
  /** By which clients on this machine reach it. */
  local: string;
  /** By which all clients reach it; undefined where nobody has said. */
  common: string | undefined;
}

/** @param publicUrl as configured */
export function addressesOf(
  scheme: 'http' | 'https',
  host: string,
  port: number,
  publicUrl?: string,
): Addresses {
  const listening = `${scheme}://${inUrl(host)}:${port}`;
  const local = `${scheme}://${reachable(host)}:${port}`;
  const own = isEveryAddress(host) ? undefined : listening;
  return { listening, local, common: publicUrl === undefined ? own : withoutSlash(publicUrl) };
}

/** Throws when standard output does not take all of it. */
function print(text: string): void {
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; ) at += writeSync(1, bytes, at);
}

/** An address, and what a client on this machine uses in its place. */
function shown({ listening, local, common }: Addresses): string {
  const url = common ?? listening;
  return url === local ? url : `${url} (from this machine: ${local})`;
}

/** What a start prints. */
export interface Greeting {
  checks: Addresses;
  admin: Addresses;
  socket: string | undefined;
  /** The root key that the first start has made. */
  firstKey: string | undefined;
  /** A certificate that signs itself, which clients have to be told to trust. */
  trusted: string | undefined;
}

/** @throws where there is a key and it cannot be printed */
export function greet({ checks, admin, socket, firstKey, trusted }: Greeting): void {
  const body = '{"identifier":"user_1","limit":10,"duration":60000}';
  // In quotes of a shell.
  const quoted = (path: string) => `'${path.replaceAll("'", "'\\''")}'`;
  const plain = (path: string) => ` and by curl --unix-socket ${quoted(path)} http://localhost`;
  const also = socket === undefined ? '' : plain(socket);
  const trusting = trusted === undefined ? '' : ` --cacert ${quoted(trusted)}`;
  const serves = `weir serves checks on ${shown(checks)}${also}; health and metrics on`;
  if (firstKey === undefined) {
    try {
      print(`${serves} ${shown(admin)}\n`);
    } catch {
      // Nobody reads standard output; the log has the same line.
    }
    return;
  }
  print(
    `${serves} ${shown(admin)}.\n` +
      'This is the first start. weir does not store the root key and prints it only now:\n\n' +
      `export WEIR_KEY=${firstKey}\n\nA check from this machine:\n\n` +
      `curl -s${trusting} ${checks.local}/v1/ratelimits.limit` +
      ` -H 'Authorization: Bearer ${firstKey}'` +
      ` -H 'Content-Type: application/json' -d '${body}'\n`,
  );
}
