/**
 * The only importer of uWebSockets.js, which is a native binary: importing this file throws where
 * there is none for the running Node. Upstream's own package can be put in its place.
 */

import type { TemplatedApp, us_listen_socket } from 'uWebSockets.js';

export {
  App,
  type HttpRequest,
  type HttpResponse,
  SSLApp,
  type TemplatedApp,
  type us_listen_socket,
  us_listen_socket_close,
} from 'uWebSockets.js';

/** LIBUS_LISTEN_EXCLUSIVE_PORT: nobody else may listen there, not even with SO_REUSEPORT. */
const EXCLUSIVE = 1;

export type OnListening = (listening: us_listen_socket | false) => void;

/** What the binary has and its typings have not. */
interface Untyped {
  listen(host: string, port: number, options: number, onListening: OnListening): void;
  /** The address of an App, its bits in a double; it holds in all threads while the App is open. */
  getDescriptor(): number;
  addChildAppDescriptor(descriptor: number): void;
  removeChildAppDescriptor(descriptor: number): void;
}
const untyped = (app: TemplatedApp) => app as TemplatedApp & Untyped;

/** Within the call it is known whether it listens. */
export function listenAlone(
  app: TemplatedApp,
  host: string,
  port: number,
  onListening: OnListening,
): void {
  untyped(app).listen(host, port, EXCLUSIVE, onListening);
}

export function descriptorOf(app: TemplatedApp): number {
  return untyped(app).getDescriptor();
}

/**
 * Connections to an App go in turn to the children that it has, which may be of other threads. All
 * of them have TLS, or none.
 */
export function addChildApp(app: TemplatedApp, descriptor: number): void {
  untyped(app).addChildAppDescriptor(descriptor);
}

/** What was handed on to the child by then still comes to it. */
export function removeChildApp(app: TemplatedApp, descriptor: number): void {
  untyped(app).removeChildAppDescriptor(descriptor);
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
