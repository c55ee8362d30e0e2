/** A connection as bytes, until the server closes it: for requests that no client would send. */

import { connect, type Socket } from 'node:net';

export interface Heard {
  /** Everything that the server sent, a character a byte. */
  text: string;
  /** Of the answers that began, those of uWebSockets.js itself among them. */
  statuses: number[];
  /** How many of them weir wrote. */
  own: number;
  /** Whether the server closed the connection; otherwise the wait was over. */
  closed: boolean;
}

/**
 * Writes pieces, each in a packet of its own, and listens until the server closes the connection.
 * @param to a port, or a connection that begins
 * @param waitMs how long to listen at most
 * @param everyMs time between two pieces
 */
export function hear(
  to: number | Socket,
  pieces: (Buffer | string)[],
  waitMs: number,
  everyMs = 1,
): Promise<Heard> {
  return new Promise((resolve) => {
    const socket = typeof to === 'number' ? connect(to, '127.0.0.1') : to;
    socket.setNoDelay(true);
    let text = '';
    let next = 0;
    const write = () => next < pieces.length && socket.write(pieces[next++], 'latin1');
    const writing = setInterval(write, everyMs);
    const finish = (closed: boolean) => {
      clearInterval(writing);
      clearTimeout(waiting);
      socket.destroy();
      const statuses = [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => Number(status));
      const own = [...text.matchAll(/"requestId"|"success":/g)].length;
      resolve({ text, statuses, own, closed });
    };
    const waiting = setTimeout(() => finish(false), waitMs);
    socket.setEncoding('latin1');
    socket.on('data', (data) => {
      text += data;
    });
    socket.resume();
    socket.on('error', () => finish(true));
    socket.on('end', () => finish(true));
  });
}
