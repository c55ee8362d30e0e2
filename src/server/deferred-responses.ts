/**
 * Responses that are written in a later turn of the loop than their request was read. A client may
 * disconnect before: its response is dropped, and counted as undelivered.
 */

import type { Clock } from '../shared-memory/clock.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../shared-memory/stats.ts';
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
