/** A client that keeps its connection and asks one check after the other, and what became of it. */

import type { Socket } from 'node:net';
import { parseResponses, requestBytes } from './http.ts';

export interface ClientResult {
  responses: number;
  /** Why a request that was under way had no good answer. */
  failures: string[];
}

export interface SequentialClientOptions {
  /** Begins a connection. */
  connect: () => Socket;
  body: string;
  pauseMs: number;
  /** Whether it asks again; it goes when it has its answer. */
  shouldContinue: () => boolean;
}

/** Resolves when it has stopped, or the server has closed the connection. */
export function runSequentialClient({
  connect,
  body,
  pauseMs,
  shouldContinue,
}: SequentialClientOptions): Promise<ClientResult> {
  const bytes = requestBytes({ body });
  const outcome: ClientResult = { responses: 0, failures: [] };
  return new Promise((resolve) => {
    const socket = connect();
    let isAsking = true;
    let why = '';
    let received = '';
    const ask = () => {
      isAsking = true;
      socket.write(bytes);
    };
    socket.setNoDelay(true);
    socket.setEncoding('latin1');
    socket.setTimeout(20_000, () => socket.destroy(new Error('no answer for 20 s')));
    socket.on('error', (error) => {
      why = `: ${error.message}`;
    });
    socket.on('close', () => {
      if (isAsking) outcome.failures.push(`closed after ${outcome.responses} answers${why}`);
      resolve(outcome);
    });
    socket.on('data', (data) => {
      const taken = parseResponses(received + data);
      received = taken.rest;
      for (const { status, headers } of taken.answers) {
        isAsking = false;
        if (status === 200) outcome.responses++;
        else outcome.failures.push(`answered ${status}`);
        if (headers.connection === 'close' || !shouldContinue()) socket.destroy();
        else setTimeout(() => socket.writable && ask(), pauseMs);
      }
    });
    ask();
  });
}
