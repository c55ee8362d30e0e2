/**
 * The ids of requests, which name a request in its response and in the log. They are not secret. An
 * id is a random prefix of the thread and a count: random bytes for each request would take longer
 * than the decision.
 */

import { makeId } from '../../core/ids.ts';
import { encodeFragment, type JsonWriter } from '../../core/json-writer.ts';

export class RequestIds {
  readonly #prefix = `${makeId('req_')}_`;
  readonly #prefixFragment = encodeFragment(this.#prefix);
  #count = 0;

  next(): string {
    return this.#prefix + this.#count++;
  }

  /** Writes the next id. */
  writeNext(writer: JsonWriter): void {
    writer.writeFragment(this.#prefixFragment);
    writer.writeInteger(this.#count++);
  }
}
