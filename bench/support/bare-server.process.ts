/**
 * The baseline: a bare uWebSockets.js server that reads the body of each request and sends a
 * constant response. The first argument, `parse` or `read`, tells whether it parses the body. It
 * prints its port. An optional second argument is the path of a Unix socket on which it also
 * listens.
 */

import { App, type us_listen_socket, us_socket_local_port } from '../../src/server/uws.ts';
import { CONSTANT_RESPONSE } from './constant-response.ts';

const [, , mode, socketPath] = process.argv;
const parses = mode === 'parse';
const decoder = new TextDecoder();

/** The last parsed body, exported so that V8 cannot remove the parsing as dead code. */
export let last: unknown;

const app = App().post('/*', (res) => {
  res.onAborted(() => {});
  res.onData((chunk, isLast) => {
    if (!isLast) return;
    if (parses) last = JSON.parse(decoder.decode(chunk));
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
