/**
 * Reads the published trie of wildcard overrides: one trie of namespace patterns, and for each of
 * these a trie of identifier patterns. The buffer (`layout.ts`) is immutable once published.
 *
 * A pattern is a prefix before its first star, a suffix after its last star, and an infix between:
 * the segments between inner stars. Matching a text:
 *
 *   1. Walk the trie of prefixes from the start of the text.
 *   2. At each prefix that a star follows, walk the trie of suffixes back from the end of the text.
 *   3. At each suffix, search its infixes in the remaining text. If there are many, first search
 *      their fragments at each position, then the infixes whose fragment was found. Each segment
 *      is searched leftmost first (Knuth-Morris-Pratt).
 *
 * CIDR blocks have a trie of namespaces of their own, with one trie of blocks each. An identifier
 * is matched with these as a text of bits (`cidr.ts`), if it is an address.
 *
 * A match takes at most a few steps for each unit of the text and each node or infix, and needs no
 * stack. Units are UTF-16. Texts are well-formed, so a star never splits a character.
 */

import { MemoryError } from '../core/errors.ts';
import { attachMemory } from '../shared-memory/block.ts';
import { addressBits } from './cidr.ts';
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
 * Upper bound of steps for each unit of a text and each node or infix. A walk or an infix takes
 * two. The fragments of a prefix and suffix take nine, and have at least six nodes and infixes.
 */
const STEPS_PER_UNIT_MAX = 4;
/** When text numbers wrap around, the marks of all nodes are cleared. */
const TEXT_NUMBER_MAX = 0x7fffffff;

export class Trie {
  /** Steps of the last match, for tests of the bound. */
  steps = 0;
  /** Nodes and infixes. */
  readonly #size: number;
  readonly #values: Float64Array;
  readonly #valueWords: Int32Array;
  readonly #nodes: Int32Array;
  readonly #infixes: Int32Array;
  readonly #firstUnits: Uint16Array;
  readonly #units: Uint16Array;
  readonly #root: number;
  readonly #blockRoot: number;
  /** By node of a fragment: the number of the last text in which it was found. */
  readonly #lastTextWithFragment: Int32Array;
  #textNumber = 0;
  /** Scratch of the running match: the match with precedence, and all matches if requested. */
  #bestMatch = NO_MATCH;
  #allMatches: number[] | undefined;

  /** @throws MemoryError if the buffer does not contain a complete trie */
  constructor(buffer: SharedArrayBuffer) {
    const words = attachMemory(buffer, DESCRIPTION, TRIE, TRIE_HEADER);
    const counts = {
      values: words[TRIE.values],
      nodes: words[TRIE.nodes],
      infixes: words[TRIE.infixes],
      units: words[TRIE.units],
    };
    const { values, nodes, infixes, units } = counts;
    const { nodesAt, valuesAt, infixesAt, firstUnitsAt, unitsAt, bytes } = sectionOffsets(counts);
    if (bytes > buffer.byteLength) {
      throw new MemoryError(
        `${DESCRIPTION}: ${JSON.stringify(counts)} in ${buffer.byteLength} bytes`,
      );
    }
    this.#root = words[TRIE.root];
    this.#blockRoot = words[TRIE.blockRoot];
    this.#nodes = new Int32Array(buffer, nodesAt, NODE_WORDS * nodes);
    this.#values = new Float64Array(buffer, valuesAt, VALUE_DOUBLES * values);
    this.#valueWords = new Int32Array(buffer, valuesAt, 2 * VALUE_DOUBLES * values);
    this.#infixes = new Int32Array(buffer, infixesAt, INFIX_WORDS * infixes);
    this.#firstUnits = new Uint16Array(buffer, firstUnitsAt, nodes);
    this.#units = new Uint16Array(buffer, unitsAt, units);
    this.#lastTextWithFragment = new Int32Array(nodes);
    this.#size = nodes + infixes;
  }

  /**
   * The roots of the tries of identifiers whose namespace pattern matches a name. The last ones are
   * negative: those of the tries of CIDR blocks. A namespace without blocks has none of these, so
   * that its checks do not parse their identifier.
   */
  rootsFor(namespace: string): Int32Array {
    const name = escapeStars(namespace);
    const blockRoots = this.#matchesOf(this.#blockRoot, name);
    return Int32Array.from([
      ...this.#matchesOf(this.#root, name),
      ...blockRoots.map((root) => -root),
    ]);
  }

  #matchesOf(root: number, text: string): number[] {
    const matches: number[] = [];
    this.#allMatches = matches;
    try {
      this.#matchText(Int32Array.of(root), text);
    } finally {
      this.#allMatches = undefined;
    }
    return matches;
  }

  /**
   * @param roots from `rootsFor`
   * @returns the index of the value that takes precedence; -1 if no pattern or block matches
   */
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
    return decodeId(this.#valueWords, 2 * VALUE_DOUBLES * valueIndex + VALUE.id);
  }

  usageRow(valueIndex: number): number {
    return this.#valueWords[2 * VALUE_DOUBLES * valueIndex + VALUE.usageRow];
  }

  /** Matches a text in the tries of some roots. Sets `#bestMatch` and fills `#allMatches`. */
  #matchText(roots: Int32Array, text: string): void {
    this.#bestMatch = NO_MATCH;
    this.steps = 0;
    if (++this.#textNumber > TEXT_NUMBER_MAX) {
      this.#lastTextWithFragment.fill(0);
      this.#textNumber = 1;
    }
    let i = 0;
    for (; i < roots.length && roots[i] >= 0; i++) this.#matchPrefixes(roots[i], text);
    let units = text.length;
    if (i < roots.length) units += this.#matchBlocks(roots, i, text);
    if (this.steps > STEPS_PER_UNIT_MAX * (units + 1) * this.#size) {
      throw new Error(`${DESCRIPTION}: a text took ${this.steps} steps`);
    }
  }

  /** @param first the index of the first negative root @returns the units that were matched */
  #matchBlocks(roots: Int32Array, first: number, identifier: string): number {
    const bits = addressBits(identifier);
    if (bits === undefined) return 0;
    for (let i = first; i < roots.length; i++) this.#matchPrefixes(-roots[i], bits);
    return bits.length;
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
      const suffixRoot = nodes[word + NODE.suffixRoot];
      if (suffixRoot !== 0) this.#matchSuffixes(suffixRoot, text, at);
      if (at === length) {
        this.#addMatch(nodes[word + NODE.match]);
        break;
      }
      node = this.#child(word, text.charCodeAt(at++));
    }
    this.steps += steps + at;
  }

  /** @param from the end of the prefix, which a suffix must not overlap */
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

  /** Searches fragments at each position, and once the infixes of each fragment that it finds. */
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
        const infixes = nodes[word + NODE.infixes];
        if (infixes !== 0 && this.#lastTextWithFragment[node] !== this.#textNumber) {
          this.#lastTextWithFragment[node] = this.#textNumber;
          this.#matchInfixes(infixes - 1, text, from, end);
        }
        if (at === end) break;
        node = this.#child(word, text.charCodeAt(at++));
      }
      steps += at - begin;
    }
    this.steps += steps;
  }

  /** Matches the infixes of one node, from number `first` on, with the text between two ends. */
  #matchInfixes(first: number, text: string, from: number, end: number): void {
    const infixes = this.#infixes;
    for (let word = first * INFIX_WORDS; ; word += INFIX_WORDS) {
      const match = infixes[word + INFIX.match];
      // The infixes are in order of precedence.
      if (this.#allMatches === undefined && match >= this.#bestMatch) return;
      const count = infixes[word + INFIX.segmentCount];
      const start = infixes[word + INFIX.segmentsStart];
      if (this.#hasSegments(count, start, text, from, end)) this.#addMatch(match);
      if (infixes[word + INFIX.isLast] === 1) return;
    }
  }

  /** Whether the text contains all segments of an infix in their order, without overlap. */
  #hasSegments(count: number, start: number, text: string, from: number, end: number): boolean {
    const units = this.#units;
    let segment = start;
    let at = from;
    let found = true;
    for (let remaining = count; found && remaining > 0; remaining--) {
      const length = units[segment];
      const begin = segment + 1;
      const borders = begin + length;
      let matched = 0;
      for (; matched < length && at < end; at++) {
        const unit = text.charCodeAt(at);
        while (matched > 0 && units[begin + matched] !== unit) {
          matched = units[borders + matched - 1];
          this.steps++;
        }
        if (units[begin + matched] === unit) matched++;
      }
      found = matched === length;
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

  /** The child of the node at `word` with a first unit; 0 for none. */
  #child(word: number, unit: number): number {
    const firstUnits = this.#firstUnits;
    let low = this.#nodes[word + NODE.firstChild];
    let high = low + this.#nodes[word + NODE.childCount] - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      const found = firstUnits[middle];
      if (found === unit) return middle;
      if (found < unit) low = middle + 1;
      else high = middle - 1;
    }
    return 0;
  }
}
