/** A server that stands for weir, and records the operations that it receives. */

import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';
import { listen } from '../support/http.ts';

export interface RecordedWeir {
  url: string;
  /** Every call, without the path before the name of the operation. */
  calls: { operation: string; body: Record<string, unknown> }[];
  /** The next answers of an operation, instead of the usual one. Undefined: no response. */
  answers: Record<string, (object | undefined)[]>;
  /** How many calls of an operation it has received. */
  count(operation: string): number;
  stop(): void;
}

const USUAL: Record<string, object> = {
  limit: { data: { success: true, limit: 9, remaining: 8, reset: 9e12 } },
  acquire: { success: true, leaseId: 'rlls_1', inUse: 1, limit: 1, expiresAt: 9e12 },
  renew: { success: true, inUse: 1, limit: 1, expiresAt: 9e12 },
  release: { released: 1 },
  reserve: { success: true, reservationId: 'rlrs_1', limit: 9, remaining: 4, reset: 9e12 },
  commit: { success: true, charged: 3, released: 2, late: false },
  cancel: { released: 5 },
};

export async function startRecordedWeir(): Promise<RecordedWeir> {
  const weir = { calls: [], answers: {} } as Pick<RecordedWeir, 'calls' | 'answers'>;
  const server = createServer(async (request, response) => {
    const operation = request.url!.replace(/^\/v[12]\/ratelimits?\./, '');
    weir.calls.push({ operation, body: JSON.parse(await text(request)) });
    const next = weir.answers[operation] ?? [];
    const answer = next.length > 0 ? next.shift() : USUAL[operation];
    if (answer === undefined) request.socket.destroy();
    else response.end(JSON.stringify(answer));
  });
  const url = `http://127.0.0.1:${await listen(server)}`;
  return {
    ...weir,
    url,
    count: (name) => weir.calls.filter(({ operation }) => operation === name).length,
    stop: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
