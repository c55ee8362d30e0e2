/**
 * Sends the responses of an acceptor, and bounds the memory for clients that do not read them:
 * uWebSockets.js buffers what the kernel does not accept, and keeps reading requests.
 *
 * Some responses are sent with a check of backpressure: every error, since it needs no key, every
 * large response, and one of BACKPRESSURE_CHECK_EVERY others. If bytes of earlier responses are
 * still unsent, the connection is closed. The rest of a response that the kernel does not accept at
 * once (with TLS all of it, since the sent bytes are unknown) is buffered here, within a bound, and
 * sent in parts. Over the bound, or after ten seconds without progress, the connection closes. The
 * bytes of a page never change: all responses share them, and they do not count.
 *
 * The backpressure of a response without a body is unknown. Those that need no key may leave a
 * connection open up to a rate; beyond it each closes its connection.
 */

import { UNSENT_RESPONSE_BYTES_MAX } from '../core/constants.ts';
import type { Clock } from '../shared-memory/clock.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../shared-memory/stats.ts';
import { ENDS_WITHOUT_BODY, type HttpResponse } from './uws.ts';

/** One check of backpressure costs as much as a few small allocations. */
const BACKPRESSURE_CHECK_EVERY = 16;

/** From this size on, every response is checked for backpressure. */
const LARGE_RESPONSE_BYTES = 4_096;

/** Unchecked responses at once, and then in each second. A head has some 600 bytes. */
const UNCHECKED_BURST = 1_024;
const UNCHECKED_PER_SECOND = 10;

/** A property of the response object; a WeakSet would cost each response a look-up. */
type MarkedResponse = HttpResponse & { isLastOnConnection?: true };

export class ResponseWriter {
  readonly #stats: AcceptorStats;
  readonly #clock: Clock;
  #responses = 0;
  #bufferedBytes = 0;
  #uncheckedLeft = UNCHECKED_BURST;
  #uncheckedMs = 0;

  constructor(stats: AcceptorStats, clock: Clock) {
    this.#stats = stats;
    this.#clock = clock;
  }

  /** Serves no request after this one on its connection. `respond` must send its response. */
  closeAfterResponse(res: HttpResponse): void {
    (res as MarkedResponse).isLastOnConnection = true;
  }

  isClosing(res: HttpResponse): boolean {
    return (res as MarkedResponse).isLastOnConnection === true;
  }

  /**
   * Counts a response without a body, as to HEAD, to a client that may have no key.
   * @returns whether the connection must close after it
   */
  closesUnchecked(): boolean {
    const nowMs = this.#clock.monotonicMs();
    const refill = ((nowMs - this.#uncheckedMs) * UNCHECKED_PER_SECOND) / 1_000;
    this.#uncheckedLeft = Math.min(UNCHECKED_BURST, this.#uncheckedLeft + refill);
    this.#uncheckedMs = nowMs;
    if (this.#uncheckedLeft < 1) return true;
    this.#uncheckedLeft--;
    return false;
  }

  /**
   * Sends the response to a request whose connection may have to close after it.
   * @param close closes the connection in any case, as while the service drains
   * @param writeHead writes status and headers; gets whether the connection closes
   * @param body copied before this returns, unless it is a page
   * @param isHead the method is HEAD: the response has the length of the body, but no body
   * @param isPage the bytes of the body never change
   */
  respond(
    res: HttpResponse,
    close: boolean,
    writeHead: (close: boolean) => void,
    body: string | Uint8Array,
    isHead = false,
    isPage = false,
  ): void {
    const bytes = typeof body === 'string' ? Buffer.from(body) : body;
    // While the service drains, `end` would buffer a page for each client that does not read it.
    if (this.isClosing(res) || (isPage && close)) {
      this.#respondAndClose(res, writeHead, isPage ? bytes : new Uint8Array(bytes), isHead, isPage);
      return;
    }
    writeHead(close);
    if (isHead) this.#endWithoutBody(res, bytes.length, close);
    else this.#endWithBackpressureCheck(res, bytes, close, isPage);
  }

  /**
   * Waits until the whole packet of the request is parsed. uWebSockets.js closes a connection on
   * which another request follows an unanswered one: then the second request reaches no handler,
   * and the first gets no response. If this response were sent at once, uWebSockets.js would serve
   * both requests and keep the connection open.
   */
  #respondAndClose(
    res: HttpResponse,
    writeHead: (close: boolean) => void,
    bytes: Uint8Array,
    isHead: boolean,
    isPage: boolean,
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
        else this.#endAndClose(res, bytes, isPage);
      });
    });
  }

  /**
   * Sends the body of the last response of a connection, and closes the connection. The request
   * stays unanswered until then, so that no later request of a slow client is served: after the
   * true `Content-Length`, uWebSockets.js gets a size of one byte more than the body.
   */
  #endAndClose(res: HttpResponse, bytes: Uint8Array, isPage: boolean): void {
    const size = bytes.length;
    if (size < 2) {
      res.end(bytes, true);
      return;
    }
    let isOpen = true;
    let buffered = 0;
    res.onAborted(() => {
      isOpen = false;
      this.#bufferedBytes -= buffered;
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
    if (!isPage && this.#bufferedBytes + size > UNSENT_RESPONSE_BYTES_MAX) {
      this.#stats.increment(ACCEPTOR_STAT.shedUnreadResponses);
      res.close();
      return;
    }
    buffered = isPage ? 0 : size;
    this.#bufferedBytes += buffered;
    res.onWritable(() => {
      sendRest();
      return true;
    });
  }

  /**
   * Ends the response to a HEAD request: the `Content-Length` of the body for GET, and no body. Its
   * backpressure cannot be checked.
   *
   * Older versions of uWebSockets.js do not end the response in `endWithoutBody`, so the next
   * request closes the connection. With them, two calls of `tryEnd` write the same head and end the
   * response. `tryEnd` closes the connection only after a response of length 0, so this method
   * closes it otherwise; another request in the same packet closes it at once.
   *
   * @param contentLength of the body for GET
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
   * Sends a response after which the connection may stay open.
   * @param body copied before this returns
   * @param close while the service drains; later requests in the same packet are still served
   */
  end(res: HttpResponse, body: string | Uint8Array, close: boolean): void {
    if (body.length >= LARGE_RESPONSE_BYTES || ++this.#responses % BACKPRESSURE_CHECK_EVERY === 0) {
      this.#endWithBackpressureCheck(res, body, close);
    } else {
      res.end(body, close);
    }
  }

  #endWithBackpressureCheck(
    res: HttpResponse,
    body: string | Uint8Array,
    close: boolean,
    isPage = false,
  ): void {
    if (close) {
      res.end(body, true);
      return;
    }
    const bytes = typeof body === 'string' ? Buffer.from(body) : body;
    const size = bytes.length;
    const [isSent, isDone] = res.tryEnd(bytes, size);
    if (isSent || isDone) return;
    const sent = res.getWriteOffset();
    const unsent = size - sent;
    const isUnread = sent === 0 && size < LARGE_RESPONSE_BYTES;
    const buffered = isPage ? 0 : unsent;
    if (isUnread || this.#bufferedBytes + buffered > UNSENT_RESPONSE_BYTES_MAX) {
      this.#stats.increment(ACCEPTOR_STAT.shedUnreadResponses);
      res.close();
      return;
    }
    const rest = isPage ? bytes.subarray(sent) : new Uint8Array(bytes.subarray(sent));
    this.#bufferedBytes += buffered;
    // A request before the rest is sent closes the connection, which is an abort as well.
    res.onAborted(() => {
      this.#bufferedBytes -= buffered;
    });
    res.onWritable((offset) => {
      const [, isDone] = res.tryEnd(rest.subarray(offset - sent), size);
      if (isDone) this.#bufferedBytes -= buffered;
      return true;
    });
  }
}
