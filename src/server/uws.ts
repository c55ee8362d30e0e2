/**
 * Loads uWebSockets.js, a native binary that the npm registry has only as repacks. No other file
 * imports it. The package for this platform and Node version is loaded first, otherwise `uws-pack`,
 * which has binaries for more platforms and an older parser. Upstream's own package can be
 * installed in place of `uws-pack`. Importing this file throws a StartError if none of them loads.
 */

import type * as Uws from 'uWebSockets.js';
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { StartError } from '../core/errors.ts';
import { missingBinaryMessage, platformPackage } from './binary.ts';

export type { HttpRequest, HttpResponse, TemplatedApp, us_listen_socket } from 'uWebSockets.js';

type TemplatedApp = Uws.TemplatedApp;
type us_listen_socket = Uws.us_listen_socket;

const require = createRequire(import.meta.url);

/** Name and version of the installed package that `file` belongs to. */
function packageOf(file: string): string {
  for (let folder = dirname(file); ; folder = dirname(folder)) {
    const manifest = join(folder, 'package.json');
    if (!existsSync(manifest)) continue;
    const { name, version } = JSON.parse(readFileSync(manifest, 'utf8'));
    return `${name} ${version}`;
  }
}

async function load(): Promise<{ uws: typeof Uws; name: string }> {
  const name = platformPackage();
  let failure: unknown;
  if (name !== undefined) {
    try {
      return { uws: require(name), name: packageOf(require.resolve(name)) };
    } catch (error) {
      failure = error;
    }
  }
  try {
    const uws = await import('uWebSockets.js');
    return { uws, name: packageOf(fileURLToPath(import.meta.resolve('uWebSockets.js'))) };
  } catch {
    throw new StartError(missingBinaryMessage(failure));
  }
}

const { uws, name } = await load();

/** Name and version of the package that was loaded. */
export const UWS_PACKAGE = name;

/**
 * Whether `endWithoutBody` ends a response with a Content-Length. It does in 20.69, but not in
 * 20.51 and `uws-pack`, which has its own version numbers. Upstream's 20.67 is untested and assumed
 * to be like 20.69.
 */
export const ENDS_WITHOUT_BODY =
  Number(/ 20\.(\d+)/.exec(name)?.[1] ?? Number.POSITIVE_INFINITY) >= 67;

export const { App, SSLApp, us_listen_socket_close, us_socket_local_port } = uws;

/** LIBUS_LISTEN_EXCLUSIVE_PORT: no other socket may listen there, not even by SO_REUSEPORT. */
const EXCLUSIVE_PORT = 1;

type ListenCallback = (listenSocket: us_listen_socket | false) => void;

/** Methods of the binary that its types do not declare. */
interface UntypedMethods {
  listen(host: string, port: number, options: number, onListening: ListenCallback): void;
  /** The address of an App as the bits of a double, valid in all threads while it is open. */
  getDescriptor(): number;
  addChildAppDescriptor(descriptor: number): void;
  removeChildAppDescriptor(descriptor: number): void;
}
const withUntypedMethods = (app: TemplatedApp) => app as TemplatedApp & UntypedMethods;

/** Calls `onListening` before it returns. */
export function listenExclusive(
  app: TemplatedApp,
  host: string,
  port: number,
  onListening: ListenCallback,
): void {
  withUntypedMethods(app).listen(host, port, EXCLUSIVE_PORT, onListening);
}

export function descriptorOf(app: TemplatedApp): number {
  return withUntypedMethods(app).getDescriptor();
}

/**
 * Connections to an App are distributed to its children in turn, which may belong to other threads.
 * Either all of them have TLS, or none.
 */
export function addChildApp(app: TemplatedApp, descriptor: number): void {
  withUntypedMethods(app).addChildAppDescriptor(descriptor);
}

/** Connections that were distributed to the child before still reach it. */
export function removeChildApp(app: TemplatedApp, descriptor: number): void {
  withUntypedMethods(app).removeChildAppDescriptor(descriptor);
}

/**
 * A constant text for uWebSockets.js, as bytes. A string would be copied from V8's heap for each
 * request, which costs 18 ns more.
 */
export function fixedText(text: string): ArrayBuffer {
  const bytes = new ArrayBuffer(text.length);
  new Uint8Array(bytes).set(Buffer.from(text, 'latin1'));
  return bytes;
}
