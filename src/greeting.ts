/**
 * What a start says on standard output, by the main thread: where weir serves, and, at the first
 * one, its root key, in a line that works as it stands.
 */

import { writeSync } from 'node:fs';

/** An address that callers on this machine can use for the one that is listened on. */
export function reachable(host: string): string {
  if (host === '0.0.0.0') return '127.0.0.1';
  if (host === '::') return '[::1]';
  return host.includes(':') ? `[${host}]` : host;
}

/** Throws when standard output does not take all of it. */
function print(text: string): void {
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; ) at += writeSync(1, bytes, at);
}

/**
 * Says where weir serves, and at its first start the key.
 * @param trusted a certificate that nobody trusts yet, since it is signed by itself
 * @throws where there is a key and nobody to read it
 */
export function greet(
  url: string,
  socket: string | undefined,
  firstKey: string | undefined,
  trusted: string | undefined,
): void {
  const body = '{"identifier":"user_1","limit":10,"duration":60000}';
  // In quotes of a shell.
  const quoted = (path: string) => `'${path.replaceAll("'", "'\\''")}'`;
  const plain = (path: string) => ` and by curl --unix-socket ${quoted(path)} http://localhost`;
  const also = socket === undefined ? '' : plain(socket);
  const trusting = trusted === undefined ? '' : ` --cacert ${quoted(trusted)}`;
  if (firstKey === undefined) {
    try {
      print(`weir serves checks on ${url}${also}\n`);
    } catch {
      // Nobody listens on standard output; the log has the same line.
    }
    return;
  }
  print(
    `weir serves checks on ${url}${also}. This is its first start: the line below holds its root` +
      ' key, which is shown this once and kept nowhere. Keep it.\n\n' +
      `curl -s${trusting} ${url}/v1/ratelimits.limit -H 'Authorization: Bearer ${firstKey}'` +
      ` -H 'Content-Type: application/json' -d '${body}'\n`,
  );
}
