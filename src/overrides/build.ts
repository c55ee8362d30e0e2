/**
 * Builds the trie of the overrides with a star. Texts are sorted, so each node is a run of them
 * that agree so far: what the first and the last of a run share, all of it shares. No recursion,
 * and linear in the length of the texts, but for the sorting.
 */

import { reuseMemory, writeHeader } from '../shared-memory/block.ts';
import { encodeId, type OverrideValue } from './id.ts';
import { getOrCreate, groupByFragment, type Infix } from './infixes.ts';
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

/**
 * The overrides with a star in order of precedence, stars simplified; in few pieces, since it is
 * copied to another thread. For each: the lengths of its two texts, and its value as `layout.ts`
 * has it.
 */
export interface SerializedWildcards {
  /** Namespace, identifier, namespace, identifier ... */
  text: string;
  lengths: Int32Array;
  values: Float64Array;
}

/** What overrides say, in the order in which they are given. */
export function encodeValues(overrides: readonly OverrideValue[]): Float64Array {
  const values = new Float64Array(VALUE_DOUBLES * overrides.length);
  const words = new Int32Array(values.buffer);
  for (const [rank, { id, limit, durationMs, isAsync }] of overrides.entries()) {
    const at = VALUE_DOUBLES * rank;
    values[at + VALUE.limit] = limit;
    values[at + VALUE.durationMs] = isAsync ? -durationMs : durationMs;
    words.set(encodeId(id), 2 * (at + VALUE.id));
  }
  return values;
}

/** A pattern, and what it accepts: a value and 1, or the root of the trie for identifiers. */
interface Pattern {
  text: string;
  match: number;
}

/**
 * Writes a trie of at least one override.
 * @param spare a buffer that nobody reads any more, if there is one
 * @returns the buffer it was written into: the spare one, or a larger one
 */
export function writeTrie(
  { text, lengths, values }: SerializedWildcards,
  spare: SharedArrayBuffer | undefined,
): SharedArrayBuffer {
  const namespaces = new Map<string, Pattern[]>();
  let at = 0;
  for (let rank = 0; rank < lengths.length / 2; rank++) {
    const between = at + lengths[2 * rank];
    const end = between + lengths[2 * rank + 1];
    const identifiers = getOrCreate(namespaces, text.slice(at, between), () => []);
    identifiers.push({ text: text.slice(between, end), match: rank + 1 });
    at = end;
  }
  const builder = new TrieBuilder();
  const roots = [...namespaces].map(([namespace, identifiers]) => {
    return { text: namespace, match: builder.add(identifiers) };
  });
  return builder.write(builder.add(roots), values, spare);
}

/** The patterns with the same text before their first star. 0 is nothing. */
interface PrefixEntry {
  /** Without a star; with one, and nothing behind it. */
  match: number;
  starMatch: number;
  /** The others, by the text behind their last star, read backwards. */
  suffixes: Map<string, SuffixEntry> | undefined;
}

interface SuffixEntry {
  /** With one star. */
  match: number;
  /** With more. */
  infixes: Infix[];
}

const newPrefixEntry = (): PrefixEntry => ({ match: 0, starMatch: 0, suffixes: undefined });
const newSuffixEntry = (): SuffixEntry => ({ match: 0, infixes: [] });

/** So many middles of a head and a tail are looked for one by one, and more by their needles. */
const UNINDEXED_INFIXES_MAX = 4;

/** A run of texts that lead to the same node. */
interface TextRange {
  node: number;
  from: number;
  to: number;
  /** How much of the texts is behind the node's first unit. */
  depth: number;
}

class TrieBuilder {
  /** Words of all nodes; number 0 is none. */
  #nodes = new Int32Array(1_024 * NODE_WORDS);
  readonly #firstUnits: number[] = [0];
  readonly #infixes: number[] = [];
  #units = new Uint16Array(4_096);
  #unitCount = 0;

  /** Adds a trie over patterns. Of those with the same text the first counts. @returns its root */
  add(patterns: readonly Pattern[]): number {
    const heads = new Map<string, PrefixEntry>();
    for (const { text, match } of patterns) {
      const star = text.indexOf('*');
      const last = text.lastIndexOf('*');
      const head = getOrCreate(heads, star < 0 ? text : text.slice(0, star), newPrefixEntry);
      if (star < 0) head.match ||= match;
      else if (star === text.length - 1) head.starMatch ||= match;
      else {
        head.suffixes ??= new Map();
        const tail = getOrCreate(head.suffixes, reverse(text.slice(last + 1)), newSuffixEntry);
        if (star === last) tail.match ||= match;
        else tail.infixes.push({ segments: text.slice(star + 1, last).split('*'), match });
      }
    }
    return this.#addTexts(heads, (word, { match, starMatch, suffixes }) => {
      const star = suffixes === undefined ? 0 : this.#addSuffixes(suffixes);
      this.#nodes[word + NODE.match] = match;
      this.#nodes[word + NODE.starMatch] = starMatch;
      this.#nodes[word + NODE.suffixRoot] = star;
    });
  }

  #addSuffixes(suffixes: ReadonlyMap<string, SuffixEntry>): number {
    return this.#addTexts(suffixes, (word, { match, infixes }) => {
      this.#nodes[word + NODE.match] = match;
      if (infixes.length <= UNINDEXED_INFIXES_MAX) {
        this.#nodes[word + NODE.infixes] = this.#addInfixes(infixes);
        return;
      }
      const needles = this.#addTexts(groupByFragment(infixes), (needle, some) => {
        this.#nodes[needle + NODE.infixes] = this.#addInfixes(some);
      });
      this.#nodes[word + NODE.fragmentRoot] = needles;
    });
  }

  /** @returns the number of the first, and 1; 0 for none */
  #addInfixes(infixes: readonly Infix[]): number {
    const first = this.#infixes.length / INFIX_WORDS;
    for (const [i, { segments, match }] of infixes.entries()) {
      const at = this.#infixes.length;
      this.#infixes[at + INFIX.match] = match;
      this.#infixes[at + INFIX.segmentCount] = segments.length;
      this.#infixes[at + INFIX.segmentsStart] = this.#unitCount;
      this.#infixes[at + INFIX.isLast] = Number(i === infixes.length - 1);
      for (const segment of segments) this.#addSegment(segment);
    }
    return infixes.length === 0 ? 0 : first + 1;
  }

  /** Its length, its units, and of each of these how many units begin the segment and end there. */
  #addSegment(segment: string): void {
    this.#reserveUnits(1 + 2 * segment.length);
    const units = this.#units;
    units[this.#unitCount++] = segment.length;
    const begin = this.#unitCount;
    this.#addUnits(segment);
    const borders = this.#unitCount;
    units[borders] = 0;
    for (let i = 1; i < segment.length; i++) {
      let border = units[borders + i - 1];
      while (border > 0 && units[begin + i] !== units[begin + border]) {
        border = units[borders + border - 1];
      }
      units[borders + i] = units[begin + i] === units[begin + border] ? border + 1 : 0;
    }
    this.#unitCount += segment.length;
  }

  #addUnits(text: string): void {
    this.#reserveUnits(text.length);
    for (let i = 0; i < text.length; i++) this.#units[this.#unitCount++] = text.charCodeAt(i);
  }

  #reserveUnits(units: number): void {
    const needed = this.#unitCount + units;
    if (needed <= this.#units.length) return;
    const larger = new Uint16Array(Math.max(needed, 2 * this.#units.length));
    larger.set(this.#units);
    this.#units = larger;
  }

  /** Adds a trie over texts without a star. @param writeEntry writes what ends at a node */
  #addTexts<T>(
    entries: ReadonlyMap<string, T>,
    writeEntry: (word: number, entry: T) => void,
  ): number {
    const texts = [...entries.keys()].sort();
    const root = this.#newNode(0);
    const left: TextRange[] = [{ node: root, from: 0, to: texts.length, depth: 0 }];
    for (let run = left.pop(); run !== undefined; run = left.pop()) {
      const { node, to, depth } = run;
      const word = node * NODE_WORDS;
      let at = run.from;
      const end = commonPrefixEnd(texts[at], texts[to - 1], depth);
      this.#nodes[word + NODE.label] = this.#unitCount;
      this.#nodes[word + NODE.labelLength] = end - depth;
      this.#addUnits(texts[at].slice(depth, end));
      if (texts[at].length === end) writeEntry(word, entries.get(texts[at++])!);
      // One behind the other, for which nothing else may make a node meanwhile.
      for (let children = 0; at < to; children++) {
        const unit = texts[at].charCodeAt(end);
        const child = { node: this.#newNode(unit), from: at, to: at + 1, depth: end + 1 };
        while (child.to < to && texts[child.to].charCodeAt(end) === unit) child.to++;
        if (children === 0) this.#nodes[word + NODE.firstChild] = child.node;
        this.#nodes[word + NODE.childCount] = children + 1;
        left.push(child);
        at = child.to;
      }
    }
    return root;
  }

  #newNode(firstUnit: number): number {
    const node = this.#firstUnits.push(firstUnit) - 1;
    if ((node + 1) * NODE_WORDS > this.#nodes.length) {
      const larger = new Int32Array(2 * this.#nodes.length);
      larger.set(this.#nodes);
      this.#nodes = larger;
    }
    return node;
  }

  write(root: number, values: Float64Array, spare: SharedArrayBuffer | undefined) {
    const counts = {
      values: values.length / VALUE_DOUBLES,
      nodes: this.#firstUnits.length,
      infixes: this.#infixes.length / INFIX_WORDS,
      units: this.#unitCount,
    };
    const { nodesAt, infixesAt, valuesAt, firstUnitsAt, unitsAt, bytes } = sectionOffsets(counts);
    const buffer = reuseMemory(bytes, TRIE, spare);
    const nodeWords = counts.nodes * NODE_WORDS;
    new Int32Array(buffer, nodesAt, nodeWords).set(this.#nodes.subarray(0, nodeWords));
    new Int32Array(buffer, infixesAt, this.#infixes.length).set(this.#infixes);
    new Float64Array(buffer, valuesAt, values.length).set(values);
    new Uint16Array(buffer, firstUnitsAt, counts.nodes).set(this.#firstUnits);
    new Uint16Array(buffer, unitsAt, counts.units).set(this.#units.subarray(0, counts.units));
    writeHeader(buffer, TRIE, { ...TRIE_HEADER, ...counts, root });
    return buffer;
  }
}

/** By units: halves of characters change places, as they do where the text is read. */
function reverse(text: string): string {
  return text.split('').reverse().join('');
}

/** How far two texts agree. */
function commonPrefixEnd(a: string, b: string, from: number): number {
  let end = from;
  while (end < a.length && end < b.length && a.charCodeAt(end) === b.charCodeAt(end)) end++;
  return end;
}
