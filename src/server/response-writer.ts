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
 *
 * The last answer of a connection is sent so that no later request on the connection is served.
 */

import { UNSENT_RESPONSE_BYTES_MAX } from '../core/constants.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../shared-memory/stats.ts';
import { ENDS_WITHOUT_BODY, type HttpResponse } from './uws.ts';

/** To look at one takes as long as to make a few small values. */
const BACKPRESSURE_CHECK_EVERY = 16;

/** An answer of so many bytes is not left to uWebSockets.js. */
const LARGE_RESPONSE_BYTES = 4_096;

/** uWebSockets.js allows properties of ours: a WeakSet would cost each answer a look-up. */
type MarkedResponse = HttpResponse & { isLastOnConnection?: true };

export class ResponseWriter {
  readonly #stats: AcceptorStats;
  #responses = 0;
  #bufferedBytes = 0;

  constructor(stats: AcceptorStats) {
    this.#stats = stats;
  }

  /** Serves nothing after this request on its connection. Its answer goes by `answer`. */
  closeAfterResponse(res: HttpResponse): void {
    (res as MarkedResponse).isLastOnConnection = true;
  }

  isClosing(res: HttpResponse): boolean {
    return (res as MarkedResponse).isLastOnConnection === true;
  }

  /**
   * Answers a request whose connection may have to close after it.
   * @param close what closes in any case: every answer while the server drains
   * @param writeHead writes status and headers; is told whether the connection closes
   * @param body copied before this returns
   * @param isHead the method is HEAD: the answer has the length of the body, and no body
   */
  respond(
    res: HttpResponse,
    close: boolean,
    writeHead: (close: boolean) => void,
    body: string | Uint8Array,
    isHead = false,
  ): void {
    const bytes = typeof body === 'string' ? Buffer.from(body) : body;
    if (this.isClosing(res)) {
      this.#respondAndClose(res, writeHead, new Uint8Array(bytes), isHead);
      return;
    }
    writeHead(close);
    if (isHead) this.#endWithoutBody(res, bytes.length, close);
    else this.#endWithBackpressureCheck(res, bytes, close);
  }

  /**
   * Waits until everything that came in the same packet has been parsed. Until then the request is
   * unanswered, so uWebSockets.js closes the connection at once where another request follows: that
   * one reaches no handler, and this one gets no answer. Were it answered before, uWebSockets.js
   * would serve both, and keep the connection.
   */
  #respondAndClose(
    res: HttpResponse,
    writeHead: (close: boolean) => void,
    bytes: Uint8Array,
    isHead: boolean,
  ): void {
    let isOpen = true;
    res.onAborted(() => {
      isOpen = false;
    });
    setImmediate(() => {
      if (!isOpen) return;
      res.cork(() => {
        writeHead(true);
        if (isHead) this.#endWithoutBody(res, bytes.length, true);
        else this.#endAndClose(res, bytes);
      });
    });
  }

  /**
   * Sends the body of the last answer of a connection, and closes the connection. Until then the
   * request stays unanswered, for a connection whose client is slow to read would else be served
   * on: uWebSockets.js is told of one byte more than there is, behind the true `Content-Length`.
   */
  #endAndClose(res: HttpResponse, bytes: Uint8Array): void {
    const size = bytes.length;
    if (size < 2) {
      res.end(bytes, true);
      return;
    }
    let isOpen = true;
    let held = 0;
    res.onAborted(() => {
      isOpen = false;
      this.#bufferedBytes -= held;
    });
    const sendRest = (): void => {
      const sent = res.getWriteOffset();
      if (sent < size) res.tryEnd(bytes.subarray(sent), size + 1);
      if (res.getWriteOffset() < size) return;
      setImmediate(() => {
        if (isOpen) res.close();
      });
    };
    res.writeHeader('Connection', 'close').tryEnd(bytes.subarray(0, size - 1), size);
    sendRest();
    if (res.getWriteOffset() === size) return;
    if (this.#bufferedBytes + size > UNSENT_RESPONSE_BYTES_MAX) {
      this.#stats.increment(ACCEPTOR_STAT.shedUnreadResponses);
      res.close();
      return;
    }
    held = size;
    this.#bufferedBytes += held;
    res.onWritable(() => {
      sendRest();
      return true;
    });
  }

  /**
   * Ends the answer to a HEAD request. `Content-Length` is that of the body that a GET would get,
   * and no body follows. An answer without a body does not tell whether the kernel took it.
   *
   * Older versions of uWebSockets.js leave an answer open after `endWithoutBody`, so that the next
   * request closes the connection. There two calls of `tryEnd` write the same head and end the
   * answer. They close only behind an answer of length 0, so a closing one stays open and is closed
   * here; more requests in the same packet close it at once.
   *
   * @param contentLength of the body of a GET
   */
  #endWithoutBody(res: HttpResponse, contentLength: number, close: boolean): void {
    if (contentLength === 0) {
      res.end('', close);
      return;
    }
    if (ENDS_WITHOUT_BODY) {
      res.endWithoutBody(contentLength, close);
      return;
    }
    if (!close) {
      res.tryEnd('', contentLength);
      res.tryEnd('', 0);
      return;
    }
    let isOpen = true;
    res.onAborted(() => {
      isOpen = false;
    });
    res.writeHeader('Connection', 'close').tryEnd('', contentLength);
    setImmediate(() => {
      if (isOpen) res.close();
    });
  }

  /**
   * @param body copied before this returns
   * @param close with this answer, while the server drains: requests in the same packet are served
   */
  end(res: HttpResponse, body: string | Uint8Array, close: boolean): void {
    if (body.length >= LARGE_RESPONSE_BYTES || ++this.#responses % BACKPRESSURE_CHECK_EVERY === 0) {
      this.#endWithBackpressureCheck(res, body, close);
    } else {
      res.end(body, close);
    }
  }

  #endWithBackpressureCheck(res: HttpResponse, body: string | Uint8Array, close: boolean): void {
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
    const isUnread = sent === 0 && size < LARGE_RESPONSE_BYTES;
    if (isUnread || this.#bufferedBytes + held > UNSENT_RESPONSE_BYTES_MAX) {
      this.#stats.increment(ACCEPTOR_STAT.shedUnreadResponses);
      res.close();
      return;
    }
    const rest = new Uint8Array(bytes.subarray(sent));
    this.#bufferedBytes += held;
    // Another request before all is sent closes the connection, which is an abort as well.
    res.onAborted(() => {
      this.#bufferedBytes -= held;
    });
    res.onWritable((offset) => {
      const [, done] = res.tryEnd(rest.subarray(offset - sent), size);
      if (done) this.#bufferedBytes -= held;
      return true;
    });
  }
}
