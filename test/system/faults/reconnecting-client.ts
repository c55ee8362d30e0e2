/** A sequential client that reuses its connection, and reconnects when the server closes it. */

import { connect, type Socket } from 'node:net';
import {
  type LimitResponse,
  type ParsedResponse,
  parseResponses,
  requestBytes,
} from '../../support/http.ts';

/** The server closes connections that are idle for 10 s. A request then could race with that. */
const REUSE_MAX_IDLE_MS = 4_000;

export class ReconnectingClient {
  readonly #port: number;
  #lastUsedMs = 0;
  #socket: Socket | undefined;
  #onResponses: ((answers: ParsedResponse[], closed: boolean) => void) | undefined;

  constructor(port: number) {
    this.#port = port;
  }

  #open(): Socket {
    const socket = connect(this.#port, '127.0.0.1');
    let received = '';
    const onEnd = () => {
      // A connection that this client closed may end after the next one is in use.
      if (this.#socket !== socket) return;
      this.#socket = undefined;
      this.#onResponses?.([], true);
    };
    socket.setNoDelay(true);
    socket.setEncoding('latin1');
    socket.on('data', (data) => {
      const { answers, rest } = parseResponses(received + data);
      received = rest;
      // uWebSockets.js sends an interim `100 Continue` when the client expects one.
      const whole = answers.filter(({ status }) => status !== 100);
      if (whole.length > 0) this.#onResponses?.(whole, false);
    });
    socket.on('error', onEnd);
    socket.on('close', onEnd);
    return socket;
  }

  /**
   * Sends one or two packets.
   * @param timeoutMs the longest wait for responses
   * @returns the responses; fewer than `responseCount` after a close or the timeout
   */
  send(packets: Buffer[], responseCount: number, timeoutMs = 20_000): Promise<ParsedResponse[]> {
    if (performance.now() - this.#lastUsedMs > REUSE_MAX_IDLE_MS) this.close();
    this.#socket ??= this.#open();
    const socket = this.#socket;
    return new Promise((resolve) => {
      const received: ParsedResponse[] = [];
      const finish = () => {
        clearTimeout(timeout);
        this.#onResponses = undefined;
        this.#lastUsedMs = performance.now();
        if (received.some(({ headers }) => headers.connection === 'close')) this.close();
        resolve(received);
      };
      const timeout = setTimeout(finish, timeoutMs);
      let isWritten = packets.length === 1;
      this.#onResponses = (answers, closed) => {
        received.push(...answers);
        if (closed || (isWritten && received.length >= responseCount)) finish();
      };
      socket.write(packets[0]);
      if (isWritten) return;
      // The response may arrive before the second packet, which ends a chunked body, is sent.
      setImmediate(() => {
        socket.write(packets[1]);
        isWritten = true;
        this.#onResponses?.([], this.#socket !== socket);
      });
    });
  }

  /** Sends one v1 check. Rejects unless the status is 200. */
  async check(body: object): Promise<LimitResponse> {
    const [answer] = await this.send([requestBytes({ body: JSON.stringify(body) })], 1);
    if (answer?.status !== 200) throw new Error(`${answer?.status} ${answer?.body}`);
    return JSON.parse(answer.body);
  }

  close(): void {
    this.#onResponses = undefined;
    this.#socket?.resetAndDestroy();
    this.#socket = undefined;
  }
}
