/**
 * Memory of one thread, as bytes and as words at any address: where the body in hand lies, and
 * what is hashed. Text that came as bytes stays bytes: to make a string of it costs more than a
 * decision.
 */

/** Words are read up to so far behind the last byte; what they hold there is never used. */
const SLACK_BYTES = 16;

export class Bytes {
  readonly array: Buffer;
  readonly view: DataView;
  readonly #length: number;

  /** @param length the most bytes that are ever put in */
  constructor(length: number) {
    this.#length = length;
    this.array = Buffer.alloc(length + SLACK_BYTES);
    this.view = new DataView(this.array.buffer);
  }

  /** Writes the UTF-8 of a text. @returns behind its last byte */
  write(text: string, at: number): number {
    // What is cut off ends in the slack.
    const end = at + this.array.write(text, at);
    if (end > this.#length) throw new Error(`a text of ${text.length} does not fit at ${at}`);
    return end;
  }

  /** The text of bytes that are UTF-8. */
  text(from: number, to: number): string {
    return this.array.toString('utf8', from, to);
  }
}
