/**
 * The ids of requests: they name a request in its response and in the log, and are not secret. A
 * thread has a random prefix and counts: random bytes for each request would take longer than its
 * decision.
 */

import { makeId } from '../../core/ids.ts';
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
