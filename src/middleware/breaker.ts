/**
 * A circuit breaker. After many checks in a row without a response, only one check per interval
 * waits for weir. So an unresponsive weir does not delay each request by the timeout.
 */

const TIMEOUTS_MAX = 64;
const PROBE_INTERVAL_MS = 1_000;

export class Breaker {
  #timeouts = 0;
  #isProbeSent = false;

  get isOpen(): boolean {
    return this.#timeouts >= TIMEOUTS_MAX;
  }

  /** While it is open: whether this check may be sent, to find out whether weir responds again. */
  takeProbe(): boolean {
    if (this.#isProbeSent) return false;
    this.#isProbeSent = true;
    const timer = setTimeout(() => {
      this.#isProbeSent = false;
    }, PROBE_INTERVAL_MS);
    timer.unref();
    return true;
  }

  countTimeout(): void {
    this.#timeouts++;
  }

  countResponse(): void {
    this.#timeouts = 0;
  }
}
