/** Many connections at once, what each of them hears, and what that does to the server. */

import { readFileSync } from 'node:fs';
import { connect, type NetConnectOpts, type Socket } from 'node:net';
import {
  LONGEST_WINDOW_MS,
  type ParsedResponse,
  parseResponses,
  requestBytes,
  sendCheck,
} from './http.ts';
import type { ServerProcess } from './server.ts';

export class HttpConnection {
  readonly socket: Socket;
  /** Whole answers so far, and the bytes of all that came. */
  readonly responses: ParsedResponse[] = [];
  receivedBytes = 0;
  isClosed = false;
  readonly closed: Promise<void>;

  constructor(to: NetConnectOpts) {
    this.socket = connect(to);
    this.socket.setNoDelay(true);
    this.socket.setEncoding('latin1');
    let rest = '';
    this.socket.on('data', (data) => {
      const taken = parseResponses(rest + data);
      rest = taken.rest;
      this.responses.push(...taken.answers);
      this.receivedBytes += data.length;
    });
    this.socket.on('error', () => {});
    this.closed = new Promise((resolve) => {
      this.socket.on('close', () => {
        this.isClosed = true;
        resolve();
      });
    });
  }

  /** Sends, and waits for one more whole answer. Rejects when there will be none. */
  async send(bytes: Uint8Array): Promise<ParsedResponse> {
    const had = this.responses.length;
    this.socket.write(bytes);
    while (this.responses.length === had) {
      if (this.isClosed) throw new Error(`closed after ${had} answers`);
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    return this.responses[had];
  }

  /** Waits until something has come, or the end. */
  async firstResponse(): Promise<ParsedResponse | undefined> {
    while (this.responses.length === 0 && !this.isClosed) {
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    return this.responses[0];
  }
}

export function openConnections(port: number, connectionCount: number): HttpConnection[] {
  return Array.from(
    { length: connectionCount },
    () => new HttpConnection({ host: '127.0.0.1', port }),
  );
}

const HUGE_LIMIT = 1e12;

/** A check that is always admitted. */
export function allowedCheck(identifier: string): object {
  return { identifier, limit: HUGE_LIMIT, duration: LONGEST_WINDOW_MS };
}

export function allowedCheckBytes(identifier: string): Buffer {
  return requestBytes({ body: JSON.stringify(allowedCheck(identifier)) });
}

/** How many such checks were charged. */
export async function countCharged({ port }: ServerProcess, identifier: string): Promise<number> {
  return HUGE_LIMIT - (await sendCheck(port, { ...allowedCheck(identifier), cost: 0 })).remaining;
}

/** Resident memory; 0 when it has ended. */
export function residentMiB({ child }: ServerProcess): number {
  const status = readFileSync(`/proc/${child.pid}/status`, 'utf8');
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1_024;
}

export function wait(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
