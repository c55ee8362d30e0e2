/**
 * The message that a start prints on standard output. The first start also prints its root key, in
 * a command that works as printed; it fails where the key cannot be printed.
 */

import { writeSync } from 'node:fs';
import type { Listeners } from './addresses.ts';
import type { ListenerUrls } from './listener-urls.ts';

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

/**
 * @param firstKey the root key that this start has made
 * @throws where there is such a key and it cannot be printed
 */
export function printStartupMessage(
  { tls, reserved, checkUrls, adminUrls }: Listeners,
  firstKey: string | undefined,
): void {
  const { socket } = reserved.addresses;
  const body = '{"identifier":"user_1","limit":10,"duration":60000}';
  const shellQuoted = (path: string) => `'${path.replaceAll("'", "'\\''")}'`;
  const socketHint =
    socket === undefined
      ? ''
      : ` and by curl --unix-socket ${shellQuoted(socket)} http://localhost`;
  // Clients must be configured to trust a self-signed certificate.
  const trustOption = tls?.isSelfSigned ? ` --cacert ${shellQuoted(tls.files.cert)}` : '';
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
