/**
 * The ids of requests: they name a request in its answer and in the log, and are no secret. A
 * thread has a random beginning of its own and counts, since random bytes for each request would
 * take longer than its decision.
 */

import { makeId } from '../auth/keys.ts';
import { type AnswerWriter, piece } from './answer.ts';

export class RequestIds {
  readonly #beginning = `${makeId('req_')}_`;
  readonly #piece = piece(this.#beginning);
  #count = 0;

  next(): string {
    return this.#beginning + this.#count++;
  }

  /** Writes the next one. */
  write(writer: AnswerWriter): void {
    writer.piece(this.#piece);
    writer.integer(this.#count++);
  }
}
