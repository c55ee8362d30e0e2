/** Concurrent connections to a server, their responses, and the server's memory. */

import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import {
  LONGEST_WINDOW_MS,
  type ParsedResponse,
  parseResponses,
  requestBytes,
  sendCheck,
} from '../../support/http.ts';
import type { ServerProcess } from '../../support/server.ts';

export class HttpConnection {
  readonly socket: Socket;
  /** Complete responses so far; `receivedBytes` also counts incomplete ones. */
  readonly responses: ParsedResponse[] = [];
  receivedBytes = 0;
  isClosed = false;
  readonly closed: Promise<void>;
  #error = '';
  readonly #waiting: (() => void)[] = [];

  constructor(socket: Socket) {
    this.socket = socket;
    socket.setNoDelay(true);
    socket.setEncoding('latin1');
    let rest = '';
    socket.on('data', (data) => {
      const parsed = parseResponses(rest + data);
      rest = parsed.rest;
      this.responses.push(...parsed.answers);
      this.receivedBytes += data.length;
      this.#resumeWaiting();
    });
    socket.on('error', ({ message }) => {
      this.#error = `: ${message}`;
    });
    this.closed = new Promise((resolve) => {
      socket.on('close', () => {
        this.isClosed = true;
        this.#resumeWaiting();
        resolve();
      });
    });
  }

  #resumeWaiting(): void {
    for (const resume of this.#waiting.splice(0)) resume();
  }

  /** Waits for more responses than `count`, or the end of the connection. */
  async #waitBeyond(count: number): Promise<ParsedResponse | undefined> {
    while (this.responses.length <= count && !this.isClosed) {
      await new Promise<void>((resume) => this.#waiting.push(resume));
    }
    return this.responses[count];
  }

  /** Sends a request, and waits for the next response. Rejects when the connection ends. */
  async send(bytes: Uint8Array): Promise<ParsedResponse> {
    const before = this.responses.length;
    this.socket.write(bytes);
    const response = await this.#waitBeyond(before);
    if (response === undefined) throw new Error(`closed after ${before} responses${this.#error}`);
    return response;
  }

  /** Waits for the first response, or the end of the connection. */
  firstResponse(): Promise<ParsedResponse | undefined> {
    return this.#waitBeyond(0);
  }
}

export function openConnections(port: number, connectionCount: number): HttpConnection[] {
  return Array.from(
    { length: connectionCount },
    () => new HttpConnection(connect(port, '127.0.0.1')),
  );
}

const HUGE_LIMIT = 1e12;

/** A check that is always allowed. */
export function allowedCheck(identifier: string): object {
  return { identifier, limit: HUGE_LIMIT, duration: LONGEST_WINDOW_MS };
}

export function allowedCheckBytes(identifier: string): Buffer {
  return requestBytes({ body: JSON.stringify(allowedCheck(identifier)) });
}

/** Number of checks of `allowedCheck` that were charged. */
export async function countCharged({ port }: ServerProcess, identifier: string): Promise<number> {
  return HUGE_LIMIT - (await sendCheck(port, { ...allowedCheck(identifier), cost: 0 })).remaining;
}

/** Resident memory; 0 when the process has ended. */
export function residentMiB({ child }: ServerProcess): number {
  const status = readFileSync(`/proc/${child.pid}/status`, 'utf8');
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1_024;
}
