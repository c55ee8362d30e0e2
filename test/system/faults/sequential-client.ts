/** A client that sends checks one after the other on one connection, and counts the outcomes. */

import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { requestBytes } from '../../support/http.ts';
import { HttpConnection } from './http-connections.ts';

export interface ClientResult {
  responses: number;
  /** A description of each request without a 200 response. */
  failures: string[];
}

interface SequentialClientOptions {
  /** Opens the connection. */
  connect: () => Socket;
  body: string;
  pauseMs: number;
  /** Called after each response: whether to send another check. */
  shouldContinue: () => boolean;
}

const RESPONSE_TIMEOUT_MS = 20_000;

/** Resolves when the client has stopped, or the server has closed the connection. */
export async function runSequentialClient({
  connect,
  body,
  pauseMs,
  shouldContinue,
}: SequentialClientOptions): Promise<ClientResult> {
  const bytes = requestBytes({ body });
  const result: ClientResult = { responses: 0, failures: [] };
  const connection = new HttpConnection(connect());
  const { socket } = connection;
  socket.setTimeout(RESPONSE_TIMEOUT_MS, () => socket.destroy(new Error('no response for 20 s')));
  try {
    do {
      const { status, headers } = await connection.send(bytes);
      if (status === 200) result.responses++;
      else result.failures.push(`status ${status}`);
      if (headers.connection === 'close' || !shouldContinue()) break;
      await sleep(pauseMs);
    } while (socket.writable);
  } catch (error) {
    result.failures.push((error as Error).message);
  }
  socket.destroy();
  await connection.closed;
  return result;
}
