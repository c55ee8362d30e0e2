/**
 * What there is to lose: a bare uWebSockets.js server that reads the body of each request and
 * answers a constant, as the first argument says with or without parsing it. It says its port on
 * standard output. A second argument is the path of a Unix socket where it listens too.
 */

import { App, type us_listen_socket, us_socket_local_port } from '../../src/server/uws.ts';
import { CONSTANT_RESPONSE } from './constant-response.ts';

const [, , what, socketPath] = process.argv;
const parses = what === 'parse';
const decoder = new TextDecoder();

/** The last body parsed, so that none is left out as unused. */
export let last: unknown;

const app = App().post('/*', (res) => {
  res.onAborted(() => {});
  res.onData((piece, isLast) => {
    if (!isLast) return;
    if (parses) last = JSON.parse(decoder.decode(piece));
    res.writeHeader('Content-Type', 'application/json').end(CONSTANT_RESPONSE);
  });
});
if (socketPath !== undefined) app.listen_unix(mustListen, socketPath);
app.listen('127.0.0.1', 0, (socket) => {
  mustListen(socket);
  process.stdout.write(`port ${us_socket_local_port(socket)}\n`);
});

function mustListen(socket: us_listen_socket | false): void {
  if (!socket) throw new Error('the bare server cannot listen');
}
