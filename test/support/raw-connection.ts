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

const RESPONSE_TIMEOUT_MS = 20_000;

/**
 * Writes each packet separately, and records until the server closes the connection.
 * @param target a port, or a connection that is being established
 * @param timeoutMs the longest time to record, after `responseCount` responses have begun
 * @param intervalMs time between two packets
 * @param responseCount responses to wait for, however slow the machine is
 */
export function sendUntilClosed(
  target: number | Socket,
  packets: (Buffer | string)[],
  timeoutMs: number,
  intervalMs = 1,
  responseCount = 0,
): Promise<ConnectionTranscript> {
  return new Promise((resolve) => {
    const socket = typeof target === 'number' ? connect(target, '127.0.0.1') : target;
    socket.setNoDelay(true);
    let text = '';
    let next = 0;
    const statusesIn = () => {
      return [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => Number(status));
    };
    const write = () => next < packets.length && socket.write(packets[next++], 'latin1');
    const writing = setInterval(write, intervalMs);
    const finish = (isClosed: boolean) => {
      clearInterval(writing);
      clearTimeout(waiting);
      socket.destroy();
      const weirResponses = [...text.matchAll(/"requestId"|"success":/g)].length;
      resolve({ text, statuses: statusesIn(), weirResponses, isClosed });
    };
    const waitFor = (ms: number) => setTimeout(() => finish(false), ms);
    let isWaitingForResponses = responseCount > 0;
    let waiting = waitFor(isWaitingForResponses ? RESPONSE_TIMEOUT_MS : timeoutMs);
    socket.setEncoding('latin1');
    socket.on('data', (data) => {
      text += data;
      if (!isWaitingForResponses || statusesIn().length < responseCount) return;
      isWaitingForResponses = false;
      clearTimeout(waiting);
      waiting = waitFor(timeoutMs);
    });
    socket.resume();
    socket.on('error', () => finish(true));
    socket.on('end', () => finish(true));
  });
}

/**
 * As `sendUntilClosed` with one packet, for a connection that should stay open. After the responses
 * it sends another request, whose response shows that the connection is open and that no other
 * response was on its way. The transcript is without that response.
 */
export async function sendAndProbe(
  port: number,
  packet: Buffer | string,
  responseCount: number,
): Promise<ConnectionTranscript> {
  const socket = connect(port, '127.0.0.1');
  let received = '';
  socket.on('data', (data) => {
    const before = received.split('HTTP/1.1 ').length - 1;
    received += String(data);
    const after = received.split('HTTP/1.1 ').length - 1;
    if (before < responseCount && after >= responseCount) {
      socket.write('GET /probe HTTP/1.1\r\nHost: a\r\n\r\n');
    }
  });
  const transcript = await sendUntilClosed(socket, [packet], 0, 1, responseCount + 1);
  const { text, statuses, isClosed } = transcript;
  if (isClosed) return transcript;
  const own = text.lastIndexOf('HTTP/1.1 404');
  return { ...transcript, text: text.slice(0, own), statuses: statuses.slice(0, -1) };
}
