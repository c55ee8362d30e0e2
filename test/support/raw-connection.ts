/** A connection as bytes, until the server closes it: for requests that no client would send. */

import { connect, type Socket } from 'node:net';

export interface ConnectionTranscript {
  /** Everything that the server sent, a character a byte. */
  text: string;
  /** Of the answers that began, those of uWebSockets.js itself among them. */
  statuses: number[];
  /** How many of them weir wrote. */
  weirResponses: number;
  /** Whether the server closed the connection; otherwise the wait was over. */
  isClosed: boolean;
}

/**
 * Writes pieces, each in a packet of its own, and listens until the server closes the connection.
 * @param target a port, or a connection that begins
 * @param timeoutMs how long to listen at most
 * @param intervalMs time between two pieces
 */
export function sendUntilClosed(
  target: number | Socket,
  packets: (Buffer | string)[],
  timeoutMs: number,
  intervalMs = 1,
): Promise<ConnectionTranscript> {
  return new Promise((resolve) => {
    const socket = typeof target === 'number' ? connect(target, '127.0.0.1') : target;
    socket.setNoDelay(true);
    let text = '';
    let next = 0;
    const write = () => next < packets.length && socket.write(packets[next++], 'latin1');
    const writing = setInterval(write, intervalMs);
    const finish = (isClosed: boolean) => {
      clearInterval(writing);
      clearTimeout(waiting);
      socket.destroy();
      const statuses = [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => Number(status));
      const weirResponses = [...text.matchAll(/"requestId"|"success":/g)].length;
      resolve({ text, statuses, weirResponses, isClosed });
    };
    const waiting = setTimeout(() => finish(false), timeoutMs);
    socket.setEncoding('latin1');
    socket.on('data', (data) => {
      text += data;
    });
    socket.resume();
    socket.on('error', () => finish(true));
    socket.on('end', () => finish(true));
  });
}
