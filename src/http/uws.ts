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
