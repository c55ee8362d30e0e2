/** Many connections at once, what each of them hears, and what that does to the server. */

import { readFileSync } from 'node:fs';
import { connect, type NetConnectOpts, type Socket } from 'node:net';
import { type Answer, check, LASTING_MS, requestBytes, takeAnswers } from './http.ts';
import type { Running } from './server.ts';

export class Caller {
  readonly socket: Socket;
  /** Whole answers so far, and the bytes of all that came. */
  readonly answers: Answer[] = [];
  receivedBytes = 0;
  isClosed = false;
  readonly closed: Promise<void>;

  constructor(to: NetConnectOpts) {
    this.socket = connect(to);
    this.socket.setNoDelay(true);
    this.socket.setEncoding('latin1');
    let rest = '';
    this.socket.on('data', (data) => {
      const taken = takeAnswers(rest + data);
      rest = taken.rest;
      this.answers.push(...taken.answers);
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
  async ask(bytes: Uint8Array): Promise<Answer> {
    const had = this.answers.length;
    this.socket.write(bytes);
    while (this.answers.length === had) {
      if (this.isClosed) throw new Error(`closed after ${had} answers`);
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    return this.answers[had];
  }

  /** Waits until something has come, or the end. */
  async heard(): Promise<Answer | undefined> {
    while (this.answers.length === 0 && !this.isClosed) {
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    return this.answers[0];
  }
}

export function callers(port: number, count: number): Caller[] {
  return Array.from({ length: count }, () => new Caller({ host: '127.0.0.1', port }));
}

const PLENTY = 1e12;

/** A check that is always admitted. */
export function limited(identifier: string): object {
  return { identifier, limit: PLENTY, duration: LASTING_MS };
}

export function bytesOf(identifier: string): Buffer {
  return requestBytes({ body: JSON.stringify(limited(identifier)) });
}

/** How many such checks were charged. */
export async function used({ port }: Running, identifier: string): Promise<number> {
  return PLENTY - (await check(port, { ...limited(identifier), cost: 0 })).remaining;
}

/** Resident memory; 0 when it has ended. */
export function residentMiB({ child }: Running): number {
  const status = readFileSync(`/proc/${child.pid}/status`, 'utf8');
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1_024;
}

export function wait(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
