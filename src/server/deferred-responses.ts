/**
 * Responses that are written in a later turn of the loop than their request was read. A client may
 * disconnect before: its response is dropped, and that of a check is counted as undelivered.
 */

import type { Eventual } from '../core/eventual.ts';
import type { Clock } from '../shared-memory/clock.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../shared-memory/stats.ts';
import type { Responder } from './responder.ts';
import type { HttpResponse } from './uws.ts';

export class DeferredResponses {
  readonly #clock: Clock;
  readonly #stats: AcceptorStats;
  /** Those whose client has disconnected: uWebSockets.js must not be called for them. */
  readonly #aborted = new WeakSet<HttpResponse>();

  constructor(clock: Clock, stats: AcceptorStats) {
    this.#clock = clock;
    this.#stats = stats;
  }

  /**
   * Responds in this turn if the value is known, else in a later one, where a rejection becomes the
   * error response. Called in the turn of the request, before the handler returns.
   * @param isCheck whether a dropped response is counted
   */
  respond<T>(
    res: HttpResponse,
    responder: Responder,
    value: Eventual<T>,
    write: (value: T) => void,
    isCheck = false,
  ): void {
    if (!(value instanceof Promise)) {
      write(value);
      return;
    }
    this.defer(res);
    const send = (write: () => void) => {
      if (isCheck && this.#aborted.has(res)) {
        this.#stats.increment(ACCEPTOR_STAT.undeliveredResponses);
      }
      this.send(res, write);
    };
    value.then(
      (value) => send(() => write(value)),
      (error) => send(() => responder.sendError(res, error)),
    );
  }

  /** Called in the turn of the request, before the handler returns. */
  defer(res: HttpResponse): void {
    res.onAborted(() => this.#aborted.add(res));
  }

  /** Writes the response to a check. @param startedMs when its request was complete */
  complete(res: HttpResponse, startedMs: number, write: () => void): void {
    if (this.#aborted.has(res)) {
      this.#stats.increment(ACCEPTOR_STAT.undeliveredResponses);
      this.#stats.heartbeat();
      return;
    }
    res.cork(write);
    this.#stats.recordLatency(this.#clock.monotonicMs() - startedMs);
  }

  /** Writes the error of a check. */
  fail(res: HttpResponse, write: () => void): void {
    if (this.#aborted.has(res)) this.#stats.increment(ACCEPTOR_STAT.undeliveredResponses);
    else res.cork(write);
  }

  /** Writes a response to a request that is no check. */
  send(res: HttpResponse, write: () => void): void {
    this.#stats.heartbeat();
    if (!this.#aborted.has(res)) res.cork(write);
  }
}
