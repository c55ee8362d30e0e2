/** A connection that asks one thing after the other, and takes whatever becomes of it. */

import { connect, type Socket } from 'node:net';
import { type Answer, type LimitAnswer, requestBytes, takeAnswers } from './http.ts';

/** One that was idle for long may just be closed by the server, which does so after 10 s. */
const IDLE_MAX_MS = 4_000;

/** A connection that is used again and again, as long as the server keeps it. */
export class Line {
  readonly #port: number;
  #usedMs = 0;
  #socket: Socket | undefined;
  #hear: ((answers: Answer[], closed: boolean) => void) | undefined;

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
      this.#hear?.([], true);
    };
    socket.setNoDelay(true);
    socket.setEncoding('latin1');
    socket.on('data', (data) => {
      const { answers, rest } = takeAnswers(received + data);
      received = rest;
      // To go on, which uWebSockets.js says to who expects it, is no answer.
      const whole = answers.filter(({ status }) => status !== 100);
      if (whole.length > 0) this.#hear?.(whole, false);
    });
    socket.on('error', gone);
    socket.on('close', gone);
    return socket;
  }

  /**
   * Writes one piece or two, each in a packet of its own.
   * @param patienceMs how long after the last answer no other is waited for
   * @returns so many answers, or fewer where the connection was closed or patience is over
   */
  ask(pieces: Buffer[], count: number, patienceMs = 20_000): Promise<Answer[]> {
    if (performance.now() - this.#usedMs > IDLE_MAX_MS) this.close();
    this.#socket ??= this.#open();
    const socket = this.#socket;
    return new Promise((resolve) => {
      const heard: Answer[] = [];
      const finish = () => {
        clearTimeout(patience);
        this.#hear = undefined;
        this.#usedMs = performance.now();
        if (heard.some(({ headers }) => headers.connection === 'close')) this.close();
        resolve(heard);
      };
      const patience = setTimeout(finish, patienceMs);
      let isWritten = pieces.length === 1;
      this.#hear = (answers, closed) => {
        heard.push(...answers);
        if (closed || (isWritten && heard.length >= count)) finish();
      };
      socket.write(pieces[0]);
      if (isWritten) return;
      // What ends a chunked body is not waited for: its answer may be here before.
      setImmediate(() => {
        socket.write(pieces[1]);
        isWritten = true;
        this.#hear?.([], this.#socket !== socket);
      });
    });
  }

  /** One check of v1, which is taken. */
  async check(body: object): Promise<LimitAnswer> {
    const [answer] = await this.ask([requestBytes({ body: JSON.stringify(body) })], 1);
    if (answer?.status !== 200) throw new Error(`${answer?.status} ${answer?.body}`);
    return JSON.parse(answer.body);
  }

  close(): void {
    this.#hear = undefined;
    this.#socket?.resetAndDestroy();
    this.#socket = undefined;
  }
}
