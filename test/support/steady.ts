/** A client that keeps its connection and asks one check after the other, and what became of it. */

import type { Socket } from 'node:net';
import { requestBytes, takeAnswers } from './http.ts';

export interface Outcome {
  answered: number;
  /** Why a request that was under way had no good answer. */
  lost: string[];
}

export interface Steady {
  /** Begins a connection. */
  connect: () => Socket;
  body: string;
  pauseMs: number;
  /** Whether it asks again; it goes when it has its answer. */
  goesOn: () => boolean;
}

/** Resolves when it has stopped, or the server has closed the connection. */
export function steady({ connect, body, pauseMs, goesOn }: Steady): Promise<Outcome> {
  const bytes = requestBytes({ body });
  const outcome: Outcome = { answered: 0, lost: [] };
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
      if (isAsking) outcome.lost.push(`closed after ${outcome.answered} answers${why}`);
      resolve(outcome);
    });
    socket.on('data', (data) => {
      const taken = takeAnswers(received + data);
      received = taken.rest;
      for (const { status, headers } of taken.answers) {
        isAsking = false;
        if (status === 200) outcome.answered++;
        else outcome.lost.push(`answered ${status}`);
        if (headers.connection === 'close' || !goesOn()) socket.destroy();
        else setTimeout(() => socket.writable && ask(), pauseMs);
      }
    });
    ask();
  });
}
