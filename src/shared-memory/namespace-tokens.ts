/**
 * Tokens by namespace, in the stats block of a shard worker, which knows a namespace by its tag
 * only: the first word of its hash state. A row has two float64: tag | tokens. The worker is the
 * only writer, and the search is linear: it is for events that are rare. Most rows are never
 * written, and so use no memory.
 */

const ROW_DOUBLES = 2;
/** Namespaces beyond have no row. */
const ROWS = 1_024;
export const NAMESPACE_TOKENS_DOUBLES = ROW_DOUBLES * ROWS;

export class NamespaceTokens {
  readonly #doubles: Float64Array;

  constructor(doubles: Float64Array) {
    this.#doubles = doubles;
  }

  /** @param tokens more than 0 */
  add(tag: number, tokens: number): void {
    const at = this.#find(tag);
    if (at >= this.#doubles.length) return;
    // The tokens come last: a reader of the tokens finds their tag.
    this.#doubles[at] = tag;
    this.#doubles[at + 1] += tokens;
  }

  get(tag: number): number {
    return this.#doubles[this.#find(tag) + 1] ?? 0;
  }

  /** The row of a tag, or the first free one. */
  #find(tag: number): number {
    let at = 0;
    while (at < this.#doubles.length && this.#doubles[at + 1] !== 0 && this.#doubles[at] !== tag) {
      at += ROW_DOUBLES;
    }
    return at;
  }
}
