/** Sends bytes that no HTTP client would send, and records the connection until it closes. */

import { connect, type Socket } from 'node:net';

interface ConnectionTranscript {
  /** All received bytes, one character per byte. */
  text: string;
  /** The status of each response that began, including responses of uWebSockets.js itself. */
  statuses: number[];
  /** The number of responses that weir wrote. */
  weirResponses: number;
  /** Whether the server closed the connection; false after the timeout. */
  isClosed: boolean;
}

/**
 * Writes each packet separately, and records until the server closes the connection.
 * @param target a port, or a connection that is being established
 * @param timeoutMs the longest time to record
 * @param intervalMs time between two packets
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
