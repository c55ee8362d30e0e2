/**
 * The only importer of uWebSockets.js, a native binary that the npm registry has in repacks only.
 * It loads the package for this platform and Node version, otherwise `uws-pack`, which has binaries
 * for more platforms and an older parser; upstream's own package can be installed in place of
 * `uws-pack`. Importing this file throws a StartError where none of them can be loaded.
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

/** Which package the binary comes from, with its version. */
export const UWS_PACKAGE = name;

/**
 * Whether `endWithoutBody` ends an answer of a length. 20.69 does; 20.51 does not, nor `uws-pack`,
 * whose versions are its own. Upstream's 20.67 was not tried; it is taken to be like 20.69.
 */
export const ENDS_WITHOUT_BODY =
  Number(/ 20\.(\d+)/.exec(name)?.[1] ?? Number.POSITIVE_INFINITY) >= 67;

export const { App, SSLApp, us_listen_socket_close, us_socket_local_port } = uws;

/** LIBUS_LISTEN_EXCLUSIVE_PORT: nobody else may listen there, not even with SO_REUSEPORT. */
const EXCLUSIVE_PORT = 1;

export type ListenCallback = (listening: us_listen_socket | false) => void;

/** What the binary has and its typings have not. */
interface UntypedMethods {
  listen(host: string, port: number, options: number, onListening: ListenCallback): void;
  /** The address of an App, its bits in a double; it holds in all threads while the App is open. */
  getDescriptor(): number;
  addChildAppDescriptor(descriptor: number): void;
  removeChildAppDescriptor(descriptor: number): void;
}
const withUntypedMethods = (app: TemplatedApp) => app as TemplatedApp & UntypedMethods;

/** Within the call it is known whether it listens. */
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
 * Connections to an App go in turn to the children that it has, which may be of other threads. All
 * of them have TLS, or none.
 */
export function addChildApp(app: TemplatedApp, descriptor: number): void {
  withUntypedMethods(app).addChildAppDescriptor(descriptor);
}

/** What was handed on to the child by then still comes to it. */
export function removeChildApp(app: TemplatedApp, descriptor: number): void {
  withUntypedMethods(app).removeChildAppDescriptor(descriptor);
}

/**
 * Text that every request hands over to uWebSockets.js, as bytes: 18 ns less than a string, which
 * is copied out of V8's heap each time.
 */
export function fixedText(text: string): ArrayBuffer {
  const bytes = new ArrayBuffer(text.length);
  new Uint8Array(bytes).set(Buffer.from(text, 'latin1'));
  return bytes;
}
