/**
 * Memory of one thread, accessed as bytes and as words at any offset: it holds the body of the
 * current request and the text to hash. Text that arrives as bytes stays bytes: creating a string
 * costs more than a decision.
 */

/** Reads of words may extend this far past the last byte. Callers ignore the bytes read there. */
const SLACK_BYTES = 16;

export class Bytes {
  readonly array: Buffer;
  readonly view: DataView;
  readonly #length: number;

  /** @param length the maximum number of bytes that the memory holds */
  constructor(length: number) {
    this.#length = length;
    this.array = Buffer.alloc(length + SLACK_BYTES);
    this.view = new DataView(this.array.buffer);
  }

  /** Writes a text as UTF-8. @returns the offset after its last byte */
  write(text: string, at: number): number {
    // A text that is too long is cut off, and its end then lies in the slack.
    const end = at + this.array.write(text, at);
    if (end > this.#length) {
      throw new Error(`a text of ${text.length} code units does not fit at offset ${at}`);
    }
    return end;
  }

  /** Decodes valid UTF-8. */
  text(from: number, to: number): string {
    return this.array.toString('utf8', from, to);
  }
}
