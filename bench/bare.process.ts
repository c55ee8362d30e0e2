/**
 * What there is to lose: a bare uWebSockets.js server that reads the body of each request and
 * answers a constant, as the one argument says with or without parsing it. It says its port on
 * standard output.
 */

import { App, us_socket_local_port } from 'uWebSockets.js';
import { ANSWER } from './answer.ts';

const parses = process.argv[2] === 'parse';
const decoder = new TextDecoder();

/** The last body parsed, so that none is left out as unused. */
export let last: unknown;

App()
  .post('/*', (res) => {
    res.onAborted(() => {});
    res.onData((piece, isLast) => {
      if (!isLast) return;
      if (parses) last = JSON.parse(decoder.decode(piece));
      res.writeHeader('Content-Type', 'application/json').end(ANSWER);
    });
  })
  .listen('127.0.0.1', 0, (socket) => {
    if (!socket) throw new Error('the bare server cannot listen');
    process.stdout.write(`port ${us_socket_local_port(socket)}\n`);
  });
