/**
 * The ids of requests: they name a request in its answer and in the log, and are no secret. A
 * thread has a random beginning of its own and counts, since random bytes for each request would
 * take longer than its decision.
 */

import { makeId } from '../auth/keys.ts';

export class RequestIds {
  readonly #beginning = `${makeId('req_')}_`;
  #count = 0;

  next(): string {
    return this.#beginning + this.#count++;
  }
}
