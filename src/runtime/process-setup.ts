/**
 * Prepares the process before anything else: the file mode mask, the addon of uWebSockets.js and
 * the flags of V8. A Node without a binary of the addon is a StartError.
 */

import { REQUEST_HEAD_MAX_BYTES } from '../core/constants.ts';
import { setV8Flags } from './v8-flags.ts';

/** @returns the package that uWebSockets.js comes from, with its version */
export async function prepareProcess(): Promise<string> {
  process.umask(0o077);
  // The addon reads this variable when it loads, and from the real environment. Only the main
  // thread can set that, so it loads the addon before the acceptors do.
  process.env.UWS_HTTP_MAX_HEADERS_SIZE = String(REQUEST_HEAD_MAX_BYTES);
  const { UWS_PACKAGE } = await import('../server/uws.ts');
  setV8Flags();
  return UWS_PACKAGE;
}
