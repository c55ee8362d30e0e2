/** A connection that asks one thing after the other, and takes whatever becomes of it. */

import { connect, type Socket } from 'node:net';
import { type LimitResponse, type ParsedResponse, parseResponses, requestBytes } from './http.ts';

/** One that was idle for long may just be closed by the server, which does so after 10 s. */
const REUSE_MAX_IDLE_MS = 4_000;

/** A connection that is used again and again, as long as the server keeps it. */
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
    const gone = () => {
      // One that was given up may be gone only when the next is in use.
      if (this.#socket !== socket) return;
      this.#socket = undefined;
      this.#onResponses?.([], true);
    };
    socket.setNoDelay(true);
    socket.setEncoding('latin1');
    socket.on('data', (data) => {
      const { answers, rest } = parseResponses(received + data);
      received = rest;
      // To go on, which uWebSockets.js says to who expects it, is no answer.
      const whole = answers.filter(({ status }) => status !== 100);
      if (whole.length > 0) this.#onResponses?.(whole, false);
    });
    socket.on('error', gone);
    socket.on('close', gone);
    return socket;
  }

  /**
   * Writes one piece or two, each in a packet of its own.
   * @param timeoutMs how long after the last answer no other is waited for
   * @returns so many answers, or fewer where the connection was closed or patience is over
   */
  send(packets: Buffer[], responseCount: number, timeoutMs = 20_000): Promise<ParsedResponse[]> {
    if (performance.now() - this.#lastUsedMs > REUSE_MAX_IDLE_MS) this.close();
    this.#socket ??= this.#open();
    const socket = this.#socket;
    return new Promise((resolve) => {
      const heard: ParsedResponse[] = [];
      const finish = () => {
        clearTimeout(patience);
        this.#onResponses = undefined;
        this.#lastUsedMs = performance.now();
        if (heard.some(({ headers }) => headers.connection === 'close')) this.close();
        resolve(heard);
      };
      const patience = setTimeout(finish, timeoutMs);
      let isWritten = packets.length === 1;
      this.#onResponses = (answers, closed) => {
        heard.push(...answers);
        if (closed || (isWritten && heard.length >= responseCount)) finish();
      };
      socket.write(packets[0]);
      if (isWritten) return;
      // What ends a chunked body is not waited for: its answer may be here before.
      setImmediate(() => {
        socket.write(packets[1]);
        isWritten = true;
        this.#onResponses?.([], this.#socket !== socket);
      });
    });
  }

  /** One check of v1, which is taken. */
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
