/** Clients with connections of their own, checks that are always allowed, and memory of servers. */

import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  type LimitResponse,
  LONGEST_WINDOW_MS,
  type ParsedResponse,
  parseResponses,
  requestBytes,
  sendCheck,
} from '../../support/http.ts';
import type { ServerProcess } from '../../support/server.ts';

/** The server closes connections that are idle for 10 s. A request then could race with that. */
const REUSE_MAX_IDLE_MS = 4_000;
export const RESPONSE_TIMEOUT_MS = 20_000;

export class HttpConnection {
  readonly socket: Socket;
  /** Complete responses so far; `receivedBytes` also counts incomplete ones. */
  readonly responses: ParsedResponse[] = [];
  receivedBytes = 0;
  isClosed = false;
  /** No process listens on the port, so that no request was received. */
  isRefused = false;
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
      // uWebSockets.js sends an interim `100 Continue` when the client expects one.
      this.responses.push(...parsed.answers.filter(({ status }) => status !== 100));
      this.receivedBytes += data.length;
      this.#resumeWaiting();
    });
    socket.on('error', ({ message, code }: NodeJS.ErrnoException) => {
      this.#error = `: ${message}`;
      this.isRefused = code === 'ECONNREFUSED';
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

  /** Waits for so many responses in all, the end of the connection, or the timeout. */
  async waitFor(count: number, timeoutMs = 0): Promise<void> {
    let isLate = false;
    const onTimeout = () => {
      isLate = true;
      this.#resumeWaiting();
    };
    const timeout = timeoutMs > 0 ? setTimeout(onTimeout, timeoutMs) : undefined;
    while (this.responses.length < count && !this.isClosed && !isLate) {
      await new Promise<void>((resume) => this.#waiting.push(resume));
    }
    clearTimeout(timeout);
  }

  /** Sends a request, and waits for the next response. Rejects when the connection ends. */
  async send(bytes: Uint8Array): Promise<ParsedResponse> {
    const before = this.responses.length;
    this.socket.write(bytes);
    await this.waitFor(before + 1);
    const response = this.responses[before];
    if (response === undefined) throw new Error(`closed after ${before} responses${this.#error}`);
    return response;
  }

  /** Waits for the first response, or the end of the connection. */
  async firstResponse(): Promise<ParsedResponse | undefined> {
    await this.waitFor(1);
    return this.responses[0];
  }
}

/** A sequential client that reuses its connection, and reconnects when the server closes it. */
export class ReconnectingClient {
  readonly #port: number;
  #lastUsedMs = 0;
  /** Whether the last request was not received. */
  isRefused = false;
  #connection: HttpConnection | undefined;

  constructor(port: number) {
    this.#port = port;
  }

  /**
   * @param timeoutMs the longest wait for responses
   * @returns the responses; fewer than `responseCount` after a close or the timeout
   */
  async send(
    packets: readonly Uint8Array[],
    responseCount: number,
    timeoutMs = RESPONSE_TIMEOUT_MS,
  ): Promise<ParsedResponse[]> {
    if (performance.now() - this.#lastUsedMs > REUSE_MAX_IDLE_MS) this.close();
    if (this.#connection?.isClosed !== false) {
      [this.#connection] = openConnections(this.#port, 1);
    }
    const connection = this.#connection;
    for (const [i, packet] of packets.entries()) {
      if (i > 0) await new Promise((next) => setImmediate(next));
      connection.socket.write(packet);
    }
    await connection.waitFor(responseCount, timeoutMs);
    this.isRefused = connection.isRefused;
    this.#lastUsedMs = performance.now();
    const received = connection.responses.splice(0);
    if (received.some(({ headers }) => headers.connection === 'close')) this.close();
    return received;
  }

  /** Sends one v1 check. Rejects unless the status is 200. */
  async check(body: object): Promise<LimitResponse> {
    const [answer] = await this.send([requestBytes({ body: JSON.stringify(body) })], 1);
    if (answer?.status !== 200) throw new Error(`${answer?.status} ${answer?.body}`);
    return JSON.parse(answer.body);
  }

  close(): void {
    this.#connection?.socket.resetAndDestroy();
    this.#connection = undefined;
  }
}

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

/**
 * Sends checks one after the other on one connection. Resolves when the client has stopped, or the
 * server has closed the connection.
 */
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
