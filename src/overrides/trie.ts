/**
 * The trie of the overrides with a star: one over the patterns of namespaces, and for each of these
 * one over the patterns of identifiers, all in one buffer, drawn in `layout.ts`. Flat and immutable
 * once it is published: the main thread has it written into a spare buffer (`build.ts`), acceptors
 * attach and read.
 *
 * A pattern is a head before its first star, a tail behind its last one, and a middle between: the
 * segments between further stars. A text is read from its beginning along the one way that heads
 * lead; at each head that a star follows, from its end along the one way that tails lead backwards;
 * and where both fit, the middles of that head and tail are looked for in what is left. Where they
 * are many, first their needles, each a few units of one of its segments, from each unit on; and
 * then the whole of those whose needle was there, each segment as early as it comes (Knuth, Morris
 * and Pratt). So a text takes at most a few steps for each of its units and each pattern, whatever
 * the patterns are, and no stack. Units are of UTF-16: texts are well-formed, so a star never
 * splits a character.
 */

import { MemoryError } from '../core/errors.ts';
import { attachMemory } from '../shared-memory/block.ts';
import { decodeId } from './id.ts';
import {
  INFIX,
  INFIX_WORDS,
  NODE,
  NODE_WORDS,
  sectionOffsets,
  TRIE,
  TRIE_HEADER,
  VALUE,
  VALUE_DOUBLES,
} from './layout.ts';
import { escapeStars } from './pattern.ts';

const DESCRIPTION = 'the trie of overrides';
const NO_MATCH = Number.MAX_SAFE_INTEGER;
/**
 * Steps for each unit of a text and each place: two along a way, or for a middle; nine for all the
 * needles of a head and a tail, which have at least six places.
 */
const STEPS_PER_UNIT_MAX = 4;
/** Texts that are told apart before the marks of all nodes have to be taken away. */
const TEXT_NUMBER_MAX = 0x7fffffff;

export class Trie {
  /** How many steps the last text took. */
  steps = 0;
  /** What a text may lead to: no more steps are taken than a few times its length for each. */
  readonly size: number;
  readonly #values: Float64Array;
  readonly #valueWords: Int32Array;
  readonly #nodes: Int32Array;
  readonly #infixes: Int32Array;
  readonly #firstUnits: Uint16Array;
  readonly #units: Uint16Array;
  readonly #root: number;
  /** By node of a needle, the number of the last text that had it, and that of this text. */
  readonly #lastTextWithFragment: Int32Array;
  #textNumber = 0;
  /** The best that a text was accepted by, and all if they are wanted. */
  #bestMatch = NO_MATCH;
  #allMatches: number[] | undefined;

  /** @throws MemoryError when the buffer holds no whole trie of this version */
  constructor(buffer: SharedArrayBuffer) {
    const words = attachMemory(buffer, DESCRIPTION, TRIE, TRIE_HEADER);
    const counts = {
      values: words[TRIE.values],
      nodes: words[TRIE.nodes],
      infixes: words[TRIE.infixes],
      units: words[TRIE.units],
    };
    const { values, nodes, infixes, units } = counts;
    this.#root = words[TRIE.root];
    const { nodesAt, valuesAt, infixesAt, firstUnitsAt, unitsAt, bytes } = sectionOffsets(counts);
    const isShape = values > 0 && nodes > 1 && infixes >= 0 && units >= 0 && this.#root > 0;
    if (!isShape || this.#root >= nodes || bytes > buffer.byteLength) {
      throw new MemoryError(
        `${DESCRIPTION}: ${buffer.byteLength} bytes for ${JSON.stringify(counts)}`,
      );
    }
    this.#nodes = new Int32Array(buffer, nodesAt, NODE_WORDS * nodes);
    this.#values = new Float64Array(buffer, valuesAt, VALUE_DOUBLES * values);
    this.#valueWords = new Int32Array(buffer, valuesAt, 2 * VALUE_DOUBLES * values);
    this.#infixes = new Int32Array(buffer, infixesAt, INFIX_WORDS * infixes);
    this.#firstUnits = new Uint16Array(buffer, firstUnitsAt, nodes);
    this.#units = new Uint16Array(buffer, unitsAt, units);
    this.#lastTextWithFragment = new Int32Array(nodes);
    this.size = nodes + infixes;
  }

  /** The tries for identifiers that hold in a namespace. */
  rootsFor(namespace: string): Int32Array {
    const all: number[] = [];
    this.#allMatches = all;
    try {
      this.#matchText(Int32Array.of(this.#root), escapeStars(namespace));
    } finally {
      this.#allMatches = undefined;
    }
    return Int32Array.from(all);
  }

  /** @returns the first value, by precedence, whose pattern matches; -1 where none does */
  find(roots: Int32Array, identifier: string): number {
    this.#matchText(roots, identifier);
    return this.#bestMatch === NO_MATCH ? -1 : this.#bestMatch - 1;
  }

  limit(valueIndex: number): number {
    return this.#values[VALUE_DOUBLES * valueIndex + VALUE.limit];
  }

  durationMs(valueIndex: number): number {
    return Math.abs(this.#values[VALUE_DOUBLES * valueIndex + VALUE.durationMs]);
  }

  isAsync(valueIndex: number): boolean {
    return this.#values[VALUE_DOUBLES * valueIndex + VALUE.durationMs] < 0;
  }

  id(valueIndex: number): string {
    return decodeId(this.#valueWords, 2 * (VALUE_DOUBLES * valueIndex + VALUE.id));
  }

  /** Reads a text along the tries of some roots, and leaves in `#best` what accepts it. */
  #matchText(roots: Int32Array, text: string): void {
    this.#bestMatch = NO_MATCH;
    this.steps = 0;
    if (++this.#textNumber > TEXT_NUMBER_MAX) {
      this.#lastTextWithFragment.fill(0);
      this.#textNumber = 1;
    }
    for (let i = 0; i < roots.length; i++) this.#matchPrefixes(roots[i], text);
    if (this.steps > STEPS_PER_UNIT_MAX * (text.length + 1) * this.size) {
      throw new Error(`${DESCRIPTION}: a text took ${this.steps} steps`);
    }
  }

  #matchPrefixes(root: number, text: string): void {
    const nodes = this.#nodes;
    const { length } = text;
    let at = 0;
    let steps = 0;
    for (let node = root; node !== 0; ) {
      const word = node * NODE_WORDS;
      const labelEnd = at + nodes[word + NODE.labelLength];
      if (labelEnd > length) break;
      let unit = nodes[word + NODE.label];
      while (at < labelEnd && this.#units[unit] === text.charCodeAt(at)) {
        at++;
        unit++;
      }
      steps++;
      if (at < labelEnd) break;
      this.#addMatch(nodes[word + NODE.starMatch]);
      if (nodes[word + NODE.suffixRoot] !== 0)
        this.#matchSuffixes(nodes[word + NODE.suffixRoot], text, at);
      if (at === length) {
        this.#addMatch(nodes[word + NODE.match]);
        break;
      }
      node = this.#child(word, text.charCodeAt(at++));
    }
    this.steps += steps + at;
  }

  /** @param from where the head ends, which the tail must not reach into */
  #matchSuffixes(root: number, text: string, from: number): void {
    const nodes = this.#nodes;
    let end = text.length;
    let steps = 0;
    for (let node = root; node !== 0; ) {
      const word = node * NODE_WORDS;
      const labelEnd = end - nodes[word + NODE.labelLength];
      if (labelEnd < from) break;
      let unit = nodes[word + NODE.label];
      while (end > labelEnd && this.#units[unit] === text.charCodeAt(end - 1)) {
        end--;
        unit++;
      }
      steps++;
      if (end > labelEnd) break;
      this.#addMatch(nodes[word + NODE.match]);
      if (nodes[word + NODE.infixes] !== 0) {
        this.#matchInfixes(nodes[word + NODE.infixes] - 1, text, from, end);
      } else if (nodes[word + NODE.fragmentRoot] !== 0) {
        this.#matchFragments(nodes[word + NODE.fragmentRoot], text, from, end);
      }
      if (end === from) break;
      node = this.#child(word, text.charCodeAt(--end));
    }
    this.steps += steps + text.length - end;
  }

  /** Looks for needles from each unit on, and once for the middles of each that is there. */
  #matchFragments(root: number, text: string, from: number, end: number): void {
    const nodes = this.#nodes;
    let steps = 0;
    for (let begin = from; begin < end; begin++) {
      let at = begin;
      for (let node = root; node !== 0; ) {
        steps++;
        const word = node * NODE_WORDS;
        const labelEnd = at + nodes[word + NODE.labelLength];
        if (labelEnd > end) break;
        let unit = nodes[word + NODE.label];
        while (at < labelEnd && this.#units[unit] === text.charCodeAt(at)) {
          at++;
          unit++;
        }
        if (at < labelEnd) break;
        const middles = nodes[word + NODE.infixes];
        if (middles !== 0 && this.#lastTextWithFragment[node] !== this.#textNumber) {
          this.#lastTextWithFragment[node] = this.#textNumber;
          this.#matchInfixes(middles - 1, text, from, end);
        }
        if (at === end) break;
        node = this.#child(word, text.charCodeAt(at++));
      }
      steps += at - begin;
    }
    this.steps += steps;
  }

  /** Patterns of a head and a tail, from the first on, with what is left between the two. */
  #matchInfixes(first: number, text: string, from: number, end: number): void {
    const middles = this.#infixes;
    for (let at = first * INFIX_WORDS; ; at += INFIX_WORDS) {
      const accepts = middles[at + INFIX.match];
      // What comes behind a better one is not better.
      if (this.#allMatches === undefined && accepts >= this.#bestMatch) return;
      const { segmentCount, segmentsStart } = INFIX;
      if (
        this.#hasSegments(middles[at + segmentCount], middles[at + segmentsStart], text, from, end)
      ) {
        this.#addMatch(accepts);
      }
      if (middles[at + INFIX.isLast] === 1) return;
    }
  }

  /** Whether so many segments come one behind the other. */
  #hasSegments(segments: number, first: number, text: string, from: number, end: number): boolean {
    const units = this.#units;
    let segment = first;
    let at = from;
    let found = true;
    for (let left = segments; found && left > 0; left--) {
      const length = units[segment];
      const begin = segment + 1;
      const borders = begin + length;
      let read = 0;
      for (; read < length && at < end; at++) {
        const unit = text.charCodeAt(at);
        while (read > 0 && units[begin + read] !== unit) {
          read = units[borders + read - 1];
          this.steps++;
        }
        if (units[begin + read] === unit) read++;
      }
      found = read === length;
      segment = borders + length;
    }
    this.steps += at - from;
    return found;
  }

  #addMatch(match: number): void {
    if (match === 0) return;
    if (match < this.#bestMatch) this.#bestMatch = match;
    this.#allMatches?.push(match);
  }

  /** The child of the node at `word` behind a unit, 0 for none. */
  #child(word: number, unit: number): number {
    const firsts = this.#firstUnits;
    let low = this.#nodes[word + NODE.firstChild];
    let high = low + this.#nodes[word + NODE.childCount] - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      const found = firsts[middle];
      if (found === unit) return middle;
      if (found < unit) low = middle + 1;
      else high = middle - 1;
    }
    return 0;
  }
}
