/**
 * Builds the trie of the overrides with a star. Texts come sorted, so each node is a run of them
 * that agree so far: what the first and the last of a run share, all of it shares. No recursion,
 * and linear in the length of the texts.
 */

import { reuseMemory, writeHeader } from '../memory.ts';
import { NODE, NODE_WORDS, sections, TRIE, TRIE_HEADER, VALUE_DOUBLES } from './trie.ts';

/**
 * The overrides with a star, sorted by the units of namespace and identifier, stars simplified; in
 * few pieces, since it is copied to another thread. For each: the lengths of its two texts, and its
 * rank by precedence. For each rank: limit, duration and 1 for asynchronous.
 */
export interface Wildcards {
  /** Namespace, identifier, namespace, identifier ... */
  text: string;
  lengths: Int32Array;
  ranks: Int32Array;
  values: Float64Array;
}

const STAR = '*'.charCodeAt(0);

/**
 * Writes a trie of at least one override.
 * @param spare a buffer that nobody reads any more, if there is one
 * @returns the buffer it was written into: the spare one, or a larger one
 */
export function writeTrie(
  wildcards: Wildcards,
  spare: SharedArrayBuffer | undefined,
): SharedArrayBuffer {
  const builder = new Builder();
  const namespaces: string[] = [];
  const roots: number[] = [];
  const { text, lengths, ranks, values } = wildcards;
  let identifiers: string[] = [];
  let accepts: number[] = [];
  let at = 0;
  for (let i = 0; i < ranks.length; i++) {
    const namespace = text.slice(at, at + lengths[2 * i]);
    at += lengths[2 * i];
    if (namespace !== namespaces.at(-1)) {
      if (i > 0) roots.push(builder.add(identifiers, accepts));
      namespaces.push(namespace);
      identifiers = [];
      accepts = [];
    }
    identifiers.push(text.slice(at, at + lengths[2 * i + 1]));
    accepts.push(ranks[i] + 1);
    at += lengths[2 * i + 1];
  }
  roots.push(builder.add(identifiers, accepts));
  const root = builder.add(namespaces, roots);
  return builder.write(root, values, spare);
}

/** A run of texts that lead to the same node. */
interface Run {
  node: number;
  texts: readonly string[];
  accepts: readonly number[];
  from: number;
  to: number;
  /** How much of the texts is behind the node's first unit. */
  depth: number;
  isStar: boolean;
}

class Builder {
  /** Words of all nodes; number 0 is none. */
  #nodes = new Int32Array(1_024 * NODE_WORDS);
  readonly #firsts: number[] = [0];
  readonly #labels: string[] = [];
  #units = 0;

  /** Adds a trie over sorted texts. @returns its root */
  add(texts: readonly string[], accepts: readonly number[]): number {
    const root = this.#newNode(0);
    const left: Run[] = [
      { node: root, texts, accepts, from: 0, to: texts.length, depth: 0, isStar: false },
    ];
    for (let run = left.pop(); run !== undefined; run = left.pop()) this.#fill(run, left);
    return root;
  }

  #newNode(first: number): number {
    const node = this.#firsts.push(first) - 1;
    if ((node + 1) * NODE_WORDS > this.#nodes.length) {
      const larger = new Int32Array(2 * this.#nodes.length);
      larger.set(this.#nodes);
      this.#nodes = larger;
    }
    return node;
  }

  /** Writes the node of a run; the runs of its children are left to do. */
  #fill({ node, texts, accepts, from, to, depth, isStar }: Run, left: Run[]): void {
    const word = node * NODE_WORDS;
    const first = texts[from];
    // Behind a star, a label would have to be looked for; so its children are one unit each.
    const end = isStar ? depth : commonEnd(first, texts[to - 1], depth);
    this.#nodes[word + NODE.label] = this.#units;
    this.#nodes[word + NODE.labelLength] = end - depth;
    this.#labels.push(first.slice(depth, end));
    this.#units += end - depth;
    const ending = bestEnding(texts, accepts, from, to, end);
    this.#nodes[word + NODE.accepts] = ending.best;
    let at = ending.until;
    let star: Run | undefined;
    let children = 0;
    while (at < to) {
      const unit = texts[at].charCodeAt(end);
      let until = at + 1;
      while (until < to && texts[until].charCodeAt(end) === unit) until++;
      const run = { node: 0, texts, accepts, from: at, to: until, depth: end + 1, isStar: false };
      if (unit === STAR) {
        star = run;
        star.isStar = true;
      } else {
        run.node = this.#newNode(unit);
        if (children++ === 0) this.#nodes[word + NODE.firstChild] = run.node;
        left.push(run);
      }
      at = until;
    }
    this.#nodes[word + NODE.children] = children;
    if (star === undefined) return;
    const { best, until } = bestEnding(texts, accepts, star.from, star.to, star.depth);
    this.#nodes[word + NODE.starAccepts] = best;
    if (until === star.to) return;
    star.from = until;
    // Behind the children, which must not be interrupted.
    star.node = this.#newNode(0);
    this.#nodes[word + NODE.star] = star.node;
    left.push(star);
  }

  write(root: number, values: Float64Array, spare: SharedArrayBuffer | undefined) {
    const valueCount = values.length / VALUE_DOUBLES;
    const nodes = this.#firsts.length;
    const units = this.#units;
    const { valuesAt, nodesAt, firstsAt, labelsAt, bytes } = sections(valueCount, nodes, units);
    const buffer = reuseMemory(bytes, TRIE, spare);
    new Float64Array(buffer, valuesAt).set(values);
    const nodeWords = nodes * NODE_WORDS;
    new Int32Array(buffer, nodesAt, nodeWords).set(this.#nodes.subarray(0, nodeWords));
    new Uint16Array(buffer, firstsAt, nodes).set(this.#firsts);
    Buffer.from(buffer, labelsAt, 2 * units).write(this.#labels.join(''), 'utf16le');
    writeHeader(buffer, TRIE, { ...TRIE_HEADER, values: valueCount, nodes, units, root });
    return buffer;
  }
}

/**
 * Of the texts of a run, the first are those that end where it is. They differ in runs of stars
 * only: the first by precedence counts.
 * @returns what it accepts, 0 where none ends, and where those that go on begin
 */
function bestEnding(
  texts: readonly string[],
  accepts: readonly number[],
  from: number,
  to: number,
  end: number,
): { best: number; until: number } {
  let best = 0;
  let until = from;
  for (; until < to && texts[until].length === end; until++) {
    best = best === 0 ? accepts[until] : Math.min(best, accepts[until]);
  }
  return { best, until };
}

/** How far two texts agree, up to the first star. */
function commonEnd(a: string, b: string, from: number): number {
  let end = from;
  while (end < a.length && a.charCodeAt(end) === b.charCodeAt(end)) {
    if (a.charCodeAt(end) === STAR) break;
    end++;
  }
  return end;
}
