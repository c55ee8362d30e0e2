/**
 * Where answers leave an acceptor, and what keeps clients that do not read them from filling its
 * memory: uWebSockets.js itself keeps whatever the kernel does not take, and goes on reading
 * requests.
 *
 * So an answer is now and then sent in a way that tells whether the kernel took it: every error,
 * which needs no key, every large answer, and one of LOOK_EVERY others. Where bytes of earlier
 * answers still wait, the client is not reading, and its connection is closed. An answer that is
 * itself more than the kernel takes at once is held here and sent bit by bit, behind TLS from its
 * beginning, for there nobody says how much has gone; a client that takes nothing of it for ten
 * seconds is closed by uWebSockets.js. All that is held is bounded; where there is no room, the
 * connection is closed.
 */

import { type AcceptorLane, COUNT } from '../lanes.ts';
import { HELD_ANSWER_BYTES_MAX } from '../limits.ts';
import type { HttpResponse } from './uws.ts';

/** To look at one takes as long as to make a few small values. */
const LOOK_EVERY = 16;

/** An answer of so many bytes is not left to uWebSockets.js. */
const LARGE_BYTES = 4_096;

export class Outlet {
  readonly #lane: AcceptorLane;
  readonly #closing = new WeakSet<HttpResponse>();
  #answers = 0;
  #heldBytes = 0;

  constructor(lane: AcceptorLane) {
    this.#lane = lane;
  }

  /** Serves nothing behind this request on its connection. Its answer goes by `endLast`. */
  closeAfter(res: HttpResponse): void {
    this.#closing.add(res);
  }

  isClosing(res: HttpResponse): boolean {
    return this.#closing.has(res);
  }

  /** @param write ends the answer; is told whether the connection closes behind it */
  respond(res: HttpResponse, isDraining: boolean, write: (close: boolean) => void): void {
    if (this.isClosing(res)) this.endLast(res, () => write(true));
    else write(isDraining);
  }

  /**
   * Answers a request whose connection is closed behind it, when all that came in the same packet
   * has been parsed. Until then the request is unanswered, so that uWebSockets.js closes the
   * connection at once where another request follows: that one reaches no handler, and this one
   * gets no answer. Answered at once, both would be served, and the connection kept.
   * @param write ends the answer; not called where the connection is gone
   */
  endLast(res: HttpResponse, write: () => void): void {
    let isOpen = true;
    res.onAborted(() => {
      isOpen = false;
    });
    setImmediate(() => {
      if (isOpen) res.cork(write);
    });
  }

  /**
   * @param body copied before this returns
   * @param close with this answer, which is then the last and needs no look
   */
  end(res: HttpResponse, body: string | Uint8Array, close: boolean): void {
    if (body.length >= LARGE_BYTES || ++this.#answers % LOOK_EVERY === 0) {
      this.endLooking(res, body, close);
    } else {
      res.end(body, close);
    }
  }

  /**
   * Ends the answer to a HEAD request. `Content-Length` is that of the body that a GET would get,
   * and no body follows. `endWithoutBody(bytes)` would leave the answer open, so that the next
   * request closes the connection; two calls of `tryEnd` write the same head and end the answer.
   *
   * Without a body uWebSockets.js can only close behind an answer of the length 0. So a closing
   * answer stays open and is closed here; more requests in the same packet close it at once. An
   * answer without a body does not tell whether the kernel took it.
   *
   * @param bytes of the body of a GET, more than 0
   */
  endHead(res: HttpResponse, bytes: number, close: boolean): void {
    if (!close) {
      res.tryEnd('', bytes);
      res.tryEnd('', 0);
      return;
    }
    let isOpen = true;
    res.onAborted(() => {
      isOpen = false;
    });
    res.writeHeader('Connection', 'close').tryEnd('', bytes);
    setImmediate(() => {
      if (isOpen) res.close();
    });
  }

  endLooking(res: HttpResponse, body: string | Uint8Array, close: boolean): void {
    if (close) {
      res.end(body, true);
      return;
    }
    const bytes = typeof body === 'string' ? Buffer.from(body) : body;
    const size = bytes.length;
    const [taken, done] = res.tryEnd(bytes, size);
    if (taken || done) return;
    const sent = res.getWriteOffset();
    const held = size - sent;
    const isUnread = sent === 0 && size < LARGE_BYTES;
    if (isUnread || this.#heldBytes + held > HELD_ANSWER_BYTES_MAX) {
      this.#lane.count(COUNT.shedUnread);
      res.close();
      return;
    }
    const rest = new Uint8Array(bytes.subarray(sent));
    this.#heldBytes += held;
    // Another request before all is sent closes the connection, which is an abort as well.
    res.onAborted(() => {
      this.#heldBytes -= held;
    });
    res.onWritable((offset) => {
      const [, done] = res.tryEnd(rest.subarray(offset - sent), size);
      if (done) this.#heldBytes -= held;
      return true;
    });
  }
}
