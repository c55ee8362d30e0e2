/**
 * The ids of requests: they name a request in its answer and in the log, and are no secret. A
 * thread has a random beginning of its own and counts, since random bytes for each request would
 * take longer than its decision.
 */

import { makeId } from '../auth/keys.ts';
import { type BodyWriter, encodeFragment } from './body-writer.ts';

export class RequestIds {
  readonly #prefix = `${makeId('req_')}_`;
  readonly #prefixFragment = encodeFragment(this.#prefix);
  #count = 0;

  next(): string {
    return this.#prefix + this.#count++;
  }

  /** Writes the next one. */
  writeNext(writer: BodyWriter): void {
    writer.writeFragment(this.#prefixFragment);
    writer.writeInteger(this.#count++);
  }
}
