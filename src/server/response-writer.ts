/**
 * Sends the responses of an acceptor, and bounds the memory for clients that do not read them:
 * uWebSockets.js buffers what the kernel does not accept, and keeps reading requests.
 *
 * Some responses are sent with a check of backpressure: every error, since it needs no key, every
 * large response, and one of BACKPRESSURE_CHECK_EVERY others. If bytes of earlier responses are
 * still unsent, the connection is closed. The rest of a response that the kernel does not accept at
 * once (with TLS all of it, since the sent bytes are unknown) is buffered here, within a bound, and
 * sent in parts. Over the bound, or after ten seconds without progress, the connection closes. A
 * page makes its bytes again from any offset: nothing of it is buffered, and it does not count.
 *
 * The backpressure of a response without a body is unknown. Those that need no key may leave a
 * connection open up to a rate; beyond it each closes its connection.
 */

import { UNSENT_RESPONSE_BYTES_MAX } from '../core/constants.ts';
import type { Clock } from '../shared-memory/clock.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../shared-memory/stats.ts';
import type { Turns } from './turns.ts';
import { ENDS_WITHOUT_BODY, type HttpResponse } from './uws.ts';

/** One check of backpressure costs as much as a few small allocations. */
const BACKPRESSURE_CHECK_EVERY = 16;

/** From this size on, every response is checked for backpressure. */
const LARGE_RESPONSE_BYTES = 4_096;

/** Unchecked responses at once, and then in each second. A head has some 600 bytes. */
const UNCHECKED_BURST = 1_024;
const UNCHECKED_PER_SECOND = 10;

/** A body that is not kept while the client reads it. */
export interface Page {
  /** In bytes. */
  readonly size: number;
  /** @returns the bytes from the offset to the end, until the next call of this or another page */
  from(offset: number): Uint8Array;
}

/** @param bytes of a body that begin at `start`; they must never change */
export function fixedPage(bytes: Uint8Array, start = 0): Page {
  return { size: start + bytes.length, from: (offset) => bytes.subarray(offset - start) };
}

/** A property of the response object; a WeakSet would cost each response a look-up. */
type MarkedResponse = HttpResponse & { isLastOnConnection?: true };

export class ResponseWriter {
  readonly #stats: AcceptorStats;
  readonly #clock: Clock;
  readonly #turns: Turns;
  #responses = 0;
  #bufferedBytes = 0;
  #uncheckedLeft = UNCHECKED_BURST;
  #uncheckedMs = 0;

  constructor(stats: AcceptorStats, clock: Clock, turns: Turns) {
    this.#stats = stats;
    this.#clock = clock;
    this.#turns = turns;
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
   * @param body copied before this returns
   * @param isHead the method is HEAD: the response has the length of the body, but no body
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
      this.#respondAndClose(res, writeHead, fixedPage(new Uint8Array(bytes)), isHead, bytes.length);
      return;
    }
    // A connection that opens is rejected at once: it has no request that could wait.
    if (this.#turns.isFull && !close) {
      this.#wait(res, () => this.respond(res, close, writeHead, body, isHead));
      return;
    }
    writeHead(close);
    if (isHead) this.#endWithoutBody(res, bytes.length, close);
    else this.#endWithBackpressureCheck(res, bytes, close);
  }

  /** The same with a page, of which nothing is copied. */
  respondPage(
    res: HttpResponse,
    close: boolean,
    writeHead: (close: boolean) => void,
    page: Page,
    isHead: boolean,
  ): void {
    // While the service drains, `end` would buffer a page for each client that does not read it.
    if (this.isClosing(res) || close) {
      this.#respondAndClose(res, writeHead, page, isHead, 0);
      return;
    }
    if (this.#turns.isFull) {
      this.#wait(res, () => this.respondPage(res, close, writeHead, page, isHead));
      return;
    }
    writeHead(false);
    if (isHead) this.#endWithoutBody(res, page.size, false);
    else if (!this.#tryEnd(res, page.from(0))) this.#endWhenWritable(res, page.size, 0, () => page);
  }

  #wait(res: HttpResponse, respond: () => void): void {
    this.#turns.wait(res, { run: () => res.cork(respond), drop: () => {} });
  }

  /**
   * Waits until the whole packet of the request is parsed. uWebSockets.js closes a connection on
   * which another request follows an unanswered one: then the second request reaches no handler,
   * and the first gets no response. If this response were sent at once, uWebSockets.js would serve
   * both requests and keep the connection open.
   *
   * @param keptBytes what is kept in memory until the client has read it
   */
  #respondAndClose(
    res: HttpResponse,
    writeHead: (close: boolean) => void,
    page: Page,
    isHead: boolean,
    keptBytes: number,
  ): void {
    let isOpen = true;
    res.onAborted(() => {
      isOpen = false;
    });
    setImmediate(() => {
      if (!isOpen) return;
      res.cork(() => {
        writeHead(true);
        if (isHead) this.#endWithoutBody(res, page.size, true);
        else this.#endAndClose(res, page, keptBytes);
      });
    });
  }

  /**
   * Sends the body of the last response of a connection, and closes the connection. The request
   * stays unanswered until then, so that no later request of a slow client is served: after the
   * true `Content-Length`, uWebSockets.js gets a size of one byte more than the body.
   */
  #endAndClose(res: HttpResponse, page: Page, keptBytes: number): void {
    const { size } = page;
    if (size < 2) {
      res.end(page.from(0), true);
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
      if (sent < size) res.tryEnd(page.from(sent), size + 1);
      if (res.getWriteOffset() < size) return;
      setImmediate(() => {
        if (isOpen) res.close();
      });
    };
    res.writeHeader('Connection', 'close').tryEnd(page.from(0).subarray(0, size - 1), size);
    sendRest();
    if (res.getWriteOffset() === size) return;
    if (this.#bufferedBytes + keptBytes > UNSENT_RESPONSE_BYTES_MAX) {
      this.#stats.increment(ACCEPTOR_STAT.shedUnreadResponses);
      res.close();
      return;
    }
    buffered = keptBytes;
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

  #endWithBackpressureCheck(res: HttpResponse, body: string | Uint8Array, close: boolean): void {
    if (close) {
      res.end(body, true);
      return;
    }
    const bytes = typeof body === 'string' ? Buffer.from(body) : body;
    if (this.#tryEnd(res, bytes)) return;
    const sent = res.getWriteOffset();
    this.#endWhenWritable(res, bytes.length, bytes.length - sent, () => {
      return fixedPage(new Uint8Array(bytes.subarray(sent)), sent);
    });
  }

  /** @returns whether nothing of the response is left to send */
  #tryEnd(res: HttpResponse, bytes: Uint8Array): boolean {
    const [isSent, isDone] = res.tryEnd(bytes, bytes.length);
    return isSent || isDone;
  }

  /**
   * @param keptBytes what is kept in memory until the client has read it
   * @param keep makes the page of which the rest is sent
   */
  #endWhenWritable(res: HttpResponse, size: number, keptBytes: number, keep: () => Page): void {
    const isUnread = res.getWriteOffset() === 0 && size < LARGE_RESPONSE_BYTES;
    if (isUnread || this.#bufferedBytes + keptBytes > UNSENT_RESPONSE_BYTES_MAX) {
      this.#stats.increment(ACCEPTOR_STAT.shedUnreadResponses);
      res.close();
      return;
    }
    const page = keep();
    this.#bufferedBytes += keptBytes;
    // A request before the rest is sent closes the connection, which is an abort as well.
    res.onAborted(() => {
      this.#bufferedBytes -= keptBytes;
    });
    res.onWritable((offset) => {
      const [, isDone] = res.tryEnd(page.from(offset), size);
      if (isDone) this.#bufferedBytes -= keptBytes;
      return true;
    });
  }
}
